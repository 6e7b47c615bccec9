//! Malformed and unusual input: a test for each row of wire.md §9 that this layer decides.
//!
//! The engine decides the rows about a closed, silent or resetting TCP connection. They are 4 to 6
//! (no more bytes, deadlines), 27 (the fence), 41 and 42 (FIN), 48 (TCP retransmission), and 107
//! to 109. This layer's part of them, if it has one, is asserted here: 4, 27, 41, 42.

mod extensions;
mod framing;
mod protection;
mod segments;
mod startup;
mod terminates;

use crate::support::{A, B, Region, Stream, hex, sealed};
use xwarp_iwarp::{Inbound, ReadRequest, Stag};

/// Checks that the stream refuses this ULPDU with a Terminate of this code and these bits M, D and
/// R, as in `"1/1/04 110"`, and then drops further segments.
fn refuses(mut stream: Stream, ulpdu: &[u8], expected: &str) {
    let violation = stream.ulpdu(ulpdu).expect_err("is to be refused");
    let code = violation.terminate().code();
    let terminate = violation.terminate().ulpdu();
    let bits = terminate[20] >> 5;
    let found = format!(
        "{:x}/{:x}/{:02x} {bits:03b}",
        code.layer(),
        code.etype(),
        code.code()
    );
    assert_eq!(found, expected, "{violation}");
    assert_eq!(terminate[21], 0);
    assert_eq!(stream.ulpdu(&write(Stag(1), 0, b"")), Ok(Inbound::Dropped));
}

/// Checks that the stream answers the FPDU `offending` with exactly the FPDU `terminate`, and then
/// drops further segments.
fn answers(mut stream: Stream, offending: &str, terminate: &str) {
    let offending = hex(offending);
    let violation = stream.fpdu(&offending).expect_err("is to be refused");
    assert_eq!(
        sealed(&violation.terminate().ulpdu()),
        hex(terminate),
        "{violation}"
    );
    assert!(stream.receiver.has_ended());
    let zero_length_write = hex("000e c1 40 00000001 0000000000000000 ebd34c5f");
    assert_eq!(stream.fpdu(&zero_length_write), Ok(Inbound::Dropped));
}

/// Checks that the stream accepts this ULPDU.
fn accepts(stream: &mut Stream, ulpdu: &[u8]) {
    let inbound = stream.ulpdu(ulpdu);
    assert!(
        matches!(&inbound, Ok(inbound) if *inbound != Inbound::Dropped),
        "{inbound:?}"
    );
}

/// A Write of one segment.
fn write(stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged([0xc1, 0x40], stag, to, payload)
}

/// The last segment of a Read Response.
fn response(stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged([0xc1, 0x42], stag, to, payload)
}

/// A tagged segment with these control bytes.
fn tagged(control: [u8; 2], stag: Stag, to: u64, payload: &[u8]) -> Vec<u8> {
    let (stag, to) = (stag.0.to_be_bytes(), to.to_be_bytes());
    [&control[..], &stag, &to, payload].concat()
}

/// Fields of an untagged segment.
#[derive(Clone, Copy)]
struct Untagged<'a> {
    control: [u8; 2],
    stag: u32,
    qn: u32,
    msn: u32,
    mo: u32,
    payload: &'a [u8],
}

impl Untagged<'_> {
    fn bytes(self) -> Vec<u8> {
        let fields = [self.stag, self.qn, self.msn, self.mo].map(u32::to_be_bytes);
        [&self.control[..], fields.as_flattened(), self.payload].concat()
    }
}

/// A Send of one segment with MSN 1.
const SEND: Untagged<'static> = Untagged {
    control: [0x41, 0x43],
    stag: 0,
    qn: 0,
    msn: 1,
    mo: 0,
    payload: b"abcd",
};

/// The first segment of a Send of several.
const SEND_MORE: Untagged<'static> = Untagged {
    control: [0x01, 0x43],
    ..SEND
};

/// A Read Request for 16 bytes of the page at TO 0x1000 of [`A`]: 28 bytes.
const READ: &str = "55667788 0000000000002000 00000010 11223344 0000000000001000";

/// A Read Request with MSN 1 and these 28 bytes.
fn read_request(payload: &[u8]) -> Vec<u8> {
    Untagged {
        control: [0x41, 0x41],
        qn: 1,
        payload,
        ..SEND
    }
    .bytes()
}

/// A page at TO 0x1000 of [`A`] with changes.
fn page(change: impl FnOnce(&mut Region)) -> Stream {
    let mut region = Region::new(A, 0x1000, 0x1000);
    change(&mut region);
    Stream::new().region(region)
}

/// A stream with an outstanding Read of these bytes to [`B`] at 0x2000, and its region.
fn reading(len: u32) -> Stream {
    let mut stream = Stream::new().region(Region::new(B, 0x2000, 64));
    stream.receiver.expect_read(ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len,
        source: A,
        source_to: 0,
    });
    stream
}

/// Bytes of [`READ`].
fn read_bytes() -> Vec<u8> {
    hex(READ)
}
