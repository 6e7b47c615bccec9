//! One connection: smoltcp's socket, its interface, and what is known of its segments.

use std::time::Duration;

use smoltcp::iface::{self, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{
    CongestionControl, ConnectError, ListenError, Socket, SocketBuffer, State,
};
use smoltcp::wire::{HardwareAddress, IpCidr, TcpControl};

use crate::config::StackConfig;
use crate::flow::Flow;
use crate::inbound::Segment;
use crate::life::Life;
use crate::link::LinkHeader;
use crate::lower::Lower;
use crate::port::Port;
use crate::probe::{Probes, Reason};
use crate::time::Instant;
use crate::track::{MAX_SEGMENTS_IN_FLIGHT, Tracker};

/// Segments that a connection may send in one turn before the others have theirs.
const EGRESS_BUDGET: usize = 64;
/// The send buffer's size in receive buffers. At its end a connection waits until all is acknowledged: the longer, the rarer.
const SEND_BUFFERS: usize = 4;
/// What smoltcp takes for a receive buffer, and a size that still holds a few segments.
const BUFFER_LIMITS: (usize, usize) = (1 << 10, 1 << 30);

/// A connection.
pub(crate) struct Conn {
    pub(crate) flow: Flow,
    pub(crate) life: Life,
    link: LinkHeader,
    iface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    track: Tracker,
    own_mss: usize,
    connect_timeout: Duration,
    user_timeout: Duration,
    /// When the peer last showed that it lives, by an acknowledgment if one is due.
    progress: Instant,
    keepalive: Option<Duration>,
    probes: Probes,
    grant: Option<Grant>,
    /// Where a grant lies that straddles the ring's end: one larger than a segment.
    spill: Vec<u8>,
    /// The length that `writable` refused last; 0 after it became possible.
    wanted: usize,
    /// smoltcp had nothing to send when it was asked last.
    drained: bool,
}

/// Room that `writable` gave out.
#[derive(Clone, Copy, Debug)]
struct Grant {
    len: usize,
    /// Address in smoltcp's ring; `None` for the spill buffer.
    ring: Option<usize>,
}

impl Conn {
    pub(crate) fn new(
        flow: Flow,
        link: LinkHeader,
        config: &StackConfig,
        seed: u64,
        lower: &mut Lower,
        now: Instant,
    ) -> Self {
        let mut track = Tracker::new();
        let own_mss = flow.payload_of(lower.mtu);
        let mut iface_config = iface::Config::new(HardwareAddress::Ip);
        iface_config.random_seed = seed;
        let mut port = Port::new(lower, &link, &mut track);
        let mut iface = Interface::new(iface_config, &mut port, now.to_smoltcp());
        // A prefix of no bits has every peer on the link; the list has room for one, being empty.
        iface.update_ip_addrs(|addrs| addrs.extend([IpCidr::new(flow.local.addr, 0)]));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(new_socket(config.buffer));
        Self {
            flow,
            life: Life::default(),
            link,
            iface,
            sockets,
            socket,
            track,
            own_mss,
            connect_timeout: config.connect_timeout,
            user_timeout: config.user_timeout,
            progress: now,
            keepalive: config.keepalive,
            probes: Probes::default(),
            grant: None,
            spill: Vec::new(),
            wanted: 0,
            drained: true,
        }
    }

    /// Passive OPEN (RFC 9293 §3.10.1), for one SYN.
    pub(crate) fn listen(&mut self) -> Result<(), ListenError> {
        let local = self.flow.local;
        self.tcp_mut().listen(local)
    }

    /// Active OPEN.
    pub(crate) fn connect(&mut self) -> Result<(), ConnectError> {
        let Flow { local, remote } = self.flow;
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        socket.connect(self.iface.context(), remote, local)
    }

    fn tcp(&self) -> &Socket<'static> {
        self.sockets.get(self.socket)
    }

    fn tcp_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    pub(crate) fn state(&self) -> State {
        self.tcp().state()
    }

    /// True once both SYNs are acknowledged.
    pub(crate) fn is_synchronized(&self) -> bool {
        !matches!(
            self.state(),
            State::Listen | State::SynSent | State::SynReceived | State::Closed
        )
    }

    /// True once the peer's FIN was received in order.
    pub(crate) fn peer_closed(&self) -> bool {
        matches!(
            self.state(),
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait
        )
    }

    /// True if `segment` begins a new connection after this one, which is in TIME-WAIT (RFC 9293 §3.6.1).
    pub(crate) fn is_succeeded_by(&self, segment: &Segment<'_>) -> bool {
        let newer = segment.tcp.seq_number > self.track.acknowledged();
        self.state() == State::TimeWait && segment.opens() && newer
    }

    /// True if `segment` must be dropped for what it claims of the window.
    pub(crate) fn overreaches(&self, segment: &Segment<'_>) -> bool {
        let opening = matches!(self.state(), State::Listen | State::SynSent);
        !opening && self.track.overreaches(&segment.tcp)
    }

    /// True for a duplicate ACK while only our FIN is unacknowledged. It says nothing new, but three of them would have smoltcp
    /// stop its retransmission timer for a fast retransmit of octets that there are none of: the FIN would never be repeated.
    pub(crate) fn is_needless(&self, segment: &Segment<'_>) -> bool {
        let tcp = &segment.tcp;
        matches!(self.state(), State::FinWait1 | State::Closing)
            && matches!(tcp.control, TcpControl::None | TcpControl::Psh)
            && tcp.payload.is_empty()
            && self.unacked() == 0
            && tcp.ack_number == Some(self.track.unacknowledged())
    }

    /// Lets smoltcp process a segment. True if there are octets to read that were not there before.
    pub(crate) fn receive(
        &mut self,
        segment: &Segment<'_>,
        lower: &mut Lower,
        now: Instant,
    ) -> bool {
        let (before, unread) = (self.state(), self.readable_len());
        let port = Port::new(lower, &self.link, &mut self.track);
        self.iface.poll_ingress_single(
            now.to_smoltcp(),
            &mut port.with_inbound(segment.packet),
            &mut self.sockets,
        );
        let after = self.state();
        let opening = matches!(before, State::Listen | State::SynSent);
        let opened = opening && matches!(after, State::SynReceived | State::Established);
        if opened {
            self.track.synchronized(&segment.tcp);
        }
        let mut progress = after != before;
        // In a synchronized state smoltcp ignores a SYN, and so must the tracker.
        if self.is_synchronized() && (opened || segment.tcp.control != TcpControl::Syn) {
            let queued = self.unacked();
            progress |= self.track.received(&segment.tcp, queued);
            // With nothing to acknowledge, or no room to send it to, any segment will do.
            progress |= queued == 0 || segment.tcp.window_len == 0;
        }
        if progress {
            self.progress = now;
            if self.probes.heard() {
                self.tcp_mut().set_keep_alive(None);
            }
        }
        self.readable_len() > unread
    }

    /// Sends what can be sent; the number of segments. `is_drained` says whether that was all.
    pub(crate) fn egress(&mut self, lower: &mut Lower, now: Instant) -> usize {
        self.watch(now);
        let mut port = Port::new(lower, &self.link, &mut self.track);
        let mut sent = 0;
        while sent < EGRESS_BUDGET
            && self
                .iface
                .poll_egress(now.to_smoltcp(), &mut port, &mut self.sockets)
                == PollResult::SocketStateChanged
        {
            sent += 1;
        }
        self.drained = sent < EGRESS_BUDGET && !port.exhausted;
        sent
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Octets per segment: what our MTU and the peer's MSS allow.
    pub(crate) fn emss(&self) -> usize {
        self.own_mss.min(self.track.peer_mss())
    }

    pub(crate) fn unacked(&self) -> usize {
        self.tcp().send_queue()
    }

    pub(crate) fn readable_len(&self) -> usize {
        self.tcp().recv_queue()
    }

    pub(crate) fn readable<'a>(&'a mut self, want: usize, joined: &'a mut Vec<u8>) -> &'a [u8] {
        let total = self.readable_len();
        let socket = self.tcp_mut();
        let contiguous = socket.peek(total).map_or(0, <[u8]>::len);
        if contiguous >= want || total < want {
            return socket.peek(total).unwrap_or_default();
        }
        joined.resize(want, 0);
        let copied = socket.peek_slice(joined).unwrap_or(0);
        joined.get(..copied).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, n: usize) {
        let mut left = n.min(self.readable_len());
        while left > 0 {
            let taken = self.tcp_mut().recv(|ring| {
                let taken = left.min(ring.len());
                (taken, taken)
            });
            match taken {
                Ok(taken) if taken > 0 => left -= taken,
                _ => return,
            }
        }
    }

    /// True if a piece of `len` octets would leave at once, and as one segment if `len` is at most the EMSS. A window that is
    /// never as large as the piece is filled when nothing else is on its way, or the connection would stand still.
    pub(crate) fn can_write(&mut self, len: usize) -> bool {
        self.has_room(len) && self.lies_together(len)
    }

    /// True if the ring has room for a segment of `len` octets without straddling its end, where smoltcp would cut it in two. When
    /// everything is acknowledged, smoltcp begins anew at the ring's start.
    fn lies_together(&mut self, len: usize) -> bool {
        len > self.emss()
            || self.unacked() == 0
            || self.tcp_mut().send(|ring| (0, ring.len() >= len)) == Ok(true)
    }

    fn has_room(&self, len: usize) -> bool {
        let socket = self.tcp();
        let free = socket.send_capacity() - socket.send_queue();
        let room = self.track.room();
        let must_split = self.track.largest_window() < len && room > 0 && self.unacked() == 0;
        socket.may_send()
            && self.drained
            && self.track.all_sent()
            && free >= len
            && (room >= len || must_split)
            && self.track.segments_in_flight() < MAX_SEGMENTS_IN_FLIGHT
    }

    /// Remembers that `len` octets could not be written.
    pub(crate) fn refuse(&mut self, len: usize) {
        self.wanted = len.max(1);
    }

    /// True, once, if what was refused has become possible.
    pub(crate) fn relent(&mut self) -> bool {
        let possible = self.wanted > 0 && self.can_write(self.wanted);
        if possible {
            self.wanted = 0;
        }
        possible
    }

    /// Room for `len` octets, in the ring if they do not straddle its end.
    pub(crate) fn grant(&mut self, len: usize) -> Option<&mut [u8]> {
        let place = |ring: &mut [u8]| (0, (ring.len() >= len).then(|| ring.as_ptr().addr()));
        let ring = self.tcp_mut().send(place).ok()?;
        self.grant = Some(Grant { len, ring });
        if ring.is_some() {
            let ring = self.tcp_mut().send(|ring| (0, ring)).ok()?;
            return ring.get_mut(..len);
        }
        self.spill.resize(len.max(self.spill.len()), 0);
        self.spill.get_mut(..len)
    }

    /// Queues the first `n` octets of the room granted last.
    pub(crate) fn commit(&mut self, n: usize, now: Instant) {
        let Some(Grant { len, ring }) = self.grant.take() else {
            return;
        };
        let n = n.min(len);
        if self.unacked() == 0 {
            self.progress = now;
        }
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let queued = if let Some(address) = ring {
            socket.send(|ring| {
                let n = settle(ring, address, n);
                (n, n)
            })
        } else {
            socket.send_slice(self.spill.get(..n).unwrap_or_default())
        };
        self.track.commit(queued.unwrap_or(0));
    }

    /// CLOSE (RFC 9293 §3.10.4) of a synchronized connection.
    pub(crate) fn close(&mut self, now: Instant) {
        self.grant = None;
        self.progress = now;
        self.tcp_mut().close();
    }

    /// ABORT (RFC 9293 §3.10.5): the next egress sends a RST.
    pub(crate) fn abort(&mut self) {
        self.grant = None;
        self.tcp_mut().abort();
    }

    /// When the peer must have shown that it lives.
    fn expiry(&self) -> Option<Instant> {
        let waits_for_ack = self.unacked() > 0 || self.probes.active();
        match self.state() {
            State::SynSent | State::SynReceived => Some(self.progress + self.connect_timeout),
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                Some(self.progress + self.user_timeout)
            }
            State::Established | State::CloseWait if waits_for_ack => {
                Some(self.progress + self.user_timeout)
            }
            State::Established
            | State::CloseWait
            | State::TimeWait
            | State::Listen
            | State::Closed => None,
        }
    }

    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now)
    }

    /// When to run next.
    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.watch(now);
        let theirs = self.iface.poll_at(now.to_smoltcp(), &self.sockets);
        let theirs = theirs.map(Instant::from_smoltcp);
        [theirs, self.expiry(), self.probes.begin()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sees whether there is a reason to probe the peer. smoltcp probes a closed window only if it has octets to send, and here it
    /// has none: they are not written before there is room. Its keep-alive serves for both reasons, but repeats the last sequence
    /// number with an octet of its own, and must be off before there is anything unacknowledged that this octet could stand for.
    fn watch(&mut self, now: Instant) {
        let reason = self.probe_reason();
        let begin = match reason {
            Some(Reason::Silence(limit)) => self.progress + limit,
            Some(Reason::Window) | None => now + Reason::Window.interval(),
        };
        if self.probes.update(reason, begin) {
            self.tcp_mut().set_keep_alive(None);
        }
    }

    fn probe_reason(&self) -> Option<Reason> {
        if !self.tcp().may_send() || self.unacked() > 0 || !self.is_synchronized() {
            None
        } else if self.wanted > 0 && self.track.room() < self.wanted {
            Some(Reason::Window)
        } else {
            self.keepalive.map(Reason::Silence)
        }
    }

    /// Begins to probe the peer if the time has come.
    pub(crate) fn probe(&mut self, now: Instant) {
        if let Some(reason) = self.probes.start(now, self.progress) {
            self.progress = now;
            let interval = smoltcp::time::Duration::from(reason.interval());
            self.tcp_mut().set_keep_alive(Some(interval));
        }
    }
}

fn new_socket(buffer: usize) -> Socket<'static> {
    let buffer = buffer.clamp(BUFFER_LIMITS.0, BUFFER_LIMITS.1);
    let ring = |octets| SocketBuffer::new(vec![0; octets]);
    let mut socket = Socket::new(ring(buffer), ring(buffer * SEND_BUFFERS));
    socket.set_nagle_enabled(false);
    socket.set_ack_delay(None); // an egress after each burst acknowledges it all at once
    socket.set_congestion_control(CongestionControl::None);
    socket
}

/// Brings `n` octets that were written at `address` to the ring's head; how many are there. smoltcp begins anew at the ring's
/// start when everything was acknowledged, which can happen between the writing and the commit.
fn settle(ring: &mut [u8], address: usize, n: usize) -> usize {
    let at = address.wrapping_sub(ring.as_ptr().addr());
    let fits = at.checked_add(n).is_some_and(|end| end <= ring.len());
    if !fits {
        return 0;
    }
    if at != 0 {
        ring.copy_within(at..at + n, 0);
    }
    n
}
