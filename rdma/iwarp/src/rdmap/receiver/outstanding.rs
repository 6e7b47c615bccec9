//! Read and Atomic Responses: they must match the oldest outstanding request (D6; RFC 5042 §6.2.1).
//!
//! The peer answers in the order of the requests of both kinds (R5040-5.5, R7306-5.4-8-1).

use super::{Inbound, Placement, check_last, check_number, check_offset, exactly};
use crate::Stag;
use crate::ddp::{Control, FIRST_MSN, TaggedHeader, UntaggedHeader};
use crate::rdmap::{
    ATOMIC_RESPONSE_BYTES, AccessKind, AtomicResponseHeader, Opcode, ReadRequest, Resources,
    ViolationCause,
};
use std::collections::VecDeque;

/// Our outstanding requests, oldest first.
#[derive(Debug)]
pub(super) struct Outstanding {
    requests: VecDeque<Awaited>,
    ord: u16,
    /// MSN of the next Atomic Response (R7306-5.2.2-3).
    atomic_msn: u32,
}

/// The response that a request awaits.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    Read(AwaitedRead),
    Atomic { id: u32 },
}

/// The missing part of one Read Response.
#[derive(Clone, Copy, Debug)]
struct AwaitedRead {
    sink: Stag,
    to: u64,
    left: u32,
    started: bool,
}

impl Outstanding {
    pub(super) fn new(ord: u16) -> Self {
        Self {
            requests: VecDeque::with_capacity(usize::from(ord)),
            ord,
            atomic_msn: FIRST_MSN,
        }
    }

    /// Sets the maximum. Outstanding requests are not affected.
    pub(super) fn set_ord(&mut self, ord: u16) {
        self.ord = ord;
        let more = usize::from(ord).saturating_sub(self.requests.len());
        self.requests.reserve_exact(more);
    }

    pub(super) fn expect_read(&mut self, read: ReadRequest) {
        self.expect(Awaited::Read(AwaitedRead {
            sink: read.sink,
            to: read.sink_to,
            left: read.len,
            started: false,
        }));
    }

    pub(super) fn expect_atomic(&mut self, id: u32) {
        self.expect(Awaited::Atomic { id });
    }

    fn expect(&mut self, awaited: Awaited) {
        debug_assert!(
            self.requests.len() < usize::from(self.ord),
            "more requests outstanding than ORD"
        );
        self.requests.push_back(awaited);
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
    }

    pub(super) fn awaits(&self, since: usize, refused: Option<&ReadRequest>) -> bool {
        let request = self.requests.iter().rev().nth(since);
        match (request, refused) {
            (None, _) | (Some(Awaited::Atomic { .. }), Some(_)) => false,
            (Some(Awaited::Read(read)), Some(refused)) => read.sink == refused.sink,
            (Some(_), None) => true,
        }
    }

    pub(super) fn mid_message(&self) -> bool {
        matches!(self.requests.front(), Some(Awaited::Read(read)) if read.started)
    }

    /// The n-th response on QN 3 answers the n-th Atomic Request, and its identifier must match
    /// (R7306-5.2.2-2).
    pub(super) fn accept_atomic<'a, P>(
        &mut self,
        header: &UntaggedHeader,
        payload: &[u8],
    ) -> Result<Inbound<'a, P>, ViolationCause> {
        let opcode = Opcode::AtomicResponse;
        let msn = self.atomic_msn;
        check_last(opcode, header)?;
        check_number(header, msn)?;
        let Some(Awaited::Atomic { id: expected }) = self.requests.front().copied() else {
            return Err(ViolationCause::UnexpectedAtomicResponse { msn });
        };
        check_offset(header, 0)?;
        let bytes: [u8; ATOMIC_RESPONSE_BYTES] = exactly(opcode, payload)?;
        let response: AtomicResponseHeader = zerocopy::transmute!(bytes);
        let found = response.id.get();
        if found != expected {
            return Err(ViolationCause::AtomicResponseId { found, expected });
        }
        self.requests.pop_front();
        self.atomic_msn = msn.wrapping_add(1);
        Ok(Inbound::AtomicResponse {
            original: response.original.get(),
        })
    }

    /// True if this segment, which has payload, is the next one of the expected response.
    pub(super) fn is_next(&self, header: &TaggedHeader, payload: &[u8], last: bool) -> bool {
        let due = self.requests.front();
        matches!(due, Some(Awaited::Read(read)) if read.after(header, payload, last).is_ok())
    }

    /// Records that this segment, with `len` bytes, was placed.
    pub(super) fn pass(&mut self, len: usize, last: bool) {
        if last {
            self.requests.pop_front();
        } else if let Some(Awaited::Read(read)) = self.requests.front_mut() {
            let len = u32::try_from(len).unwrap_or(u32::MAX); // from one segment
            read.to = read.to.wrapping_add(u64::from(len));
            read.left = read.left.saturating_sub(len);
            read.started = true;
        }
    }

    /// The response must match its request, and its region must still admit it (R5040-5.2.2-6,
    /// D20).
    pub(super) fn accept_read<'a, R: Resources>(
        &mut self,
        header: &TaggedHeader,
        payload: &'a [u8],
        resources: &R,
    ) -> Result<Inbound<'a, R::Place>, ViolationCause> {
        let last = Control(header.control).is_last();
        let Some(Awaited::Read(read)) = self.requests.front_mut() else {
            let stag = Stag(header.stag.get());
            return Err(ViolationCause::UnexpectedResponse { stag });
        };
        let next = read.after(header, payload, last)?;
        let placement = Placement::admitted(header, payload, resources, AccessKind::ReadSink)?;
        *read = next;
        if last {
            self.requests.pop_front();
        }
        Ok(Inbound::ReadResponse {
            placement,
            done: last,
        })
    }
}

