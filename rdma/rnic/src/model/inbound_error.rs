//! Errors in what a peer sends, named as the verbs draft's events (§9.5.3; verbs.md §12.3).
//!
//! A failure is reported once: a failed receive has its completion, and no event in addition (verbs
//! draft §8.3.3). If the close after a Terminate fails as well, that is a `BadClose`. Query QP
//! keeps the Terminate in any case.

use xwarp_iwarp::ddp::Queue;
use xwarp_iwarp::mpa::MpaError;
use xwarp_iwarp::{AccessError, AccessKind, Opcode, TermCode, ViolationCause as Cause};

/// Why a segment of the peer's memory operations is refused (verbs draft §9.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtectionError {
    /// Invalid `STag`: unknown, invalidated, or 0.
    InvalidStag,
    /// Base and bounds violation.
    BaseBounds,
    /// Access Rights violation.
    AccessRights,
    /// Invalid PD: the queue pair may not use the region or window.
    InvalidPd,
    /// Wrap error: Tagged Offset plus length exceeds 2^64.
    Wrap,
}

/// Error in what the peer sent (verbs draft §9.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InboundError {
    /// LLP Integrity Error: segment size invalid.
    SegmentSize,
    /// LLP Integrity Error: invalid CRC.
    Crc,
    /// LLP Integrity Error: bad FPDU, whose marker and length disagree.
    BadFpdu,
    /// Remote Operation Error: invalid DDP version.
    DdpVersion,
    /// Remote Operation Error: invalid RDMA version.
    RdmapVersion,
    /// Remote Operation Error: unexpected opcode.
    UnexpectedOpcode,
    /// Remote Operation Error: invalid DDP Queue Number.
    QueueNumber,
    /// Remote Operation Error: a Read Request on a queue pair without RDMA Read.
    ReadNotEnabled,
    /// Remote Operation Error: an RDMA Write or Read Response on a queue pair without inbound
    /// Writes.
    WriteNotEnabled,
    /// Remote Operation Error: a Read Request that is too small or too large, or whose offset is
    /// not 0.
    ReadRequestFormat,
    /// Remote Operation Error: no L bit when expected.
    NotLast,
    /// Protection Error of a tagged segment: RDMA Write or Read Response.
    Tagged(ProtectionError),
    /// RQ Protection Error: MSN whose range is not valid. Also used if there is no receive buffer
    /// (verbs.md A6).
    ReceiveRange,
    /// RQ Protection Error: gap in MSN.
    ReceiveGap,
    /// IRRQ Protection Error: too many Read Requests in progress.
    TooManyRequests,
    /// IRRQ Protection Error: gap in MSN.
    RequestGap,
    /// IRRQ Protection Error: MSN whose range is not valid.
    RequestRange,
    /// IRRQ Protection Error: the source of a Read Request.
    Request(ProtectionError),
    /// An error of a later RFC, for which the draft has no event: a segment of a Send out of order
    /// (RFC 5041 §7.1), or malformed Immediate Data or a malformed Atomic Operation (RFC 7306).
    Other,
}

impl From<AccessError> for ProtectionError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::InvalidStag => Self::InvalidStag,
            AccessError::Bounds => Self::BaseBounds,
            AccessError::Rights => Self::AccessRights,
            AccessError::NotAssociated => Self::InvalidPd,
            AccessError::Wrap => Self::Wrap,
        }
    }
}

impl From<MpaError> for InboundError {
    fn from(error: MpaError) -> Self {
        match error {
            MpaError::Crc => Self::Crc,
            MpaError::Length(_) => Self::SegmentSize,
            MpaError::Marker { .. } => Self::BadFpdu,
        }
    }
}

impl InboundError {
    /// The error of a refused segment. `may_write`: whether the peer of the queue pair may write.
    pub(crate) fn of(cause: Cause, may_write: bool) -> Self {
        match cause {
            Cause::SegmentSize { .. } => Self::SegmentSize,
            Cause::DdpVersion { .. } => Self::DdpVersion,
            Cause::RdmapVersion { .. } => Self::RdmapVersion,
            Cause::UnknownOpcode(_)
            | Cause::OpcodeBufferModel { .. }
            | Cause::OpcodeQueue { .. }
            | Cause::MessageChanged { .. }
            | Cause::AtomicOpcode(_) => Self::UnexpectedOpcode,
            Cause::InvalidQueue { .. } => Self::QueueNumber,
            Cause::ReadsDisabled => Self::ReadNotEnabled,
            Cause::NotLast { .. } => Self::NotLast,
            Cause::MessageNumber { qn, msn, expected } => Self::of_number(qn, msn, expected),
            Cause::NoReceive { .. } => Self::ReceiveRange,
            Cause::TooManyRequests { .. } => Self::TooManyRequests,
            Cause::RequestSize { opcode, .. } | Cause::MessageTooLong { opcode, .. } => {
                Self::of_size(opcode)
            }
            Cause::Access { access, cause, .. } => Self::of_access(access, cause, may_write),
            Cause::UnexpectedResponse { .. } | Cause::ResponseStag { .. } => {
                Self::Tagged(ProtectionError::InvalidStag)
            }
            Cause::ResponseRange { .. } => Self::Tagged(ProtectionError::BaseBounds),
            Cause::MessageOffset { qn, .. } => Self::of_offset(qn),
            Cause::ExtensionSize { .. }
            | Cause::Misaligned { .. }
            | Cause::UnexpectedAtomicResponse { .. }
            | Cause::AtomicResponseId { .. }
            | Cause::Invalidate { .. } => Self::Other,
        }
    }

