//! Frames with headers of all kinds, right more often than wrong, and then broken.

use std::net::{Ipv4Addr, Ipv6Addr};

use xwarp_fuzz::Mutator;

pub(crate) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const PORT: u16 = 4748;
pub(crate) const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AH: u8 = 51;
const DESTINATION: u8 = 60;

/// Chance, seeded.
pub(crate) struct Dice(Mutator);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutator::new(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }

    fn word(&mut self) -> [u8; 2] {
        [self.byte(), self.byte()]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// `usual`, or once in `n` times any of the others.
    fn usually<T: Copy>(&mut self, n: usize, usual: T, others: &[T]) -> T {
        if self.one_in(n) {
            self.pick(others)
        } else {
            usual
        }
    }

    /// The length, or rarely one near it, or any.
    fn length(&mut self, len: usize) -> [u8; 2] {
        let len = u16::try_from(len).expect("a small frame");
        let near = [
            len.wrapping_sub(1),
            len.wrapping_add(1),
            len.wrapping_add(8),
            0,
            20,
            40,
        ];
        self.usually(24, len, &near).to_be_bytes()
    }
}

/// A frame of at least 14 bytes.
pub(crate) fn any(dice: &mut Dice) -> Vec<u8> {
    let (ethertype, packet) = if dice.one_in(2) {
        ([0x08, 0x00], ipv4(dice))
    } else {
        ([0x86, 0xdd], ipv6(dice))
    };
    let ethertype = dice.usually(40, ethertype, &[[0x08, 0x06], [0x86, 0xdd], [0x08, 0x00]]);
    let others = [[2, 0, 0, 0, 0, 3], [0xff; 6], [0x33, 0x33, 0, 0, 0, 1]];
    let to = dice.usually(16, MAC, &others);
    let mut frame = [&to[..], &[2, 0, 0, 0, 0, 1]].concat();
    frame.extend(tags(dice));
    frame.extend(ethertype);
    frame.extend(packet);
    damage(dice, &mut frame);
    frame
}

fn tags(dice: &mut Dice) -> Vec<u8> {
    let count = dice.usually(6, 0, &[1, 1, 2, 2, 3]);
    let tag = |dice: &mut Dice| {
        let kind = dice.pick(&[[0x81, 0x00], [0x88, 0xa8]]);
        let tci = dice.pick(&[[0, 0], [0xe0, 0], [0x10, 0], [0, 5], [0x0f, 0xff], [1, 0]]);
        [kind, tci].concat()
    };
    (0..count).flat_map(|_| tag(dice)).collect()
}

/// Cuts, lengthens, or changes a byte of the headers.
fn damage(dice: &mut Dice, frame: &mut Vec<u8>) {
    match dice.below(12) {
        0 => frame.truncate(14 + dice.below(frame.len() - 13)),
        1 => {
            let padding = dice.below(30);
            frame.extend(dice.bytes(padding));
        }
        2 => {
            let at = 12 + dice.below(frame.len().min(100) - 12);
            frame[at] ^= 1 << dice.below(8);
        }
        3 => {
            let at = 12 + dice.below(frame.len().min(100) - 12);
            frame[at] = dice.byte();
        }
        _ => {}
    }
}

fn ipv4(dice: &mut Dice) -> Vec<u8> {
    const SOURCES: [[u8; 4]; 7] = [
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [240, 0, 0, 1],
        [255; 4],
        [10, 0, 0, 2],
        [10, 0, 0, 255],
    ];
    const TARGETS: [[u8; 4]; 4] = [[10, 0, 0, 3], [255; 4], [224, 0, 0, 1], [127, 0, 0, 1]];
    let source = dice.usually(12, [10, 0, 0, 1], &SOURCES);
    let target = dice.usually(16, OURS_V4.octets(), &TARGETS);
    let segment = tcp(dice, &[source, target].concat());
    let options = ipv4_options(dice);
    let len = 20 + options.len();
    let words = u8::try_from(len / 4).expect("15 at most");
    let mut header = vec![0x40 | dice.usually(24, words, &[0, 4, 5, 6, 15]), 0];
    header.extend(dice.length(len + segment.len()));
    header.extend([0, 1]);
    header.extend(dice.usually(
        16,
        [0x40, 0],
        &[[0, 0], [0x20, 0], [0, 1], [0x1f, 0xff], [0x80, 0]],
    ));
    header.extend([64, dice.usually(24, TCP, &[1, 17, 41, AH]), 0, 0]);
    header.extend([source, target].concat());
    header.extend(options);
    if !dice.one_in(30) {
        // Over as much as the header says to have.
        let said = usize::from(header[0] & 15) * 4;
        let whole = [&header[..], &segment].concat();
        let sum = checksum(&whole[..said.min(whole.len())]);
        header[10..12].copy_from_slice(&sum);
    }
    header.extend(segment);
    header
}

fn ipv4_options(dice: &mut Dice) -> Vec<u8> {
    const OPTIONS: [&[u8]; 12] = [
        &[1],
        &[0],
        &[148, 4, 0, 0],
        &[7, 7, 4, 0, 0, 0, 0],
        &[7, 3, 4],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[68, 8, 9, 0xf0, 0, 0, 0, 0],
        &[131, 7, 4, 10, 0, 0, 1],
        &[137, 3, 4],
        &[222, 4, 1, 1],
        &[130, 0],
        &[7, 9, 5, 0, 0],
    ];
    if !dice.one_in(3) {
        return Vec::new();
    }
    let count = 1 + dice.below(3);
    let mut options: Vec<u8> = (0..count)
        .flat_map(|_| dice.pick(&OPTIONS).to_vec())
        .collect();
    if dice.one_in(6) {
        let len = dice.below(40);
        options = dice.bytes(len);
    }
    options.truncate(40);
    options.resize(options.len().next_multiple_of(4), dice.pick(&[0, 1]));
    options
}

