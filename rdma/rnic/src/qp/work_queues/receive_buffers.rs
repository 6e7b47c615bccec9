//! Receive buffers of a queue pair: the posted ones, in its own or in a shared queue, and the
//! current one, which a message is being placed into.

use std::fmt;
use std::sync::Arc;

use rtrb::Consumer;

use crate::model::{OutOfMemory, QpIdentity, RecvRequest, RqLimit, total};
use crate::qp::fault::{Inconsistency, Unavailable};
use crate::queues::{CurrentReceive, EventQueue, ReceiveRing};
use crate::tables::{BorrowedReceives, Srq};

/// Queue that buffers are posted to.
pub(in crate::qp) enum Source {
    Own(ReceiveRing),
    Shared(Arc<Srq>),
}

/// Receive buffers of a queue pair.
pub(in crate::qp) struct ReceiveBuffers {
    source: Source,
    /// The buffer of a message that is about to begin.
    prepared: Option<CurrentReceive>,
    current: Option<CurrentReceive>,
    unavailable: Option<Unavailable>,
    /// Limit of messages in progress; never armed if the source is not shared.
    limit: RqLimit,
}

impl fmt::Debug for ReceiveBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let posted = match &self.source {
            Source::Own(own) => Some(own.posted.len()),
            Source::Shared(_) => None,
        };
        f.debug_struct("ReceiveBuffers")
            .field("posted", &posted)
            .field("has_current", &self.current.is_some())
            .field("is_unavailable", &self.unavailable.is_some())
            .finish_non_exhaustive()
    }
}

impl ReceiveBuffers {
    pub(in crate::qp) fn new(source: Source, limit: usize) -> Self {
        Self {
            source,
            prepared: None,
            current: None,
            unavailable: None,
            limit: RqLimit {
                limit,
                armed: limit > 0,
            },
        }
    }

    /// The shared receive queue, if it has one.
    pub(in crate::qp) fn shared(&self) -> Option<&Srq> {
        match &self.source {
            Source::Own(_) => None,
            Source::Shared(srq) => Some(srq),
        }
    }

    /// Depth of its own receive queue in work requests.
    pub(in crate::qp) fn depth(&self) -> usize {
        match &self.source {
            Source::Own(own) => own.posted.depth(),
            Source::Shared(_) => 0,
        }
    }

    /// Takes the next buffer ahead of the message that is about to begin. False if none is posted:
    /// another queue pair may have taken the last one of a shared queue. True of a queue that has
    /// failed, for which [`begin`](Self::begin) has the reason.
    pub(in crate::qp) fn prepare(&mut self, events: &EventQueue) -> bool {
        if self.prepared.is_none() {
            self.prepared = self.next(events);
        }
        self.prepared.is_some() || self.unavailable.is_some()
    }

    /// The next buffer of the queue.
    fn next(&mut self, events: &EventQueue) -> Option<CurrentReceive> {
        match &mut self.source {
            Source::Own(own) => own.take(),
            Source::Shared(srq) => {
                let next = srq.take(events);
                if next.is_err() {
                    self.unavailable = Some(Unavailable::SrqFailed);
                }
                next.ok().flatten()
            }
        }
    }

    /// Takes the next buffer for a new message. Returns its length in bytes.
    pub(in crate::qp) fn begin(&mut self, events: &EventQueue) -> Option<u64> {
        let next = self.prepared.take().or_else(|| self.next(events))?;
        let len = total(&next.request.sgl);
        self.current = Some(next);
        if len.is_none() {
            let broken = Inconsistency("a receive is longer than any that can be posted");
            self.unavailable = Some(Unavailable::Malformed(broken));
        }
        len.map(u64::from)
    }

    /// Why the last message found no buffer, if the reason was not an empty queue.
    pub(in crate::qp) fn take_unavailable(&mut self) -> Option<Unavailable> {
        self.unavailable.take()
    }

    /// Reserves memory for a resize.
    pub(in crate::qp) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        match &mut self.source {
            Source::Own(own) => own.posted.reserve(),
            Source::Shared(_) => Ok(()),
        }
    }

    /// Replaces its own ring.
    pub(in crate::qp) fn resize(&mut self, ring: Consumer<RecvRequest>) {
        if let Source::Own(own) = &mut self.source {
            own.posted.resize(ring);
        }
    }

    /// The limit of messages in progress, if the source is shared (verbs draft §6.3.8).
    pub(in crate::qp) fn limit(&self) -> Option<RqLimit> {
        self.shared().map(|_| self.limit)
    }

    pub(in crate::qp) fn set_limit(&mut self, limit: RqLimit) {
        self.limit = limit;
    }

    /// Number of messages that have taken a buffer and not completed. Messages are placed one after
    /// the other, so it is at most one.
    fn in_progress(&self) -> usize {
        usize::from(self.current.is_some())
    }

    /// True if more messages are in progress than the limit, for the first time since it was armed.
    pub(in crate::qp) fn reaches_limit(&mut self) -> bool {
        let reached = self.limit.armed && self.in_progress() > self.limit.limit;
        self.limit.armed &= !reached;
        reached
    }

    /// Buffer of the current message.
    pub(in crate::qp) fn current(&self) -> Option<&CurrentReceive> {
        self.current.as_ref()
    }

    /// Ends the current message. Returns its buffer.
    pub(in crate::qp) fn end(&mut self) -> Option<CurrentReceive> {
        self.current.take()
    }

    /// Takes the oldest buffer that has not completed, at the end of the queue pair. Unused buffers
    /// stay in a shared queue (verbs draft §6.3.6).
    pub(in crate::qp) fn flush_one(&mut self) -> Option<CurrentReceive> {
        let begun = self.end().or_else(|| self.prepared.take());
        begun.or_else(|| match &mut self.source {
            Source::Own(own) => own.take(),
            Source::Shared(_) => None,
        })
    }

    /// Lends posted buffers for messages that begin and end together, and the number of buffers
    /// that may be taken before an event is due.
    #[inline]
    pub(in crate::qp) fn lend(&mut self) -> Option<(BorrowedReceives<'_>, usize)> {
        let reports = self.limit.armed && self.limit.limit == 0;
        match &mut self.source {
            Source::Own(own) => Some((BorrowedReceives::Own(own), usize::MAX)),
            Source::Shared(srq) => (!reports).then(|| srq.lend())?,
        }
    }

    /// Identity that a queue pair's accesses to the buffers' pieces are checked with.
    #[inline]
    pub(in crate::qp) fn user(&self, qp: QpIdentity) -> QpIdentity {
        self.shared().map_or(qp, |srq| qp.in_domain(srq.pd()))
    }
}
