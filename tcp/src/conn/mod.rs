//! Connection: the state machine of RFC 9293, without I/O except for the frames that it holds.
//!
//! Received bytes stay in their frames until they are consumed, and sent bytes until they are
//! acknowledged. Each part has its own file: segments arrive in [`arrive`] and [`handshake`], ACKs
//! are processed in [`acked`], segments leave in [`emit`], and timers run in [`clock`].

mod acked;
mod arrive;
mod challenge_ack;
mod clock;
mod deferred_ack;
mod emit;
mod handshake;
#[cfg(test)]
mod mtu_tests;
mod nic_checksum;
mod options;
mod pending;
mod probing;
mod receive;
mod route;
mod send;
mod state;
mod stray;
#[cfg(test)]
mod testing;
mod timestamps;
#[cfg(test)]
mod wrap_tests;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;
use xwarp_driver::{BURST, TxFrame};

pub(crate) use state::State;

use crate::config::{RouteMetrics, StackConfig};
use crate::device::{Device, Hop};
use crate::time::Instant;
use crate::wire::ethernet::LinkHeader;
use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;
use challenge_ack::ChallengeAcks;
use clock::Clock;
pub use clock::MAX_RTO;
use deferred_ack::DeferredAck;
use nic_checksum::NicChecksum;
use options::{Negotiation, Offered};
use pending::Pending;
use receive::ReceiveSide;
use route::Route;
use send::SendSide;
use send::congestion_control::CongestionController;
use send::loss_recovery::LossRecovery;
use send::send_queue::Piece;
use state::StateMachine;
use stray::StrayAnswer;
use timestamps::Timestamps;

/// Maximum number of unacknowledged segments of a connection. Each holds a TX frame, and a queue's
/// frames are shared.
pub const MAX_SEGMENTS_IN_FLIGHT: usize = BURST;
/// Size of the send buffer in receive buffers.
const SEND_BUFFERS: usize = 4;
/// Maximum delay of an ACK: less than half a second (RFC 9293 §3.8.6.3).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(499);
/// Time without an ACK after which a peer is silent about a segment. Other connections may then
/// need its frame more.
const SILENCE: Duration = Duration::from_millis(5);

/// Load that a peer causes (RFC 5042 §6.4.4): many segments for few bytes, or many out of order,
/// are a load without progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnLoad {
    /// Segments received, accepted or not.
    pub segments: u64,
    /// Segments received out of order and kept.
    pub out_of_order: u64,
    /// Bytes of payload received in order.
    pub bytes: u64,
}

/// Secret numbers that differ between connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secrets {
    /// Initial sequence number (RFC 6528).
    pub(crate) iss: Seq,
    /// Offset of our timestamps (RFC 7323 §5.4).
    pub(crate) stamp_offset: u32,
}

/// A connection, for queries by its user.
pub struct Conn {
    route: Route,
    state: StateMachine,
    negotiation: Negotiation,
    send: SendSide,
    receive: ReceiveSide,
    stamps: Timestamps,
    challenge_acks: ChallengeAcks,
    clock: Clock,
    congestion: CongestionController,
    recovery: LossRecovery,
    pending: Pending,
    deferred_ack: Option<DeferredAck>,
    stray_answer: StrayAnswer,
    nic_checksum: NicChecksum,
}

impl Conn {
    pub(crate) fn new(
        flow: Flow,
        hop: Hop,
        config: &StackConfig,
        secrets: Secrets,
        now: Instant,
    ) -> Self {
        let mtu = hop.mtu;
        let buffer = config.buffer_at(mtu);
        let mss = flow.payload_of(mtu);
        let congestion = CongestionController::new(config.congestion, mss, now);
        let offered = Offered::new(config, mss, buffer, congestion.marks());
        Self {
            route: Route::new(flow, hop),
            state: StateMachine::new(),
            negotiation: Negotiation::new(offered),
            send: SendSide::new(secrets.iss, buffer.saturating_mul(SEND_BUFFERS)),
            receive: ReceiveSide::new(buffer, config.ack_delay.min(MAX_ACK_DELAY)),
            stamps: Timestamps::new(secrets.stamp_offset, now),
            challenge_acks: ChallengeAcks::new(now),
            clock: Clock::new(config, now),
            congestion,
            recovery: LossRecovery::default(),
            pending: Pending::default(),
            deferred_ack: None,
            stray_answer: StrayAnswer::default(),
            nic_checksum: NicChecksum::default(),
        }
    }

