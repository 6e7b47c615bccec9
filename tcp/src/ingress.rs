//! From received frames to connections.

use smoltcp::socket::tcp::State;

use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::inbound::{self, Segment};
use crate::life::Marks;
use crate::link::LinkHeader;
use crate::reset;
use crate::slots::Handle;
use crate::stack::Stack;

impl Stack {
    /// Receives up to `budget` frames; how many there were.
    pub(crate) fn receive(&mut self, budget: usize) -> usize {
        let mut frames = std::mem::take(&mut self.frames);
        self.lower.io.receive(budget, &mut frames);
        let received = frames.len();
        for frame in frames.drain(..) {
            match inbound::parse(&frame) {
                Ok(segment) => self.dispatch(&segment),
                Err(discard) => discard.count(&mut self.lower.counters),
            }
            self.lower.io.recycle(frame);
        }
        self.frames = frames;
        received
    }

    fn dispatch(&mut self, segment: &Segment<'_>) {
        self.lower.counters.segments_in += 1;
        let listener = if segment.opens() {
            self.ports.get(&segment.flow.local).copied()
        } else {
            None
        };
        let mut found = self.flows.get(&segment.flow).copied();
        if let (Some(handle), Some(_)) = (found, listener)
            && self.has_successor(handle, segment)
        {
            self.retire(handle);
            found = None;
        }
        match (found, listener) {
            (Some(handle), _) => self.deliver(handle, segment),
            (None, Some(listener)) => self.accept(ListenerId(listener), segment),
            (None, None) => {
                self.lower.counters.drop_no_flow += 1;
                reset::answer(segment, self.config.mac, &mut self.lower);
            }
        }
    }

    fn has_successor(&self, handle: Handle, segment: &Segment<'_>) -> bool {
        let conn = self.conns.get(handle);
        conn.is_some_and(|conn| conn.is_succeeded_by(segment))
    }

    /// Opens a connection for a SYN to a listener.
    fn accept(&mut self, id: ListenerId, segment: &Segment<'_>) {
        let listener = self.listeners.get(id.0);
        if listener.is_none_or(|listener| listener.waiting >= listener.backlog) {
            self.lower.counters.drop_backlog_full += 1;
            return;
        }
        if !self.has_room() {
            self.lower.counters.drop_table_full += 1;
            return;
        }
        let link = LinkHeader::answer(&segment.framed, self.config.mac);
        let mut conn = self.open(segment.flow, link);
        if conn.listen().is_err() {
            return; // the listener's address and port have been checked
        }
        conn.life.waiting = Some(id);
        let handle = self.insert(conn);
        if let Some(listener) = self.listeners.get_mut(id.0) {
            listener.waiting += 1;
        }
        self.deliver(handle, segment);
    }

    fn deliver(&mut self, handle: Handle, segment: &Segment<'_>) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        if conn.overreaches(segment) {
            self.lower.counters.drop_beyond_window += 1;
            return;
        }
        if conn.is_needless(segment) {
            return;
        }
        let grown = conn.receive(segment, &mut self.lower, self.now);
        self.settle(handle, segment.is_reset(), grown);
        self.touch(handle);
    }

    /// Tells what a segment or a timer has changed. `reset`: the segment was a RST; `grown`: there is more to read.
    pub(crate) fn settle(&mut self, handle: Handle, reset: bool, grown: bool) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        let id = ConnId(handle);
        if conn.is_synchronized() && conn.life.mark(Marks::ANNOUNCED) {
            let remote = conn.flow.remote.into();
            self.events.push_back(match conn.life.waiting {
                Some(listener) => Event::Incoming {
                    listener,
                    conn: id,
                    remote,
                },
                None => Event::Connected(id),
            });
        }
        if grown && conn.is_synchronized() && conn.life.mark(Marks::READABLE) {
            self.events.push_back(Event::Readable(id));
        }
        if conn.peer_closed() && conn.life.mark(Marks::PEER_CLOSED) {
            self.events.push_back(Event::PeerClosed(id));
        }
        if !conn.life.is(Marks::STARVED) && conn.relent() {
            self.events.push_back(Event::Writable(id));
        }
        let reason = match reset {
            true if conn.life.is(Marks::ANNOUNCED) => CloseReason::Reset,
            true => CloseReason::Refused,
            false => CloseReason::Graceful,
        };
        // A RST returns a socket in SYN-RECEIVED to LISTEN (RFC 9293 §3.10.7.4).
        if matches!(
            conn.state(),
            State::TimeWait | State::Closed | State::Listen
        ) {
            self.end(handle, reason);
        }
    }

    /// `Incoming` was polled: the connection is in no backlog any more.
    pub(crate) fn accepted(&mut self, handle: Handle) {
        let conn = self.conns.get_mut(handle);
        if let Some(id) = conn.and_then(|conn| conn.life.waiting.take())
            && let Some(listener) = self.listeners.get_mut(id.0)
        {
            listener.waiting = listener.waiting.saturating_sub(1);
        }
    }
}
