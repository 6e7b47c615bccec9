//! More SYNs than a listener's backlog holds: they are answered by cookies, of which nothing is kept (RFC 4987 §3.6).

use std::time::Duration;

use xwarp_driver::RxFrame;

use crate::conn::Secrets;
use crate::cookie::{Cookies, Opened, Peer};
use crate::event::ListenerId;
use crate::inbound::Segment;
use crate::link::LinkHeader;
use crate::seq::{from_raw, raw};
use crate::stack::Stack;
use crate::time::Instant;

/// How long a cookie may be good; without one made in this time, no ACK can be a cookie's.
const MEMORY: Duration = Duration::from_secs(128);
/// As many backlogs of connections may wait to be polled: those that a cookie was given to, too.
const BACKLOGS: usize = 2;

/// What a stack knows of cookies.
///
/// Every ACK of no flow is looked at, however many come: four hashes cost less than the RST that a refusal would be answered by, and an
/// honest client's ACK is one among them. A guess is right with a probability of 2^-23: who makes 20,000 a second has one connection in
/// seven minutes, and one of his own making whenever he likes. It takes a place in the queue of those to be polled until the next turn,
/// and is silent: whoever it is given to ends it like any other that says nothing.
#[derive(Debug)]
pub(crate) struct Flood {
    cookies: Cookies,
    /// When the last one was made.
    made: Option<Instant>,
}

impl Flood {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self {
            cookies: Cookies::new(secret),
            made: None,
        }
    }

    fn make(&mut self, peer: &Peer, opened: Opened, now: Instant) -> u32 {
        self.made = Some(now);
        self.cookies.make(peer, opened, now)
    }

    fn check(&self, peer: &Peer, cookie: u32, now: Instant) -> Option<Opened> {
        self.made.filter(|made| now - *made < MEMORY)?;
        self.cookies.check(peer, cookie, now)
    }
}

impl Stack {
    /// Answers a SYN, and keeps nothing of it.
    pub(crate) fn answer_by_cookie(&mut self, syn: &Segment, link: &LinkHeader) {
        let opened = Opened::of(&syn.options, syn.flow.local.addr.into());
        let peer = Peer {
            flow: syn.flow,
            isn: raw(syn.seq),
            timestamps: self.config.timestamps && syn.options.timestamp.is_some(),
        };
        let iss = from_raw(self.flood.make(&peer, opened, self.now));
        let secrets = Secrets {
            iss,
            ..self.numbers.secrets(&syn.flow, self.now)
        };
        let mut conn = self.open_with(secrets, syn.flow, link.clone());
        conn.open_passive(syn, self.now);
        if conn.answer_without_memory(&mut self.lower, self.now) {
            self.lower.counters.cookies_out += 1;
        } else {
            self.lower.counters.drop_no_tx_frame += 1;
        }
    }

    /// What the SYN has said whose cookie this segment acknowledges.
    pub(crate) fn recall(&self, segment: &Segment) -> Option<Opened> {
        let ack = segment
            .ack
            .filter(|_| !segment.has_syn() && !segment.is_reset())?;
        let peer = Peer {
            flow: segment.flow,
            isn: raw(segment.seq - 1),
            timestamps: self.config.timestamps && segment.options.timestamp.is_some(),
        };
        self.flood.check(&peer, raw(ack - 1), self.now)
    }

    /// Establishes the connection that a cookie stands for, by the segment that brings it back.
    pub(crate) fn accept_by_cookie(
        &mut self,
        id: ListenerId,
        opened: Opened,
        segment: &Segment,
        (link, frame): (LinkHeader, RxFrame),
    ) {
        let listener = self.listeners.get(id);
        let room = listener.is_some_and(|it| it.polls(BACKLOGS));
        if !room || !self.has_room() {
            self.lower.counters.drop_backlog_full += u64::from(!room);
            self.lower.counters.drop_table_full += u64::from(room);
            self.lower.io.recycle(frame);
            return;
        }
        let secrets = Secrets {
            iss: segment.ack.unwrap_or_default() - 1,
            ..self.numbers.secrets(&segment.flow, self.now)
        };
        let mut conn = self.open_with(secrets, segment.flow, link);
        conn.open_by_cookie(opened, segment, self.now);
        let handle = self.insert_half_open(conn, id);
        self.lower.counters.cookies_in += 1;
        self.deliver(handle, segment, frame);
    }
}
