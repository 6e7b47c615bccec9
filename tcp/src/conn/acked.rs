//! ACK processing: arrived data, the round trip, losses, the window (RFC 9293 §3.10.7.4, fifth).
//!
//! Data begins with an RTO of 3 s if the SYN was retransmitted and no round trip is known (RFC 6298
//! §5.7). So a lost MPA Request would cost 3 s, and then 6 and 12 s. The echoed timestamp shows
//! which SYN the peer has answered (RFC 7323 §4): if it is the latest, its age is the first sample.
//! An older echo is ambiguous, and the RTO is 3 s.

use std::time::Duration;

use super::Conn;
use super::send::congestion_control::{CongestionController, Delivery};
use super::send::loss_recovery::LossRecovery;
use super::send::send_queue::Piece;
use super::timestamps::older;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// Duplicate ACKs that a sender without SACK takes for a loss (RFC 5681 §3.2).
const DUPLICATE_THRESHOLD: usize = 3;

/// Longest round trip that timestamps measure: just below a minute.
const MAX_AGE: Duration = Duration::from_millis(59_999);

/// Results of one ACK so far.
#[derive(Debug)]
struct AckOutcome {
    now: Instant,
    /// The echoed timestamp.
    echoed: Option<u32>,
    min_rtt: Option<Duration>,
    /// The ACK reports a duplicate (RFC 2883).
    duplicate: bool,
    /// SND.UNA has advanced.
    advanced: bool,
    /// Bytes that this ACK reports for the first time.
    bytes: usize,
    pieces: usize,
    /// Send time of the latest of these pieces that was sent only once.
    sent: Option<Instant>,
}

/// Data that a plain ACK acknowledges.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    bytes: usize,
    /// Send time of the last piece.
    sent: Instant,
}

impl AckOutcome {
    /// Counts a piece that this ACK reports for the first time.
    fn credit(
        &mut self,
        piece: &Piece,
        congestion: &mut CongestionController,
        recovery: &mut LossRecovery,
    ) {
        let rtt = self.now - piece.sent_at;
        let repeated = piece.transmits > 1;
        let echo_is_older = self.echoed.is_some_and(|echoed| older(echoed, piece.stamp));
        let too_soon = self.min_rtt.is_some_and(|least| rtt < least);
        congestion.on_delivered(piece.rate.as_ref(), piece.len, self.now);
        recovery.on_delivered(piece, rtt, repeated && (echo_is_older || too_soon));
        self.bytes += piece.len;
        self.pieces += 1;
        if !repeated {
            self.sent = self.sent.max(Some(piece.sent_at));
        }
    }
}

impl Conn {
    /// Bytes in flight.
    pub(super) fn pipe(&self) -> usize {
        self.send.pipe(self.emss())
    }

    /// Processes an acceptable ACK (RFC 9293 §3.10.7.4, fifth).
    pub(super) fn on_ack(
        &mut self,
        segment: &Segment,
        ack: Seq,
        device: &mut Device,
        now: Instant,
    ) {
        if self.is_plain(segment) {
            self.on_plain_ack(segment, ack, device, now);
            return;
        }
        let of_syn = self.send.una() == self.send.iss();
        let outcome = self.ack_outcome(segment, ack, device, now);
        let window_changed = self.take_window(segment, ack);
        self.measure_round_trip(&outcome, of_syn, now);
        let by_original = |echoed| self.recovery.answers_original(echoed);
        if outcome.advanced && outcome.echoed.is_some_and(by_original) {
            self.undo(device, now);
        }
        if !self.negotiation.agreed().sack {
            let repeats = !outcome.advanced && segment.len() == 0 && !window_changed;
            self.count_duplicates(repeats, outcome.advanced, now);
        }
        let bare = outcome.pieces == 0 && segment.len() == 0;
        self.judge_tail(ack, outcome.duplicate, bare, now);
        self.detect_losses(now);
        self.note_progress(segment, outcome.advanced, now); // timers depend on it
        self.conclude_ack(&outcome, segment, device, now);
    }

    /// True while no loss is suspected or being repaired: as far as is known, no piece was sent
    /// twice or arrived out of order.
    pub(super) fn is_steady(&self) -> bool {
        let recovery = &self.recovery;
        recovery.is_open() && !recovery.is_probing() && !self.send.queue().is_disordered()
    }

    /// True for an ACK that reports nothing unusual on a steady connection, as nearly all ACKs do.
    #[inline]
    pub(super) fn is_plain(&self, segment: &Segment) -> bool {
        let plain = segment.options.sack[0].is_none() && !segment.ecn.ece && !segment.has_syn();
        plain && self.negotiation.agreed().sack && self.is_steady()
    }

