//! Congestion controller of one connection: its algorithm, delivery rate samples, pacing, and
//! answers to ECN echoes.

use std::time::Duration;

use super::pacer::Pacer;
use crate::congestion::{Acked, Congestion, CongestionControl, Marks};
use crate::delivery_rate::{RateSampler, SentRate};
use crate::time::Instant;
use crate::wire::seq::Seq;

/// Limits of sending: window and rate, and whether they were the limit.
#[derive(Debug)]
pub(crate) struct CongestionController {
    algorithm: CongestionControl,
    state: Box<dyn Congestion>,
    /// Bytes delivered so far.
    delivered: u64,
    /// Only for an algorithm that uses the delivery rate.
    rate: Option<Box<RateSampler>>,
    pacer: Pacer,
    /// The congestion window refused the last write.
    window_limited: bool,
    /// Reported congestion up to here is answered (RFC 3168 §6.1.2). `None` once more is
    /// acknowledged.
    echo_until: Option<Seq>,
    /// New data must report a reduced window (CWR).
    reduced: bool,
}

/// Delivery that one ACK reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) now: Instant,
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub(crate) bytes: usize,
    /// Bytes in flight after this ACK.
    pub(crate) in_flight: usize,
    /// A valid round-trip sample from this ACK.
    pub(crate) rtt: Option<Duration>,
    pub(crate) min_rtt: Option<Duration>,
    /// The ACK has ECE set.
    pub(crate) ece: bool,
    /// Losses found by ACKs, not by a timeout, are being repaired.
    pub(crate) in_recovery: bool,
}

impl CongestionController {
    /// State of a new connection whose segments have at most `mss` bytes.
    pub(crate) fn new(algorithm: CongestionControl, mss: usize, now: Instant) -> Self {
        Self {
            algorithm,
            state: algorithm.start(mss, now),
            delivered: 0,
            rate: algorithm
                .goes_by_rate()
                .then(|| Box::new(RateSampler::new(now))),
            pacer: Pacer::default(),
            window_limited: false,
            echo_until: None,
            reduced: false,
        }
    }

    /// Starts again with segments of `mss` bytes, which the handshake has agreed on.
    pub(crate) fn establish(&mut self, mss: usize, now: Instant) {
        self.state = self.algorithm.start(mss, now);
    }

    /// Meaning of ECN marks to the algorithm.
    pub(crate) fn marks(&self) -> Marks {
        self.state.marks()
    }

    /// Congestion window in bytes.
    pub(crate) fn window(&self) -> usize {
        self.state.window()
    }

    /// True if pacing allows a segment now.
    pub(crate) fn paces_out(&self, now: Instant) -> bool {
        self.pacer.is_open(now)
    }

    /// When pacing allows the next segments, if it allows none `now`.
    pub(crate) fn pacing_wake(&self, now: Instant) -> Option<Instant> {
        self.pacer.wake(now)
    }

    /// Records that a segment with `len` bytes of payload was sent: the next one is spaced from it.
    pub(crate) fn pace(&mut self, len: usize, now: Instant) {
        self.pacer.sent(len, self.state.pacing_rate(), now);
    }

    /// Rate state to keep with a segment that is sent while `in_flight` bytes are in flight.
    pub(crate) fn on_sent(&mut self, now: Instant, in_flight: usize) -> Option<SentRate> {
        let rate = self.rate.as_mut()?;
        Some(rate.on_sent(now, in_flight, self.delivered))
    }

    /// Records that a segment of `bytes` was acknowledged for the first time, cumulatively or
    /// selectively. [`on_ack`](Self::on_ack) follows.
    pub(crate) fn on_delivered(&mut self, segment: Option<&SentRate>, bytes: usize, now: Instant) {
        self.delivered = self.delivered.saturating_add(bytes as u64);
        if let (Some(rate), Some(segment)) = (&mut self.rate, segment) {
            rate.on_acked(segment, now);
        }
    }

