//! Inbound Read and Atomic Requests: QN 1 (RFC 5040 §5.2, §6.1; RFC 7306 §5.2).

use super::{Inbound, check_last, check_number, check_offset};
use crate::Stag;
use crate::ddp::{FIRST_MSN, Queue, UntaggedHeader};
use crate::rdmap::{
    ATOMIC_OPERAND_BYTES, AccessKind, AtomicRequest, AtomicRequestHeader, InboundAtomic, Opcode,
    ReadRequest, ReadRequestHeader, Resources, ViolationCause,
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A Read Request of the peer, to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundRead {
    /// Contents of the request. The sink is the peer's, and is not checked here (wire.md row 106).
    pub request: ReadRequest,
    /// For the Terminate, if the source is revoked while the response is being sent.
    pub(in crate::rdmap) header: UntaggedHeader,
}

/// Numbers the peer's requests, and counts the unanswered ones.
#[derive(Debug)]
pub(super) struct InboundRequests {
    msn: u32,
    ird: u16,
    waiting: u16,
}

impl InboundRequests {
    pub(super) const fn new(ird: u16) -> Self {
        Self {
            msn: FIRST_MSN,
            ird,
            waiting: 0,
        }
    }

    /// Without IRD the queue does not exist (D7).
    pub(super) const fn enabled(&self) -> bool {
        self.ird > 0
    }

    /// Sets the maximum. Waiting requests keep their credit.
    pub(super) const fn set_ird(&mut self, ird: u16) {
        self.ird = ird;
    }

    pub(super) const fn response_sent(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Checks L bit, message number, credit, offset and size, and then the memory of the request.
    pub(super) fn accept<'a, R: Resources>(
        &mut self,
        opcode: Opcode,
        header: &UntaggedHeader,
        payload: &[u8],
        resources: &R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        self.check_place(opcode, header)?;
        let inbound = if opcode == Opcode::AtomicRequest {
            let request = read_atomic(payload, resources)?;
            Inbound::AtomicRequest(InboundAtomic {
                request,
                header: *header,
            })
        } else {
            let request = ReadRequest::from(exactly_header::<ReadRequestHeader>(opcode, payload)?);
            check_source(&request, resources)?;
            Inbound::ReadRequest(InboundRead {
                request,
                header: *header,
            })
        };
        self.take_one();
        Ok(inbound)
    }

    /// The request in a ULPDU whose control bytes are a Read Request's, if it is valid except,
    /// perhaps, for its source. `None` for a Read of zero bytes.
    pub(super) fn predict(&self, ulpdu: &[u8]) -> Option<InboundRead> {
        let (header, payload) = UntaggedHeader::ref_from_prefix(ulpdu).ok()?;
        if header.qn.get() != Queue::Request.qn() {
            return None;
        }
        self.check_place(Opcode::ReadRequest, header).ok()?;
        let request = ReadRequest::from(ReadRequestHeader::ref_from_bytes(payload).ok()?);
        let header = *header;
        (request.len > 0).then_some(InboundRead { request, header })
    }

    /// Counts a request that waits for its answer.
    pub(super) fn take_one(&mut self) {
        self.msn = self.msn.wrapping_add(1);
        self.waiting = self.waiting.saturating_add(1);
    }

    fn check_place(&self, opcode: Opcode, header: &UntaggedHeader) -> Result<(), ViolationCause> {
        check_last(opcode, header)?;
        check_number(header, self.msn)?;
        if self.waiting >= self.ird {
            return Err(ViolationCause::TooManyRequests {
                msn: self.msn,
                ird: self.ird,
            });
        }
        check_offset(header, 0)
    }
}

/// The payload must be exactly the header (R5040-4.2-3, R7306-4.2-1): each credit is a buffer for
/// one header.
fn exactly_header<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    opcode: Opcode,
    payload: &[u8],
) -> Result<&T, ViolationCause> {
    let len = payload.len();
    let expected = size_of::<T>();
    match T::ref_from_prefix(payload) {
        Ok((header, [])) => Ok(header),
        Ok(_) => Err(ViolationCause::MessageTooLong {
            opcode,
            mo: 0,
            len,
            buffer: u64::try_from(expected).unwrap_or(u64::MAX),
        }),
        Err(_) => Err(ViolationCause::RequestSize {
            opcode,
            len,
            expected,
        }),
    }
}

