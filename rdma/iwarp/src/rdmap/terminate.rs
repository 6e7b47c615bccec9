//! Outbound Terminate Message (RFC 5040 §4.8, §5.4).

use super::header::append;
use super::{Opcode, READ_REQUEST_BYTES, TERMINATE_CONTROL_BYTES, TermCode, TerminateControl};
use crate::ddp::{Control, FIRST_MSN, Queue, UNTAGGED_HEADER_BYTES, UntaggedHeader, VERSION_IETF};
use arrayvec::ArrayVec;
use zerocopy::IntoBytes;
use zerocopy::network_endian::U16;

/// Maximum length in bytes of a Terminate's ULPDU: DDP header, control, segment length, untagged
/// header, Read Request header.
pub const MAX_TERMINATE: usize =
    UNTAGGED_HEADER_BYTES + TERMINATE_CONTROL_BYTES + SEGMENT_LENGTH_BYTES + MAX_CAPTURED;

const SEGMENT_LENGTH_BYTES: usize = size_of::<U16>();
const MAX_CAPTURED: usize = UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES;

/// Message that ends a stream in error, with the reason. It is the last message on its stream
/// (R5040-5.4-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    code: TermCode,
    version: u8,
    captured: Option<Captured>,
}

/// Returned headers of the offending segment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Captured {
    segment_len: u16,
    with_read_request: bool,
    headers: ArrayVec<u8, MAX_CAPTURED>,
}

impl Terminate {
    /// Terminate for an error that no inbound message caused: 0/0/00 without headers (RFC 5040
    /// §7.1, case 1; D18).
    pub const fn local() -> Self {
        Self::with_code(TermCode::rdmap_local())
    }

    /// Terminate with a code without headers, such as MPA's.
    pub const fn with_code(code: TermCode) -> Self {
        Self {
            code,
            version: VERSION_IETF,
            captured: None,
        }
    }

    /// Terminate for an offending segment. `headers` is its DDP header and, for a refused Read
    /// Request, RDMAP's.
    pub(super) fn captured(
        code: TermCode,
        version: u8,
        segment_len: u16,
        headers: &[u8],
        with_read_request: bool,
    ) -> Self {
        let mut copy = ArrayVec::new();
        append(&mut copy, headers);
        Self {
            code,
            version,
            captured: Some(Captured {
                segment_len,
                with_read_request,
                headers: copy,
            }),
        }
    }

    /// Terminate without headers, on a stream of this DDP and RDMAP version.
    pub(super) const fn with_version(code: TermCode, version: u8) -> Self {
        Self {
            code,
            version,
            captured: None,
        }
    }

    /// Sets the stream's DDP and RDMAP version.
    #[must_use]
    pub fn on_version(self, version: u8) -> Self {
        Self { version, ..self }
    }

    /// The code.
    pub const fn code(&self) -> TermCode {
        self.code
    }

    /// The whole message as one ULPDU: QN 2, MSN 1, MO 0, L=1 (R5040-5.4-1).
    pub fn ulpdu(&self) -> ArrayVec<u8, MAX_TERMINATE> {
        let header = UntaggedHeader {
            control: Control::new(false, true, self.version).0,
            rsvd_ulp: Opcode::Terminate.control(self.version),
            rsvd_ulp_stag: 0.into(),
            qn: Queue::Terminate.qn().into(),
            msn: FIRST_MSN.into(),
            mo: 0.into(),
        };
        let mut ulpdu = ArrayVec::new();
        append(&mut ulpdu, header.as_bytes());
        append(&mut ulpdu, self.control().as_bytes());
        if let Some(captured) = &self.captured {
            append(&mut ulpdu, &captured.segment_len.to_be_bytes());
            append(&mut ulpdu, &captured.headers);
        }
        ulpdu
    }

    /// M, D and R describe the rest (R5040-4.8-8); reserved bits are zero (R5040-4.8-3).
    fn control(&self) -> TerminateControl {
        let flags = match &self.captured {
            None => 0,
            Some(captured) if captured.with_read_request => {
                TerminateControl::M | TerminateControl::D | TerminateControl::R
            }
            Some(_) => TerminateControl::M | TerminateControl::D,
        };
        TerminateControl {
            layer_etype: self.code.layer_etype(),
            code: self.code.code(),
            flags,
            reserved: 0,
        }
    }
}