fn ipv6(dice: &mut Dice) -> Vec<u8> {
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
    let sources = ["::", "::1", "ff02::1", "::ffff:10.0.0.1", "fd00::2"].map(address);
    let targets = ["fd00::3", "ff02::1", "::ffff:10.0.0.2", "::1"].map(address);
    let source = dice.usually(12, address("fd00::1"), &sources).octets();
    let target = dice.usually(16, OURS_V6, &targets).octets();
    let mut payload = tcp(dice, &[source, target].concat());
    let mut first = dice.usually(24, TCP, &[17, 58, 59, 50]);
    let count = dice.usually(2, 0, &[1, 1, 2, 3, 5, 7, 8, 9]);
    for place in (0..count).rev() {
        let kind = extension_kind(dice, place);
        payload = [extension(dice, kind, first), payload].concat();
        first = kind;
    }
    let mut header = vec![dice.usually(40, 0x60, &[0x40, 0x50, 0x6f]), 0, 0, 0];
    header.extend(dice.length(payload.len()));
    header.extend([first, 64]);
    header.extend([source, target].concat());
    header.extend(payload);
    header
}

fn extension_kind(dice: &mut Dice, place: usize) -> u8 {
    let kinds = [DESTINATION, DESTINATION, DESTINATION, ROUTING, FRAGMENT];
    let kind = dice.pick(&kinds);
    let first = if place == 0 && dice.one_in(2) {
        HOP_BY_HOP
    } else {
        kind
    };
    dice.usually(20, first, &[HOP_BY_HOP, AH, 50, 59])
}

/// A header of this kind in front of one of kind `next`.
fn extension(dice: &mut Dice, kind: u8, next: u8) -> Vec<u8> {
    let body = match kind {
        FRAGMENT => {
            let field = dice.usually(4, [0, 0], &[[0, 1], [0, 8], [0, 6], [0xff, 0xf8]]);
            [&[dice.byte()][..], &field, &[0, 0, 0, 7]].concat()
        }
        ROUTING => {
            let kind = dice.usually(4, 0, &[1, 2, 3, 4, 5, 253]);
            let left = dice.usually(5, 0, &[1, 255]);
            let units = dice.below(3);
            let addresses = dice.bytes(4 + 8 * units);
            [
                &[u8::try_from(units).expect("2 at most"), kind, left][..],
                &addresses,
            ]
            .concat()
        }
        AH => [&[2][..], &dice.bytes(14)].concat(),
        _ => options_header(dice),
    };
    let mut header = [&[next][..], &body].concat();
    if dice.one_in(30) {
        header[1] = dice.byte();
    }
    header
}

/// All but the first byte of a header with options.
fn options_header(dice: &mut Dice) -> Vec<u8> {
    const OPTIONS: [&[u8]; 12] = [
        &[0],
        &[1, 0],
        &[1, 4, 0, 0, 0, 0],
        &[5, 2, 0, 0],
        &[0x1e, 3, 1, 2, 3],
        &[0x1e, 0],
        &[0x3e, 1, 9],
        &[5, 1, 0],
        &[0x80, 0],
        &[0xc2, 4, 0, 1, 0, 0],
        &[1, 2, 0, 1],
        &[0x41, 7],
    ];
    let sound = dice.usually(3, 7, &[OPTIONS.len()]);
    let count = dice.below(4);
    let mut options: Vec<u8> = (0..count)
        .flat_map(|_| dice.pick(&OPTIONS[..sound]).to_vec())
        .collect();
    let padding = (8 - (options.len() + 2) % 8) % 8;
    match padding {
        0 => {}
        1 => options.push(0),
        _ => {
            options.extend([1, u8::try_from(padding - 2).expect("5 at most")]);
            options.extend(vec![0; padding - 2]);
        }
    }
    let units = u8::try_from((options.len() + 2) / 8 - 1).expect("a short header");
    [&[units][..], &options].concat()
}

/// A segment between `addresses`.
fn tcp(dice: &mut Dice, addresses: &[u8]) -> Vec<u8> {
    let port = dice.usually(16, PORT, &[0, PORT + 1, PORT.swap_bytes()]);
    let from = dice.usually(30, [0x9c, 0x40], &[[0, 0], [0, 1], [0x12, 0x8c]]);
    let words = dice.usually(3, 0, &[1, 2, 10]);
    let options = dice.bytes(words * 4);
    let len = dice.pick(&[0, 1, 5, 100]);
    let offset = u8::try_from(5 + words).expect("15 at most");
    let mut segment = [from, port.to_be_bytes()].concat();
    segment.extend(dice.bytes(8));
    segment.push(dice.usually(24, offset, &[0, 4, 5, 6, 15]) << 4);
    segment.push(dice.usually(
        12,
        0x02,
        &[0x10, 0x18, 0x11, 0x04, 0x03, 0x06, 0x29, 0xff, 0x00],
    ));
    segment.extend(dice.word());
    segment.extend([0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(dice.bytes(len));
    if !dice.one_in(30) {
        let mut pseudo = addresses.to_vec();
        pseudo.extend([0, TCP]);
        pseudo.extend(
            u16::try_from(segment.len())
                .expect("a small one")
                .to_be_bytes(),
        );
        let sum = if dice.one_in(40) {
            // As a sender leaves it to a device.
            checksum(&pseudo).map(|byte| !byte)
        } else {
            checksum(&[&pseudo[..], &segment].concat())
        };
        segment[16..18].copy_from_slice(&sum);
    }
    segment
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!u16::try_from(folded).expect("folded")).to_be_bytes()
}
