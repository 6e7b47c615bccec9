//! Timers of a connection: retransmission, tail probe, reordering, TIME-WAIT, probes, patience (RFC 6298, RFC 8985).

use std::time::Duration;

use super::probing::{Probing, Reason};
use super::send::rack::PathTimes;
use super::{Conn, State};
use crate::config::StackConfig;
use crate::device::Device;
use crate::rtt::RttEstimator;
use crate::time::Instant;

/// Twice the maximum segment lifetime: how long TIME-WAIT lasts. RFC 9293 §3.4.2 has four minutes; on one link 10 s are plenty.
const TIME_WAIT: Duration = Duration::from_secs(10);
/// The least time before the first probe of a closed window, before a round trip was measured.
const PERSIST: Duration = Duration::from_secs(1);
/// The least that an answer to the last try has time for, where patience has as much to spare: a peer may have to find its neighbour again.
const ANSWER: Duration = Duration::from_millis(250);
/// The retransmission timeout's ceiling (RFC 6298 §2.5).
const MAX_RTO: Duration = Duration::from_mins(1);
/// The part of all patience that an answer to the last try has time for at most.
const ANSWER_PART: u32 = 4;
/// While the kernel has not sent a segment, there is no use in sending it again; it is looked after so often.
const UNSENT_RECHECK: Duration = Duration::from_millis(1);

/// Instants of one connection.
#[derive(Debug)]
pub(crate) struct Clock {
    /// When the peer last showed that it lives, by an acknowledgment if one is due.
    progress: Instant,
    /// Retransmission timeout (RFC 6298 §5).
    retransmit: Option<Instant>,
    /// Tail loss probe (RFC 8985 §7.2), unless it is to be set anew.
    tail: Option<Instant>,
    /// The tail probe is to be set anew, as of this time: once for all the segments and ACKs of a turn.
    tail_since: Option<Instant>,
    /// More segments may be found lost (RFC 8985 §6.3).
    reorder: Option<Instant>,
    /// The end of TIME-WAIT.
    rest: Option<Instant>,
    /// When a segment was sent last.
    sent: Instant,
    rtt: RttEstimator,
    probing: Probing,
    patience: Patience,
}

/// How long the peer may take, by configuration.
#[derive(Debug)]
struct Patience {
    connect_timeout: Duration,
    user_timeout: Duration,
    keepalive: Option<Duration>,
    /// A timeout shorter than this ends before either of the first two does that begins with it.
    soon: Duration,
    min_rto: Duration,
}

impl Patience {
    fn new(config: &StackConfig) -> Self {
        let mut patience = Self {
            connect_timeout: config.connect_timeout,
            user_timeout: config.user_timeout,
            keepalive: config.keepalive,
            soon: Duration::ZERO,
            min_rto: config.min_rto,
        };
        patience.set_connect_timeout(config.connect_timeout);
        patience
    }

    fn set_connect_timeout(&mut self, limit: Duration) {
        self.connect_timeout = limit;
        self.soon = self.user_timeout.min(limit) / 2;
    }
}

impl Clock {
    pub(super) fn new(config: &StackConfig, now: Instant) -> Self {
        Self {
            progress: now,
            retransmit: None,
            tail: None,
            tail_since: None,
            reorder: None,
            rest: None,
            sent: now,
            rtt: RttEstimator::new(config.min_rto, MAX_RTO),
            probing: Probing::default(),
            patience: Patience::new(config),
        }
    }

    /// The round trip, measured.
    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The round trip, for whoever measures it.
    pub(super) fn rtt_mut(&mut self) -> &mut RttEstimator {
        &mut self.rtt
    }

    /// The peer has shown that it lives, or begins to have time for that.
    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = now;
    }

    /// The peer's silence, if it was asked, is broken.
    pub(super) fn heard(&mut self, now: Instant) {
        self.progress = now;
        self.probing.heard();
    }

    /// A segment is sent.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// How long no segment was sent.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now - self.sent
    }

    /// True while the retransmission timer runs.
    pub(super) fn awaits_ack(&self) -> bool {
        self.retransmit.is_some()
    }

    /// More segments may be found lost `at` that time, or none.
    pub(super) fn set_reordering(&mut self, at: Option<Instant>) {
        self.reorder = at;
    }

    /// No more segments may be found lost for now.
    pub(super) fn disarm_reordering(&mut self) {
        self.reorder = None;
    }

    /// Stops all timers of what is sent.
    fn all_acked(&mut self) {
        self.retransmit = None;
        self.disarm_tail();
        self.reorder = None;
    }

    /// Stops the tail probe's timer.
    pub(super) fn disarm_tail(&mut self) {
        self.tail = None;
        self.tail_since = None;
    }
}

