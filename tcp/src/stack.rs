//! The stack: its connections, and what can be done with them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use foldhash::quality::RandomState;
use smoltcp::wire::IpAddress;
use xwarp_driver::net::Network;
use xwarp_driver::{PacketIo, RxFrame};

use crate::config::{Path, StackConfig};
use crate::conn::{Conn, ConnLoad, Secrets, State};
use crate::counters::StackCounters;
use crate::error::{ConnectError, ListenError};
use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::flood::Flood;
use crate::flow::{Flow, endpoint};
use crate::grant::Grant;
use crate::isn::Numbers;
use crate::keys::Keys;
use crate::life::Marks;
use crate::link::{self, LinkHeader};
use crate::listeners::Listeners;
use crate::lower::Lower;
use crate::reset::ResetLimit;
use crate::slots::{Handle, Slots};
use crate::time::Instant;
use crate::timers::Timers;

/// Bytes of an IP packet: what every host must take (RFC 9293 §3.7.1), and what the length field can say.
pub(crate) const MTU_LIMITS: (usize, usize) = (576, 65535);

/// TCP connections over one packet interface.
pub struct Stack {
    pub(crate) config: StackConfig,
    /// The interface's Ethernet address before the present one.
    pub(crate) former_mac: Option<[u8; 6]>,
    /// Addresses that the host has lost: nothing is answered from there.
    pub(crate) withdrawn: Vec<IpAddress>,
    /// Bytes of the largest IP packet that a TX frame holds.
    pub(crate) largest: usize,
    pub(crate) lower: Lower,
    pub(crate) conns: Slots<Conn>,
    /// By a hash with a random key: peers choose their ports, and could make them collide otherwise.
    pub(crate) flows: HashMap<Flow, Handle, RandomState>,
    pub(crate) listeners: Listeners,
    /// The host's on the interface.
    pub(crate) networks: Vec<Network>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) timers: Timers,
    /// Connections that may have something to send.
    pub(crate) dirty: Vec<Handle>,
    /// Where those that run are gathered; empty between turns.
    pub(crate) running: Vec<Handle>,
    /// Connections that were refused room because there was no TX frame.
    pub(crate) starved: Vec<Handle>,
    /// When frames may be taken from silent peers again, if somebody still waits for one.
    pub(crate) scarce_until: Instant,
    /// Segments that had been sent when no connection had a frame that can be taken.
    pub(crate) none_held_at: Option<u64>,
    /// Connections in TIME-WAIT, the oldest first.
    pub(crate) resting: VecDeque<Handle>,
    pub(crate) now: Instant,
    /// Turns in a row that have not emptied the receive ring.
    pub(crate) behind: u32,
    /// When it was last asked what routers say, and how many retransmissions there had been.
    pub(crate) asked: (Instant, u64),
    pub(crate) numbers: Numbers,
    pub(crate) flood: Flood,
    pub(crate) resets: ResetLimit,
    /// Where received frames are gathered; empty between steps.
    pub(crate) frames: Vec<RxFrame>,
    /// Room that was given out and not committed.
    grant: Option<Grant>,
    joined: Vec<u8>,
}

impl Stack {
    /// A stack without connections on `io`, which it owns. The MTU is lowered to what a TX frame holds.
    pub fn new(mut io: Box<dyn PacketIo>, config: StackConfig) -> Self {
        let mut mtu = config.mtu.clamp(MTU_LIMITS.0, MTU_LIMITS.1);
        let mut largest = MTU_LIMITS.1;
        if let Some(frame) = io.tx_frame() {
            let fits = frame.capacity().saturating_sub(link::MAX_HEADER);
            io.discard(frame);
            largest = fits.max(MTU_LIMITS.0);
            if fits < mtu {
                log::warn!("an MTU of {mtu} bytes does not fit a TX frame; using {fits}");
                mtu = largest;
            }
        }
        let keys = Keys::new(config.seed);
        Self {
            flood: Flood::new(keys.cookies),
            resets: ResetLimit::new(),
            numbers: Numbers::new(keys.isns, keys.stamps),
            config,
            largest,
            former_mac: None,
            withdrawn: Vec::new(),
            lower: Lower::new(io, mtu),
            conns: Slots::new(),
            flows: HashMap::default(),
            listeners: Listeners::new(),
            networks: Vec::new(),
            events: VecDeque::new(),
            timers: Timers::new(),
            dirty: Vec::new(),
            running: Vec::new(),
            starved: Vec::new(),
            scarce_until: Instant::ORIGIN,
            none_held_at: None,
            resting: VecDeque::new(),
            now: Instant::ORIGIN,
            behind: 0,
            asked: (Instant::ORIGIN, 0),
            frames: Vec::new(),
            grant: None,
            joined: Vec::new(),
        }
    }