    /// Processes a plain ACK that acknowledges no new data, such as from a peer that only sends.
    #[inline]
    pub(super) fn on_known_ack(&mut self, segment: &Segment, ack: Seq, now: Instant) {
        self.take_window(segment, ack);
        self.clock.disarm_reordering();
        self.note_progress(segment, false, now);
    }

    /// Processes a plain ACK. Each piece that it acknowledges was sent once, so nothing is
    /// ambiguous, and nothing was lost.
    fn on_plain_ack(&mut self, segment: &Segment, ack: Seq, device: &mut Device, now: Instant) {
        if !self.send.acks_new_data(ack) {
            return self.on_known_ack(segment, ack, now);
        }
        let arrived = self.take_in_order(ack, device, now);
        self.take_window(segment, ack);
        if let Some(arrived) = &arrived {
            self.clock.rtt_mut().sample(now - arrived.sent, now);
        }
        self.clock.disarm_reordering();
        self.note_progress(segment, true, now); // timers depend on it
        // no recovery is running, but an earlier one may now be settled
        self.recovery.ends(self.send.una(), self.send.nxt());
        self.forget_echo();
        if let Some(Arrived { bytes, sent }) = arrived {
            self.take_delivery(&self.delivery(bytes, Some(sent), now));
        }
        self.arm_retransmission(now);
    }

    /// Removes the pieces that a plain ACK acknowledges in full, if any.
    fn take_in_order(&mut self, ack: Seq, device: &mut Device, now: Instant) -> Option<Arrived> {
        let mut arrived: Option<Arrived> = None;
        self.send.acknowledge(ack);
        while let Some(piece) = self.send.first_acked() {
            self.congestion
                .on_delivered(piece.rate.as_ref(), piece.len, now);
            self.recovery
                .on_delivered(piece, now - piece.sent_at, false);
            arrived = Some(Arrived {
                bytes: arrived.map_or(0, |before| before.bytes) + piece.len,
                sent: piece.sent_at,
            });
            if let Some(frame) = self.send.pop_first() {
                frame.free(device);
            }
        }
        arrived
    }

    /// Updates the window from an ACK. Returns true if it has changed.
    fn take_window(&mut self, segment: &Segment, ack: Seq) -> bool {
        let shift = if segment.has_syn() {
            0
        } else {
            self.negotiation.agreed().peer_shift
        };
        self.send.update_window(segment, ack, shift)
    }

    /// Evaluates what an ACK reports about the pieces in flight.
    fn ack_outcome(
        &mut self,
        segment: &Segment,
        ack: Seq,
        device: &mut Device,
        now: Instant,
    ) -> AckOutcome {
        let stamps = self.negotiation.agreed().timestamps;
        let echo = segment.options.timestamp.filter(|_| stamps);
        let mut outcome = AckOutcome {
            now,
            echoed: echo.map(|(_, echoed)| echoed),
            min_rtt: self.clock.rtt().min_rtt(),
            duplicate: self.find_duplicate(segment, ack, device, now),
            advanced: self.send.acks_new_data(ack),
            bytes: 0,
            pieces: 0,
            sent: None,
        };
        if outcome.advanced {
            self.take_acked(ack, &mut outcome, device);
        }
        self.take_sacked(segment, &mut outcome);
        outcome
    }

    /// Removes the acknowledged pieces.
    fn take_acked(&mut self, ack: Seq, outcome: &mut AckOutcome, device: &mut Device) {
        self.send.acknowledge(ack);
        while let Some(mut piece) = self.send.pop_acked() {
            if !piece.sacked {
                outcome.credit(&piece, &mut self.congestion, &mut self.recovery);
            }
            if let Some(frame) = piece.frame.take() {
                frame.free(device);
            }
        }
    }

    /// Marks the pieces that the peer holds out of order (RFC 2018 §5).
    fn take_sacked(&mut self, segment: &Segment, outcome: &mut AckOutcome) {
        if !self.negotiation.agreed().sack {
            return;
        }
        for (left, right) in segment.options.sack.into_iter().flatten() {
            if !self.send.may_have((left, right), self.send.una()) {
                continue;
            }
            for at in self.send.queue().within(left, right) {
                if self.send.queue_mut().mark_sacked(at)
                    && let Some(piece) = self.send.queue().get(at)
                {
                    outcome.credit(piece, &mut self.congestion, &mut self.recovery);
                }
            }
        }
    }

