//! ACK processing: what has arrived, the round trip, losses, the window (RFC 9293 §3.10.7.4, fifth).

use std::time::Duration;

use super::Conn;
use super::send::rack::Rack;
use super::send::recovery::Phase;
use super::send::send_queue::Piece;
use super::send::tail_loss_probe::Verdict;
use super::timestamps::{TICK, older};
use crate::congestion::Acked;
use crate::delivery_rate::RateSampler;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// Duplicate ACKs that mean a loss to a sender without SACK (RFC 5681 §3.2).
const DUPLICATE_THRESHOLD: usize = 3;

/// A round trip that is measured in milliseconds by timestamps; longer ones are none.
const MAX_AGE: Duration = Duration::from_mins(1);

/// What one ACK has told so far.
#[derive(Debug)]
struct News {
    now: Instant,
    /// The echoed timestamp.
    echoed: Option<u32>,
    min_rtt: Option<Duration>,
    /// Bytes that were not known to have arrived.
    bytes: usize,
    pieces: usize,
    /// When the latest of those was sent that were sent once.
    sent: Option<Instant>,
}

impl News {
    /// Counts a piece whose arrival is news.
    fn credit(&mut self, piece: &Piece, rate: &mut RateSampler, rack: &mut Rack) {
        let rtt = self.now - piece.sent_at;
        let repeated = piece.transmits > 1;
        let echo_is_older = self.echoed.is_some_and(|echoed| older(echoed, piece.stamp));
        let too_soon = self.min_rtt.is_some_and(|least| rtt < least);
        rate.on_acked(&piece.rate, piece.len, self.now);
        rack.delivered(piece, rtt, repeated && (echo_is_older || too_soon));
        self.bytes += piece.len;
        self.pieces += 1;
        if !repeated {
            self.sent = self.sent.max(Some(piece.sent_at));
        }
    }
}

impl Conn {
    /// Bytes in flight. Without SACK, each duplicate ACK stands for a segment that has left (RFC 5681 §3.2).
    pub(super) fn pipe(&self) -> usize {
        let left = self.send.duplicates * self.emss();
        self.send.queue.pipe().saturating_sub(left)
    }

    /// Acts upon an acceptable ACK (RFC 9293 §3.10.7.4, fifth).
    pub(super) fn on_ack(
        &mut self,
        segment: &Segment,
        ack: Seq,
        device: &mut Device,
        now: Instant,
    ) {
        if self.is_quiet(segment, ack) {
            self.take_quiet_ack(segment, ack, now);
            return;
        }
        let una = self.send.una;
        let echoed = (segment
            .options
            .timestamp
            .filter(|_| self.negotiation.agreed().timestamps))
        .map(|(_, e)| e);
        let mut news = News {
            now,
            echoed,
            min_rtt: self.clock.rtt().min_rtt(),
            bytes: 0,
            pieces: 0,
            sent: None,
        };
        let duplicate = self.find_duplicate(segment, ack, device, now);
        self.take_acked(ack, &mut news, device);
        self.take_sacked(segment, &mut news);
        let shift = if segment.has_syn() {
            0
        } else {
            self.negotiation.agreed().peer_shift
        };
        let window_changed = self.send.update_window(segment, ack, shift);
        let repeated_syn = una == self.send.iss && news.pieces > 0 && news.sent.is_none();
        if repeated_syn && !echoed.is_some_and(|echoed| self.stamps.is_latest(echoed)) {
            // The echo is of whichever SYN arrived first: it would count the timeouts of both ends.
            self.clock.rtt_mut().syn_was_repeated();
        } else {
            self.take_sample(&news, duplicate, now);
        }
        let advanced = self.send.una != una;
        if advanced && echoed.is_some_and(|echoed| self.recovery.answers_original(echoed)) {
            self.undo(device, now);
        }
        if !self.negotiation.agreed().sack {
            let repeats = !advanced && segment.len() == 0 && !window_changed;
            self.count_duplicates(repeats, advanced, now);
        }
        let bare = news.pieces == 0 && segment.len() == 0;
        self.judge_tail(ack, duplicate, bare, now);
        self.detect_losses(now);
        self.note_life(segment, advanced, now); // timers are set by it
        self.go_on(&news, segment, advanced, device, now);
    }

    /// True while no loss is looked for or repaired: nothing was sent twice or arrived out of order, as far as is known.
    pub(super) fn is_steady(&self) -> bool {
        self.recovery.is_open() && !self.tail.is_outstanding() && !self.send.queue.is_disordered()
    }

    /// True for an ACK that acknowledges nothing new and reports nothing, as most are that come to a receiver of data.
    fn is_quiet(&self, segment: &Segment, ack: Seq) -> bool {
        let plain = segment.options.sack[0].is_none() && !segment.ecn.ece && !segment.has_syn();
        ack == self.send.una && plain && self.negotiation.agreed().sack && self.is_steady()
    }

