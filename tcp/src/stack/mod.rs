//! Stack: TCP connections over one packet interface, and the turns in which they receive, time out
//! and send.

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

/// Maximum number of consecutive full turns before timers run nevertheless.
const MAX_TURNS_WITHOUT_TIMERS: u32 = 64;
/// Number of backlogs of connections that may wait to be polled, including those from cookies.
const COOKIE_BACKLOGS: usize = 2;
/// Minimum interval of polling the interface for ICMP messages.
const ICMP_INTERVAL: Duration = Duration::from_millis(1);
/// ICMP messages read per poll.
const ICMP_BUDGET: usize = 64;

/// TCP connections over one packet interface.
pub struct Stack {
    now: Instant,
    device: Device,
    addresses: Addresses,
    factory: ConnFactory,
    connections: Connections,
    resets: ResetLimit,
    /// Consecutive turns that have not emptied the receive ring.
    backlog_turns: u32,
    /// When ICMP messages were polled last, and the number of retransmissions at that time.
    last_icmp_poll: (Instant, u64),
    /// Buffer for received frames; empty between turns.
    frames: Vec<RxFrame>,
    /// TX frames handed out for writing and not committed.
    reservation: Option<TxReservation>,
    /// Buffer to join bytes of several frames into one slice.
    joined: Vec<u8>,
    /// A SYN is answered only after the metrics of the route to the peer are known.
    awaits_metrics: bool,
}

impl Stack {
    /// A stack without connections on `io`, which it owns. The MTU is at most the capacity of a TX
    /// frame.
    pub fn new(io: Box<dyn PacketIo>, config: StackConfig) -> Self {
        let keys = Keys::new(config.seed);
        Self::with_keys(io, config, keys)
    }

    /// The stacks of one interface: one on each of `ios`, which the doorbell beside it wakes. A
    /// connection stays on the stack where it began. A frame that arrives at another stack is
    /// handed over. Answers to SYNs among these frames are counted.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no memory for frames that are handed over.
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

    /// Sets the host's networks on the interface. A peer cannot have an address of the host, or a
    /// broadcast address of a network.
    pub fn set_networks(&mut self, networks: Vec<Network>) {
        self.addresses.set_networks(networks);
    }

    /// Source Ethernet address of sent frames. As next hop it addresses this stack itself.
    pub fn mac(&self) -> [u8; 6] {
        self.addresses.mac()
    }

    /// Sets the link state. While the link is down, output waits. When it is up again, lost
    /// segments are retransmitted soon: the timeouts that doubled meanwhile say nothing about the
    /// path.
    pub fn set_up(&mut self, up: bool, now: Instant) {
        self.advance(now);
        if self.device.set_up(up) {
            let now = self.now;
            self.connections.change_all(|conn| conn.resume(now));
        }
    }

    /// Sets the interface's MTU to `mtu` bytes. A smaller MTU holds for all connections, and their
    /// data in flight is cut when it is retransmitted. A larger one holds for new connections, up
    /// to the capacity of TX frames. Connections to a next hop that has an MTU of its own
    /// ([`PacketIo::mtu_towards`]) are unaffected.
    pub fn set_mtu(&mut self, mtu: usize) {
        if self.device.set_mtu(mtu) {
            let (device, now) = (&self.device, self.now);
            self.connections.change_all(|conn| {
                let mtu = device.mtu_towards(conn.link().destination());
                conn.set_path_mtu(mtu, now);
            });
        }
    }

