//! Stack: TCP connections over one packet interface, and the turns in which they receive, time out and send.

mod addresses;
mod anew;
mod conn_factory;
mod conn_mut;
mod connections;
mod diagnosis;
mod frame_waiters;
mod handle_list;
mod isn;
mod keys;
mod lifecycle;
mod listeners;
mod reset;
mod siblings;
mod syn_cookie;
mod table;
#[cfg(test)]
mod tests;
mod timers;
mod tx_reservation;
mod wheel;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_driver::net::Network;
use xwarp_driver::{Doorbell, IoError, PacketIo, RxFrame};

use crate::config::{Path, RouteMetrics, StackConfig};
use crate::conn::Conn;
use crate::counters::StackCounters;
use crate::device::Device;
use crate::error::{ConnectError, ListenError};
use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::handle_map::Handle;
use crate::time::Instant;
use crate::wire::discard::Discard;
use crate::wire::ethernet::{self, LinkHeader};
use crate::wire::flow::{Flow, endpoint};
use crate::wire::icmp::PacketTooBig;
use crate::wire::inbound::Segment;
pub use conn_mut::ConnMut;
pub use siblings::StrayAnswers;

use addresses::Addresses;
use conn_factory::ConnFactory;
use connections::Connections;
use keys::Keys;
use reset::ResetLimit;
use siblings::Sibling;
use syn_cookie::Opened;
use tx_reservation::TxReservation;

/// Turns in a row that may find as many frames as they ask for before timers run all the same.
const MAX_TURNS_WITHOUT_TIMERS: u32 = 64;
/// As many backlogs of connections may wait to be polled: those that a cookie was given to, too.
const COOKIE_BACKLOGS: usize = 2;
/// How often at most the stack polls the interface for ICMP messages.
const ICMP_INTERVAL: Duration = Duration::from_millis(1);
/// ICMP messages that one poll reads.
const ICMP_BUDGET: usize = 64;

/// TCP connections over one packet interface.
pub struct Stack {
    now: Instant,
    device: Device,
    addresses: Addresses,
    factory: ConnFactory,
    connections: Connections,
    resets: ResetLimit,
    /// Turns in a row that have not emptied the receive ring.
    backlog_turns: u32,
    /// When ICMP messages were polled last, and how many retransmissions there had been.
    last_icmp_poll: (Instant, u64),
    /// Where received frames are gathered; empty between turns.
    frames: Vec<RxFrame>,
    /// TX frames that were given out to be written, and not committed.
    reservation: Option<TxReservation>,
    /// Where bytes of several frames are joined to be read in one slice.
    joined: Vec<u8>,
    /// A peer's SYN is answered once the metrics of the route to the peer are known.
    awaits_metrics: bool,
}

impl Stack {
    /// A stack without connections on `io`, which it owns. The MTU is lowered to what a TX frame holds.
    pub fn new(io: Box<dyn PacketIo>, config: StackConfig) -> Self {
        let keys = Keys::new(config.seed);
        Self::with_keys(io, config, keys)
    }

    /// The stacks of one interface: one at each of `ios`, which the bell beside it wakes. A connection stays on the stack where it began. A frame
    /// that comes to another one is handed over, and answers to SYNs among these are counted.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory is left for frames that are handed over.
    pub fn several(
        ios: impl IntoIterator<Item = (Box<dyn PacketIo>, Doorbell)>,
        config: &StackConfig,
        stray_answers: &StrayAnswers,
    ) -> io::Result<Vec<Self>> {
        let keys = Keys::new(config.seed);
        let stack = |(io, bell)| (Self::with_keys(io, config.clone(), keys), bell);
        let (mut stacks, bells): (Vec<_>, Vec<_>) = ios.into_iter().map(stack).unzip();
        if stacks.len() > 1 {
            let each = stacks.iter_mut().zip(bells);
            let inlets = each.map(|(stack, bell)| stack.device.open_inlet(bell));
            let inlets = inlets.collect::<io::Result<_>>()?;
            for (stack, sibling) in stacks.iter_mut().zip(Sibling::all(inlets, stray_answers)) {
                stack.connections.join(sibling);
            }
        }
        Ok(stacks)
    }

