//! Read Responses: they must be what the oldest outstanding Read Request asked for (D6; RFC 5042 §6.2.1).

use super::{Inbound, octets};
use crate::Stag;
use crate::ddp::{Control, TaggedHeader};
use crate::rdmap::{Access, ReadRequest, Resources, ViolationCause};
use std::collections::VecDeque;

/// Read Requests of ours, oldest first.
#[derive(Debug)]
pub(super) struct OutstandingReads {
    reads: VecDeque<Outstanding>,
}

/// What of one response has not come.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    sink: Stag,
    to: u64,
    left: u32,
    started: bool,
}

impl OutstandingReads {
    pub(super) fn new(ord: u16) -> Self {
        Self {
            reads: VecDeque::with_capacity(usize::from(ord)),
        }
    }

    pub(super) fn expect(&mut self, read: ReadRequest) {
        debug_assert!(
            self.reads.len() < self.reads.capacity(),
            "more reads outstanding than ORD"
        );
        self.reads.push_back(Outstanding {
            sink: read.sink,
            to: read.sink_to,
            left: read.len,
            started: false,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    pub(super) fn mid_message(&self) -> bool {
        self.reads.front().is_some_and(|read| read.started)
    }

    /// The response must match, and its region must admit it still (R5040-5.2.2-6, D20).
    pub(super) fn accept<'a>(
        &mut self,
        header: &TaggedHeader,
        payload: &'a [u8],
        resources: &impl Resources,
    ) -> Result<Inbound<'a>, ViolationCause> {
        let (stag, to, len) = (Stag(header.stag.get()), header.to.get(), octets(payload));
        let last = Control(header.control).is_last();
        let read = self
            .reads
            .front_mut()
            .ok_or(ViolationCause::UnexpectedResponse { stag })?;
        let next = read.after(header, payload)?;
        if len > 0 {
            resources
                .check(stag, to, len, Access::ReadSink)
                .map_err(|cause| ViolationCause::ReadSink {
                    stag,
                    to,
                    len,
                    cause,
                })?;
        }
        *read = next;
        if last {
            self.reads.pop_front();
        }
        Ok(Inbound::ReadResponse {
            stag,
            to,
            payload,
            done: last,
        })
    }
}

impl Outstanding {
    /// What is left after this segment. Without payload its `STag` and TO mean nothing (R5041-5.2-9), and a last segment
    /// without payload may follow the last octet (D17).
    fn after(self, header: &TaggedHeader, payload: &[u8]) -> Result<Self, ViolationCause> {
        let (stag, to, last) = (
            Stag(header.stag.get()),
            header.to.get(),
            Control(header.control).is_last(),
        );
        let range = ViolationCause::ResponseRange {
            to,
            len: payload.len(),
            last,
            expected: self.to,
            left: self.left,
        };
        if !payload.is_empty() {
            if stag != self.sink {
                return Err(ViolationCause::ResponseStag {
                    stag,
                    expected: self.sink,
                });
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