    /// Sets the source Ethernet address, of existing connections, too. Frames for the previous
    /// address are still accepted.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        if self.addresses.set_mac(mac) {
            self.connections.set_source(mac);
        }
    }

    /// Sets the next hop's Ethernet address of a connection. Lost segments are retransmitted soon.
    /// An MTU towards the next hop that is smaller than the path's takes effect. Returns false if
    /// the connection is gone, or if nothing has changed.
    pub fn set_next_hop(&mut self, conn: ConnId, mac: [u8; 6], now: Instant) -> bool {
        self.advance(now);
        let changed = (self.connections).set_next_hop(conn, mac, &self.device, self.now);
        self.device.counters_mut().rerouted += u64::from(changed);
        changed
    }

    /// Reports [`Event::RouteWanted`] for each SYN to a listener from now on. The SYN is answered
    /// after [`set_metrics`](Self::set_metrics) (decision record tcp/0019).
    pub fn await_metrics(&mut self) {
        self.awaits_metrics = true;
    }

    /// Sets the metrics of the host's route to the peer of a connection. Only smaller values than
    /// before take effect. Answers the peer's SYN if it waits for the metrics.
    pub fn set_metrics(&mut self, conn: ConnId, metrics: RouteMetrics, now: Instant) {
        self.advance(now);
        if let Some(mss) = self.connections.set_metrics(conn, metrics, self.now) {
            self.factory.note_mss(mss);
        }
    }

    /// Removes a local address that the host has lost. Its connections end, each with
    /// [`Event::Closed`], and nothing more is sent from it, not even a RST
    /// (RFC 1122 §3.2.1.3). The caller ends its listeners there.
    pub fn withdraw(&mut self, address: IpAddr) {
        self.addresses.withdraw(address);
        self.connections.withdraw(address.into(), &mut self.device);
    }

    /// Admits an address that the host has, perhaps again.
    pub fn readmit(&mut self, address: IpAddr) {
        self.addresses.readmit(address);
    }

    /// Accepts connections to exactly this address and port. `backlog` connections may be half open
    /// at once; further SYNs are answered by SYN cookies. As many may wait to be polled as
    /// [`Event::Incoming`] before SYNs are dropped.
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        self.connections.listen(local, backlog)
    }

    /// Removes a listener. Its connections that are half open, or whose [`Event::Incoming`] was not
    /// polled, are reset.
    pub fn unlisten(&mut self, id: ListenerId) {
        self.connections.unlisten(id, &mut self.device, self.now);
    }

    /// Sends a SYN along `path`; to a listener of this stack if the next hop is its own Ethernet
    /// address. [`Event::Connected`] follows, or [`Event::Closed`] after at most
    /// [`StackConfig::connect_timeout`].
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
    /// use, too. Fails with [`ConnectError::FlowExists`] if one has a connection along `path`, even
    /// in TIME-WAIT. Of siblings that connect at once, one succeeds.
    pub fn connect_alone(
        &mut self,
        path: Path,
        timeout: Duration,
        now: Instant,
    ) -> Result<ConnId, ConnectError> {
        self.connect_if(path, timeout, now, Connections::claim)
    }

    /// Connects if `may_have` returns true: this stack may have the flow. It is called last.
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
        } else if !self.device.io().stays_on_host(path.next_hop) {
            keep_off_the_wire(local)?;
            keep_off_the_wire(remote)?;
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

    /// Removes and returns the oldest event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.connections.poll_event(&mut self.device)
    }

    /// Sends all of `bytes`, even without room. Bytes outside of the peer's window wait until it
    /// opens, and later data waits behind them. Meant for a few bytes that must go out as a whole.
    /// Returns false if the connection may not send.
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

    /// A connection, for queries. `None` for a stale identifier.
    pub fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.connections.live(id)
    }

    /// A connection, for reading and writing. `None` for a stale identifier.
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

    /// Sends a FIN after all committed data. The peer's data can still be read. A connection that
    /// is not established is dropped. [`Event::Closed`] follows in either case.
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

    /// True while frames wait that the interface's descriptor does not report.
    #[inline]
    pub fn has_looped(&self) -> bool {
        self.device.has_looped()
    }

    /// Latest time of the next [`step`](Self::step) if no frame arrives; now, if output is pending.
    /// It may turn out that there is nothing to do.
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

    /// Counters since the start.
    pub fn counters(&self) -> StackCounters {
        *self.device.counters()
    }

    /// Makes [`Conn::arrival`] available for small segments, too, if the interface reports receive
    /// times. Each then occupies a frame until it is read.
    pub fn keep_arrivals(&mut self) {
        self.device.keep_small_segments();
    }

    /// Runs one turn: receives up to `budget` frames, runs due timers, transmits what can be sent,
    /// and flushes. Returns the amount of work; 0 means idle. A connection sends at most one pure
    /// ACK per turn for all received data.
    pub fn step(&mut self, now: Instant, budget: usize) -> Result<usize, IoError> {
        Ok(self.poll(now, budget) + self.transmit(now)?)
    }

    /// Runs the first half of a turn: receives up to `budget` frames and runs due timers. Returns
    /// the amount of work. Resulting output waits for [`answer`](Self::answer) and
    /// [`transmit`](Self::transmit).
    ///
    /// While more frames may wait in the ring, no timer runs: the awaited frame may be among them,
    /// as after a pause of the whole process. A flood delays timers by at most 63 turns.
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

    /// Transmits all output of this turn except acknowledgments that may wait for an answer, which
    /// the next [`transmit`](Self::transmit) sends. Returns the number of segments sent, without
    /// those committed.
    pub fn answer(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let sent = self.send_ready(Conn::is_pressed);
        self.device.set_off()?;
        Ok(sent)
    }

    /// Transmits the output since the last turn, and flushes. Returns the number of segments sent,
    /// without those committed.
    #[inline]
    pub fn transmit(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let sent = if self.connections.has_ready() || self.may_have_icmp() {
            self.send_all_ready()
        } else {
            0 // as in most turns of a polling caller
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

    /// Submits committed segments at once.
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

    /// Receives up to `budget` frames, and returns their number.
    fn receive(&mut self, budget: usize) -> usize {
        self.device.receive(budget, &mut self.frames);
        if self.frames.is_empty() {
            return 0; // as in most turns of a polling caller
        }
        self.take_frames()
    }

    /// Processes the received frames, and returns their number.
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
        // By reference: a parsed segment is large.
        match &self.addresses.predict(&frame) {
            Some(segment) => self.dispatch(segment, frame),
            None => self.receive_any(frame),
        }
    }

    /// Processes a frame that has no ordinary segment, or whose checksum is 0.
    fn receive_any(&mut self, frame: RxFrame) {
        let is_trusted = self.device.io().trusts(&frame);
        if is_trusted && let Some(segment) = &self.addresses.predict_trusted(&frame) {
            self.dispatch(segment, frame);
            return;
        }
        match self.addresses.parse(&frame, is_trusted) {
            Ok(segment) => self.dispatch(&segment, frame),
            Err(Discard::PartialChecksum) => self.receive_unsummed(frame),
            Err(discard) => {
                self.device.refuse(frame, discard);
            }
        }
    }

    /// Processes a frame whose checksum was left to a NIC and is missing. It is accepted only if it
    /// refuses a connection that this side opens, and acknowledges our SYN. All other such frames
    /// are dropped.
    #[cold]
    fn receive_unsummed(&mut self, frame: RxFrame) {
        let reset = self.addresses.parse_unsummed_reset(&frame);
        match reset {
            Some(reset) if self.connections.is_refusal(&reset) => self.dispatch(&reset, frame),
            Some(reset) if self.hand_over(&reset, &frame) => {
                self.device.counters_mut().handed_over += 1;
                self.device.recycle(frame);
            }
            _ => self.device.refuse(frame, Discard::PartialChecksum),
        }
    }

    /// Hands a frame of no flow of this stack to the stack that has the flow, if there is one.
    fn hand_over(&self, segment: &Segment, frame: &RxFrame) -> bool {
        self.connections.hand_over(segment, frame, self.device.io())
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

    /// Processes a segment of no flow of this stack.
    fn dispatch_strange(&mut self, segment: &Segment, frame: RxFrame) {
        if self.hand_over(segment, &frame) {
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

    /// Processes a segment of no flow at all: a SYN for a listener, the ACK of a cookie, or a stray
    /// one.
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

    /// Answers a segment of no flow and no listener with a RST, unless the host has lost the
    /// address.
    fn refuse(&mut self, segment: &Segment, link: &LinkHeader) {
        self.device.counters_mut().drop_no_flow += 1;
        if !self.addresses.is_withdrawn(segment.flow.local.addr) {
            self.resets
                .answer(segment, link, &mut self.device, self.now);
        }
    }

    /// Opens a connection for a SYN to a listener. Data in the SYN is not taken: the peer
    /// retransmits it.
    fn accept(&mut self, id: ListenerId, syn: &Segment, link: LinkHeader) {
        let listener = self.connections.listeners().get(id);
        let Some(listener) = listener.filter(|it| it.polls(1)) else {
            self.device.counters_mut().drop_backlog_full += 1;
            return;
        };
        if listener.is_flooded() {
            self.factory
                .reply_with_cookie(syn, link, &mut self.device, self.now);
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

    /// Asks the user for the metrics of the route to the peer, if metrics are awaited.
    fn want_route(&mut self, handle: Handle) {
        if self.awaits_metrics {
            self.connections.want_route(handle);
        }
    }

    /// Establishes the connection of a cookie from the segment that returned it.
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
        let (hop, now) = (self.device.hop(link), self.now);
        let conn = self.factory.open_by_cookie(opened, segment, hop, now);
        let handle = self.connections.insert_half_open(conn, id);
        self.device.counters_mut().cookies_in += 1;
        self.want_route(handle);
        self.connections
            .deliver(handle, segment, frame, &mut self.device, now);
    }

    /// A closed connection for `flow`, in no table yet.
    fn open(&self, flow: Flow, link: LinkHeader) -> Conn {
        self.factory.open(flow, self.device.hop(link), self.now)
    }

    /// Returns true if there is room for one more connection.
    fn make_room(&mut self) -> bool {
        let max = self.factory.config().max_connections;
        self.connections.make_room(max, &mut self.device)
    }

    /// True if a segment was retransmitted since ICMP messages were polled last.
    fn may_have_icmp(&self) -> bool {
        self.device.counters().retransmissions != self.last_icmp_poll.1
    }

    /// After a retransmission: reads ICMP messages about packets that were too large, and has
    /// smaller segments sent. Returns the number of connections concerned.
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
            let report = PacketTooBig::parse(&message);
            match report.and_then(|report| self.connections.narrow_path(&report, self.now)) {
                Some(is_narrower) => narrowed += usize::from(is_narrower),
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

/// 4-tuple of a connection along `path`.
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

/// Refuses a loopback address for a connection to another host (RFC 1122 §3.2.1.3).
fn keep_off_the_wire(address: SocketAddr) -> Result<(), ConnectError> {
    if address.ip().is_loopback() {
        return Err(ConnectError::Loopback(address));
    }
    Ok(())
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
