//! Timers of a connection: retransmission, tail probe, reordering, TIME-WAIT, probes, user timeout
//! (RFC 6298, RFC 8985).
//!
//! The RTO's floor is 5 ms, and a process may wait longer than that for a processor while the ACK
//! lies in its receive ring. So no timer runs while the ring may hold more frames (see
//! [`Stack::poll`](crate::Stack::poll)). A tail loss probe is due 2 SRTT plus the floor after the
//! tail was sent, and replaces an earlier RTO (RFC 8985 §7.2). F-RTO (RFC 5682) is left out: the
//! first ACK's echoed timestamp shows a spurious timeout one ACK earlier (RFC 3522). Peers without
//! timestamps have D-SACK (RFC 3708).
//!
//! # The last try
//!
//! Timeouts double (RFC 6298 §5.5). With a user timeout of 10 s, the eleventh would be at 5.1 s and
//! the next at 10.2 s, so no outage of 5.2 s would be survived. So if the next retransmission would
//! be too late for an answer, it is sent while an answer still has time. That time is the largest
//! of 250 ms, two round trips and an RTO without back-off, and at most a quarter of the user
//! timeout. The same holds for a SYN before the connect timeout, and for probes of closed windows
//! and silent peers. At least three such probes are sent, and their time counts from the first
//! unanswered one.

use std::time::Duration;

use super::probing::{Probing, Reason};
use super::send::rack::PathTimes;
use super::timestamps::TICK;
use super::{Conn, State};
use crate::config::StackConfig;
use crate::device::Device;
use crate::rtt::RttEstimator;
use crate::time::Instant;

/// Duration of TIME-WAIT: twice the maximum segment lifetime. RFC 9293 §3.4.2 has four minutes; on
/// one link 10 s are plenty.
const TIME_WAIT: Duration = Duration::from_secs(10);
/// Minimum time before the first probe of a closed window if no round trip was measured.
const PERSIST: Duration = Duration::from_secs(1);
/// Time after which data fills a window that is too small for all of it: the minimum of RFC 9293
/// §3.8.6.2.1.
const OVERRIDE: Duration = Duration::from_millis(100);
/// Minimum time for an answer to the last try, if the timeout allows it. The peer may have to
/// resolve its neighbour again.
const ANSWER: Duration = Duration::from_millis(250);
/// Maximum retransmission timeout (RFC 6298 §2.5).
pub const MAX_RTO: Duration = Duration::from_mins(1);
/// The answer to the last try has at most one part in this many of the whole timeout.
const ANSWER_PART: u32 = 4;
/// Interval at which a segment is checked that the kernel has not sent yet: to retransmit it
/// meanwhile is useless.
const UNSENT_RECHECK: Duration = Duration::from_millis(1);
/// Consecutive timeouts or unanswered probes that put the path in doubt. R1 of RFC 9293 §3.8.3 is
/// at least three, and such advice makes a host doubt its gateway (RFC 1122 §3.3.1.4).
const TIMEOUTS_OF_DOUBT: u32 = 3;

/// Deadlines of one connection.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The peer's last sign of life: an acknowledgment, if one is due.
    progress: Instant,
    /// Retransmission timeout (RFC 6298 §5).
    retransmit: Option<Instant>,
    /// Tail loss probe (RFC 8985 §7.2), unless `tail_since` is set.
    tail: Option<Instant>,
    /// The tail probe's timer is to be set as of this time: once for all segments and ACKs of a
    /// turn.
    tail_since: Option<Instant>,
    /// When more segments may be found lost (RFC 8985 §6.3).
    reorder: Option<Instant>,
    /// End of TIME-WAIT.
    time_wait: Option<Instant>,
    /// When the last segment was sent.
    sent: Instant,
    rtt: RttEstimator,
    probing: Probing,
    timeouts: Timeouts,
}

/// Configured limits of the peer's silence.
#[derive(Debug)]
struct Timeouts {
    connect_timeout: Duration,
    user_timeout: Duration,
    keepalive: Option<Duration>,
    /// A timeout shorter than this expires before one of the first two that starts at the same
    /// time.
    soon: Duration,
    min_rto: Duration,
}