    /// An MSN ahead of the expected one leaves a gap. Any other MSN was used before, or is out of
    /// range.
    fn of_number(qn: u32, msn: u32, expected: u32) -> Self {
        let is_ahead = msn.wrapping_sub(expected) < 1 << 31;
        match (Queue::from_qn(qn), is_ahead) {
            (Some(Queue::Send), true) => Self::ReceiveGap,
            (Some(Queue::Send), false) => Self::ReceiveRange,
            (Some(Queue::Request), true) => Self::RequestGap,
            (Some(Queue::Request), false) => Self::RequestRange,
            (Some(Queue::Terminate | Queue::AtomicResponse) | None, _) => Self::Other,
        }
    }

    /// The error of an unexpected message offset. The draft has an event for that only on the queue
    /// of Read Requests.
    fn of_offset(qn: u32) -> Self {
        if qn == Queue::Request.qn() {
            Self::ReadRequestFormat
        } else {
            Self::Other
        }
    }

    /// The error of a message that is shorter than its header, or longer than its buffer. For a
    /// Send, the completion reports it (verbs.md A7).
    fn of_size(opcode: Opcode) -> Self {
        if opcode == Opcode::ReadRequest {
            Self::ReadRequestFormat
        } else {
            Self::Other
        }
    }

    fn of_access(access: AccessKind, cause: AccessError, may_write: bool) -> Self {
        match access {
            AccessKind::RemoteRead | AccessKind::RemoteAtomic => Self::Request(cause.into()),
            AccessKind::RemoteWrite | AccessKind::ReadSink if may_write => {
                Self::Tagged(cause.into())
            }
            AccessKind::RemoteWrite | AccessKind::ReadSink => Self::WriteNotEnabled,
        }
    }

    /// The error of a Read whose source became invalid after the request, by the code of the
    /// Terminate (RFC 5040 §4.8).
    pub(crate) fn of_source(code: TermCode) -> Self {
        Self::Request(match code.code() {
            0x00 => ProtectionError::InvalidStag,
            0x01 => ProtectionError::BaseBounds,
            0x02 => ProtectionError::AccessRights,
            0x03 => ProtectionError::InvalidPd,
            _ => ProtectionError::Wrap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mpa_finds_is_an_integrity_error() {
        let marker = MpaError::Marker {
            fpduptr: 4,
            distance: 8,
        };
        for (error, name, code) in [
            (MpaError::Crc, InboundError::Crc, TermCode::mpa(2)),
            (marker, InboundError::BadFpdu, TermCode::mpa(3)),
            (
                MpaError::Length(u16::MAX),
                InboundError::SegmentSize,
                TermCode::ddp_local(),
            ),
        ] {
            assert_eq!((InboundError::from(error), error.term_code()), (name, code));
        }
    }

    /// Up to half of all numbers count as ahead, whatever the expected one is.
    #[test]
    fn number_ahead_leaves_a_gap_and_another_is_out_of_range() {
        for expected in [1, 0, u32::MAX, 1 << 31] {
            for (apart, is_ahead) in [
                (1, true),
                ((1 << 31) - 1, true),
                (1 << 31, false),
                ((1 << 31) + 1, false),
                (u32::MAX, false),
            ] {
                let number =
                    |qn| InboundError::of_number(qn, expected.wrapping_add(apart), expected);
                let names = [number(0), number(1)];
                if is_ahead {
                    assert_eq!(names, [InboundError::ReceiveGap, InboundError::RequestGap]);
                } else {
                    assert_eq!(
                        names,
                        [InboundError::ReceiveRange, InboundError::RequestRange]
                    );
                }
            }
        }
    }

    #[test]
    fn memory_that_is_gone_while_it_is_read_is_an_error_of_the_request() {
        for error in [
            AccessError::InvalidStag,
            AccessError::Bounds,
            AccessError::Rights,
            AccessError::NotAssociated,
            AccessError::Wrap,
        ] {
            let cause = Cause::Access {
                access: AccessKind::RemoteRead,
                stag: xwarp_iwarp::Stag(1),
                to: 0,
                len: 1,
                cause: error,
            };
            let expected = InboundError::Request(error.into());
            assert_eq!(InboundError::of(cause, true), expected);
            assert_eq!(InboundError::of_source(cause.term_code()), expected);
        }
    }
}
