//! Received Terminate: parsed leniently, as it only informs the ULP (RFC 5040 §5.4).

use super::header::append;
use super::{MAX_TERMINATE, ReadRequest, ReadRequestHeader, TermCode, Terminate, TerminateControl};
use crate::ddp::{
    Control, DdpSegment, FIRST_MSN, TaggedHeader, UNTAGGED_HEADER_BYTES, UntaggedHeader,
};
use arrayvec::ArrayVec;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

/// Maximum length in bytes of a Terminate Message without its DDP header.
const MAX_MESSAGE: usize = MAX_TERMINATE - UNTAGGED_HEADER_BYTES;

/// Why the peer ended the stream. Its codes are for people and logs: peers differ too much to act
/// on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedTerminate {
    /// The reason. [`TermCode::UNSPECIFIED`] if the message is too short to hold one; see `fault`.
    ///
    /// Linux siw on little-endian hosts swaps the halves of byte 0. Its reading is used where the
    /// RFC's is no known code.
    pub code: TermCode,
    /// Bytes 0 to 3 as received, for tools that show both readings.
    pub control: [u8; 4],
    /// Length in bytes that the peer reports for the offending segment. siw reports that of the
    /// payload.
    pub segment_len: Option<u16>,
    /// DDP header of our segment that the peer refused.
    pub ddp_header: Option<CapturedHeader>,
    /// Our Read Request that the peer refused, or the unanswered rest of it.
    pub read_request: Option<ReadRequest>,
    /// Fault of the message itself, which still counts as a Terminate.
    pub fault: Option<TerminateFault>,
}

/// A DDP header inside a Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedHeader {
    /// T=1.
    Tagged(TaggedHeader),
    /// T=0.
    Untagged(UntaggedHeader),
}

/// How a Terminate deviates from RFC 5040 §5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminateFault {
    /// Fewer than 4 bytes of payload.
    #[error("Terminate of {0} bytes holds no code")]
    NoCode(usize),
    /// The L bit is missing.
    #[error("Terminate without the L bit")]
    NotLast,
    /// Not the first message of its queue.
    #[error("Terminate with MSN {0}")]
    MessageNumber(u32),
    /// Does not begin at its first byte.
    #[error("Terminate at MO {0}")]
    MessageOffset(u32),
}

impl ReceivedTerminate {
    /// The message encoded again, from its control field on, as far as it was understood.
    pub fn message(&self) -> ArrayVec<u8, MAX_MESSAGE> {
        let mut message = ArrayVec::new();
        append(&mut message, &self.control);
        if self.segment_len.is_some() || self.ddp_header.is_some() {
            let segment_len = U16::new(self.segment_len.unwrap_or_default());
            append(&mut message, segment_len.as_bytes());
        }
        match &self.ddp_header {
            Some(CapturedHeader::Tagged(header)) => append(&mut message, header.as_bytes()),
            Some(CapturedHeader::Untagged(header)) => append(&mut message, header.as_bytes()),
            None => {}
        }
        if let Some(read) = &self.read_request {
            append(&mut message, ReadRequestHeader::from(read).as_bytes());
        }
        message
    }

    /// Parses the `payload` behind an untagged `header` on QN 2. Never fails: missing parts are
    /// absent.
    pub(super) fn parse(header: &UntaggedHeader, payload: &[u8]) -> Self {
        let Ok((control, rest)) = TerminateControl::ref_from_prefix(payload) else {
            return Self::without_code(payload.len());
        };
        let flags = Flags::read(control.flags);
        let mut terminate = Self {
            code: best_reading(*control, flags),
            control: zerocopy::transmute!(*control),
            fault: fault(header),
            ..Self::without_code(payload.len())
        };
        terminate.read_captured(flags, rest);
        terminate
    }

    /// A Terminate as the peer that it is sent to receives it.
    pub fn of(sent: &Terminate) -> Self {
        let ulpdu = sent.ulpdu();
        match UntaggedHeader::ref_from_prefix(&ulpdu) {
            Ok((header, payload)) => Self::parse(header, payload),
            Err(_too_short) => Self::without_code(0),
        }
    }

    fn without_code(len: usize) -> Self {
        Self {
            code: TermCode::UNSPECIFIED,
            control: [0; 4],
            segment_len: None,
            ddp_header: None,
            read_request: None,
            fault: Some(TerminateFault::NoCode(len)),
        }
    }

    /// Sizes follow from the captured T bit and the remaining bytes, never from the segment length
    /// (INT-siw-2).
    fn read_captured(&mut self, flags: Flags, rest: &[u8]) {
        if !flags.length && !flags.ddp_header {
            return;
        }
        let Ok((segment_len, rest)) = U16::ref_from_prefix(rest) else {
            return;
        };
        self.segment_len = flags.length.then_some(segment_len.get());
        let Some(segment) = DdpSegment::parse(rest).filter(|_| flags.ddp_header) else {
            return;
        };
        let (header, rest) = match segment {
            DdpSegment::Tagged(header, rest) => (CapturedHeader::Tagged(*header), rest),
            DdpSegment::Untagged(header, rest) => (CapturedHeader::Untagged(*header), rest),
        };
        self.ddp_header = Some(header);
        if flags.read_request {
            self.read_request = ReadRequestHeader::ref_from_prefix(rest)
                .ok()
                .map(|(read, _)| read.into());
        }
    }
}

/// M, D and R, in the RFC's bit order or in siw's.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "three bits of the wire and how they lie"
)]
struct Flags {
    length: bool,
    ddp_header: bool,
    read_request: bool,
    /// The bits are at the other end of the byte, and so are the halves of byte 0 (INT-siw-1).
    swapped: bool,
}

impl Flags {
    const ALL: u8 = TerminateControl::M | TerminateControl::D | TerminateControl::R;

    fn read(byte: u8) -> Self {
        let swapped = byte & Self::ALL == 0 && byte.reverse_bits() & Self::ALL != 0;
        let byte = if swapped { byte.reverse_bits() } else { byte };
        Self {
            length: byte & TerminateControl::M != 0,
            ddp_header: byte & TerminateControl::D != 0,
            read_request: byte & TerminateControl::R != 0,
            swapped,
        }
    }
}

/// The RFC's reading, unless only siw's is known: its bit order shows in the flags, or else in the
/// code.
fn best_reading(control: TerminateControl, flags: Flags) -> TermCode {
    let code = TermCode::from_wire(control.layer_etype, control.code);
    let swapped = code.swapped();
    let is_siw = swapped.is_known() && (flags.swapped || !code.is_known());
    if is_siw { swapped } else { code }
}

fn fault(header: &UntaggedHeader) -> Option<TerminateFault> {
    if !Control(header.control).is_last() {
        Some(TerminateFault::NotLast)
    } else if header.msn.get() != FIRST_MSN {
        Some(TerminateFault::MessageNumber(header.msn.get()))
    } else if header.mo.get() != 0 {
        Some(TerminateFault::MessageOffset(header.mo.get()))
    } else {
        None
    }
}