impl Timeouts {
    fn new(config: &StackConfig) -> Self {
        let mut timeouts = Self {
            connect_timeout: config.connect_timeout,
            user_timeout: config.user_timeout,
            keepalive: config.keepalive,
            soon: Duration::ZERO,
            min_rto: config.min_rto,
        };
        timeouts.set_connect_timeout(config.connect_timeout);
        timeouts
    }

    fn set_connect_timeout(&mut self, timeout: Duration) {
        self.connect_timeout = timeout;
        self.soon = self.user_timeout.min(timeout) / 2;
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
            time_wait: None,
            sent: now,
            rtt: RttEstimator::new(config.min_rto, MAX_RTO),
            probing: Probing::default(),
            timeouts: Timeouts::new(config),
        }
    }

    /// True once the peer's window has been too small for the waiting data for so long that it is
    /// filled nevertheless.
    pub(super) fn waits_long_for_window(&self, now: Instant) -> bool {
        self.probing.without_room(now) >= OVERRIDE
    }

    /// True while the peer's window has no room for data that waits, or for the FIN.
    pub(super) fn lacks_window(&self) -> bool {
        self.probing.lacks_room()
    }

    /// The round-trip estimator.
    pub(super) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The round-trip estimator, to add samples.
    pub(super) fn rtt_mut(&mut self) -> &mut RttEstimator {
        &mut self.rtt
    }

    /// Takes the age of an echoed timestamp as a sample, if it is at most `longest`. A first sample
    /// below one tick counts as a tick; a later one is too coarse and is ignored.
    pub(super) fn sample_echo(&mut self, age: Duration, longest: Duration, now: Instant) {
        let first = self.rtt.srtt().is_none();
        let age = if first { age.max(TICK) } else { age };
        if (TICK..=longest).contains(&age) {
            self.rtt.sample(age, now);
        }
    }

    /// Records a sign of life, or the start of the time for one.
    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = now;
    }

    /// Records that the peer has sent something, which ends its silence.
    pub(super) fn note_peer_activity(&mut self, now: Instant) {
        self.progress = now;
        self.probing.on_peer_activity();
    }

    /// Records that a segment was sent.
    pub(super) fn note_sent(&mut self, now: Instant) {
        self.sent = now;
    }

    /// Time since the last segment was sent.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        now - self.sent
    }

    /// True while the retransmission timer runs.
    pub(super) fn awaits_ack(&self) -> bool {
        self.retransmit.is_some()
    }

    /// Sets when more segments may be found lost.
    pub(super) fn set_reordering(&mut self, at: Option<Instant>) {
        self.reorder = at;
    }

    /// Stops the reordering timer.
    pub(super) fn disarm_reordering(&mut self) {
        self.reorder = None;
    }

    /// Stops all timers of sent data.
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

    /// (Re)starts the retransmission timer, and the tail probe's before it.
    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        if self.send.queue().is_empty() {
            self.clock.all_acked();
            return;
        }
        let rto = self.rto();
        let ends_soon = rto < self.clock.timeouts.soon;
        self.clock.retransmit = Some(if ends_soon {
            now + rto
        } else {
            self.retry_at(now)
        });
        self.arm_tail(now);
    }

    /// Starts the retransmission timer for a retransmission.
    pub(super) fn arm_retry(&mut self, now: Instant) {
        self.clock.retransmit = Some(self.retry_at(now));
    }

    /// When to retransmit what is sent now: one timeout later, or in time for the last try (see the
    /// module). Only this last timeout is shortened: RFC 6298 §5.5 has timeouts doubled, and RFC
    /// 9293 §3.8.3 leaves the last one open.
    fn retry_at(&self, now: Instant) -> Instant {
        let due = now + self.rto();
        match self.last_try() {
            Some(last) if last > now && last < due => last,
            _ => due,
        }
    }

    /// When to make the last try, if data waits for an answer before the connection times out. A
    /// SYN that was answered is not sent again for this: the peer repeats its own.
    fn last_try(&self) -> Option<Instant> {
        let expiry = self
            .expiry()
            .filter(|_| self.state.get() != State::SynReceived)?;
        let timeout = if self.is_synchronized() {
            self.clock.timeouts.user_timeout
        } else {
            self.clock.timeouts.connect_timeout
        };
        let round_trips = self
            .clock
            .rtt
            .srtt()
            .map_or(Duration::ZERO, |srtt| srtt * 2);
        let answer = self.clock.rtt.answer().max(round_trips).max(ANSWER);
        Some(expiry - answer.min(timeout / ANSWER_PART))
    }

    /// (Re)starts the tail probe's timer at the end of the turn.
    pub(super) fn arm_tail(&mut self, now: Instant) {
        self.clock.tail_since = Some(now);
    }

    /// Sets the tail probe's timer if that is due. It is no later than the first timeout, whose
    /// place it takes (RFC 8985 §7.2), and no later than one timeout after the last segment was
    /// sent. ACKs of earlier segments do not postpone it.
    fn set_tail_timer(&mut self) {
        let Some(now) = self.clock.tail_since.take() else {
            return;
        };
        let last = self.send.queue().len().checked_sub(1);
        let last = last.and_then(|at| self.send.queue().get(at));
        let overdue = last.map(|piece| (piece.sent_at + self.rto()).max(now));
        let probe = self.probe_timeout().map(|pto| now + pto);
        self.clock.tail = probe
            .and_then(|probe| Instant::earliest([Some(probe), overdue, self.clock.retransmit]));
    }

    /// Time to a tail loss probe (RFC 8985 §7.2), or `None` without a probe.
    fn probe_timeout(&self) -> Option<Duration> {
        let eligible = self.negotiation.agreed().sack
            && self.is_synchronized()
            && self.recovery.is_open()
            && self.send.queue().sacked() == 0
            && !self.send.queue().has_lost()
            && !self.recovery.is_probing();
        let srtt = self.clock.rtt.srtt().filter(|_| eligible)?;
        // An ACK may be delayed by the floor for any number of segments: the peer is a process that
        // may have to wait for a processor.
        Some(srtt * 2 + self.clock.timeouts.min_rto)
    }

    /// Sets the time limit of the handshake.
    pub(crate) fn set_connect_timeout(&mut self, timeout: Duration) {
        self.clock.timeouts.set_connect_timeout(timeout);
    }

    /// Begins or restarts TIME-WAIT.
    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.clock.time_wait = Some(now + TIME_WAIT);
    }

    pub(super) fn path_times(&self) -> PathTimes {
        PathTimes {
            srtt: self.clock.rtt.srtt(),
            min_rtt: self.clock.rtt.min_rtt(),
        }
    }

    /// Deadline for the peer's next sign of life.
    pub(crate) fn expiry(&self) -> Option<Instant> {
        let waits = !self.send.queue().is_empty() || self.clock.probing.is_active();
        match self.state.get() {
            State::SynSent | State::SynReceived => {
                Some(self.clock.progress + self.clock.timeouts.connect_timeout)
            }
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => {
                Some(self.clock.progress + self.clock.timeouts.user_timeout)
            }
            State::Established | State::CloseWait if waits => {
                Some(self.clock.progress + self.clock.timeouts.user_timeout)
            }
            _ => None,
        }
    }

    pub(crate) fn has_expired(&self, now: Instant) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now)
    }

    /// When this connection must run next.
    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.update_probing(now);
        let idle = self.send.queue().is_empty() && self.pending.wanted() == 0;
        let sending = if idle {
            None
        } else {
            self.sending_deadline(now)
        };
        Instant::earliest([
            sending,
            self.clock.time_wait,
            self.receive.acks().latest(),
            self.clock.probing.next(),
            self.expiry(),
        ])
    }

    /// When this connection must run next for sent or waiting data.
    fn sending_deadline(&mut self, now: Instant) -> Option<Instant> {
        self.set_tail_timer();
        let waits = self.pending.wanted() > 0 || self.send.queue().has_lost();
        let pace = if waits {
            self.congestion.pacing_wake(now)
        } else {
            None
        };
        let clock = &self.clock;
        Instant::earliest([clock.retransmit, clock.tail, clock.reorder, pace])
    }

    /// Handles expired timers. The next egress sends what results. Returns true if the path is now
    /// in doubt.
    pub(crate) fn on_timer(&mut self, device: &mut Device, now: Instant) -> bool {
        self.set_tail_timer();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.clock.time_wait) {
            self.clock.time_wait = None;
            self.enter(State::Closed);
            return false;
        }
        if due(self.receive.acks().latest()) {
            self.receive.acks_mut().give_up();
        }
        if due(self.clock.reorder) {
            self.clock.reorder = None;
            self.detect_losses(now);
        }
        if due(self.clock.tail) {
            self.clock.tail = None;
            self.probe_tail(device, now);
        }
        let mut doubtful = false;
        if due(self.clock.retransmit) {
            self.time_out(now);
            self.give_up_nic_checksum(device);
            doubtful = self.clock.rtt.backoff() >= TIMEOUTS_OF_DOUBT;
        }
        if self.clock.probing.is_due(self.clock.progress, now) {
            doubtful |= self.clock.probing.unanswered() >= TIMEOUTS_OF_DOUBT;
            self.probe_peer(device, now);
        }
        doubtful
    }

    /// Probes a peer that is silent or has closed its window.
    fn probe_peer(&mut self, device: &mut Device, now: Instant) {
        if self.clock.probing.is_first_unanswered() {
            self.clock.note_progress(now); // an answer is due from now on
        }
        if let Some(last) = self.last_try().filter(|last| *last > now) {
            self.clock.probing.no_later_than(last);
        }
        if !self.cut_at_edge(device) && !self.let_cut(now) {
            self.send_probe(device, now);
        }
    }

    fn probe_tail(&mut self, device: &mut Device, now: Instant) {
        let last = self.send.queue().len().checked_sub(1);
        if let Some(at) = last.filter(|_| !self.send.queue().has_lost())
            && self.resend(at, device, now)
        {
            self.recovery.probed(self.send.nxt());
            device.counters_mut().tail_probes += 1;
            self.clock.retransmit = Some(now + self.rto());
        }
    }

    /// Handles the expiry of the retransmission timer (RFC 6298 §5.4 to §5.6, RFC 8985 §6.3).
    fn time_out(&mut self, now: Instant) {
        let Some(first) = self.send.queue().first() else {
            self.clock.retransmit = None;
            return;
        };
        if first.transmits == 0 {
            // the window is closed, and being probed
            self.clock.retransmit = Some(now + self.rto());
            return;
        }
        if first.sacked {
            self.send.queue_mut().distrust();
        }
        if self.is_synchronized() {
            self.congestion.on_timeout(now, self.unacked());
            self.note_reduction();
        }
        self.recovery.time_out(self.send.una(), self.send.nxt());
        self.send.clear_duplicates();
        self.send.queue_mut().mark_lost(0);
        self.pending.set_first(true);
        self.recovery.mark_overdue(self.send.queue_mut(), now);
        self.clock.rtt.back_off();
        self.clock.disarm_tail();
        self.clock.reorder = None;
        self.arm_retry(now);
    }

    /// Handles a link that is up again: the next timeout is as short as the first. No timeout
    /// becomes later than it was, or a flapping link would postpone it for ever.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.clock.rtt.reset_backoff();
        if let Some(due) = self.clock.retransmit {
            self.clock.retransmit = Some(due.min(self.retry_at(now)));
            self.arm_tail(now);
        }
    }

    /// Handles a segment that cannot be retransmitted because the kernel has not sent it yet.
    pub(super) fn recheck_unsent(&mut self, now: Instant) {
        let soon = now + UNSENT_RECHECK;
        self.clock.reorder = Some(self.clock.reorder.map_or(soon, |at| at.min(soon)));
    }

    /// Starts or stops probing the peer.
    fn update_probing(&mut self, now: Instant) {
        let reason = self.probe_reason();
        self.clock.probing.update(reason, self.clock.progress, now);
    }

    fn probe_reason(&self) -> Option<Reason> {
        let open = self.state.get().may_send() || self.pending.fin();
        let waits = self.send.waits_for_window();
        if !open || !waits && !self.send.queue().is_empty() {
            return None;
        }
        let user_timeout = self.clock.timeouts.user_timeout;
        let wanted = self.pending.wanted().max(usize::from(self.pending.fin()));
        if waits || wanted > 0 && self.send.room() < wanted {
            let first = self.clock.rtt.srtt().map_or(PERSIST, |_| self.rto());
            return Some(Reason::Window {
                first,
                user_timeout,
            });
        }
        let timeout = self.clock.timeouts.keepalive?;
        Some(Reason::Silence {
            timeout,
            user_timeout,
        })
    }
}
