//! Expected output of tshark, computed from the bytes that were sent.

use std::collections::BTreeMap;

use xwarp_iwarp::mpa::{Step, next_fpdu};
use xwarp_system_tests::dissection::{Capture, Dissected};

/// An MPA Request and Reply of revision 1 with CRC: what the heuristic looks for.
pub(crate) const STARTUP: [&[u8; 20]; 2] = [
    b"MPA ID Req Frame\x40\x01\x00\x00",
    b"MPA ID Rep Frame\x40\x01\x00\x00",
];
/// tshark remarks on a connection's beginning and end. Its other remarks are on losses and flaws.
const HARMLESS: [&str; 5] = [
    "Connection establish",
    "Connection finish",
    "Connection reset",
    "This frame initiates",
    "This frame undergoes",
];
/// Opcodes that tshark 4.0.17 has no name for, though RFC 7306 has: Immediate Data, and the same
/// with Solicited Event. Newer ones may know them; then this list is to be shortened.
const UNNAMED: [u8; 2] = [8, 9];
const TERMINATE: u8 = 7;

/// Error of tshark 4.0.17 in a Terminate. It takes the returned DDP header for a tagged one if the
/// Error Type is 1, else for an untagged one. The header itself says what it is by its T bit
/// (RFC 5041 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// Of an untagged header it shows the first 14 bytes, and takes the rest for the begin of
    /// RDMAP's.
    HeaderCutShort,
    /// It wants 18 bytes of a tagged header, and calls the frame malformed.
    HeaderTooLong,
}

impl Exception {
    /// What it gets wrong in this ULPDU.
    pub(crate) fn of(ulpdu: &[u8]) -> Option<Self> {
        let terminate = Terminate::of(ulpdu)?;
        let header = terminate.returned.get(2)?;
        match (header & 0x80 != 0, terminate.etype == 1) {
            (false, true) => Some(Self::HeaderCutShort),
            (true, false) => Some(Self::HeaderTooLong),
            _ => None,
        }
    }
}

/// A Terminate's fields (RFC 5040 §4.8).
struct Terminate<'a> {
    layer: u8,
    etype: u8,
    code: u8,
    flags: u8,
    /// DDP Segment Length and headers.
    returned: &'a [u8],
}

impl<'a> Terminate<'a> {
    fn of(ulpdu: &'a [u8]) -> Option<Self> {
        let (control, returned) = ulpdu.get(18..)?.split_first_chunk::<4>()?;
        (opcode(ulpdu) == TERMINATE).then_some(Self {
            layer: control[0] >> 4,
            etype: control[0] & 0x0f,
            code: control[1],
            flags: control[2],
            returned,
        })
    }

    fn numbers(&self) -> Vec<(&'static str, u64)> {
        let etype = [
            "iwarp_rdma.term_etype_rdma",
            "iwarp_rdma.term_etype_ddp",
            "iwarp_rdma.term_etype_llp",
        ];
        let code = match (self.layer, self.etype) {
            (0 | 1, 0) => "iwarp_rdma.term_errcode",
            (0, _) => "iwarp_rdma.term_errcode_rdma",
            (1, 1) => "iwarp_rdma.term_errcode_ddp_tagged",
            (1, _) => "iwarp_rdma.term_errcode_ddp_untagged",
            _ => "iwarp_rdma.term_errcode_llp",
        };
        let bit = |n: u8| u64::from(self.flags >> n & 1);
        vec![
            ("iwarp_rdma.term_layer", self.layer.into()),
            (etype[usize::from(self.layer)], self.etype.into()),
            (code, self.code.into()),
            ("iwarp_rdma.term_hdrct_m", bit(7)),
            ("iwarp_rdma.hdrct_d", bit(6)),
            ("iwarp_rdma.hdrct_r", bit(5)),
        ]
    }

    /// The returned headers as tshark is to show them, where it shows them rightly.
    fn headers(&self) -> Vec<(&'static str, String)> {
        let Some((length, headers)) = self.returned.split_at_checked(2) else {
            return Vec::new();
        };
        let ddp = if headers[0] & 0x80 != 0 { 14 } else { 18 };
        let (ddp, rdmap) = headers.split_at(ddp);
        let mut shown = vec![
            ("iwarp_rdma.term_ddp_seg_len", hex(length)),
            ("iwarp_rdma.term_ddp_h", hex(ddp)),
        ];
        if !rdmap.is_empty() {
            shown.push(("iwarp_rdma.term_rdma_h", hex(rdmap)));
        }
        shown
    }
}