impl AwaitedRead {
    /// The missing part after this segment. Without payload its `STag` and TO have no meaning
    /// (R5041-5.2-9), and a last segment without payload may follow the last byte (D17).
    fn after(
        self,
        header: &TaggedHeader,
        payload: &[u8],
        last: bool,
    ) -> Result<Self, ViolationCause> {
        let stag = Stag(header.stag.get());
        let to = header.to.get();
        let range = ViolationCause::ResponseRange {
            to,
            len: payload.len(),
            last,
            expected: self.to,
            left: self.left,
        };
        if !payload.is_empty() {
            let expected = self.sink;
            if stag != expected {
                return Err(ViolationCause::ResponseStag { stag, expected });
            }
            if to != self.to {
                return Err(range);
            }
        }
        let len = u32::try_from(payload.len()).map_err(|_| range)?;
        let left = self.left.checked_sub(len).ok_or(range)?;
        if last && left > 0 {
            return Err(range);
        }
        Ok(Self {
            to: self.to.wrapping_add(u64::from(len)),
            left,
            started: true,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::Queue;
    use proptest::prelude::*;

    /// Accepts the response with this number to the only request.
    fn accept(outstanding: &mut Outstanding, msn: u32) -> Result<(), ViolationCause> {
        let header = UntaggedHeader {
            control: 0x41, // T=0 L=1 DV=1
            rsvd_ulp: 0,
            rsvd_ulp_stag: 0.into(),
            qn: Queue::AtomicResponse.qn().into(),
            msn: msn.into(),
            mo: 0.into(),
        };
        outstanding.expect_atomic(0);
        let accepted = outstanding.accept_atomic::<()>(&header, &[0; ATOMIC_RESPONSE_BYTES]);
        outstanding.requests.clear();
        accepted.map(drop)
    }

    #[test]
    fn atomic_response_numbers_go_from_all_ones_to_zero() {
        let mut outstanding = Outstanding::new(1);
        outstanding.atomic_msn = 0xFFFF_FFFE;
        for msn in [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1] {
            assert_eq!(accept(&mut outstanding, msn), Ok(()), "{msn:#x}");
        }
    }

    proptest! {
        /// The next number is accepted wherever the count stands, and no other number.
        #[test]
        fn only_the_next_atomic_response_number_is_accepted(
            first in prop_oneof![Just(FIRST_MSN), Just(u32::MAX), Just(1 << 31), any::<u32>()],
            apart in prop_oneof![-3..3_i64, (1_i64 << 31) - 2..(1_i64 << 31) + 2, any::<i32>().prop_map(i64::from)],
        ) {
            let msn = u32::try_from((i64::from(first) + apart).rem_euclid(1 << 32)).unwrap();
            let mut outstanding = Outstanding::new(1);
            outstanding.atomic_msn = first;
            let accepted = accept(&mut outstanding, msn);
            if apart == 0 {
                prop_assert_eq!(accepted, Ok(()));
                prop_assert_eq!(u64::from(outstanding.atomic_msn), (u64::from(first) + 1) % (1 << 32));
            } else {
                let refused = ViolationCause::MessageNumber { qn: 3, msn, expected: first };
                prop_assert_eq!(accepted, Err(refused));
                prop_assert_eq!(outstanding.atomic_msn, first);
            }
        }
    }
}