    /// The connection's 4-tuple.
    pub(crate) fn flow(&self) -> &Flow {
        self.route.flow()
    }

    /// Ethernet header of sent frames.
    pub(crate) fn link(&self) -> &LinkHeader {
        self.route.headers().link()
    }

    /// Address and port of the peer.
    pub fn peer_addr(&self) -> SocketAddr {
        self.flow().remote.into()
    }

    /// Local address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.flow().local.into()
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// Enters a state.
    fn enter(&mut self, next: State) {
        self.state.enter(next, self.route.flow());
    }

    /// Load that the peer causes.
    pub fn load(&self) -> ConnLoad {
        self.receive.load()
    }

    pub(crate) fn is_synchronized(&self) -> bool {
        self.state.get().is_synchronized()
    }

    /// True if `segment` opens a new connection that ends this one's TIME-WAIT, by a higher
    /// sequence number or timestamp (RFC 9293 §3.6.1, RFC 6191 §2).
    pub(crate) fn is_succeeded_by(&self, segment: &Segment, now: Instant) -> bool {
        if self.state.get() != State::TimeWait || !segment.opens() {
            return false;
        }
        match segment.options.timestamp {
            Some((tsval, _))
                if self.negotiation.agreed().timestamps && tsval != self.stamps.recent() =>
            {
                !self.stamps.is_old(tsval, now)
            }
            _ => self.receive.next().is_before(segment.seq),
        }
    }

    /// True if segments carry TCP checksums. Otherwise a sum of their payload is of no use: frames to
    /// the next hop need none (`PacketIo::needs_no_checksum`).
    pub fn is_summed(&self) -> bool {
        self.route.headers().is_summed()
    }

    /// Maximum payload of a segment in bytes, by the path's MTU, the peer's MSS and the options.
    pub fn emss(&self) -> usize {
        self.route.emss()
    }

    /// True if the byte with this sequence number was sent and is not acknowledged.
    pub(crate) fn is_in_flight(&self, seq: Seq) -> bool {
        self.send.is_in_flight(seq)
    }

    /// Known path MTU: the largest IP packet in bytes.
    pub(crate) fn path_mtu(&self) -> usize {
        self.route.mtu()
    }

    /// Sets the path MTU. Data in flight is retransmitted, and larger segments are cut then (RFC
    /// 1191 §6.1, RFC 8201 §5.4).
    pub(crate) fn set_path_mtu(&mut self, mtu: usize, now: Instant) {
        if !self.route.narrow(mtu) {
            return;
        }
        let mss = self.emss();
        self.congestion.on_mss(mss);
        for at in 0..self.send.queue().len() {
            if self
                .send
                .queue()
                .get(at)
                .is_some_and(|piece| piece.len > mss)
            {
                self.send.queue_mut().mark_lost(at);
            }
        }
        self.arm_retransmission(now);
    }

    /// Applies the metrics of the host's route (decision record tcp/0019). They narrow the path,
    /// and lower the MSS of a later SYN.
    pub(crate) fn set_metrics(&mut self, metrics: RouteMetrics, now: Instant) {
        let RouteMetrics { mtu, advmss } = metrics;
        let of_mtu = mtu.map(|mtu| self.flow().payload_of(mtu).max(self.flow().least_advmss()));
        if let Some(mss) = advmss.or(of_mtu) {
            self.negotiation.lower_mss(mss);
        }
        if let Some(mtu) = mtu {
            self.set_path_mtu(mtu, now);
        }
    }

    /// Limits the MSS that a later SYN offers to `mss` bytes.
    pub(crate) fn lower_mss(&mut self, mss: usize) {
        self.negotiation.lower_mss(mss);
    }

    /// Metrics so far, for the connection that replaces this one.
    pub(crate) fn metrics(&self) -> RouteMetrics {
        RouteMetrics {
            mtu: Some(self.path_mtu()),
            advmss: Some(self.negotiation.offered().mss),
        }
    }

    /// Sets the source Ethernet address.
    pub(crate) fn set_source(&mut self, mac: [u8; 6]) {
        self.route.set_source(mac);
    }

    /// Sets the next hop's Ethernet address, and retransmits lost segments soon. The MTU towards it
    /// may narrow the path, and segments carry checksums if it needs them. Returns false if the
    /// address was set already.
    pub(crate) fn set_next_hop(&mut self, mac: [u8; 6], device: &Device, now: Instant) -> bool {
        let other = self.route.set_destination(mac);
        if other {
            self.set_path_mtu(device.mtu_towards(mac), now);
            let is_summed = device.needs_checksum(mac);
            self.route.set_summed(is_summed);
            if !is_summed {
                self.nic_checksum.doubt();
            }
            self.resume(now);
        }
        other
    }

