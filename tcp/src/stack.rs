//! The stack: its connections, and what can be done with them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;

use smoltcp::wire::IpEndpoint;
use xwarp_driver::{IoError, PacketIo, RxFrame};

use crate::config::{Path, StackConfig};
use crate::conn::Conn;
use crate::counters::StackCounters;
use crate::error::{ConnectError, ListenError};
use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::flow::{Flow, endpoint};
use crate::life::Marks;
use crate::link::{self, LinkHeader};
use crate::lower::Lower;
use crate::slots::{Handle, Slots};
use crate::time::Instant;
use crate::timers::Timers;

/// Octets of an IP packet: what every host must take (RFC 9293 §3.7.1), and what the length field can say.
const MTU_LIMITS: (usize, usize) = (576, 65535);

/// TCP connections over one packet interface.
pub struct Stack {
    pub(crate) config: StackConfig,
    pub(crate) lower: Lower,
    pub(crate) conns: Slots<Conn>,
    pub(crate) flows: HashMap<Flow, Handle>,
    pub(crate) listeners: Slots<Listener>,
    pub(crate) ports: HashMap<IpEndpoint, Handle>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) timers: Timers,
    /// Connections that may have something to send.
    pub(crate) dirty: Vec<Handle>,
    /// Connections that were refused room because there was no TX frame.
    pub(crate) starved: Vec<Handle>,
    /// Connections in TIME-WAIT, the oldest first.
    pub(crate) resting: VecDeque<Handle>,
    pub(crate) now: Instant,
    /// Where received frames are gathered; empty between steps.
    pub(crate) frames: Vec<RxFrame>,
    joined: Vec<u8>,
    opened: u64,
}

/// Whoever waits for connections to an address and port.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) local: IpEndpoint,
    pub(crate) backlog: usize,
    /// Connections half open, or established and not polled.
    pub(crate) waiting: usize,
}

impl Stack {
    /// A stack without connections on `io`, which it owns. The MTU is lowered to what a TX frame holds.
    pub fn new(mut io: Box<dyn PacketIo>, config: StackConfig) -> Self {
        let mut mtu = config.mtu.clamp(MTU_LIMITS.0, MTU_LIMITS.1);
        if let Some(frame) = io.tx_frame() {
            let fits = frame.capacity().saturating_sub(link::MAX_HEADER);
            io.discard(frame);
            if fits < mtu {
                log::warn!("an MTU of {mtu} octets does not fit a TX frame; using {fits}");
                mtu = fits.max(MTU_LIMITS.0);
            }
        }
        Self {
            config,
            lower: Lower::new(io, mtu),
            conns: Slots::new(),
            flows: HashMap::new(),
            listeners: Slots::new(),
            ports: HashMap::new(),
            events: VecDeque::new(),
            timers: Timers::default(),
            dirty: Vec::new(),
            starved: Vec::new(),
            resting: VecDeque::new(),
            now: Instant::ORIGIN,
            frames: Vec::new(),
            joined: Vec::new(),
            opened: 0,
        }
    }

