//! Segments of a hostile peer: right, or nearly so.

use xwarp_sim_tests::wire::{Tagged, Untagged, atomic_response, read_request};
use xwarp_test_kit::netsim::Rng;

use xwarp::Stag;

use super::areas::Area;
use super::reference::{Awaited, Outcome, Reference};

/// Bytes of payload that fit a frame with a few others.
const LONGEST: usize = 400;
/// Bytes that a Read may ask for: several segments.
const LONGEST_READ: usize = 2900;
const LAST: u8 = 0x40;

fn word(rng: &mut Rng) -> u32 {
    u32::from_be_bytes(*rng.bytes(4).first_chunk().unwrap())
}

fn byte(rng: &mut Rng) -> u8 {
    rng.bytes(1)[0]
}

/// The next segment: one in twenty is spoilt, and a few are wrong by themselves.
pub(super) fn segment(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let taken = reference.posted.is_empty() && rng.chance(0.97);
    let mut ulpdu = match rng.below(10) {
        3..6 | 8 if taken => write(rng, reference),
        0..3 => write(rng, reference),
        3..6 => send(rng, reference),
        6 => read(rng, reference),
        7 => atomic(rng, reference),
        8 | 9 if !reference.awaited.is_empty() && rng.chance(0.7) => response(rng, reference),
        9 if rng.chance(0.02) => response(rng, reference),
        8 => immediate(rng, reference),
        _ if rng.chance(0.7) => write(rng, reference),
        _ => Tagged::write(Stag(word(rng)), rng.draw()).ulpdu(&[]),
    };
    if rng.chance(0.05) {
        spoil(rng, &mut ulpdu);
    }
    ulpdu
}

/// A Read Request that is right: of nothing, if need be.
pub(super) fn right_read(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let ulpdu = read(rng, reference);
    if matches!(reference.judge(&ulpdu, 0), Outcome::Fine) {
        return ulpdu;
    }
    let nothing = read_request(Stag(1), 2, 0, Stag(3), 4);
    let header = Untagged {
        msn: reference.request_msn,
        ..Untagged::read_request()
    };
    header.ulpdu(&nothing)
}

/// A bit or a byte of a header or behind it is another one, or something is missing or too much.
fn spoil(rng: &mut Rng, ulpdu: &mut Vec<u8>) {
    match rng.below(8) {
        0 => ulpdu.truncate(rng.index(ulpdu.len() + 1)),
        1 => ulpdu.push(7),
        2 => ulpdu[0] ^= 1 << rng.below(8),
        3 => ulpdu[1] ^= 1 << rng.below(8),
        4 => ulpdu[1] = ulpdu[1] & 0xf0 | byte(rng) & 0xf,
        // The last bytes of a field are where numbers are nearly right.
        5 => {
            let at = [5, 9, 13, 17, 33, 21][rng.index(6)].min(ulpdu.len() - 1);
            ulpdu[at] = ulpdu[at].wrapping_add(if rng.chance(0.5) { 1 } else { 255 });
        }
        _ => {
            let at = rng.index(ulpdu.len().min(40));
            ulpdu[at] ^= 1 << rng.below(8);
        }
    }
}

/// Any area; which of them is the right one is up to the reference.
fn area<'a>(rng: &mut Rng, reference: &'a Reference) -> &'a Area {
    let areas = &reference.areas.list;
    // The first, the one with Tagged Offsets like addresses, and the window are good for nearly
    // everything.
    let good = [0, 3, areas.len() - 1];
    if rng.chance(0.95) {
        &areas[good[rng.index(good.len())]]
    } else {
        &areas[rng.index(areas.len())]
    }
}

/// An address for `len` bytes: mostly inside the area, sometimes at its ends.
fn place(rng: &mut Rng, area: &Area, len: usize) -> (Stag, u64) {
    let room = area.len.saturating_sub(len) as u64;
    let at = match rng.below(60) {
        0 => u64::MAX, // one before it
        1 => room + 1,
        2 => room,
        3 => 0,
        _ => rng.below(room + 1),
    };
    (Stag(area.stag), area.base.wrapping_add(at))
}

fn payload(rng: &mut Rng) -> Vec<u8> {
    let longest = if rng.chance(0.3) { LONGEST } else { 40 };
    let len = rng.index(longest + 1);
    rng.bytes(len)
}

fn write(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let bytes = payload(rng);
    let area = area(rng, reference);
    let (stag, to) = place(rng, area, bytes.len());
    let mut header = Tagged::write(stag, to);
    if rng.chance(0.3) {
        header.control &= !LAST;
    }
    header.ulpdu(&bytes)
}