    /// Bytes committed and not acknowledged.
    pub(crate) fn unacked(&self) -> usize {
        self.send.unacked()
    }

    /// True if the peer has not acknowledged all payload.
    pub(crate) fn has_unacked(&self) -> bool {
        let acked = self.deferred_ack.as_ref().map(DeferredAck::ack);
        self.send.has_unacked(acked.unwrap_or(self.send.una()))
    }

    /// True while the peer's window has no room for data that waits, or for the FIN.
    pub fn lacks_window(&self) -> bool {
        self.clock.lacks_window()
    }

    /// True while committed bytes wait for room in the peer's window.
    pub fn has_unsent(&self) -> bool {
        self.send.has_unsent()
    }

    /// In-order bytes received and not consumed.
    pub fn readable_len(&self) -> usize {
        self.receive.queue().len()
    }

    /// Receive time, by the NIC's clock, of the frame with the `count`-th readable byte. `None` if
    /// timestamps were not enabled, the NIC gives none, or the bytes were copied while they waited
    /// for others.
    pub fn arrival(&self, count: usize) -> Option<Duration> {
        self.receive.queue().arrival(count)
    }

    pub(crate) fn readable<'a>(&'a self, want: usize, joined: &'a mut Vec<u8>) -> &'a [u8] {
        self.receive.queue().readable(want, joined)
    }

    pub(crate) fn consume(&mut self, n: usize, device: &mut Device) {
        self.receive.consume(n, device);
        if self.state.get().may_receive()
            && self
                .receive
                .owes_window_update(self.emss(), self.negotiation.agreed().own_shift)
        {
            self.receive.acks_mut().owe();
        }
    }

    /// True if an ACK is pending.
    pub(crate) fn owes_ack(&self) -> bool {
        self.receive.acks().is_due()
    }

    /// Size in bytes of each part of a piece of `len` bytes, bounded by the segment size and the
    /// largest window that the peer ever had.
    pub(crate) fn part_len(&self, len: usize) -> usize {
        let window = self.send.largest_window();
        let fits = if len > window { window } else { len };
        fits.clamp(1, self.emss())
    }

    /// Number of segments for a piece of `len` bytes if the peer's window has `room`.
    fn parts(&self, len: usize, room: usize) -> usize {
        // The common case needs no division.
        if len <= room && len <= self.emss() {
            return 1;
        }
        len.div_ceil(self.part_len(len)).max(1)
    }

    /// True if the peer's window has room for `len` bytes now.
    pub(crate) fn has_window(&self, len: usize) -> bool {
        self.send.room() >= len
    }

    /// Bytes of headers before the payload of a segment with data.
    fn head(&self) -> usize {
        self.route.head()
    }

    /// True if a piece of `len` bytes would leave at once, as one segment if `len` is at most the
    /// EMSS. If the window was never as large as the piece, or has long been smaller, it is filled
    /// once nothing else is in flight; otherwise the connection would stall.
    pub(crate) fn can_write(&mut self, len: usize, now: Instant) -> bool {
        let queue = self.send.queue();
        let room = self.send.room();
        let small = self.send.largest_window() < len || self.pending.may_cut();
        let must_split = small && room > 0 && queue.is_empty();
        let allowed = self.state.get().may_send()
            && !self.pending.lacks_frame()
            && !queue.has_lost()
            && queue.len() + self.parts(len, room) <= MAX_SEGMENTS_IN_FLIGHT
            && self.send.may_hold(len)
            && (room >= len || must_split);
        let pipe = self.pipe();
        let congested = pipe > 0 && pipe + len > self.window();
        if allowed && congested {
            self.congestion.set_window_limited(true);
        }
        allowed && !congested && self.congestion.paces_out(now)
    }

    /// Bytes that one segment can carry now, once [`can_write`](Self::can_write) has admitted a
    /// piece.
    pub(crate) fn most_now(&self) -> usize {
        let congestion = match self.pipe() {
            0 => usize::MAX,
            pipe => self.window().saturating_sub(pipe),
        };
        [congestion, self.send.room(), self.send.free()]
            .into_iter()
            .fold(self.emss(), usize::min)
    }