    /// Accepts connections to exactly this address and port, `backlog` of them at once before they are polled as
    /// [`Event::Incoming`].
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        let local_endpoint = endpoint(local).ok_or(ListenError::BadAddress(local))?;
        if self.ports.contains_key(&local_endpoint) {
            return Err(ListenError::AddressInUse(local));
        }
        let handle = self.listeners.insert(Listener {
            local: local_endpoint,
            backlog,
            waiting: 0,
        });
        self.ports.insert(local_endpoint, handle);
        Ok(ListenerId(handle))
    }

    /// Ends a listener. Its connections that are half open, or whose [`Event::Incoming`] was not polled, are reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.remove(id.0) else {
            return;
        };
        self.ports.remove(&listener.local);
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

    /// Sends a SYN along `path`. [`Event::Connected`] follows, or [`Event::Closed`].
    pub fn connect(&mut self, path: Path, now: Instant) -> Result<ConnId, ConnectError> {
        self.advance(now);
        let Path { local, remote, .. } = path;
        let flow = Flow {
            local: endpoint(local).ok_or(ConnectError::BadAddress(local))?,
            remote: endpoint(remote).ok_or(ConnectError::BadAddress(remote))?,
        };
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(ConnectError::MixedFamilies { local, remote });
        }
        if self.flows.contains_key(&flow) {
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
        conn.connect()
            .map_err(|_| ConnectError::BadAddress(remote))?;
        let handle = self.insert(conn);
        self.run(handle);
        Ok(ConnId(handle))
    }

    /// One turn: receives up to `budget` frames, runs the timers that are due, transmits what can be sent, and flushes. Returns
    /// how much there was to do; 0 means idle. Everything received is acknowledged once per turn and connection.
    pub fn step(&mut self, now: Instant, budget: usize) -> Result<usize, IoError> {
        self.advance(now);
        let done = self.receive(budget) + self.run_timers() + self.send_dirty();
        self.trim_timers();
        self.lower.io.flush()?;
        self.feed_starved();
        Ok(done)
    }

    /// Transmits what has come up since the last step, and flushes.
    pub fn transmit(&mut self, now: Instant) -> Result<(), IoError> {
        self.advance(now);
        self.send_dirty();
        self.lower.io.flush()?;
        self.feed_starved();
        Ok(())
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

    /// In-order octets received and not consumed: at least `want` of them in one slice if that many are there, else those that
    /// lie together. The slice is joined in a buffer only if what is wanted straddles the ring's end.
    pub fn readable(&mut self, conn: ConnId, want: usize) -> &[u8] {
        match live(&mut self.conns, conn) {
            Some(conn) => conn.readable(want, &mut self.joined),
            None => &[],
        }
    }

    /// In-order octets received and not consumed, in all.
    pub fn readable_len(&self, conn: ConnId) -> usize {
        self.live(conn).map_or(0, Conn::readable_len)
    }

    /// Takes the first `n` octets away. The peer learns of the room by the next [`step`](Self::step) or
    /// [`transmit`](Self::transmit).
    pub fn consume(&mut self, conn: ConnId, n: usize) {
        if let Some(found) = live(&mut self.conns, conn) {
            found.consume(n);
            self.touch(conn.0);
        }
    }

    /// Room for a piece of `len` octets that will leave at once, as one TCP segment if `len` is at most
    /// [`emss`](Self::emss). The octets given hold what was there before.
    ///
    /// `None` unless all that was committed has been sent, the peer's window and the send buffer have room for all of it, fewer
    /// than [`MAX_SEGMENTS_IN_FLIGHT`](crate::MAX_SEGMENTS_IN_FLIGHT) segments are unacknowledged, and there is a TX frame.
    /// [`Event::Writable`] follows when that has changed. A piece larger than any window that the peer ever announced is let
    /// through, to be split, when nothing is unacknowledged.
    pub fn writable(&mut self, conn: ConnId, len: usize) -> Option<&mut [u8]> {
        if !self.admits(conn, len) {
            return None;
        }
        live(&mut self.conns, conn)?.grant(len)
    }

    /// Hands the first `n` octets of the slice that [`writable`](Self::writable) gave to TCP and emits them, as a segment of
    /// their own with PSH. They are on their way after the next [`transmit`](Self::transmit) or [`step`](Self::step).
    pub fn commit(&mut self, conn: ConnId, n: usize, now: Instant) {
        self.advance(now);
        if let Some(found) = live(&mut self.conns, conn) {
            found.commit(n, self.now);
            self.run(conn.0);
        }
    }

    /// Octets of payload that one segment takes: what the MTU and the peer's MSS allow. 0 for a stale id.
    pub fn emss(&self, conn: ConnId) -> usize {
        self.live(conn).map_or(0, Conn::emss)
    }

    /// Octets committed that the peer has not acknowledged.
    pub fn unacked(&self, conn: ConnId) -> usize {
        self.live(conn).map_or(0, Conn::unacked)
    }

    /// The peer's address and port.
    pub fn peer_addr(&self, conn: ConnId) -> Option<SocketAddr> {
        Some(self.live(conn)?.flow.remote.into())
    }

    /// Our address and port.
    pub fn local_addr(&self, conn: ConnId) -> Option<SocketAddr> {
        Some(self.live(conn)?.flow.local.into())
    }

    /// Sends a FIN after all that was committed; the peer's octets can still be read. A connection that is not established is
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
        if self.dirty.is_empty() {
            self.timers.next()
        } else {
            Some(self.now)
        }
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
        let seed = self.next_seed(flow);
        Conn::new(flow, link, &self.config, seed, &mut self.lower, self.now)
    }

    pub(crate) fn insert(&mut self, conn: Conn) -> Handle {
        let flow = conn.flow;
        let handle = self.conns.insert(conn);
        self.flows.insert(flow, handle);
        handle
    }

    /// A seed for one connection's initial sequence number (RFC 6528 §3: a keyed hash, and the key is secret).
    fn next_seed(&mut self, flow: Flow) -> u64 {
        self.opened += 1;
        let mut hasher = DefaultHasher::new();
        (self.config.seed, self.opened, flow).hash(&mut hasher);
        hasher.finish()
    }

    /// Time does not go back: smoltcp would take the difference for a very long one.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// True if `len` octets can leave at once, with a TX frame set aside for them.
    fn admits(&mut self, id: ConnId, len: usize) -> bool {
        let Some(conn) = live(&mut self.conns, id) else {
            return false;
        };
        if !conn.can_write(len) {
            conn.refuse(len);
            self.touch(id.0); // the window may have to be probed
            return false;
        }
        if self.lower.reserve_frame() {
            return true;
        }
        conn.refuse(len);
        if conn.life.mark(Marks::STARVED) {
            self.starved.push(id.0);
        }
        false
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
