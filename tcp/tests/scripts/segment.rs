//! A segment as a script writes it: `P. 1:1001(1000) ack 1 win 512 <nop,nop,sack 2:3>`.

use smoltcp::wire::{Ipv4Packet, TcpControl, TcpOption, TcpPacket, TcpRepr, TcpTimestampRepr};

use crate::frames::{Seen, segment};

/// The parsed text of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentText {
    /// `S`, `F`, `R`, `P`, `E` for ECE, `W` for CWR, and `.` for ACK.
    pub(crate) flags: String,
    pub(crate) begin: u32,
    pub(crate) len: usize,
    pub(crate) ack: Option<u32>,
    pub(crate) window: Option<u16>,
    /// The codepoint of the IP header (RFC 3168 §5): `ecn ect0`, `ecn ce`, or none.
    pub(crate) ecn: u8,
    pub(crate) options: String,
}

/// Origins of the numbers in scripts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) peer: u32,
    pub(crate) ours: Option<u32>,
    pub(crate) our_stamp: Option<u32>,
}

impl SegmentText {
    pub(crate) fn parse(text: &str) -> Self {
        let (text, options) = match text.split_once('<') {
            Some((text, options)) => (text, options.trim_end_matches('>')),
            None => (text, ""),
        };
        let mut words = text.split_whitespace();
        let flags = words.next().expect("flags").to_owned();
        let (begin, len) = parse_range(words.next().expect("sequence numbers"));
        let mut line = Self {
            flags,
            begin,
            len,
            ack: None,
            window: None,
            ecn: 0,
            options: options.trim().to_owned(),
        };
        while let Some(word) = words.next() {
            let value = words.next().expect("a value");
            match word {
                "ack" => line.ack = Some(signed(value)),
                "win" => line.window = Some(value.parse().expect("win")),
                "ecn" => line.ecn = codepoint(value),
                other => panic!("{other} is not part of a segment"),
            }
        }
        line
    }

    /// The segment to deliver.
    pub(crate) fn to_repr<'a>(&self, origin: Origin, payload: &'a [u8]) -> TcpRepr<'a> {
        let control = match self.flags.trim_end_matches(['.', 'E', 'W']) {
            "S" => TcpControl::Syn,
            "F" => TcpControl::Fin,
            "R" => TcpControl::Rst,
            "P" => TcpControl::Psh,
            "" => TcpControl::None,
            other => panic!("flags {other}"),
        };
        let ack = self
            .ack
            .map(|ack| ack.wrapping_add(origin.ours.unwrap_or_default()));
        let seq = self.begin.wrapping_add(origin.peer);
        let mut repr = TcpRepr {
            window_len: self.window.unwrap_or(65535),
            payload: &payload[..self.len],
            ..segment(control, seq, ack.filter(|_| self.flags.ends_with('.')))
        };
        for option in self.options.split(',').filter(|option| !option.is_empty()) {
            add_option(&mut repr, option, origin);
        }
        repr
    }

    /// Sets the parts of a frame that a [`TcpRepr`] does not have: ECE, CWR and the codepoint.
    pub(crate) fn mark(&self, frame: &mut [u8]) {
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.set_ecn(self.ecn);
        packet.fill_checksum();
        let (source, target) = (packet.src_addr().into(), packet.dst_addr().into());
        let mut tcp = TcpPacket::new_unchecked(packet.payload_mut());
        tcp.set_ece(self.flags.contains('E'));
        tcp.set_cwr(self.flags.contains('W'));
        tcp.fill_checksum(&source, &target);
    }

    /// A sent segment, as a script would write it.
    pub(crate) fn of(seen: &Seen, origin: Origin) -> Self {
        let mut flags = String::new();
        for (set, flag) in [
            (seen.syn, 'S'),
            (seen.fin, 'F'),
            (seen.rst, 'R'),
            (seen.psh, 'P'),
            (seen.ece, 'E'),
            (seen.cwr, 'W'),
            (seen.ack, '.'),
        ] {
            if set {
                flags.push(flag);
            }
        }
        Self {
            flags,
            begin: seen.seq.wrapping_sub(origin.ours.unwrap_or_default()),
            len: seen.payload.len(),
            ack: seen.ack.then(|| seen.ack_number.wrapping_sub(origin.peer)),
            window: Some(seen.window),
            ecn: seen.ecn,
            options: options_text(&seen.options, origin),
        }
    }

    /// True if `self` matches this line, which may leave the window open.
    pub(crate) fn satisfies(&self, wanted: &Self) -> bool {
        let window = wanted.window.or(self.window);
        *self
            == Self {
                window,
                ..wanted.clone()
            }
    }
}