    /// The host's networks on the interface, as they are now: no peer has an address of the host's own, or one that names all hosts of a network.
    pub fn set_networks(&mut self, networks: Vec<Network>) {
        self.networks = networks;
    }

    /// Accepts connections to exactly this address and port. `backlog` of them may be half open at once, more are answered by SYN
    /// cookies; and as many may wait to be polled as [`Event::Incoming`], before SYNs are dropped.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        self.listeners.add(local, backlog)
    }

    /// Ends a listener. Its connections that are half open, or whose [`Event::Incoming`] was not polled, are reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        if !self.listeners.remove(id) {
            return;
        }
        let waiting: Vec<Handle> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.life.waiting == Some(id))
            .map(|(handle, _)| handle)
            .collect();
        for handle in waiting {
            self.reset(handle, CloseReason::Aborted);
            self.forget(handle);
        }
    }

    /// Sends a SYN along `path`. [`Event::Connected`] follows, or [`Event::Closed`], after
    /// [`StackConfig::connect_timeout`] at the latest.
    pub fn connect(&mut self, path: Path, now: Instant) -> Result<ConnId, ConnectError> {
        self.connect_within(path, self.config.connect_timeout, now)
    }

    /// The same with another limit.
    pub fn connect_within(
        &mut self,
        path: Path,
        limit: Duration,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        self.advance(now);
        let Path { local, remote, .. } = path;
        let flow = Flow {
            local: endpoint(local).ok_or(ConnectError::BadAddress(local))?,
            remote: endpoint(remote).ok_or(ConnectError::BadAddress(remote))?,
        };
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::MixedFamilies { local, remote });
        }
        if !self.frees(&flow) {
            return Err(ConnectError::FlowExists { local, remote });
        }
        if !self.has_room() {
            return Err(ConnectError::TooManyConnections(
                self.config.max_connections,
            ));
        }
        let ethertype = if local.is_ipv4() {
            link::IPV4
        } else {
            link::IPV6
        };
        let link = LinkHeader::new(path.next_hop, self.config.mac, ethertype);
        let mut conn = self.open(flow, link);
        conn.have_patience(limit);
        conn.open(self.now);
        let handle = self.insert(conn);
        self.run(handle);
        Ok(ConnId(handle))
    }

    /// What has happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match event {
            Event::Incoming { conn, .. } => self.accepted(conn.0),
            Event::Readable(conn) => {
                if let Some(conn) = self.conns.get_mut(conn.0) {
                    conn.life.marks.remove(Marks::READABLE);
                }
            }
            Event::Closed { conn, .. } => self.detach(conn.0),
            Event::Connected(_) | Event::Writable(_) | Event::PeerClosed(_) => {}
        }
        Some(event)
    }

    /// In-order bytes received and not consumed: at least `want` of them in one slice if that many are there, else those that
    /// lie together. They are read in the frame that brought them, and are joined in a buffer only if what is wanted lies in several.
    pub fn readable(&mut self, conn: ConnId, want: usize) -> &[u8] {
        match live(&mut self.conns, conn) {
            Some(conn) => conn.readable(want, &mut self.joined),
            None => &[],
        }
    }

    /// In-order bytes received and not consumed, in all.
    pub fn readable_len(&self, conn: ConnId) -> usize {
        self.live(conn).map_or(0, Conn::readable_len)
    }

    /// Takes the first `n` bytes away. The peer learns of the room by the next [`step`](Self::step) or
    /// [`transmit`](Self::transmit).
    pub fn consume(&mut self, conn: ConnId, n: usize) {
        if let Some(found) = live(&mut self.conns, conn) {
            found.consume(n, &mut self.lower);
            if found.has_news() {
                self.touch(conn.0);
            }
        }
    }

    /// Room for a piece of `len` bytes that will leave at once, as one TCP segment if `len` is at most
    /// [`emss`](Self::emss): in the frame that will carry it. The bytes given hold what was there before. The room is there until
    /// it is committed, or `writable` is called again for any connection.
    ///
    /// `None` unless the congestion window, the peer's window and the send buffer have room for all of it, nothing waits to be
    /// sent again, fewer than [`MAX_SEGMENTS_IN_FLIGHT`](crate::MAX_SEGMENTS_IN_FLIGHT) segments are unacknowledged, and there is
    /// a TX frame. [`Event::Writable`] follows when that has changed. A piece larger than any window that the peer ever announced
    /// is let through, to be split, when nothing is unacknowledged.
    pub fn writable(&mut self, conn: ConnId, len: usize) -> Option<&mut [u8]> {
        if let Some(unused) = self.grant.take() {
            unused.discard(&mut self.lower);
        }
        self.grant = self.admit(conn, len);
        self.grant.as_mut().map(Grant::bytes)
    }

    /// Sends the first `n` bytes of the room that [`writable`](Self::writable) gave, as a segment of their own with PSH. They are
    /// on their way after the next [`transmit`](Self::transmit) or [`step`](Self::step).
    pub fn commit(&mut self, conn: ConnId, n: usize, now: Instant) {
        self.advance(now);
        let Some(grant) = self.grant.take_if(|grant| grant.conn == conn.0) else {
            return;
        };
        match live(&mut self.conns, conn) {
            Some(found) => grant.commit(n, found, &mut self.lower, self.now),
            None => grant.discard(&mut self.lower),
        }
        self.touch(conn.0);
    }

    /// Sends all of `bytes`, for which nothing needs to have room: what the peer's window does not take yet waits until it does, as TCP's
    /// flow control has it, and whatever is sent later waits behind it. Meant for a few bytes that must go out whole. False if nothing
    /// may be sent.
    pub fn send_all(&mut self, conn: ConnId, bytes: &[u8], now: Instant) -> bool {
        self.advance(now);
        let Some(found) = live(&mut self.conns, conn).filter(|found| found.state().may_send())
        else {
            return false;
        };
        found.enqueue_bytes(bytes, &mut self.lower, self.now);
        self.run(conn.0);
        true
    }

    /// True until the connection has ended.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.live(conn)
            .is_some_and(|conn| !conn.life.is(Marks::ENDED))
    }

    /// True while bytes wait for room in the peer's window.
    pub fn has_unsent(&self, conn: ConnId) -> bool {
        self.live(conn).is_some_and(Conn::has_unsent)
    }

    /// Bytes of payload that one segment takes: what the MTU and the peer's MSS allow. 0 for a stale id.
    pub fn emss(&self, conn: ConnId) -> usize {
        self.live(conn).map_or(0, Conn::emss)
    }

    /// Bytes committed that the peer has not acknowledged.
    pub fn unacked(&mut self, conn: ConnId) -> usize {
        let Some(conn) = live(&mut self.conns, conn) else {
            return 0;
        };
        conn.catch_up(&mut self.lower);
        conn.unacked()
    }

    /// What the peer has the connection do; `None` for a stale id.
    pub fn load(&self, conn: ConnId) -> Option<ConnLoad> {
        self.live(conn).map(Conn::load)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self, conn: ConnId) -> Option<SocketAddr> {
        Some(self.live(conn)?.flow.remote.into())
    }

    /// Our address and port.
    pub fn local_addr(&self, conn: ConnId) -> Option<SocketAddr> {
        Some(self.live(conn)?.flow.local.into())
    }

    /// Sends a FIN after all that was committed; the peer's bytes can still be read. A connection that is not established is
    /// forgotten. [`Event::Closed`] follows in either case.
    pub fn close(&mut self, conn: ConnId, now: Instant) {
        self.advance(now);
        let Some(found) = live(&mut self.conns, conn) else {
            return;
        };
        if found.is_synchronized() {
            found.close(self.now);
            self.run(conn.0);
        } else {
            self.reset(conn.0, CloseReason::Aborted);
        }
    }

    /// Sends a RST. [`Event::Closed`] follows.
    pub fn abort(&mut self, conn: ConnId, now: Instant) {
        self.advance(now);
        if self.live(conn).is_some() {
            self.reset(conn.0, CloseReason::Aborted);
        }
    }

    /// When [`step`](Self::step) must be called at the latest if no frame arrives: at once if something could not be sent. There
    /// may turn out to be nothing to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.dirty.is_empty() {
            return Some(self.now);
        }
        let hopeful = !self.starved.is_empty() && !self.knows_of_no_frame();
        let scarce = hopeful.then_some(self.scarce_until);
        [self.timers.next(), scarce].into_iter().flatten().min()
    }

    /// The packet interface.
    pub fn io(&self) -> &dyn PacketIo {
        self.lower.io.as_ref()
    }

    /// The packet interface.
    pub fn io_mut(&mut self) -> &mut dyn PacketIo {
        self.lower.io.as_mut()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> StackCounters {
        self.lower.counters
    }

    /// A closed connection for `flow`, in no table yet.
    pub(crate) fn open(&mut self, flow: Flow, link: LinkHeader) -> Conn {
        let secrets = self.numbers.secrets(&flow, self.now);
        self.open_with(secrets, flow, link)
    }

    /// A closed connection with numbers that are known already.
    pub(crate) fn open_with(&mut self, secrets: Secrets, flow: Flow, link: LinkHeader) -> Conn {
        Conn::new(flow, link, &self.config, secrets, self.lower.mtu, self.now)
    }

    /// True if no connection has this flow, or one that rests in TIME-WAIT, which makes way: initial sequence numbers of a flow only
    /// grow, so that its peer can tell the next connection from it (RFC 9293 §3.6.1).
    fn frees(&mut self, flow: &Flow) -> bool {
        let Some(handle) = self.flows.get(flow).copied() else {
            return true;
        };
        let rests = (self.conns.get(handle)).is_some_and(|conn| conn.state() == State::TimeWait);
        if rests {
            self.retire(handle);
        }
        rests
    }

    pub(crate) fn insert(&mut self, conn: Conn) -> Handle {
        let flow = conn.flow;
        let handle = self.conns.insert(conn);
        self.flows.insert(flow, handle);
        handle
    }

    /// Time does not go back.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Room for `len` bytes, if they can leave at once.
    fn admit(&mut self, id: ConnId, len: usize) -> Option<Grant> {
        let now = self.now;
        let conn = live(&mut self.conns, id)?;
        if !conn.finds_room(len, &mut self.lower, now) {
            conn.refuse(len);
            self.touch(id.0); // the window may have to be probed
            return None;
        }
        let grant = Grant::new(id.0, conn, len, &mut self.lower);
        if grant.is_none() {
            conn.refuse(len);
            if conn.life.mark(Marks::STARVED) {
                self.starved.push(id.0);
            }
        }
        grant
    }

    /// Removes a connection; its frames go back.
    pub(crate) fn remove(&mut self, handle: Handle) {
        if let Some(conn) = self.conns.remove(handle) {
            self.timers.remove(handle);
            conn.dispose(&mut self.lower);
        }
    }

    fn live(&self, id: ConnId) -> Option<&Conn> {
        let conn = self.conns.get(id.0)?;
        (!conn.life.is(Marks::DETACHED)).then_some(conn)
    }
}

/// The connection that `id` names, unless it is only in TIME-WAIT.
fn live(conns: &mut Slots<Conn>, id: ConnId) -> Option<&mut Conn> {
    let conn = conns.get_mut(id.0)?;
    (!conn.life.is(Marks::DETACHED)).then_some(conn)
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("connections", &self.conns.len())
            .field("listeners", &self.listeners.len())
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
