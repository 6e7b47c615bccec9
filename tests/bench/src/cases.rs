//! The cases: which work, payload bytes, markers or not.

use std::hint::black_box;

use xwarp_iwarp::mpa::{MAX_ULPDU, Step};
use xwarp_iwarp::{Deframer, Framer, Inbound, Receiver, Sender, StreamConfig, crc};

use crate::region::Region;

/// FPDUs of one case.
pub(crate) const FPDUS: usize = 100;
/// Bytes of a tagged DDP header (RFC 5041 §4.2), which is all that a Write has.
const HEADER: usize = 14;
/// Reads that may be outstanding; none are.
const READS: u16 = 4;

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Prepared),
    payload: usize,
    markers: bool,
}

/// What a case works on.
pub(crate) struct Prepared {
    /// FPDUs of Writes, one behind the other.
    stream: Vec<u8>,
    deframer: Deframer,
    receiver: Receiver,
    sender: Sender,
    framer: Framer,
    /// Room for one FPDU.
    buffer: Vec<u8>,
}

impl Case {
    pub(crate) fn prepare(&self) -> Prepared {
        let config = StreamConfig::new(READS, READS);
        let mut prepared = Prepared {
            stream: Vec::new(),
            deframer: Deframer::new(true, self.markers),
            receiver: Receiver::new(config),
            sender: Sender::new(config),
            framer: Framer::new(true, self.markers),
            buffer: vec![0x5a; MAX_ULPDU + 1024],
        };
        for _ in 0..FPDUS {
            let len = build(&mut prepared, self.payload);
            prepared.stream.extend_from_slice(&prepared.buffer[..len]);
        }
        prepared.sender = Sender::new(config);
        prepared.framer = Framer::new(true, self.markers);
        prepared
    }
}

/// A Write's segment from its work request to the sealed FPDU; the payload lies in its place
/// already. The FPDU's bytes.
#[inline]
fn build(prepared: &mut Prepared, payload: usize) -> usize {
    let len = u32::try_from(payload).expect("a small number");
    let mut message = prepared.sender.write(Region::STAG, 0, len);
    let segment = message.next_segment(MAX_ULPDU).expect("a new message");
    let ulpdu_len = HEADER + payload;
    let fpdu_len = prepared.framer.fpdu_len(ulpdu_len);
    let fpdu = &mut prepared.buffer[..fpdu_len];
    let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
    ulpdu[..HEADER].copy_from_slice(&segment.header);
    prepared.framer.seal(fpdu, ulpdu_len);
    fpdu_len
}

#[inline]
fn build_all(prepared: &mut Prepared, payload: usize) {
    for _ in 0..FPDUS {
        black_box(build(prepared, payload));
    }
}

/// From the stream to the bytes that are to be placed, and where: they are not copied.
#[inline]
fn parse_all(prepared: &mut Prepared, payload: usize) {
    let (mut at, mut region) = (0, Region);
    for _ in 0..FPDUS {
        let step = prepared.deframer.next(&prepared.stream[at..]);
        let Ok(Step::Fpdu { ulpdu, consumed }) = step else {
            panic!("a whole FPDU, not {step:?}");
        };
        match black_box(prepared.receiver.on_ulpdu(ulpdu, &mut region)) {
            Ok(Inbound::Write { placement, .. }) => assert_eq!(placement.payload.len(), payload),
            other => panic!("a Write, not {other:?}"),
        }
        at += consumed;
    }
}

/// The CRC of as many bytes as an FPDU without markers covers.
#[inline]
fn crc_all(prepared: &mut Prepared, payload: usize) {
    let covered = (2 + HEADER + payload).next_multiple_of(4);
    for _ in 0..FPDUS {
        black_box(crc::crc32c(black_box(&prepared.buffer[..covered])));
    }
}

/// A function for each case, under the case's name.
macro_rules! cases {
    ($($name:ident: $work:ident, $payload:literal, $markers:literal;)*) => {
        $(
            #[inline(never)]
            fn $name(prepared: &mut Prepared) {
                // Else functions that differ in their names only are made one.
                black_box(stringify!($name));
                $work(prepared, $payload);
            }
        )*

        /// All of them.
        pub(crate) const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            run: $name,
            payload: $payload,
            markers: $markers,
        }),*];
    };
}

cases! {
    parse_64_plain: parse_all, 64, false;
    parse_1440_plain: parse_all, 1440, false;
    parse_8192_plain: parse_all, 8192, false;
    parse_64_markers: parse_all, 64, true;
    parse_1440_markers: parse_all, 1440, true;
    parse_8192_markers: parse_all, 8192, true;
    crc_64_plain: crc_all, 64, false;
    crc_1440_plain: crc_all, 1440, false;
    crc_8192_plain: crc_all, 8192, false;
    build_64_plain: build_all, 64, false;
    build_1440_plain: build_all, 1440, false;
    build_8192_plain: build_all, 8192, false;
    build_64_markers: build_all, 64, true;
    build_1440_markers: build_all, 1440, true;
    build_8192_markers: build_all, 8192, true;
}