/// Checks the source of a Read, unless its length is zero (R5040-5.2.1-7, -8).
fn check_source(request: &ReadRequest, resources: &impl Resources) -> Result<(), ViolationCause> {
    let stag = request.source;
    let to = request.source_to;
    let len = u64::from(request.len);
    if len == 0 {
        return Ok(());
    }
    admit(resources, stag, to, len, AccessKind::RemoteRead).map(drop)
}

/// Checks for a known operation, on memory that may be accessed and suits an atomic access
/// (R7306-8.2-1 to -3).
fn read_atomic(
    payload: &[u8],
    resources: &impl Resources,
) -> Result<AtomicRequest, ViolationCause> {
    let header = exactly_header::<AtomicRequestHeader>(Opcode::AtomicRequest, payload)?;
    let request = AtomicRequest::try_from(header).map_err(ViolationCause::AtomicOpcode)?;
    let stag = request.stag;
    let to = request.to;
    let len = ATOMIC_OPERAND_BYTES;
    let access = AccessKind::RemoteAtomic;
    let place = admit(resources, stag, to, len, access)?;
    if !resources.is_aligned(&place, to) {
        return Err(ViolationCause::Misaligned { stag, to });
    }
    Ok(request)
}

/// Returns the memory that the peer may access, or why it may not.
#[inline]
fn admit<R: Resources>(
    resources: &R,
    stag: Stag,
    to: u64,
    len: u64,
    access: AccessKind,
) -> Result<R::Place, ViolationCause> {
    resources
        .admit(stag, to, len, access)
        .map_err(|cause| ViolationCause::Access {
            access,
            stag,
            to,
            len,
            cause,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::{AccessError, InvalidateError};
    use proptest::prelude::*;

    /// Resources that admit every access.
    struct Open;
    impl Resources for Open {
        type Place = ();

        fn take_receive(&mut self) -> Option<u64> {
            None
        }
        fn admit(&self, _: Stag, _: u64, _: u64, _: AccessKind) -> Result<(), AccessError> {
            Ok(())
        }
        fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
            Err(InvalidateError::InvalidStag)
        }
    }

    /// Accepts a request with this number, as the only one that waits.
    fn accept(
        requests: &mut InboundRequests,
        opcode: Opcode,
        msn: u32,
    ) -> Result<(), ViolationCause> {
        let header = UntaggedHeader {
            control: 0x41, // T=0 L=1 DV=1
            rsvd_ulp: 0,
            rsvd_ulp_stag: 0.into(),
            qn: Queue::Request.qn().into(),
            msn: msn.into(),
            mo: 0.into(),
        };
        let payload: &[u8] = if opcode == Opcode::AtomicRequest {
            &[0; 52] // FetchAdd of 0
        } else {
            &[0; 28]
        };
        requests.response_sent();
        requests.accept(opcode, &header, payload, &Open).map(drop)
    }

    /// At a million Reads a second the number wraps after 72 minutes.
    #[test]
    fn request_numbers_go_from_all_ones_to_zero() {
        for opcode in [Opcode::ReadRequest, Opcode::AtomicRequest] {
            let mut requests = InboundRequests::new(1);
            requests.msn = 0xFFFF_FFFE;
            for msn in [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1] {
                assert_eq!(
                    accept(&mut requests, opcode, msn),
                    Ok(()),
                    "{opcode:?} {msn:#x}"
                );
            }
        }
    }

    proptest! {
        /// The next number is accepted wherever the count stands, and no other number.
        #[test]
        fn only_the_next_request_number_is_accepted(
            first in prop_oneof![Just(FIRST_MSN), Just(u32::MAX), Just(1 << 31), any::<u32>()],
            apart in prop_oneof![-3..3_i64, (1_i64 << 31) - 2..(1_i64 << 31) + 2, any::<i32>().prop_map(i64::from)],
        ) {
            let msn = u32::try_from((i64::from(first) + apart).rem_euclid(1 << 32)).unwrap();
            let mut requests = InboundRequests::new(1);
            requests.msn = first;
            let accepted = accept(&mut requests, Opcode::ReadRequest, msn);
            if apart == 0 {
                prop_assert_eq!(accepted, Ok(()));
                prop_assert_eq!(u64::from(requests.msn), (u64::from(first) + 1) % (1 << 32));
            } else {
                let refused = ViolationCause::MessageNumber { qn: 1, msn, expected: first };
                prop_assert_eq!(accepted, Err(refused));
                prop_assert_eq!(requests.msn, first);
            }
        }
    }
}