fn codepoint(name: &str) -> u8 {
    match name {
        "ect0" => 0b10,
        "ect1" => 0b01,
        "ce" => 0b11,
        other => panic!("codepoint {other}"),
    }
}

/// `1:1001(1000)`.
fn parse_range(text: &str) -> (u32, usize) {
    let (range, len) = text.split_once('(').expect("a length");
    let len: usize = len.trim_end_matches(')').parse().expect("a length");
    let (begin, end) = range.split_once(':').expect("begin:end");
    let (begin, end): (i64, i64) = (begin.parse().expect("begin"), end.parse().expect("end"));
    assert_eq!(end - begin, i64::try_from(len).unwrap(), "{text}");
    (u32::try_from(begin & 0xffff_ffff).unwrap(), len)
}

fn add_option(repr: &mut TcpRepr<'_>, option: &str, origin: Origin) {
    let words: Vec<&str> = option.split_whitespace().collect();
    let number = |at: usize| words[at].parse::<u32>().expect("a number");
    match words[0] {
        "nop" => {}
        "mss" => repr.max_seg_size = u16::try_from(number(1)).ok(),
        "sackOK" => repr.sack_permitted = true,
        "wscale" => repr.window_scale = u8::try_from(number(1)).ok(),
        "TS" => {
            let echo = number(4).wrapping_add(origin.our_stamp.unwrap_or_default());
            repr.timestamp = Some(TcpTimestampRepr::new(number(2), echo));
        }
        "sack" => {
            let ours = origin.ours.unwrap_or_default();
            for (place, block) in repr.sack_ranges.iter_mut().zip(&words[1..]) {
                let (left, right) = block.split_once(':').expect("left:right");
                let edge = |text: &str| {
                    ours.wrapping_add(text.parse::<i32>().expect("an edge").cast_unsigned())
                };
                *place = Some((edge(left), edge(right)));
            }
        }
        other => panic!("option {other}"),
    }
}

fn options_text(mut bytes: &[u8], origin: Origin) -> String {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (rest, option) = TcpOption::parse(bytes).expect("options are right");
        bytes = rest;
        texts.push(match option {
            TcpOption::NoOperation => "nop".to_owned(),
            TcpOption::EndOfList => "eol".to_owned(),
            TcpOption::MaxSegmentSize(mss) => format!("mss {mss}"),
            TcpOption::WindowScale(shift) => format!("wscale {shift}"),
            TcpOption::SackPermitted => "sackOK".to_owned(),
            TcpOption::TimeStamp { tsval, tsecr } => {
                let value = tsval.wrapping_sub(origin.our_stamp.unwrap_or_default());
                format!("TS val {value} ecr {tsecr}")
            }
            TcpOption::SackRange(blocks) => {
                let edge = |edge: u32| edge.wrapping_sub(origin.peer).cast_signed();
                let blocks = blocks.iter().flatten();
                let blocks =
                    blocks.map(|(left, right)| format!(" {}:{}", edge(*left), edge(*right)));
                format!("sack{}", blocks.collect::<String>())
            }
            TcpOption::Unknown { kind, .. } => format!("option {kind}"),
        });
    }
    texts.join(",")
}

/// The timestamp in a header's options.
pub(crate) fn stamp_in(mut bytes: &[u8]) -> Option<u32> {
    while let Ok((rest, option)) = TcpOption::parse(bytes) {
        if let TcpOption::TimeStamp { tsval, .. } = option {
            return Some(tsval);
        }
        bytes = rest;
    }
    None
}

/// Payload of the peer, whose bytes are the lowest bytes of their sequence numbers.
pub(crate) fn payload(begin: u32, len: usize) -> Vec<u8> {
    (begin..).take(len).map(|n| n.to_be_bytes()[3]).collect()
}

/// Initial sequence number of the peer, close to the wrap.
pub(crate) const PEER_ISS: u32 = u32::MAX - 3000;

fn signed(text: &str) -> u32 {
    text.parse::<i64>()
        .map(|n| u32::try_from(n & 0xffff_ffff).unwrap())
        .expect("a number")
}