    /// Looks for a D-SACK: a first block below the ACK, or within the second (RFC 2883 §4). Returns
    /// true if there is one.
    fn find_duplicate(
        &mut self,
        segment: &Segment,
        ack: Seq,
        device: &mut Device,
        now: Instant,
    ) -> bool {
        let [Some(first), second, _] = segment.options.sack else {
            return false;
        };
        if self.is_checksum_proof(first, device) {
            return false;
        }
        let inside = second.is_some_and(|second| self.is_inside(first, second, ack));
        if !self.negotiation.agreed().sack || !(self.send.may_repeat(first, ack) || inside) {
            return false;
        }
        device.counters_mut().duplicates_reported += 1;
        let una = self.send.una();
        let nxt = self.send.nxt();
        if self.recovery.on_duplicate(first.0, una, nxt) {
            self.undo(device, now);
        }
        true
    }

    /// True if block `first` lies within block `second`, and both lie in the data in flight behind
    /// `ack`.
    fn is_inside(&self, first: (Seq, Seq), second: (Seq, Seq), ack: Seq) -> bool {
        let [from, left, right, to] =
            [second.0, first.0, first.1, second.1].map(|edge| edge.offset(ack));
        self.send.may_have(first, ack)
            && self.send.may_have(second, ack)
            && from <= left
            && right <= to
    }

    /// Takes a round-trip sample, unless the ACK acknowledges a retransmitted SYN (`of_syn`). Its
    /// echo is that of the SYN that arrived first, and would include the timeouts of both ends.
    fn measure_round_trip(&mut self, outcome: &AckOutcome, of_syn: bool, now: Instant) {
        let repeated_syn = of_syn && outcome.pieces > 0 && outcome.sent.is_none();
        let is_latest = |echoed| self.stamps.is_latest(echoed);
        if repeated_syn && !outcome.echoed.is_some_and(is_latest) {
            self.clock.rtt_mut().syn_was_repeated();
        } else {
            self.take_sample(outcome, now);
        }
    }

    /// Measures the round trip by a segment that was sent once (RFC 6298 §3), or else by the echoed
    /// timestamp, whose ticks are coarse (RFC 7323 §4). If the ACK reports a duplicate, an earlier
    /// ACK was lost and the echo is old. Without a sample the timer stays backed off.
    fn take_sample(&mut self, outcome: &AckOutcome, now: Instant) {
        let ambiguous = !self.negotiation.agreed().sack && !self.recovery.is_open();
        if let Some(sent) = outcome.sent.filter(|_| !ambiguous) {
            self.clock.rtt_mut().sample(now - sent, now);
        } else if outcome.pieces > 0
            && !outcome.duplicate
            && let Some(echoed) = outcome.echoed
        {
            let age = self.stamps.age(echoed, now);
            self.clock.sample_echo(age, MAX_AGE, now);
        }
    }

    /// Undoes the last reduction and drops pending retransmissions: both were spurious.
    fn undo(&mut self, device: &mut Device, now: Instant) {
        self.congestion.on_undo(now);
        self.recovery.cancel();
        self.send.queue_mut().forgive();
        self.clock.rtt_mut().reset_backoff();
        device.counters_mut().undone += 1;
    }

    /// Fast retransmit and `NewReno` (RFC 6582), for peers without SACK.
    fn count_duplicates(&mut self, repeats: bool, advanced: bool, now: Instant) {
        if advanced {
            self.send.clear_duplicates();
            if self.recovery.is_partial(self.send.una()) {
                // The next hole is repaired at once (RFC 6582 §3.2, step 3).
                let lost = self.send.queue_mut().mark_lost(0);
                self.pending.set_first(lost);
            }
        } else if repeats
            && self.send.count_duplicate() == Some(DUPLICATE_THRESHOLD)
            && self.recovery.is_open()
        {
            self.send.queue_mut().mark_lost(0);
            self.begin_repair(now);
        }
    }

    fn judge_tail(&mut self, ack: Seq, duplicate: bool, bare: bool, now: Instant) {
        if self.recovery.is_repaired_by_probe(ack, duplicate, bare) {
            self.congestion.on_loss(now, self.unacked());
            self.congestion.on_recovered(now);
            self.nic_checksum.doubt();
            self.note_reduction();
        }
    }

