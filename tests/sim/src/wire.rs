//! iWARP by hand, for peers that break its rules: FPDUs around any bytes, and headers with any
//! values (RFC 5041 §4, RFC 5040 §4).

use xwarp_iwarp::mpa::{Deframer, Framer, Step, fpdu_len, next_fpdu, seal_fpdu};
use xwarp_iwarp::{Stag, TermCode};

/// An MPA Request, revision 1, CRC wanted, no private data (RFC 5044 §7.1.1).
pub const REQUEST: &[u8; 20] = b"MPA ID Req Frame\x40\x01\x00\x00";
/// The Request of an RNIC and a queue pair of the default configuration: revision 2, CRC wanted,
/// IRD and ORD 32, client-server model (RFC 6581 §6, §9).
pub const ENHANCED_REQUEST: &[u8; 24] = b"MPA ID Req Frame\x50\x02\x00\x04\x00\x20\x00\x20";
/// The Reply that accepts [`REQUEST`].
pub const REPLY: &[u8; 20] = b"MPA ID Rep Frame\x40\x01\x00\x00";

/// An MPA Request of any flags and revision.
pub fn request(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Req Frame", flags, revision, private_data)
}

/// An MPA Reply of any flags and revision.
pub fn reply(flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    frame(b"MPA ID Rep Frame", flags, revision, private_data)
}

fn frame(key: &[u8; 16], flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(private_data.len()).unwrap().to_be_bytes();
    [key, [flags, revision].as_slice(), &length, private_data].concat()
}

/// The enhanced data of RFC 6581 §9: A, B and IRD, then C, D and ORD.
pub fn enhanced(a_b_ird: u16, c_d_ord: u16) -> Vec<u8> {
    [a_b_ird.to_be_bytes(), c_d_ord.to_be_bytes()].concat()
}

/// An untagged segment's header fields; the default is the first Send's only segment.
#[derive(Clone, Copy, Debug)]
pub struct Untagged {
    /// T, L and DV.
    pub control: u8,
    /// RV and opcode.
    pub rdmap: u8,
    /// Invalidate `STag`.
    pub stag: u32,
    /// Queue Number.
    pub qn: u32,
    /// Message Sequence Number.
    pub msn: u32,
    /// Message Offset.
    pub mo: u32,
}

impl Default for Untagged {
    fn default() -> Self {
        Self {
            control: 0x41, // T=0 L=1 DV=1
            rdmap: 0x43,   // RV=1, Send
            stag: 0,
            qn: 0,
            msn: 1,
            mo: 0,
        }
    }
}

impl Untagged {
    /// The first Read Request's header.
    pub fn read_request() -> Self {
        Self {
            rdmap: 0x41,
            qn: 1,
            ..Self::default()
        }
    }

    /// The first request's header, if it is an Atomic Request (RFC 7306 §5.2.1).
    pub fn atomic_request() -> Self {
        Self {
            rdmap: 0x4a,
            ..Self::read_request()
        }
    }

    /// The first Atomic Response's header (RFC 7306 §5.2.2).
    pub fn atomic_response() -> Self {
        Self {
            rdmap: 0x4b,
            qn: 3,
            ..Self::default()
        }
    }

    /// The header of Immediate Data (RFC 7306 §6.2).
    pub fn immediate() -> Self {
        Self {
            rdmap: 0x48,
            ..Self::default()
        }
    }

    /// The segment as an FPDU.
    pub fn fpdu(self, payload: &[u8]) -> Vec<u8> {
        fpdu(&self.ulpdu(payload))
    }

    /// The segment alone.
    pub fn ulpdu(self, payload: &[u8]) -> Vec<u8> {
        let mut ulpdu = vec![self.control, self.rdmap];
        for field in [self.stag, self.qn, self.msn, self.mo] {
            ulpdu.extend_from_slice(&field.to_be_bytes());
        }
        ulpdu.extend_from_slice(payload);
        ulpdu
    }
}

/// A tagged segment's header fields.
#[derive(Clone, Copy, Debug)]
pub struct Tagged {
    /// T, L and DV.
    pub control: u8,
    /// RV and opcode.
    pub rdmap: u8,
    /// `STag`.
    pub stag: Stag,
    /// Tagged Offset.
    pub to: u64,
}

impl Tagged {
    /// A Write's last segment.
    pub fn write(stag: Stag, to: u64) -> Self {
        Self {
            control: 0xc1, // T=1 L=1 DV=1
            rdmap: 0x40,   // RV=1, RDMA Write
            stag,
            to,
        }
    }

    /// A Read Response's last segment.
    pub fn read_response(stag: Stag, to: u64) -> Self {
        Self {
            rdmap: 0x42,
            ..Self::write(stag, to)
        }
    }