fn opcode(ulpdu: &[u8]) -> u8 {
    ulpdu[1] & 0x0f
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("below 16");
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")).into()
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The numbers of a ULPDU's headers.
fn numbers(ulpdu: &[u8]) -> Vec<(&'static str, u64)> {
    let mut numbers = vec![
        ("iwarp_mpa.ulpdulength", ulpdu.len() as u64),
        ("iwarp_ddp.last_flag", u64::from(ulpdu[0] >> 6 & 1)),
        ("iwarp_rdma.opcode", opcode(ulpdu).into()),
    ];
    if ulpdu[0] & 0x80 != 0 {
        numbers.extend([
            ("iwarp_ddp.stag", word(ulpdu, 2)),
            ("iwarp_ddp.tagged_offset", long(ulpdu, 6)),
        ]);
        return numbers;
    }
    numbers.extend([
        ("iwarp_ddp.qn", word(ulpdu, 6)),
        ("iwarp_ddp.msn", word(ulpdu, 10)),
        ("iwarp_ddp.mo", word(ulpdu, 14)),
    ]);
    match opcode(ulpdu) {
        1 => numbers.extend([
            ("iwarp_rdma.sinkstag", word(ulpdu, 18)),
            ("iwarp_rdma.sinkto", long(ulpdu, 22)),
            ("iwarp_rdma.rdmardsz", word(ulpdu, 30)),
            ("iwarp_rdma.srcstag", word(ulpdu, 34)),
            ("iwarp_rdma.srcto", long(ulpdu, 38)),
        ]),
        4 | 6 => numbers.push(("iwarp_rdma.inval_stag", word(ulpdu, 2))),
        10 => numbers.extend([
            ("iwarp_rdma.atomic.opcode", word(ulpdu, 18)),
            ("iwarp_rdma.atomic.request_identifier", word(ulpdu, 22)),
            ("iwarp_rdma.atomic.remote_stag", word(ulpdu, 26)),
            ("iwarp_rdma.atomic.remote_tagged_offset", long(ulpdu, 30)),
        ]),
        _ => {}
    }
    numbers.extend(Terminate::of(ulpdu).iter().flat_map(Terminate::numbers));
    numbers
}

/// The ULPDUs of a frame, which holds whole FPDUs.
fn ulpdus_of(frame: &Dissected) -> Vec<Vec<u8>> {
    let payload = frame.one("tcp.payload").unwrap_or_default();
    let byte = |at: usize| u8::from_str_radix(&payload[at..at + 2], 16).expect("hex");
    let bytes: Vec<u8> = (0..payload.len()).step_by(2).map(byte).collect();
    let (mut rest, mut ulpdus) = (&bytes[..], Vec::new());
    while !rest.is_empty() && !bytes.starts_with(b"MPA ID Re") {
        match next_fpdu(rest, true) {
            Ok(Step::Fpdu { ulpdu, consumed }) => {
                ulpdus.push(ulpdu.to_vec());
                rest = &rest[consumed..];
            }
            other => panic!("{other:?} is no whole FPDU: {frame:?}"),
        }
    }
    ulpdus
}

/// The numbers of all ULPDUs of a frame, by field, in their order.
fn numbers_of(ulpdus: &[Vec<u8>]) -> BTreeMap<&'static str, Vec<Option<u64>>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (field, number) in ulpdus.iter().flat_map(|ulpdu| numbers(ulpdu)) {
        all.entry(field).or_default().push(Some(number));
    }
    all
}

/// Everything is shown as it was sent, and nothing is found to be wrong, but for the exceptions,
/// which must occur. All ULPDUs.
pub(crate) fn assert_shown(capture: &Capture) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for frame in &capture.frames {
        let ulpdus = ulpdus_of(frame);
        // A Terminate, of which alone there are any, is the last FPDU of its frame.
        let exception = ulpdus.last().and_then(|ulpdu| Exception::of(ulpdu));
        assert_eq!(
            is_flawed(frame),
            exception == Some(Exception::HeaderTooLong),
            "{frame:?}"
        );
        for (field, numbers) in numbers_of(&ulpdus) {
            assert_eq!(frame.numbers(field), numbers, "{field} of {frame:?}");
        }
        let terminate = ulpdus.last().and_then(|ulpdu| Terminate::of(ulpdu));
        let headers = terminate.map(|terminate| terminate.headers());
        let mut shown = headers
            .iter()
            .flatten()
            .map(|(field, text)| frame.one(field) == Some(text));
        assert_eq!(
            shown.all(|right| right),
            exception.is_none(),
            "{headers:?} of {frame:?}"
        );
        all.extend(ulpdus);
    }
    assert_eq!(
        (capture.says("(Good CRC32)"), capture.says("(Bad CRC32")),
        (all.len(), 0)
    );
    let unnamed = |ulpdu: &&Vec<u8>| UNNAMED.contains(&opcode(ulpdu));
    assert_eq!(
        capture.says("OpCode: Unknown"),
        all.iter().filter(unnamed).count()
    );
    all
}

/// Something is wrong with a frame: in tshark's words, or by its checksums.
fn is_flawed(frame: &Dissected) -> bool {
    let is_harmless = |remark: &String| HARMLESS.iter().any(|start| remark.starts_with(start));
    assert_eq!(frame.all("tcp.checksum.status"), ["1"], "{frame:?}");
    assert_eq!(frame.all("ip.checksum.status"), ["1"], "{frame:?}");
    !frame.all("_ws.malformed").is_empty()
        || !frame.all("_ws.expert.message").iter().all(is_harmless)
}