    fn with_keys(io: Box<dyn PacketIo>, config: StackConfig, keys: Keys) -> Self {
        Self {
            now: Instant::ORIGIN,
            device: Device::new(io, config.mtu),
            addresses: Addresses::new(config.mac),
            factory: ConnFactory::new(config, keys),
            connections: Connections::new(),
            resets: ResetLimit::new(),
            backlog_turns: 0,
            last_icmp_poll: (Instant::ORIGIN, 0),
            frames: Vec::new(),
            reservation: None,
            joined: Vec::new(),
            awaits_metrics: false,
        }
    }

    /// Sets the host's networks on the interface. No peer has an address of the host's own, nor one that names all hosts of a network.
    pub fn set_networks(&mut self, networks: Vec<Network>) {
        self.addresses.set_networks(networks);
    }

    /// The Ethernet address that frames are sent from. As next hop it leads to this stack itself.
    pub fn mac(&self) -> [u8; 6] {
        self.addresses.mac()
    }

    /// Says whether the link is up. While it is down, what is sent waits. When it is up again, what was lost is sent again soon. Timeouts
    /// have passed meanwhile, each twice as long as the one before it. They say nothing of the path.
    pub fn set_up(&mut self, up: bool, now: Instant) {
        self.advance(now);
        if self.device.set_up(up) {
            let now = self.now;
            self.connections.change_all(|conn| conn.resume(now));
        }
    }

    /// The interface takes IP packets of `mtu` bytes from now on. A smaller number holds for all connections, and what they have in flight
    /// is cut when it is sent again. A larger one holds for connections to come, as far as TX frames have room for it.
    pub fn set_mtu(&mut self, mtu: usize) {
        if let Some(mtu) = self.device.set_mtu(mtu) {
            let now = self.now;
            self.connections
                .change_all(|conn| conn.set_path_mtu(mtu, now));
        }
    }

