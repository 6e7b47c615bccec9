//! Deadlines of the engine: when it has to act although nothing happens. Queue pairs and connections without a deadline cost nothing here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use xwarp_tcp::{ConnId, Instant};

use super::Engine;
use crate::model::IncomingId;

/// Deadlines of queue pairs and of connections whose Request is due.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// Queue pairs, by their slab's keys. A deadline that is moved back, as every FPDU does during a close, keeps its entry. That finds at
    /// its time that it came too early. A deadline that is called off leaves an entry that means nothing.
    qps: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Connections without a queue pair. All have the same time from their beginning, so that these are in order.
    incoming: VecDeque<(Instant, IncomingId)>,
    /// Connections that nobody has any more, which must have ended by then; in order likewise.
    abandoned: VecDeque<(Instant, ConnId, Last)>,
}

/// What the last was that a connection sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// A start-up frame or a Terminate, for which its peer has as long as for a start-up frame.
    Frame,
    /// Bytes of a stream: while some are unacknowledged, TCP's user timeout is the bound.
    Bytes,
}

impl Deadlines {
    /// A queue pair has something to do `at` this time.
    pub(super) fn arm(&mut self, at: Instant, key: usize) {
        self.qps.push(Reverse((at, key)));
    }

    /// The Request of this connection must be here `at` this time, no earlier than any before.
    pub(super) fn expect_request(&mut self, at: Instant, id: IncomingId) {
        self.incoming.push_back((at, id));
    }

    /// A connection that was closed, and is nobody's any more, must have ended `at` this time, no earlier than any before.
    pub(super) fn expect_end(&mut self, at: Instant, conn: ConnId, last: Last) {
        self.abandoned.push_back((at, conn, last));
    }

    fn is_empty(&self) -> bool {
        self.qps.is_empty() && self.incoming.is_empty() && self.abandoned.is_empty()
    }

    fn pop_abandoned(&mut self, now: Instant) -> Option<(ConnId, Last)> {
        let (at, ..) = self.abandoned.front()?;
        if *at > now {
            return None;
        }
        self.abandoned
            .pop_front()
            .map(|(_, conn, last)| (conn, last))
    }

    fn pop_qp(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let Reverse((at, _)) = self.qps.peek()?;
        if *at > now {
            return None;
        }
        self.qps.pop().map(|Reverse(entry)| entry)
    }

    fn pop_incoming(&mut self, now: Instant) -> Option<IncomingId> {
        let (at, _) = self.incoming.front()?;
        if *at > now {
            return None;
        }
        self.incoming.pop_front().map(|(_, id)| id)
    }
}

impl Engine {
    /// True if there may be deadlines to act upon or to forget.
    #[inline]
    pub(super) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty() || !self.lingering.is_empty()
    }

    /// Acts upon deadlines that have passed; how many.
    #[inline(never)]
    pub(super) fn expire(&mut self) -> usize {
        let now = self.device.now;
        self.lingering.expire(now);
        let mut done = 0;
        while let Some((at, key)) = self.deadlines.pop_qp(now) {
            done += self.expire_qp(at, key);
        }
        while let Some(id) = self.deadlines.pop_incoming(now) {
            if self.awaits_request(id) {
                self.device.counters.drop_startup_timeout += 1;
                self.drop_incoming(id.key());
                done += 1;
            }
        }
        while let Some((conn, last)) = self.deadlines.pop_abandoned(now) {
            if last == Last::Bytes && self.device.unacked(conn) > 0 {
                self.expect_end(conn, last);
            } else if self.device.stack.is_open(conn) {
                let waits = self.device.has_unsent(conn);
                self.device.counters.drop_startup_timeout += u64::from(waits);
                self.device.stack.abort(conn, now);
                done += 1;
            }
        }
        done
    }

    /// Acts upon an entry of a queue pair's.
    fn expire_qp(&mut self, at: Instant, key: usize) -> usize {
        let done = self.with_qp(key, |qp, device| {
            // Else it is superseded by an earlier entry.
            let is_armed = qp.is_armed_at(at);
            is_armed.then(|| qp.handle_timeout(device))
        });
        done.flatten().unwrap_or(0)
    }

    /// Forgets the earliest entries for as long as they mean nothing, so that an idle engine has no deadline.
    #[inline]
    pub(super) fn trim_deadlines(&mut self) {
        if !self.deadlines.is_empty() {
            self.trim_all_deadlines();
        }
    }

    #[inline(never)]
    fn trim_all_deadlines(&mut self) {
        while let Some(Reverse((at, key))) = self.deadlines.qps.peek() {
            let qp = self.qps.get_mut(*key).filter(|qp| qp.is_armed_at(*at));
            if qp.is_some_and(|qp| !qp.disarm()) {
                break;
            }
            self.deadlines.qps.pop();
        }
        while let Some((_, id)) = self.deadlines.incoming.front()
            && !self.awaits_request(*id)
        {
            self.deadlines.incoming.pop_front();
        }
        while let Some((_, conn, _)) = self.deadlines.abandoned.front()
            && !self.device.stack.is_open(*conn)
        {
            self.deadlines.abandoned.pop_front();
        }
    }

    /// When there will be something to do even if nothing happens. There may turn out to be nothing.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let qp = self.deadlines.qps.peek().map(|Reverse((at, _))| *at);
        let incoming = self.deadlines.incoming.front().map(|(at, _)| *at);
        let abandoned = self.deadlines.abandoned.front().map(|(at, ..)| *at);
        let linger = self.lingering.next();
        let interface = self.interface.deadline();
        let tcp = self.device.stack.next_deadline();
        [qp, incoming, abandoned, linger, interface, tcp]
            .into_iter()
            .flatten()
            .min()
    }
}