    /// Takes the window of such an ACK, and the sign of life that it is: all else stays as it is.
    fn take_quiet_ack(&mut self, segment: &Segment, ack: Seq, now: Instant) {
        let shift = self.negotiation.agreed().peer_shift;
        self.send.update_window(segment, ack, shift);
        self.clock.disarm_reordering();
        self.note_life(segment, false, now);
    }

    /// Takes the pieces that are acknowledged.
    fn take_acked(&mut self, ack: Seq, news: &mut News, device: &mut Device) {
        if !self.send.is_news(ack) {
            return;
        }
        self.send.una = ack;
        while let Some(mut piece) = self.send.queue.pop_acked(ack) {
            if !piece.sacked {
                news.credit(&piece, &mut self.rate, &mut self.rack);
            }
            if let Some(frame) = piece.frame.take() {
                frame.free(device);
            }
        }
    }

    /// Marks the pieces that the peer has out of order (RFC 2018 §5).
    fn take_sacked(&mut self, segment: &Segment, news: &mut News) {
        if !self.negotiation.agreed().sack {
            return;
        }
        for (left, right) in segment.options.sack.into_iter().flatten() {
            if !self.send.may_have((left, right), self.send.una) {
                continue;
            }
            for at in self.send.queue.within(left, right) {
                if self.send.queue.mark_sacked(at)
                    && let Some(piece) = self.send.queue.get(at)
                {
                    news.credit(piece, &mut self.rate, &mut self.rack);
                }
            }
        }
    }

