//! From received frames to connections.

use xwarp_driver::RxFrame;

use crate::conn::{Conn, State};
use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::flow::{Flow, is_hosts};
use crate::inbound::{self, Discard, Segment};
use crate::life::Marks;
use crate::link::{Framed, LinkHeader};
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
            match self.parse(&frame) {
                Ok(segment) => self.dispatch(&segment, frame),
                Err(discard) => {
                    discard.count(&mut self.lower.counters);
                    self.lower.io.recycle(frame);
                }
            }
        }
        self.frames = frames;
        received
    }

    /// A frame for the interface's address, or for the one that it had before: peers go on with that until they ask anew.
    fn parse(&self, frame: &[u8]) -> Result<Segment, Discard> {
        match (inbound::parse(frame, self.config.mac), self.former_mac) {
            (Err(Discard::OtherStation), Some(former)) => inbound::parse(frame, former),
            (parsed, _) => parsed,
        }
    }

    fn dispatch(&mut self, segment: &Segment, frame: RxFrame) {
        self.lower.counters.segments_in += 1;
        if let Some(handle) = self.flows.get(&segment.flow).copied() {
            if !self.gives_way(handle, segment) {
                self.deliver(handle, segment, frame);
                return;
            }
            self.retire(handle);
        }
        if let Err(discard) = self.check_addresses(&segment.flow) {
            discard.count(&mut self.lower.counters);
            self.lower.io.recycle(frame);
            return;
        }
        let listener = self.listeners.at(segment.flow.local);
        self.greet(listener, segment, frame);
    }

    /// Could a flow be between these addresses? Nobody is answered else, not even with a RST (RFC 1122 §3.2.1.3, §4.2.3.10). Of a flow that there is,
    /// this was asked when it was made.
    fn check_addresses(&self, flow: &Flow) -> Result<(), Discard> {
        let (local, remote) = (flow.local.addr.into(), flow.remote.addr.into());
        if !is_hosts(local) {
            return Err(Discard::NotUnicast);
        }
        let ours = remote == local || self.networks.iter().any(|it| it.excludes(remote));
        if ours || !is_hosts(remote) {
            return Err(Discard::BadSource);
        }
        Ok(())
    }

    /// A segment of no flow: a SYN for a listener, the ACK of a cookie, or a mistake.
    fn greet(&mut self, listener: Option<ListenerId>, segment: &Segment, frame: RxFrame) {
        let Some(link) = self.answer_link(&frame) else {
            self.lower.io.recycle(frame);
            return;
        };
        if let Some(id) = listener
            && let Some(opened) = self.recall(segment)
        {
            self.accept_by_cookie(id, opened, segment, (link, frame));
            return;
        }
        match listener {
            Some(id) if segment.opens() => self.accept(id, segment, link),
            _ => {
                self.lower.counters.drop_no_flow += 1;
                if !self.withdrawn.contains(&segment.flow.local.addr) {
                    reset::answer(segment, &link, &mut self.lower, &mut self.resets, self.now);
                }
            }
        }
        self.lower.io.recycle(frame);
    }

    /// The Ethernet header of an answer to a frame.
    fn answer_link(&self, frame: &RxFrame) -> Option<LinkHeader> {
        let framed = Framed::parse(frame)?;
        Some(LinkHeader::answer(&framed, self.config.mac))
    }

    /// True if a connection rests in TIME-WAIT and `segment` opens another with a listener.
    fn gives_way(&self, handle: Handle, segment: &Segment) -> bool {
        let conn = self.conns.get(handle);
        conn.is_some_and(|conn| conn.is_succeeded_by(segment, self.now))
            && self.listeners.at(segment.flow.local).is_some()
    }

    /// Opens a connection for a SYN to a listener. Bytes that come with it are not taken: the peer sends them again.
    fn accept(&mut self, id: ListenerId, syn: &Segment, link: LinkHeader) {
        let listener = self.listeners.get(id);
        let Some(listener) = listener.filter(|it| it.polls(1)) else {
            self.lower.counters.drop_backlog_full += 1;
            return;
        };
        if listener.is_flooded() {
            self.answer_by_cookie(syn, &link);
            return;
        }
        if !self.has_room() {
            self.lower.counters.drop_table_full += 1;
            return;
        }
        let mut conn = self.open(syn.flow, link);
        conn.open_passive(syn, self.now);
        let handle = self.insert_half_open(conn, id);
        self.touch(handle);
    }

    /// Enters a connection that is in a listener's backlog.
    pub(crate) fn insert_half_open(&mut self, mut conn: Conn, id: ListenerId) -> Handle {
        conn.life.waiting = Some(id);
        self.listeners.opened(id);
        self.insert(conn)
    }

    pub(crate) fn deliver(&mut self, handle: Handle, segment: &Segment, frame: RxFrame) {
        let Some(conn) = self.conns.get_mut(handle) else {
            self.lower.io.recycle(frame);
            return;
        };
        let grown = conn.arrive(segment, frame, &mut self.lower, self.now);
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
            let waiting = conn.life.waiting;
            if let Some(id) = waiting {
                self.listeners.established(id);
            }
            self.events.push_back(match waiting {
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
        if conn.state().peer_closed() && conn.life.mark(Marks::PEER_CLOSED) {
            self.events.push_back(Event::PeerClosed(id));
        }
        if !conn.life.is(Marks::STARVED) && conn.relent(self.now) {
            self.events.push_back(Event::Writable(id));
        }
        let reason = match reset {
            true if conn.life.is(Marks::ANNOUNCED) => CloseReason::Reset,
            true => CloseReason::Refused,
            false => CloseReason::Graceful,
        };
        if matches!(conn.state(), State::TimeWait | State::Closed) {
            self.end(handle, reason);
        }
    }

    /// `Incoming` was polled, or the connection has ended before: it is in no backlog any more.
    pub(crate) fn accepted(&mut self, handle: Handle) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        let announced = conn.life.is(Marks::ANNOUNCED);
        if let Some(id) = conn.life.waiting.take() {
            self.listeners.left(id, announced);
        }
    }
}