    /// TX frames that the connection holds: one per segment, except parked ones.
    pub(crate) fn frames_taken(&self) -> usize {
        self.send.queue().len()
    }

    /// True if unacknowledged data is in a TX frame.
    pub(crate) fn has_frames(&self) -> bool {
        self.send.queue().has_frames()
    }

    /// Frees the frames of segments that have waited for their ACK for a while, and returns their
    /// number. Other signs of life do not count: by acknowledging a byte now and then, a peer could
    /// hold all frames.
    pub(crate) fn park_if_silent(&mut self, device: &mut Device, now: Instant) -> usize {
        self.act_on_deferred_ack(device);
        let head = self.head();
        let idle = |piece: &Piece| now - piece.sent_at >= SILENCE;
        self.send.queue_mut().park(head, idle, device)
    }

    /// Records that `len` bytes could not be written.
    pub(crate) fn refuse(&mut self, len: usize) {
        self.pending.refuse(len);
    }

    /// True while neither the state nor the send queue gives cause for an event. Readable bytes are
    /// not considered.
    #[inline]
    pub(crate) fn is_uneventful(&self) -> bool {
        self.state.get() == State::Established && self.pending.wanted() == 0
    }

    /// Returns true once after a refused write has become possible.
    pub(crate) fn became_writable(&mut self, now: Instant) -> bool {
        let possible = self.pending.wanted() > 0 && self.can_write(self.pending.wanted(), now);
        if possible {
            self.pending.grant();
        }
        possible
    }

    /// The room for `len` bytes of payload in `frame`, or `None` if they do not fit one segment.
    pub(crate) fn room_in<'a>(&self, frame: &'a mut TxFrame, len: usize) -> Option<&'a mut [u8]> {
        let head = self.head();
        if len > self.part_len(len) || head + len > frame.capacity() {
            return None;
        }
        frame.set_len(head + len);
        frame.get_mut(head..)
    }

    /// CLOSE (RFC 9293 §3.10.4) of a synchronized connection.
    pub(crate) fn close(&mut self, now: Instant) {
        if self.state.get().may_send() {
            self.pending.demand_fin();
            self.clock.note_progress(now);
        }
        self.enter(self.state.get().on_close());
    }

    /// ABORT (RFC 9293 §3.10.5): the next egress sends a RST, unless `silent` is set or the
    /// connection is closed on both sides.
    pub(crate) fn abort(&mut self, silent: bool, device: &mut Device) {
        let heard = matches!(self.state.get(), State::Closed | State::TimeWait);
        self.pending = Pending::of_abort(!silent && !heard);
        self.enter(State::Closed);
        self.release(device);
    }

    /// Sends an acknowledgment that is delayed. Before a RST: the application may have acted on what
    /// it received, and the peer ignores the acknowledgment of a RST (RFC 9293 §3.10.7.4).
    pub(crate) fn acknowledge_owed(&mut self, device: &mut Device, now: Instant) {
        let ended = matches!(self.state.get(), State::Closed | State::TimeWait);
        if !ended && self.receive.acks().is_owed() {
            self.send_ack(device, now);
        }
    }

    /// Frees all frames except those of readable bytes.
    pub(crate) fn release(&mut self, device: &mut Device) {
        self.deferred_ack = None;
        self.send.queue_mut().clear(device);
        self.receive.clear_parts(device);
    }

    /// Discards received bytes that the user will not read.
    pub(crate) fn forget_unread(&mut self, device: &mut Device) {
        self.receive.clear(device);
    }

    /// Frees all frames.
    pub(crate) fn dispose(mut self, device: &mut Device) {
        self.release(device);
        self.receive.clear(device);
    }

    /// Control flag of pieces with data.
    const DATA: TcpControl = TcpControl::Psh;
}

impl fmt::Debug for Conn {
    /// Prints sent and received data, and all that the connection waits for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("local", &self.local_addr())
            .field("peer", &self.peer_addr())
            .field("state", &self.state())
            .field("emss", &self.emss())
            .field("send", &self.send)
            .field("receive", &self.receive)
            .field("clock", &self.clock)
            .field("rto", &self.rto())
            .field("pipe", &self.pipe())
            .field("window", &self.window())
            .field("recovery", &self.recovery)
            .field("congestion", &self.congestion)
            .field("pending", &self.pending)
            .field("has_deferred_ack", &self.deferred_ack.is_some())
            .field("nic_checksum", &self.nic_checksum)
            .finish_non_exhaustive()
    }
}