    /// Looks for a D-SACK: a first block below the ACK, or within the second (RFC 2883 §4). True if there is one.
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
        let inside = second.is_some_and(|second| self.is_inside(first, second, ack));
        if !self.negotiation.agreed().sack || !(self.send.may_repeat(first, ack) || inside) {
            return false;
        }
        device.counters_mut().duplicates_reported += 1;
        self.rack.on_duplicate(self.send.una, self.send.nxt);
        if self.recovery.called_duplicate(first.0) {
            self.undo(device, now);
        }
        true
    }

    /// True if a block lies within another one of what is in flight behind `ack`.
    fn is_inside(&self, first: (Seq, Seq), second: (Seq, Seq), ack: Seq) -> bool {
        let [from, left, right, to] =
            [second.0, first.0, first.1, second.1].map(|edge| edge.offset(ack));
        self.send.may_have(first, ack)
            && self.send.may_have(second, ack)
            && from <= left
            && right <= to
    }

    /// Measures the round trip: by a segment that was sent once (RFC 6298 §3), else by the echoed timestamp, whose ticks are
    /// coarse (RFC 7323 §4), unless a duplicate is reported: an earlier ACK was lost then, and the echo is old. Without either the
    /// timer stays backed off. A first sample of less than a tick counts as a tick.
    fn take_sample(&mut self, news: &News, duplicate: bool, now: Instant) {
        let ambiguous = !self.negotiation.agreed().sack && !self.recovery.is_open();
        if let Some(sent) = news.sent.filter(|_| !ambiguous) {
            self.clock.rtt_mut().sample(now - sent, now);
        } else if news.pieces > 0
            && !duplicate
            && let Some(echoed) = news.echoed
        {
            let first = self.clock.rtt().srtt().is_none();
            let age = self.stamps.age(echoed, now);
            let age = if first { age.max(TICK) } else { age };
            if (TICK..MAX_AGE).contains(&age) {
                self.clock.rtt_mut().sample(age, now);
            }
        }
    }

    /// The last reduction was for nothing, and so is what was to be sent again.
    fn undo(&mut self, device: &mut Device, now: Instant) {
        self.congestion.on_undo(now);
        self.send.echo_until = None; // nor was it an answer to marks
        self.send.reduced = false;
        self.recovery.cancel();
        self.send.queue.forgive();
        self.clock.rtt_mut().reset_backoff();
        device.counters_mut().undone += 1;
    }

    /// Fast retransmit and `NewReno` (RFC 6582), for peers without SACK.
    fn count_duplicates(&mut self, repeats: bool, advanced: bool, now: Instant) {
        if advanced {
            self.send.duplicates = 0;
            if self.recovery.phase() == Phase::Repair
                && self.send.una.is_before(self.recovery.point())
            {
                // The next hole is repaired at once (RFC 6582 §3.2, step 3).
                let lost = self.send.queue.mark_lost(0);
                self.pending.set_first(lost);
            }
        } else if repeats && self.send.queue.len() > self.send.duplicates {
            self.send.duplicates += 1;
            if self.send.duplicates == DUPLICATE_THRESHOLD && self.recovery.is_open() {
                self.send.queue.mark_lost(0);
                self.begin_repair(now);
            }
        }
    }

    fn judge_tail(&mut self, ack: Seq, duplicate: bool, bare: bool, now: Instant) {
        if self.tail.judge(ack, duplicate, bare) == Verdict::Repaired && self.recovery.is_open() {
            self.congestion.on_loss(now, self.unacked());
            self.congestion.on_recovered(now);
            self.note_reduction();
        }
    }

    /// Looks for losses, and begins to repair them.
    pub(super) fn detect_losses(&mut self, now: Instant) {
        self.clock.disarm_reordering();
        if !self.negotiation.agreed().sack || !self.send.queue.is_disordered() {
            return;
        }
        let repairing = !self.recovery.is_open();
        let path = self.path_times();
        let (found, later) = (self.rack).detect(&mut self.send.queue, repairing, path, now);
        self.clock.set_reordering(later);
        if found && !repairing {
            self.begin_repair(now);
        }
    }

    fn begin_repair(&mut self, now: Instant) {
        let flight = self.unacked(); // FlightSize (RFC 5681 §2), in which RFC 6937 counts too
        self.congestion.on_loss(now, flight);
        self.note_reduction();
        let (una, nxt) = (self.send.una, self.send.nxt);
        let mss = self.emss();
        self.recovery
            .begin(una, nxt, flight, self.congestion.window(), mss);
        self.recovery.delivered(0, self.pipe(), mss);
        self.tail.clear();
        self.clock.disarm_tail();
    }

    /// Ends a recovery that is over, tells congestion control, and sets the timers.
    fn go_on(
        &mut self,
        news: &News,
        segment: &Segment,
        advanced: bool,
        device: &mut Device,
        now: Instant,
    ) {
        let in_recovery = self.recovery.phase() == Phase::Repair;
        if self.recovery.ends(self.send.una, self.send.nxt) {
            self.congestion.on_recovered(now);
            self.rack.on_recovered();
            self.send.duplicates = 0;
        }
        // In a SYN the flag negotiates (RFC 3168 §6.1.1).
        let congested = self.negotiation.agreed().ecn && segment.ecn.ece && !segment.has_syn();
        self.forget_echo();
        if news.pieces > 0 {
            let pipe = self.pipe();
            self.recovery.delivered(news.bytes, pipe, self.emss());
            let acked = Acked {
                now,
                bytes: news.bytes,
                in_flight: pipe,
                rtt: news.sent.map(|sent| now - sent),
                delivered: self.rate.delivered(),
                rate: self.rate.sample(self.clock.rtt().min_rtt()),
                ece_bytes: if congested { news.bytes } else { 0 },
                cwnd_limited: self.window_limited,
                in_recovery,
            };
            self.congestion.on_ack(&acked);
            self.note_limit();
        }
        if congested {
            self.answer_congestion(news.bytes, device, now);
        }
        if advanced {
            self.arm_retransmission(now);
        } else if self.send.queue.sacked() > 0 {
            self.clock.disarm_tail();
        }
    }

    /// Notes what limits sending until the next ACK.
    fn note_limit(&mut self) {
        let limited = self.pending.wanted() > 0 || self.send.queue.has_lost();
        self.window_limited &= limited;
        if !limited && self.pipe() < self.window() {
            self.rate.set_app_limited(self.pipe());
        }
    }

    /// What is acknowledged by now was sent after the last answer to congestion: a further echo is news.
    fn forget_echo(&mut self) {
        let una = self.send.una;
        self.rack.forget(una);
        self.send.echo_until.take_if(|until| until.is_before(una));
    }

    /// Slows down at most once per window (RFC 3168 §6.1.2). `arrived`: bytes that the ACK took out of flight.
    fn answer_congestion(&mut self, arrived: usize, device: &mut Device, now: Instant) {
        if self.send.echo_until.is_some() {
            return;
        }
        self.note_reduction();
        if self.recovery.is_open() {
            device.counters_mut().congestion_answered += 1;
            self.congestion.on_ecn(now, self.pipe() + arrived);
        }
    }

    /// The window was reduced, for whatever reason: the peer is told by the next new bytes, and marks on what was sent before need
    /// no answer of their own (RFC 3168 §6.1.2).
    pub(super) fn note_reduction(&mut self) {
        if self.negotiation.agreed().ecn {
            self.send.echo_until = Some(self.send.nxt);
            self.send.reduced = true;
        }
    }

    /// The peer lives: it has acknowledged something, or there is nothing to acknowledge, or no room that it could acknowledge
    /// bytes in.
    fn note_life(&mut self, segment: &Segment, advanced: bool, now: Instant) {
        let idle = self.send.queue.is_empty() || self.send.waits_for_window();
        if advanced || idle || segment.window == 0 {
            self.clock.heard(now);
        }
    }
}