impl Conn {
    /// The retransmission timeout.
    pub(super) fn rto(&self) -> Duration {
        self.clock.rtt.timeout()
    }

    /// (Re)starts the retransmission timer, and the tail probe's in front of it.
    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        if self.send.queue.is_empty() {
            self.clock.all_acked();
            return;
        }
        let rto = self.rto();
        let ends_soon = rto < self.clock.patience.soon;
        self.clock.retransmit = Some(if ends_soon {
            now + rto
        } else {
            self.retry_at(now)
        });
        self.arm_tail(now);
    }

    /// Starts the retransmission timer for what is sent again.
    pub(super) fn arm_retry(&mut self, now: Instant) {
        self.clock.retransmit = Some(self.retry_at(now));
    }

    /// When to send again what is sent now: a timeout later, unless the connection would be given up before an answer to that could be
    /// here, and shortly before it is given up then. An outage is survived that ends before that, at the cost of one segment. No timeout
    /// is shortened but the last (RFC 6298 §5.5 has them doubled, RFC 9293 §3.8.3 does not say what is last).
    fn retry_at(&self, now: Instant) -> Instant {
        let due = now + self.rto();
        match self.last_try() {
            Some(last) if last > now && last < due => last,
            _ => due,
        }
    }

    /// When it is time to send again what must be answered before the connection is given up. A SYN that was answered is not sent again
    /// for this: the peer's own is.
    fn last_try(&self) -> Option<Instant> {
        let expiry = self
            .expiry()
            .filter(|_| self.state.get() != State::SynReceived)?;
        let patience = if self.is_synchronized() {
            self.clock.patience.user_timeout
        } else {
            self.clock.patience.connect_timeout
        };
        let round_trips = self
            .clock
            .rtt
            .srtt()
            .map_or(Duration::ZERO, |srtt| srtt * 2);
        let answer = self.clock.rtt.answer().max(round_trips).max(ANSWER);
        Some(expiry - answer.min(patience / ANSWER_PART))
    }

    /// (Re)starts the tail probe's timer at the end of the turn.
    pub(super) fn arm_tail(&mut self, now: Instant) {
        self.clock.tail_since = Some(now);
    }

    /// (Re)starts the tail probe's timer if that is due: no later than the first timeout, in whose place it comes then (RFC 8985 §7.2), and no
    /// later than a timeout after the last segment was sent, which an ACK of those before it does not make any younger.
    fn settle_tail(&mut self) {
        let Some(now) = self.clock.tail_since.take() else {
            return;
        };
        let last = self.send.queue.len().checked_sub(1);
        let last = last.and_then(|at| self.send.queue.get(at));
        let overdue = last.map(|piece| (piece.sent_at + self.rto()).max(now));
        let probe = self.probe_timeout().map(|pto| now + pto);
        self.clock.tail = probe.and_then(|probe| {
            let limits = [Some(probe), overdue, self.clock.retransmit];
            limits.into_iter().flatten().min()
        });
    }

    /// Time to a tail loss probe (RFC 8985 §7.2); `None` if there is to be none.
    fn probe_timeout(&self) -> Option<Duration> {
        let eligible = self.negotiation.agreed().sack
            && self.is_synchronized()
            && self.recovery.is_open()
            && self.send.queue.sacked() == 0
            && !self.send.queue.has_lost()
            && !self.tail.is_outstanding();
        let srtt = self.clock.rtt.srtt().filter(|_| eligible)?;
        // An ACK may be held back by as much as the floor says, however many segments it is for: the peer is a process that may
        // have to wait for its turn.
        Some(srtt * 2 + self.clock.patience.min_rto)
    }

    /// How long the handshake may take.
    pub(crate) fn set_connect_timeout(&mut self, limit: Duration) {
        self.clock.patience.set_connect_timeout(limit);
    }

    /// Begins TIME-WAIT, or begins it anew.
    pub(super) fn rest(&mut self, now: Instant) {
        self.clock.rest = Some(now + TIME_WAIT);
    }

    pub(super) fn path_times(&self) -> PathTimes {
        PathTimes {
            srtt: self.clock.rtt.srtt(),
            min_rtt: self.clock.rtt.min_rtt(),
        }
    }

    /// When the peer must have shown that it lives.
    fn expiry(&self) -> Option<Instant> {
        let waits = !self.send.queue.is_empty() || self.clock.probing.is_active();
        match self.state.get() {
            State::SynSent | State::SynReceived => {
                Some(self.clock.progress + self.clock.patience.connect_timeout)
            }
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                Some(self.clock.progress + self.clock.patience.user_timeout)
            }
            State::Established | State::CloseWait if waits => {
                Some(self.clock.progress + self.clock.patience.user_timeout)
            }
            _ => None,
        }
    }

    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now)
    }

    /// When to run next.
    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.watch(now);
        self.settle_tail();
        let waits = self.pending.wanted() > 0 || self.send.queue.has_lost();
        let pace = self.pacer.wake(now).filter(|_| waits);
        [
            self.clock.retransmit,
            self.clock.tail,
            self.clock.reorder,
            self.clock.rest,
            self.acks.latest(),
            self.clock.probing.next(),
            self.expiry(),
            pace,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Acts upon the timers that are due. What there is to send is sent by the next egress.
    pub(crate) fn on_timer(&mut self, device: &mut Device, now: Instant) {
        self.settle_tail();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.clock.rest) {
            self.clock.rest = None;
            self.enter(State::Closed);
            return;
        }
        if due(self.acks.latest()) {
            self.acks.give_up();
        }
        if due(self.clock.reorder) {
            self.clock.reorder = None;
            self.detect_losses(now);
        }
        if due(self.clock.tail) {
            self.clock.tail = None;
            self.probe_tail(device, now);
        }
        if due(self.clock.retransmit) {
            self.time_out(now);
        }
        if self.clock.probing.is_due(self.clock.progress, now) {
            if self.clock.probing.asks() {
                self.clock.note_progress(now); // an answer is due from now on
            }
            if let Some(last) = self.last_try().filter(|last| *last > now) {
                self.clock.probing.no_later_than(last);
            }
            if !self.cut_at_edge(device) {
                self.send_probe(device, now);
            }
        }
    }

    fn probe_tail(&mut self, device: &mut Device, now: Instant) {
        let last = self.send.queue.len().checked_sub(1);
        if let Some(at) = last.filter(|_| !self.send.queue.has_lost())
            && self.resend(at, device, now)
        {
            self.tail.sent(self.send.nxt);
            device.counters_mut().tail_probes += 1;
            self.clock.retransmit = Some(now + self.rto());
        }
    }

    /// The retransmission timer has expired (RFC 6298 §5.4 to §5.6, RFC 8985 §6.3).
    fn time_out(&mut self, now: Instant) {
        let Some(first) = self.send.queue.first() else {
            self.clock.retransmit = None;
            return;
        };
        if first.transmits == 0 {
            self.clock.retransmit = Some(now + self.rto()); // the window is closed, and is probed
            return;
        }
        if first.sacked {
            self.send.queue.distrust();
        }
        if self.is_synchronized() {
            self.congestion.on_timeout(now, self.unacked());
            self.note_reduction();
        }
        self.recovery.time_out(self.send.una, self.send.nxt);
        self.send.duplicates = 0;
        self.tail.clear();
        self.send.queue.mark_lost(0);
        self.pending.set_first(true);
        for at in 1..self.send.queue.len() {
            let overdue = |piece| self.rack.is_overdue(piece, now);
            if self.send.queue.get(at).is_some_and(overdue) {
                self.send.queue.mark_lost(at);
            }
        }
        self.clock.rtt.back_off();
        self.clock.disarm_tail();
        self.clock.reorder = None;
        self.arm_retry(now);
    }

    /// The link is up again: the next timeout is as short as the first.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.clock.rtt.reset_backoff();
        if self.clock.retransmit.is_some() {
            self.arm_retransmission(now);
        }
    }

    /// A segment could not be sent again, because the kernel has not sent it yet.
    pub(super) fn recheck_unsent(&mut self, now: Instant) {
        let soon = now + UNSENT_RECHECK;
        self.clock.reorder = Some(self.clock.reorder.map_or(soon, |at| at.min(soon)));
    }

    /// Sees whether there is a reason to probe the peer.
    fn watch(&mut self, now: Instant) {
        let reason = self.probe_reason();
        self.clock.probing.update(reason, self.clock.progress, now);
    }

    fn probe_reason(&self) -> Option<Reason> {
        let open = self.state.get().may_send() || self.pending.fin();
        let waits = self.send.waits_for_window();
        if !open || !waits && !self.send.queue.is_empty() {
            return None;
        }
        let patience = self.clock.patience.user_timeout;
        let wanted = self.pending.wanted().max(usize::from(self.pending.fin()));
        if waits || wanted > 0 && self.send.room() < wanted {
            let first = self.clock.rtt.srtt().map_or(PERSIST, |_| self.rto());
            return Some(Reason::Window { first, patience });
        }
        let limit = self.clock.patience.keepalive?;
        Some(Reason::Silence { limit, patience })
    }
}