    /// The segment as an FPDU.
    pub fn fpdu(self, payload: &[u8]) -> Vec<u8> {
        fpdu(&self.ulpdu(payload))
    }

    /// The segment alone.
    pub fn ulpdu(self, payload: &[u8]) -> Vec<u8> {
        let Stag(stag) = self.stag;
        let mut ulpdu = vec![self.control, self.rdmap];
        ulpdu.extend_from_slice(&stag.to_be_bytes());
        ulpdu.extend_from_slice(&self.to.to_be_bytes());
        ulpdu.extend_from_slice(payload);
        ulpdu
    }
}

/// A Read Request's RDMAP header (RFC 5040 §4.4).
pub fn read_request(sink: Stag, sink_to: u64, len: u32, source: Stag, source_to: u64) -> Vec<u8> {
    let (Stag(sink), Stag(source)) = (sink, source);
    let mut header = sink.to_be_bytes().to_vec();
    header.extend_from_slice(&sink_to.to_be_bytes());
    header.extend_from_slice(&len.to_be_bytes());
    header.extend_from_slice(&source.to_be_bytes());
    header.extend_from_slice(&source_to.to_be_bytes());
    header
}

/// A `FetchAdd`'s RDMAP header (RFC 7306 §5.2.1) with all of `operation`: reserved bits and
/// `AOpCode`.
pub fn atomic_request(operation: u32, id: u32, stag: Stag, to: u64, add: u64) -> Vec<u8> {
    let Stag(stag) = stag;
    let mut header = Vec::new();
    for field in [operation, id, stag] {
        header.extend_from_slice(&field.to_be_bytes());
    }
    for field in [to, add, 0, 0, u64::MAX] {
        header.extend_from_slice(&field.to_be_bytes());
    }
    header
}

/// An Atomic Response's RDMAP header (RFC 7306 §5.2.2).
pub fn atomic_response(id: u32, original: u64) -> Vec<u8> {
    [&id.to_be_bytes()[..], &original.to_be_bytes()[..]].concat()
}

/// An FPDU around any bytes, with the right length, pad and CRC.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0; fpdu_len(ulpdu.len())];
    fpdu[2..2 + ulpdu.len()].copy_from_slice(ulpdu);
    seal_fpdu(&mut fpdu, ulpdu.len(), true);
    fpdu
}

/// The same as the next FPDU of a stream with markers, or without CRC.
pub fn framed(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0; framer.fpdu_len(ulpdu.len())];
    fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
    framer.seal(&mut fpdu, ulpdu.len());
    fpdu
}

/// The ULPDUs of such a stream of whole FPDUs.
///
/// # Panics
/// If the stream holds anything else.
pub fn deframed(mut deframer: Deframer, mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !stream.is_empty() {
        match deframer.next(stream).expect("what an RNIC sends is right") {
            Step::Fpdu { ulpdu, consumed } => {
                found.push(ulpdu.to_vec());
                stream = &stream[consumed..];
            }
            Step::NeedBytes(_) => panic!("{} bytes are no whole FPDU", stream.len()),
        }
    }
    found
}

/// The ULPDUs of a stream of whole FPDUs.
///
/// # Panics
/// If the stream holds anything else.
pub fn ulpdus(mut stream: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while !stream.is_empty() {
        let step = next_fpdu(stream, true).expect("what an RNIC sends is right");
        let Step::Fpdu { ulpdu, consumed } = step else {
            panic!("{} bytes are no whole FPDU", stream.len());
        };
        found.push(ulpdu.to_vec());
        stream = &stream[consumed..];
    }
    found
}

/// The code of the Terminate that a stream ends with, and what of the offending segment it returns.
///
/// # Panics
/// If the stream ends with anything else.
pub fn terminate(stream: &[u8]) -> (TermCode, Vec<u8>) {
    let last = ulpdus(stream).pop().expect("a Terminate, not nothing");
    let (header, payload) = last.split_at(18);
    assert_eq!(header[..2], [0x41, 0x47], "T=0 L=1 DV=1, Terminate");
    assert_eq!(header[6..10], [0, 0, 0, 2], "QN 2");
    let (layer, etype, code) = (payload[0] >> 4, payload[0] & 0x0f, payload[1]);
    let code = match (layer, etype) {
        (0, 0) => TermCode::rdmap_local(),
        (0, 1) => TermCode::rdmap_protection(code),
        (0, 2) => TermCode::rdmap_operation(code),
        (1, 0) => TermCode::ddp_local(),
        (1, 1) => TermCode::ddp_tagged(code),
        (1, 2) => TermCode::ddp_untagged(code),
        (2, 0) => TermCode::mpa(code),
        other => panic!("a Terminate of layer and type {other:?}"),
    };
    (code, payload[2..].to_vec())
}