    /// Passes the delivery of an ACK to the algorithm.
    pub(crate) fn on_ack(&mut self, delivery: &Delivery) {
        let rate = self.rate.as_mut();
        let rate = rate.and_then(|rate| rate.sample(self.delivered, delivery.min_rtt));
        self.state.on_ack(&Acked {
            now: delivery.now,
            bytes: delivery.bytes,
            in_flight: delivery.in_flight,
            rtt: delivery.rtt,
            delivered: self.delivered,
            rate,
            ece_bytes: if delivery.ece { delivery.bytes } else { 0 },
            cwnd_limited: self.window_limited,
            in_recovery: delivery.in_recovery,
        });
    }

    /// See [`Congestion::on_loss`].
    pub(crate) fn on_loss(&mut self, now: Instant, in_flight: usize) {
        self.state.on_loss(now, in_flight);
    }

    /// See [`Congestion::on_recovered`].
    pub(crate) fn on_recovered(&mut self, now: Instant) {
        self.state.on_recovered(now);
    }

    /// See [`Congestion::on_timeout`].
    pub(crate) fn on_timeout(&mut self, now: Instant, in_flight: usize) {
        self.state.on_timeout(now, in_flight);
    }

    /// Undoes the last reduction, which was spurious and no answer to marks.
    pub(crate) fn on_undo(&mut self, now: Instant) {
        self.state.on_undo(now);
        self.echo_until = None;
        self.reduced = false;
    }

    /// See [`Congestion::on_ecn`].
    pub(crate) fn on_ecn(&mut self, now: Instant, in_flight: usize) {
        self.state.on_ecn(now, in_flight);
    }

    /// See [`Congestion::on_idle`].
    pub(crate) fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration) {
        self.state.on_idle(now, idle, rto);
    }

    /// See [`Congestion::on_mss`].
    pub(crate) fn on_mss(&mut self, mss: usize) {
        self.state.on_mss(mss);
    }

    /// True if the congestion window refused the last write.
    pub(crate) fn is_window_limited(&self) -> bool {
        self.window_limited
    }

    /// Records whether the congestion window refused the last write.
    pub(crate) fn set_window_limited(&mut self, limited: bool) {
        self.window_limited = limited;
    }

    /// Records that no more data waits, with `in_flight` bytes in flight and room in a window of
    /// `window` bytes.
    pub(crate) fn on_app_limited(&mut self, in_flight: usize, window: usize) {
        self.window_limited = false;
        if let Some(rate) = &mut self.rate
            && in_flight < window
        {
            rate.set_app_limited(in_flight, self.delivered);
        }
    }

    /// Records a reduction of the window for any reason, when data up to `nxt` was sent. The next
    /// new data reports it to the peer, and marks on earlier data need no answer of their own (RFC
    /// 3168 §6.1.2).
    pub(crate) fn note_reduction(&mut self, nxt: Seq) {
        self.echo_until = Some(nxt);
        self.reduced = true;
    }

    /// Returns true once if new data must report a reduced window.
    pub(crate) fn take_reduced(&mut self) -> bool {
        std::mem::take(&mut self.reduced)
    }

    /// True if this echo of congestion was answered before.
    pub(crate) fn has_answered(&self) -> bool {
        self.echo_until.is_some()
    }

    /// Forgets the last answer once data sent after it, up to `una`, is acknowledged. A later echo
    /// is a new one.
    pub(crate) fn forget_echo(&mut self, una: Seq) {
        self.echo_until.take_if(|until| until.is_before(una));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::seq::testing::{LARGEST, at, start};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

        /// RFC 3168 §6.1.2: until data is acknowledged that was sent after the answer, and no
        /// longer, whatever the length of the stream.
        #[test]
        fn echo_is_answered_once_a_flight(
            begin in start(),
            steps in prop::collection::vec((prop_oneof![0..3_i64, 0..=LARGEST], prop_oneof![0..3_i64, 0..=LARGEST], any::<bool>()), 1..30),
        ) {
            let mut controller = CongestionController::new(CongestionControl::NewReno, 1448, Instant::ORIGIN);
            let (mut una, mut nxt, mut until) = (begin, begin, None);
            for (acked, sent, echoed) in steps {
                una = nxt.min(una + acked);
                controller.forget_echo(at(una));
                until = until.filter(|until| una <= *until);
                prop_assert_eq!(controller.has_answered(), until.is_some());
                if echoed && until.is_none() {
                    controller.note_reduction(at(nxt));
                    until = Some(nxt);
                }
                nxt = nxt.max(una + sent);
            }
        }
    }
}
