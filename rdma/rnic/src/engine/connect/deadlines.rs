//! Deadlines of connections without a queue pair: for the peer's Request, and for the end of a
//! closed connection without an owner.

use std::collections::VecDeque;
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use super::Connections;
use crate::model::IncomingId;
use crate::qp::RdmaDevice;

/// Longest time from TCP's establishment to the peer's whole Request. Partial Requests do not
/// extend it (wire.md §3.5).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the peer of a connection without an owner may take to acknowledge the last bytes, and
/// to send its FIN.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);

/// The last item that a connection sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Last {
    /// A start-up frame or a Terminate. Its peer has the same time as for a start-up frame.
    Frame,
    /// Bytes of a stream: while some are unacknowledged, TCP's user timeout is the bound.
    Bytes,
}

/// Deadlines of connections without a queue pair. Each queue has one timeout, so its entries are in
/// order.
#[derive(Debug, Default)]
pub(super) struct ConnDeadlines {
    /// Connections whose Request has not arrived.
    requests: VecDeque<(Instant, IncomingId)>,
    /// Connections without an owner, with the time when they are reset.
    ends: VecDeque<(Instant, ConnId, Last)>,
}

impl ConnDeadlines {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.ends.is_empty()
    }

    /// Starts the time for the Request of this connection.
    pub(super) fn expect_request(&mut self, now: Instant, id: IncomingId) {
        self.requests.push_back((now + REQUEST_TIMEOUT, id));
    }

    /// Starts the time for the end of this closed connection.
    pub(super) fn expect_end(&mut self, now: Instant, conn: ConnId, last: Last) {
        self.ends.push_back((now + LAST_TIMEOUT, conn, last));
    }

    fn pop_request(&mut self, now: Instant) -> Option<IncomingId> {
        let (at, id) = *self.requests.front()?;
        (at <= now).then(|| {
            self.requests.pop_front();
            id
        })
    }

    fn pop_end(&mut self, now: Instant) -> Option<(ConnId, Last)> {
        let (at, conn, last) = *self.ends.front()?;
        (at <= now).then(|| {
            self.ends.pop_front();
            (conn, last)
        })
    }

    fn next(&self) -> Option<Instant> {
        let request = self.requests.front().map(|(at, _)| *at);
        let end = self.ends.front().map(|(at, ..)| *at);
        [request, end].into_iter().flatten().min()
    }
}

impl Connections {
    /// True if deadlines may have passed or may be obsolete.
    #[inline]
    pub(in crate::engine) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty() || !self.lingering.is_empty()
    }

    /// Handles the deadlines that have passed. Returns the number of connections that ended.
    pub(in crate::engine) fn expire(&mut self, device: &mut RdmaDevice) -> usize {
        let now = device.now;
        self.lingering
            .expire(now, |conn| device.stack.is_open(conn));
        let mut done = 0;
        while let Some(id) = self.deadlines.pop_request(now) {
            if self.awaits_request(id) {
                device.counters.drop_startup_timeout += 1;
                self.drop_incoming(id.key(), device);
                done += 1;
            }
        }
        while let Some((conn, last)) = self.deadlines.pop_end(now) {
            if last == Last::Bytes && device.unacked(conn) > 0 {
                self.deadlines.expect_end(now, conn, last);
            } else if device.stack.is_open(conn) {
                let waits = device.has_unsent(conn);
                device.counters.drop_startup_timeout += u64::from(waits);
                device.stack.abort(conn, now);
                done += 1;
            }
        }
        done
    }

    /// Removes obsolete deadlines from the front, so that an idle engine has none.
    #[inline]
    pub(in crate::engine) fn trim_deadlines(&mut self, device: &RdmaDevice) {
        if !self.deadlines.is_empty() {
            self.trim_all_deadlines(device);
        }
    }

    #[inline(never)]
    fn trim_all_deadlines(&mut self, device: &RdmaDevice) {
        while let Some((_, id)) = self.deadlines.requests.front()
            && !self.awaits_request(*id)
        {
            self.deadlines.requests.pop_front();
        }
        while let Some((_, conn, _)) = self.deadlines.ends.front()
            && !device.stack.is_open(*conn)
        {
            self.deadlines.ends.pop_front();
        }
    }

    /// Time of the next deadline.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Instant> {
        let next = [self.deadlines.next(), self.lingering.next()];
        next.into_iter().flatten().min()
    }
}