    /// Detects losses, and begins to repair them.
    pub(super) fn detect_losses(&mut self, now: Instant) {
        self.clock.disarm_reordering();
        if !self.negotiation.agreed().sack || !self.send.queue().is_disordered() {
            return;
        }
        let path = self.path_times();
        let losses = self.recovery.detect(self.send.queue_mut(), path, now);
        self.clock.set_reordering(losses.later);
        if losses.found && self.recovery.is_open() {
            self.begin_repair(now);
        }
    }

    fn begin_repair(&mut self, now: Instant) {
        let flight = self.unacked(); // FlightSize (RFC 5681 §2), which RFC 6937 uses as well
        self.congestion.on_loss(now, flight);
        self.nic_checksum.doubt();
        self.note_reduction();
        let sent = (self.send.una(), self.send.nxt());
        let target = self.congestion.window();
        let mss = self.emss();
        self.recovery.begin(sent, flight, target, mss);
        self.recovery.on_ack(0, self.pipe(), mss);
        self.clock.disarm_tail();
    }

    /// Ends a finished recovery, updates congestion control, and sets the timers.
    fn conclude_ack(
        &mut self,
        outcome: &AckOutcome,
        segment: &Segment,
        device: &mut Device,
        now: Instant,
    ) {
        let in_recovery = self.recovery.is_repairing();
        if self.recovery.ends(self.send.una(), self.send.nxt()) {
            self.congestion.on_recovered(now);
            self.send.clear_duplicates();
        }
        // In a SYN, ECE is part of the negotiation (RFC 3168 §6.1.1).
        let ece = self.negotiation.agreed().ecn && segment.ecn.ece && !segment.has_syn();
        self.forget_echo();
        if outcome.pieces > 0 {
            self.take_delivery(&Delivery {
                ece,
                in_recovery,
                ..self.delivery(outcome.bytes, outcome.sent, now)
            });
        }
        if ece {
            self.answer_congestion(outcome.bytes, device, now);
        }
        if outcome.advanced {
            self.arm_retransmission(now);
        } else if self.send.queue().sacked() > 0 {
            self.clock.disarm_tail();
        }
    }

    /// The delivery that an ACK reports outside of a recovery. `sent`: send time of the latest of
    /// these bytes that were sent once.
    fn delivery(&self, bytes: usize, sent: Option<Instant>, now: Instant) -> Delivery {
        Delivery {
            now,
            bytes,
            in_flight: self.pipe(),
            rtt: sent.map(|sent| now - sent),
            min_rtt: self.clock.rtt().min_rtt(),
            ece: false,
            in_recovery: false,
        }
    }

    /// Reports delivered bytes to loss recovery and congestion control.
    fn take_delivery(&mut self, delivery: &Delivery) {
        let bytes = delivery.bytes;
        let in_flight = delivery.in_flight;
        self.recovery.on_ack(bytes, in_flight, self.emss());
        self.congestion.on_ack(delivery);
        self.note_limit();
    }

    /// Records what limits sending until the next ACK.
    fn note_limit(&mut self) {
        let limited = self.pending.wanted() > 0 || self.send.queue().has_lost();
        if !limited {
            let pipe = self.pipe();
            let window = self.window();
            self.congestion.on_app_limited(pipe, window);
        }
    }

    /// Forgets the last answer to congestion once data that was sent after it is acknowledged. A
    /// later echo is a new one.
    fn forget_echo(&mut self) {
        let una = self.send.una();
        self.recovery.forget(una);
        self.congestion.forget_echo(una);
    }

    /// Reduces the window at most once per window of data (RFC 3168 §6.1.2). `arrived`: bytes that
    /// the ACK took out of flight.
    fn answer_congestion(&mut self, arrived: usize, device: &mut Device, now: Instant) {
        if self.congestion.has_answered() {
            return;
        }
        self.note_reduction();
        if self.recovery.is_open() {
            device.counters_mut().congestion_answered += 1;
            self.congestion.on_ecn(now, self.pipe() + arrived);
        }
    }

    /// Records that the window was reduced for any reason. If ECN is in use, the peer is informed
    /// by CWR.
    pub(super) fn note_reduction(&mut self) {
        if self.negotiation.agreed().ecn {
            self.congestion.note_reduction(self.send.nxt());
        }
    }

    /// Records a sign of life: the peer has acknowledged data, or has none to acknowledge, or its
    /// window has no room for any.
    fn note_progress(&mut self, segment: &Segment, advanced: bool, now: Instant) {
        let idle = self.send.queue().is_empty() || self.send.waits_for_window();
        if advanced || idle || segment.window == 0 {
            self.clock.note_peer_activity(now);
        }
    }
}