/// A Send of any kind, or the rest of the one that is open.
fn send(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let mut bytes = payload(rng);
    let mut header = Untagged {
        msn: reference.send_msn,
        ..Untagged::default()
    };
    let (_, room) = reference.posted.front().copied().unwrap_or_default();
    let mut left = room;
    if let Some(open) = &reference.open {
        left -= open.bytes.len();
        header.mo = u32::try_from(open.bytes.len()).unwrap();
        (header.rdmap, header.stag) = (open.rdmap, open.stag);
    } else {
        header.rdmap = 0x40 + [3, 3, 5, 4, 6][rng.index(5)];
        let named = area(rng, reference);
        let wrong = rng.chance(0.1);
        let invalidates = header.rdmap & 1 == 0;
        let window = reference.areas.list.last().unwrap();
        header.stag = match invalidates {
            true if wrong && rng.chance(0.5) => window.stag ^ 1,
            true if wrong => named.stag,
            true => window.stag,
            false => word(rng), // means nothing (row 92)
        };
        // Few, as the window is gone with the first one.
        if invalidates && rng.chance(0.7) {
            (header.rdmap, header.stag) = (0x43, 0);
        }
    }
    if rng.chance(0.97) {
        bytes.truncate(left);
    }
    if rng.chance(0.3) {
        header.control &= !LAST;
    }
    header.ulpdu(&bytes)
}

fn immediate(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let header = Untagged {
        msn: reference.send_msn,
        rdmap: 0x48 | byte(rng) & 1,
        stag: word(rng),
        ..Untagged::immediate()
    };
    // Inside of a Send it is a fault, of which there are enough.
    if reference.open.is_some() && rng.chance(0.9) {
        return send(rng, reference);
    }
    header.ulpdu(&rng.bytes(8))
}

fn read(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let longest = if rng.chance(0.3) { LONGEST_READ } else { 100 };
    let area = area(rng, reference);
    let len = rng.index(longest.min(area.len) + 1);
    let (source, to) = place(rng, area, len);
    let len = u32::try_from(len).unwrap();
    // The sink is the peer's own affair (row 106).
    let request = read_request(Stag(word(rng)), rng.draw(), len, source, to);
    let header = Untagged {
        msn: reference.request_msn,
        ..Untagged::read_request()
    };
    header.ulpdu(&request)
}

fn atomic(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    let area = if rng.chance(0.9) {
        &reference.areas.list[[0, 3, 7][rng.index(3)]]
    } else {
        area(rng, reference)
    };
    let (stag, to) = place(rng, area, 8);
    // The window begins where alignment does not.
    let to = if rng.chance(0.95) {
        to & !7 | area.base & 7
    } else {
        to
    };
    let operation = word(rng) & 2;
    let mut bytes = Vec::new();
    for field in [operation, word(rng), stag.0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(to.to_be_bytes());
    for _ in 0..4 {
        // Comparisons of few bits are true now and then.
        let sparse = rng.draw() & rng.draw() & rng.draw();
        let field = if rng.chance(0.5) { sparse } else { rng.draw() };
        bytes.extend(field.to_be_bytes());
    }
    let header = Untagged {
        msn: reference.request_msn,
        ..Untagged::atomic_request()
    };
    header.ulpdu(&bytes)
}

/// To the oldest request, or to none.
fn response(rng: &mut Rng, reference: &Reference) -> Vec<u8> {
    match reference.awaited.front() {
        Some(Awaited::Atomic { id }) => {
            let header = Untagged {
                msn: reference.response_msn,
                ..Untagged::atomic_response()
            };
            let id = if rng.chance(0.05) { word(rng) } else { *id };
            header.ulpdu(&atomic_response(id, rng.draw()))
        }
        Some(Awaited::Read { stag, to, left }) => {
            let more = *left > 0 && rng.chance(0.4);
            let len = if more {
                rng.index(*left.min(&LONGEST)) + 1
            } else {
                *left
            };
            let stray = rng.chance(0.04).then(|| area(rng, reference).stag);
            let mut header = Tagged::read_response(Stag(stray.unwrap_or(*stag)), *to);
            // Now and then a byte too few or too many.
            let len = match rng.below(20) {
                0 => len.saturating_sub(1),
                1 => len + 1,
                _ => len,
            };
            if more {
                header.control &= !LAST;
            }
            header.ulpdu(&rng.bytes(len))
        }
        None => Tagged::read_response(Stag(1), 0).ulpdu(&rng.bytes(5)),
    }
}