    /// Frames are sent from this Ethernet address from now on, those of connections that there are, too. Frames for the one before it are taken
    /// all the same.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        if self.addresses.set_mac(mac) {
            self.connections.set_source(mac);
        }
    }

    /// The next hop of a connection has this Ethernet address now. What was lost meanwhile is sent again soon. False if the connection is gone,
    /// or nothing has changed.
    pub fn set_next_hop(&mut self, conn: ConnId, mac: [u8; 6], now: Instant) -> bool {
        self.advance(now);
        let changed = self.connections.set_next_hop(conn, mac, self.now);
        self.device.counters_mut().rerouted += u64::from(changed);
        changed
    }

    /// Has [`Event::RouteWanted`] follow each SYN to a listener from now on. The SYN is answered
    /// after [`set_metrics`](Self::set_metrics).
    pub fn await_metrics(&mut self) {
        self.awaits_metrics = true;
    }

    /// The host's route to the peer of a connection has these metrics now. Only what is smaller
    /// than before matters. Answers the peer's SYN if that waits for them.
    pub fn set_metrics(&mut self, conn: ConnId, metrics: RouteMetrics, now: Instant) {
        self.advance(now);
        if let Some(mss) = self.connections.set_metrics(conn, metrics, self.now) {
            self.factory.note_mss(mss);
        }
    }

    /// The host has lost `address`: its connections end, and nothing more is sent from it, not even a RST (RFC 1122 §3.2.1.3).
    /// [`Event::Closed`](crate::Event::Closed) follows for each. Listeners there are to be ended by who has begun them.
    pub fn withdraw(&mut self, address: IpAddr) {
        self.addresses.withdraw(address);
        self.connections.withdraw(address.into(), &mut self.device);
    }

    /// The host has an address again, or for the first time.
    pub fn readmit(&mut self, address: IpAddr) {
        self.addresses.readmit(address);
    }

    /// Accepts connections to exactly this address and port. `backlog` of them may be half open at once; more are answered by SYN cookies.
    /// As many may wait to be polled as [`Event::Incoming`], before SYNs are dropped.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        self.connections.listen(local, backlog)
    }

    /// Ends a listener. Its connections that are half open, or whose [`Event::Incoming`] was not polled, are reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        self.connections.unlisten(id, &mut self.device, self.now);
    }

    /// Sends a SYN along `path`, to a listener of this stack itself if the next hop is its own Ethernet address. [`Event::Connected`] follows, or [`Event::Closed`], after
    /// [`StackConfig::connect_timeout`] at the latest.
    pub fn connect(&mut self, path: Path, now: Instant) -> Result<ConnId, ConnectError> {
        self.connect_within(path, self.factory.config().connect_timeout, now)
    }

    /// Connects as [`connect`](Self::connect) does, with another timeout.
    pub fn connect_within(
        &mut self,
        path: Path,
        timeout: Duration,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        self.connect_if(path, timeout, now, |_, _| true)
    }

    /// Connects as [`connect_within`](Self::connect_within) does, from a port that siblings may
    /// have, too. Refused with [`ConnectError::FlowExists`] if one has a connection along `path`,
    /// also in TIME-WAIT. Of siblings that connect at once, one is not refused.
    pub fn connect_alone(
        &mut self,
        path: Path,
        timeout: Duration,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        self.connect_if(path, timeout, now, Connections::claim)
    }

    /// Connects if `may_have` says that the stack may have the flow, which is asked last.
    fn connect_if(
        &mut self,
        path: Path,
        timeout: Duration,
        now: Instant,
        may_have: impl FnOnce(&Connections, &Flow) -> bool,
    ) -> Result<ConnId, ConnectError> {
        self.advance(now);
        let flow = flow_along(&path)?;
        let Path { local, remote, .. } = path;
        if path.next_hop == self.addresses.mac() {
            self.device
                .turn_back()
                .map_err(|_full| ConnectError::NoMemory)?;
        }
        if !self.connections.make_flow_free(&flow, &mut self.device) {
            return Err(ConnectError::FlowExists { local, remote });
        }
        if !self.make_room() {
            let max = self.factory.config().max_connections;
            return Err(ConnectError::TooManyConnections(max));
        }
        if !may_have(&self.connections, &flow) {
            return Err(ConnectError::FlowExists { local, remote });
        }
        let ethertype = if local.is_ipv4() {
            ethernet::IPV4
        } else {
            ethernet::IPV6
        };
        let link = self.addresses.link_to(path.next_hop, ethertype);
        let mut conn = self.open(flow, link);
        conn.set_metrics(path.metrics, self.now);
        conn.set_connect_timeout(timeout);
        conn.open(self.now);
        let handle = self.connections.insert(conn, &mut self.device, self.now);
        Ok(ConnId(handle))
    }

    /// What has happened, the oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.connections.poll_event(&mut self.device)
    }

    /// Sends all of `bytes`, whether there is room or not. Bytes outside of the peer's window wait until it opens, and whatever is sent
    /// later waits behind them. Meant for a few bytes that must go out whole. False if nothing may be sent.
    pub fn send_all(&mut self, conn: ConnId, bytes: &[u8], now: Instant) -> bool {
        self.advance(now);
        let found = self.connections.live_mut(conn);
        let Some(found) = found.filter(|found| found.state().may_send()) else {
            return false;
        };
        found.enqueue_bytes(bytes, &mut self.device, self.now);
        self.connections.run(conn.0, &mut self.device, self.now);
        true
    }

    /// A connection, to be asked; `None` for a stale id.
    pub fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.connections.live(id)
    }

    /// A connection, to be read and written; `None` for a stale id.
    #[inline]
    pub fn conn_mut(&mut self, id: ConnId) -> Option<ConnMut<'_>> {
        Some(ConnMut {
            entry: self.connections.lend(id)?,
            device: &mut self.device,
            reservation: &mut self.reservation,
            joined: &mut self.joined,
            now: &mut self.now,
        })
    }

    /// True until the connection has ended.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.connections.is_open(conn)
    }

    /// Sends a FIN after all that was committed; the peer's bytes can still be read. A connection that is not established is
    /// forgotten. [`Event::Closed`] follows in either case.
    pub fn close(&mut self, conn: ConnId, now: Instant) {
        self.advance(now);
        let Some(found) = self.connections.live_mut(conn) else {
            return;
        };
        if found.is_synchronized() {
            found.close(self.now);
            self.connections.run(conn.0, &mut self.device, self.now);
        } else {
            self.reset(conn);
        }
    }

    /// Sends a RST. [`Event::Closed`] follows.
    pub fn abort(&mut self, conn: ConnId, now: Instant) {
        self.advance(now);
        if self.connections.live(conn).is_some() {
            self.reset(conn);
        }
    }

    fn reset(&mut self, conn: ConnId) {
        let reason = CloseReason::Aborted;
        self.connections
            .reset(conn.0, reason, &mut self.device, self.now);
    }

    /// True while frames wait that the interface's descriptor does not tell of.
    #[inline]
    pub fn has_looped(&self) -> bool {
        self.device.has_looped()
    }

    /// When [`step`](Self::step) must be called at the latest if no frame arrives: at once if something could not be sent. There
    /// may turn out to be nothing to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.connections.has_ready() || self.device.has_looped() {
            return Some(self.now);
        }
        self.connections.deadline(&self.device)
    }

    /// The packet interface.
    pub fn io(&self) -> &dyn PacketIo {
        self.device.io()
    }

    /// The packet interface.
    pub fn io_mut(&mut self) -> &mut dyn PacketIo {
        self.device.io_mut()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> StackCounters {
        *self.device.counters()
    }

    /// Has [`Conn::arrival`] know of small segments, too, where the interface tells when frames arrive. Each takes a frame until it is read.
    pub fn keep_arrivals(&mut self) {
        self.device.keep_small_segments();
    }

    /// One turn: receives up to `budget` frames, runs the timers that are due, transmits what can be sent, and flushes. Returns
    /// how much there was to do; 0 means idle. Everything received is acknowledged once per turn and connection.
    pub fn step(&mut self, now: Instant, budget: usize) -> Result<usize, IoError> {
        Ok(self.poll(now, budget) + self.transmit(now)?)
    }

    /// The first half of a turn: receives up to `budget` frames and runs the timers that are due; how much there was to do. What that
    /// gives cause to send waits for [`answer`](Self::answer) and [`transmit`](Self::transmit).
    ///
    /// While there may be more frames than were received, no timer runs. What a timer would give up waiting for may be among them, as after
    /// a pause of the whole process. A flood cannot hold the timers up for more than 63 turns.
    pub fn poll(&mut self, now: Instant, budget: usize) -> usize {
        self.advance(now);
        let received = self.receive(budget);
        self.backlog_turns = if received < budget {
            0
        } else {
            self.backlog_turns % MAX_TURNS_WITHOUT_TIMERS + 1
        };
        let mut done = received;
        if self.backlog_turns.is_multiple_of(MAX_TURNS_WITHOUT_TIMERS) {
            done += self.connections.run_timers(&mut self.device, self.now);
        }
        done
    }

    /// Transmits what the peers are to have in this turn: all but acknowledgments that may wait for an answer. The next
    /// [`transmit`](Self::transmit) sees to these. How many segments were sent but those committed.
    pub fn answer(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let sent = self.send_ready(Conn::is_pressed);
        self.device.set_off()?;
        Ok(sent)
    }

    /// Transmits what has come up since the last turn, and flushes. How many segments were sent but those committed.
    #[inline]
    pub fn transmit(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let sent = if self.connections.has_ready() || self.may_have_icmp() {
            self.send_all_ready()
        } else {
            0 // as in most turns of whoever polls
        };
        self.connections.trim_timers();
        self.device.flush()?;
        self.connections
            .wake_frame_waiters(&mut self.device, self.now);
        Ok(sent)
    }

    /// Lets all ready connections send, and those whose path an ICMP message has narrowed.
    #[inline(never)]
    fn send_all_ready(&mut self) -> usize {
        let sent = self.send_ready(|_| true);
        if self.poll_icmp() == 0 {
            return sent;
        }
        sent + self.send_ready(|_| true)
    }

    /// Sets off what was committed, before anything else is seen to.
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.device.set_off()
    }

    fn send_ready(&mut self, chosen: impl Fn(&Conn) -> bool) -> usize {
        self.connections
            .send_ready(chosen, &mut self.device, self.now)
    }

    /// Time does not go back.
    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// Receives up to `budget` frames; how many there were.
    fn receive(&mut self, budget: usize) -> usize {
        self.device.receive(budget, &mut self.frames);
        if self.frames.is_empty() {
            return 0; // as in most turns of whoever polls
        }
        self.take_frames()
    }

    /// Takes the frames that were received; how many there were.
    #[inline(never)]
    fn take_frames(&mut self) -> usize {
        let received = self.frames.len();
        if received == 1
            && let Some(frame) = self.frames.pop()
        {
            self.take_frame(frame);
            return 1;
        }
        let mut frames = std::mem::take(&mut self.frames);
        for frame in frames.drain(..) {
            self.take_frame(frame);
        }
        self.frames = frames;
        received
    }

    #[inline]
    fn take_frame(&mut self, frame: RxFrame) {
        // By reference: what was parsed is large.
        match &self.addresses.predict(&frame) {
            Some(segment) => self.dispatch(segment, frame),
            None => self.receive_any(frame),
        }
    }

    /// Takes a frame whose segment is not an ordinary one, if it has any.
    fn receive_any(&mut self, frame: RxFrame) {
        match self.addresses.parse(&frame) {
            Ok(segment) => self.dispatch(&segment, frame),
            Err(Discard::PartialChecksum) => self.receive_unsummed(frame),
            Err(discard) => {
                self.device.refuse(frame, discard);
            }
        }
    }

    /// Takes a frame whose sender has left the checksum to a NIC, and whose checksum is missing, if
    /// it refuses a connection that we open. It must acknowledge our SYN. All other such frames are
    /// refused.
    #[cold]
    fn receive_unsummed(&mut self, frame: RxFrame) {
        let reset = self.addresses.parse_unsummed_reset(&frame);
        match reset {
            Some(reset) if self.connections.is_refusal(&reset) => self.dispatch(&reset, frame),
            Some(reset) if self.connections.hand_over(&reset, &frame) => {
                self.device.counters_mut().handed_over += 1;
                self.device.recycle(frame);
            }
            _ => self.device.refuse(frame, Discard::PartialChecksum),
        }
    }

    fn dispatch(&mut self, segment: &Segment, frame: RxFrame) {
        if let Some(handle) = self.connections.find(&segment.flow) {
            if !self.connections.gives_way(handle, segment, self.now) {
                self.device.counters_mut().segments_in += 1;
                self.connections
                    .deliver(handle, segment, frame, &mut self.device, self.now);
                return;
            }
            self.connections.retire(handle, &mut self.device);
        }
        self.dispatch_strange(segment, frame);
    }

    /// Handles a segment of no flow of this stack.
    fn dispatch_strange(&mut self, segment: &Segment, frame: RxFrame) {
        if self.connections.hand_over(segment, &frame) {
            self.device.counters_mut().handed_over += 1;
            self.device.recycle(frame);
            return;
        }
        self.device.counters_mut().segments_in += 1;
        let looped = self.device.io().is_looped(&frame);
        if let Err(discard) = self.addresses.check(&segment.flow, looped) {
            self.device.refuse(frame, discard);
            return;
        }
        self.dispatch_new(segment, frame);
    }

    /// Handles a segment of no flow: a SYN for a listener, the ACK of a cookie, or a mistake.
    fn dispatch_new(&mut self, segment: &Segment, frame: RxFrame) {
        let listener = self.connections.listeners().at(segment.flow.local);
        let Some(link) = self.addresses.answer_link(&frame) else {
            self.device.recycle(frame);
            return;
        };
        if let Some(id) = listener
            && let Some(opened) = self.factory.check_cookie(segment, self.now)
        {
            self.accept_by_cookie(id, opened, segment, link, frame);
            return;
        }
        match listener {
            Some(id) if segment.opens() => self.accept(id, segment, link),
            _ => self.refuse(segment, &link),
        }
        self.device.recycle(frame);
    }

    /// Answers a segment of no flow and no listener by a RST, unless the host has lost the address.
    fn refuse(&mut self, segment: &Segment, link: &LinkHeader) {
        self.device.counters_mut().drop_no_flow += 1;
        if !self.addresses.is_withdrawn(segment.flow.local.addr) {
            self.resets
                .answer(segment, link, &mut self.device, self.now);
        }
    }

    /// Opens a connection for a SYN to a listener. Bytes that come with it are not taken: the peer sends them again.
    fn accept(&mut self, id: ListenerId, syn: &Segment, link: LinkHeader) {
        let listener = self.connections.listeners().get(id);
        let Some(listener) = listener.filter(|it| it.polls(1)) else {
            self.device.counters_mut().drop_backlog_full += 1;
            return;
        };
        if listener.is_flooded() {
            self.factory
                .reply_with_cookie(syn, &link, &mut self.device, self.now);
            return;
        }
        if !self.make_room() {
            self.device.counters_mut().drop_table_full += 1;
            return;
        }
        let mut conn = self.open(syn.flow, link);
        conn.open_passive(syn, self.now);
        if self.awaits_metrics {
            conn.await_metrics();
        }
        let handle = self.connections.insert_half_open(conn, id);
        self.want_route(handle);
    }

    /// Wants the metrics of the route to the peer of a connection to a listener, if they are
    /// awaited.
    fn want_route(&mut self, handle: Handle) {
        if self.awaits_metrics {
            self.connections.want_route(handle);
        }
    }

    /// Establishes the connection that a cookie stands for, by the segment that brings it back.
    fn accept_by_cookie(
        &mut self,
        id: ListenerId,
        opened: Opened,
        segment: &Segment,
        link: LinkHeader,
        frame: RxFrame,
    ) {
        let listener = self.connections.listeners().get(id);
        let room = listener.is_some_and(|it| it.polls(COOKIE_BACKLOGS));
        if !room || !self.make_room() {
            let counters = self.device.counters_mut();
            counters.drop_backlog_full += u64::from(!room);
            counters.drop_table_full += u64::from(room);
            self.device.recycle(frame);
            return;
        }
        let (mtu, now) = (self.device.mtu(), self.now);
        let conn = self.factory.open_by_cookie(opened, segment, link, mtu, now);
        let handle = self.connections.insert_half_open(conn, id);
        self.device.counters_mut().cookies_in += 1;
        self.want_route(handle);
        self.connections
            .deliver(handle, segment, frame, &mut self.device, now);
    }

    /// A closed connection for `flow`, in no table yet.
    fn open(&self, flow: Flow, link: LinkHeader) -> Conn {
        self.factory.open(flow, link, self.device.mtu(), self.now)
    }

    /// True if there is room for one more connection.
    fn make_room(&mut self) -> bool {
        let max = self.factory.config().max_connections;
        self.connections.make_room(max, &mut self.device)
    }

    /// Something was sent again since ICMP messages were polled last.
    fn may_have_icmp(&self) -> bool {
        self.device.counters().retransmissions != self.last_icmp_poll.1
    }

    /// After a retransmission: reads whether a router has dropped what was too large for it, and has that sent in smaller segments.
    /// For how many connections.
    fn poll_icmp(&mut self) -> usize {
        let (last, _) = self.last_icmp_poll;
        if !self.may_have_icmp() || self.now - last < ICMP_INTERVAL {
            return 0;
        }
        self.last_icmp_poll = (self.now, self.device.counters().retransmissions);
        let mut narrowed = 0;
        for _ in 0..ICMP_BUDGET {
            let Some(message) = self.device.packet_too_big() else {
                break;
            };
            let told = PacketTooBig::parse(&message);
            match told.and_then(|told| self.connections.narrow_path(&told, self.now)) {
                Some(news) => narrowed += usize::from(news),
                None => self.device.counters_mut().icmp_ignored += 1,
            }
        }
        self.device.counters_mut().narrowed += narrowed as u64;
        narrowed
    }

    #[cfg(test)]
    fn connection_count(&self) -> usize {
        self.connections.len()
    }

    #[cfg(test)]
    fn time_wait_len(&self) -> usize {
        self.connections.time_wait_len()
    }
}

/// The 4-tuple of a connection along `path`.
fn flow_along(path: &Path) -> Result<Flow, ConnectError> {
    let Path { local, remote, .. } = *path;
    let flow = Flow {
        local: endpoint(local).ok_or(ConnectError::BadAddress(local))?,
        remote: endpoint(remote).ok_or(ConnectError::BadAddress(remote))?,
    };
    if local.is_ipv4() != remote.is_ipv4() {
        return Err(ConnectError::MixedFamilies { local, remote });
    }
    Ok(flow)
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("connections", &self.connections.len())
            .field("listeners", &self.connections.listeners().len())
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
