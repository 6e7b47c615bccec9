//! Segment arrival: the checks of RFC 9293 §3.10.7.4 in their order, with RFC 5961 and RFC 7323.
//!
//! Against blind attackers, these rules are stricter than RFC 5961's window tests (tcp/DESIGN.md
//! has the odds):
//!
//! - With timestamps, a segment must echo one that was sent between four minutes before the latest
//!   echo and now. TS.Recent is updated only after all other checks (RFC 7323 §5.3).
//! - In SYN-SENT, a SYN without an ACK is answered, but a SYN-ACK that knows our number is still
//!   accepted. A RST must know our number as well.
//! - Segments further back than a window get 16 ACKs a second, and no D-SACK.
//! - Answers to keep-alive and window probes have a limit of their own. Otherwise an attacker could
//!   use up the answers, and the peer would take this host for dead.

use xwarp_driver::RxFrame;

use super::receive::Arrival;
use super::{Conn, State};
use crate::congestion::Marks;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// Result of the checks before the ACK field.
enum Checked {
    /// The segment is processed further.
    Acceptable,
    /// The segment is finished.
    Done,
}

impl Conn {
    /// Processes a segment and takes its frame. Returns true if there are new bytes to read.
    pub(crate) fn arrive(
        &mut self,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
        now: Instant,
    ) -> bool {
        self.act_on_deferred_ack(device);
        let before = self.state.get();
        let unread = self.readable_len();
        match self.state.get() {
            State::Closed => device.recycle(frame),
            _ if self.awaits_answer(segment) => {
                let stray = device.io().has_crossed(&frame);
                self.arrive_in_syn_sent(segment, stray, device, now);
                device.recycle(frame);
            }
            _ => self.arrive_in_window(segment, frame, device, now),
        }
        if self.state.get() != before {
            self.clock.note_progress(now);
            if self.state.get() == State::TimeWait {
                self.enter_time_wait(now);
            }
        }
        let taken = self.readable_len().saturating_sub(unread);
        self.receive.count_segment(taken);
        taken > 0
    }

    fn arrive_in_window(
        &mut self,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
        now: Instant,
    ) {
        let checked = match self.check(segment, device, now) {
            Checked::Acceptable => self.check_ack(segment, device, now),
            Checked::Done => Checked::Done,
        };
        match checked {
            Checked::Acceptable => self.take_payload(segment, frame, device, now),
            Checked::Done => device.recycle(frame),
        }
    }

    /// Checks timestamp, sequence number, RST and SYN.
    fn check(&mut self, segment: &Segment, device: &mut Device, now: Instant) -> Checked {
        if !segment.is_reset() && !self.is_timely(segment, device, now) {
            return Checked::Done;
        }
        if !self.receive.is_acceptable(segment) && !self.is_ack_at_closed_window(segment) {
            self.on_unacceptable(segment, device, now);
            return Checked::Done;
        }
        if segment.is_reset() {
            self.on_reset(segment, now);
            return Checked::Done;
        }
        if segment.has_syn() {
            self.challenge(device, now); // RFC 5961 §4.2
            return Checked::Done;
        }
        Checked::Acceptable
    }

    /// Checks the timestamp (RFC 7323 §5.3, R1, and §3.2). A segment without one does not belong to
    /// this connection.
    fn is_timely(&mut self, segment: &Segment, device: &mut Device, now: Instant) -> bool {
        if !self.negotiation.agreed().timestamps
            || self.state.get() == State::SynReceived && segment.has_syn()
        {
            return true;
        }
        let Some((tsval, _)) = segment.options.timestamp else {
            device.counters_mut().drop_no_timestamp += 1;
            return false;
        };
        if !self.stamps.is_old(tsval, now) {
            return true;
        }
        if self.receive.next().is_before(segment.seq + segment.len()) {
            device.counters_mut().drop_old_timestamp += 1;
        }
        self.acknowledge_again(segment, device, now);
        false
    }

    /// Pure ACKs at RCV.NXT are processed with a closed window, too, and so is the ACK of a segment
    /// whose bytes have no room (RFC 9293 §3.10.7.4).
    fn is_ack_at_closed_window(&self, segment: &Segment) -> bool {
        self.receive.window() == 0 && segment.seq == self.receive.next() && !segment.has_syn()
    }

    fn on_unacceptable(&mut self, segment: &Segment, device: &mut Device, now: Instant) {
        if segment.is_reset() {
            return;
        }
        let is_first = segment.opens() && segment.seq + 1 == self.receive.next();
        if self.state.get() == State::SynReceived && self.negotiation.is_passive() && is_first {
            // Our answer to the SYN was lost.
            if self.challenge_acks.allow(now) {
                self.send.queue_mut().mark_lost(0);
            }
            return;
        }
        if self.receive.is_beyond(segment) {
            device.counters_mut().drop_beyond_window += 1;
        }
        if segment.has_syn() {
            self.challenge(device, now); // RFC 5961 §4.2
            return;
        }
        if self.state.get() == State::TimeWait && self.repeats_fin(segment) {
            self.enter_time_wait(now);
        }
        self.acknowledge_again(segment, device, now);
    }

    /// True for a FIN that was received before, with an ACK that the peer can have sent.
    fn repeats_fin(&self, segment: &Segment) -> bool {
        let ack = segment.ack.is_some_and(|ack| self.send.is_plausible(ack));
        ack && segment.has_fin() && segment.seq + segment.len() == self.receive.next()
    }

    /// Sends an ACK for a segment outside of the window. A duplicate is reported (RFC 2883).
    /// Segments further back than a peer can have retransmitted may be forged, and their answers
    /// are limited (RFC 5961 §7).
    fn acknowledge_again(&mut self, segment: &Segment, device: &mut Device, now: Instant) {
        let duplicate = self.receive.duplicate(segment);
        if duplicate.is_some() && self.negotiation.agreed().sack {
            self.receive.acks_mut().duplicate(duplicate);
            self.send_ack(device, now);
        } else if self.receive.may_be_repeated(segment)
            || duplicate.is_some()
            || self.may_answer(segment, now)
        {
            self.receive.acks_mut().demand();
        }
    }

    /// Probes are right before RCV.NXT (RFC 9293 §3.8.4), which an attacker does not know. So an
    /// attacker cannot use up the answers to probes.
    fn may_answer(&mut self, segment: &Segment, now: Instant) -> bool {
        if segment.seq + 1 == self.receive.next() {
            self.challenge_acks.allow_to_probe(now)
        } else {
            self.challenge_acks.allow(now)
        }
    }

    /// Sends a challenge ACK (RFC 5961).
    fn challenge(&mut self, device: &mut Device, now: Instant) {
        if self.challenge_acks.allow(now) {
            device.counters_mut().challenge_acks += 1;
            self.receive.acks_mut().demand();
        }
    }

    /// Processes a RST in the window (RFC 5961 §3.2). It does not end TIME-WAIT (RFC 1337). After a
    /// simultaneous open, the expected number comes from a SYN that an attacker can have sent. So a
    /// RST must know our number there, as in SYN-SENT.
    fn on_reset(&mut self, segment: &Segment, now: Instant) {
        if self.state.get() == State::TimeWait {
            return;
        }
        let both_open = self.state.get() == State::SynReceived && !self.negotiation.is_passive();
        let known = !both_open || self.knows_our_syn(segment);
        if known && segment.seq == self.receive.next() {
            self.enter(State::Closed);
        } else if self.challenge_acks.allow(now) {
            self.receive.acks_mut().demand();
        }
    }

    /// Checks and processes the ACK field.
    fn check_ack(&mut self, segment: &Segment, device: &mut Device, now: Instant) -> Checked {
        let Some(ack) = segment.ack else {
            return Checked::Done;
        };
        if self.state.get() == State::SynReceived {
            if !self.send.acks_new_data(ack) {
                self.refuse_ack(segment, device, now);
                return Checked::Done;
            }
            self.establish(now);
        } else if !self.send.is_plausible(ack) || !self.has_echo(segment, device) {
            self.challenge(device, now); // RFC 5961 §5.2
            return Checked::Done;
        }
        self.take_timestamp(segment, now);
        self.receive_ack(segment, ack, device, now);
        self.after_fin(now);
        if self.state.get() == State::Closed {
            return Checked::Done;
        }
        Checked::Acceptable
    }

    /// True unless the segment echoes a timestamp that the peer cannot have received lately.
    fn has_echo(&self, segment: &Segment, device: &mut Device) -> bool {
        let echo = segment
            .options
            .timestamp
            .filter(|_| self.negotiation.agreed().timestamps);
        let known = echo.is_none_or(|(_, tsecr)| self.stamps.is_echo(tsecr));
        device.counters_mut().drop_false_echo += u64::from(!known);
        known
    }

    /// Updates TS.Recent from a segment with a valid sequence number and ACK (RFC 7323 §5.3, R3). A
    /// forged timestamp would make the peer's own look old.
    fn take_timestamp(&mut self, segment: &Segment, now: Instant) {
        if let Some((tsval, tsecr)) = segment.options.timestamp
            && self.negotiation.agreed().timestamps
        {
            let acked = self.receive.acked();
            self.stamps.take(tsval, segment.seq, acked, now);
            self.stamps.take_echo(tsecr);
        }
    }

    /// Advances the state once our FIN is acknowledged.
    fn after_fin(&mut self, now: Instant) {
        if !self.send.fin_acked() {
            return;
        }
        let next = self.state.get().on_fin_acked();
        if next == State::TimeWait && self.state.get() != State::TimeWait {
            self.enter_time_wait(now);
        }
        self.enter(next);
    }

    /// Takes the segment's payload and FIN.
    fn take_payload(
        &mut self,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
        now: Instant,
    ) {
        if segment.len() == 0 || !self.state.get().may_receive() {
            if segment.len() > 0 {
                self.receive.acks_mut().demand();
            }
            device.recycle(frame);
            return;
        }
        if self.receive.is_next(segment) {
            self.notice_congestion(segment, device, now);
            self.receive.take_next(segment, frame, device);
            self.receive.acks_mut().owe_soon(now);
            return;
        }
        let duplicate = self.receive.duplicate(segment);
        self.notice_congestion(segment, device, now);
        let arrival = self.receive.accept(segment, frame, device);
        if self.receive.is_finished() {
            self.enter(self.state.get().on_fin());
            self.receive.clear_parts(device);
        }
        self.owe_ack(
            arrival,
            segment.seq,
            duplicate.filter(|_| self.negotiation.agreed().sack),
            device,
            now,
        );
    }

    /// Schedules an ACK for the end of the turn, or with an answer soon after. Signs of a loss are
    /// acknowledged at once (RFC 5681 §4.2).
    fn owe_ack(
        &mut self,
        arrival: Arrival,
        seq: Seq,
        duplicate: Option<(Seq, Seq)>,
        device: &mut Device,
        now: Instant,
    ) {
        if duplicate.is_some() {
            self.receive.acks_mut().duplicate(duplicate);
        }
        match arrival {
            Arrival::InOrder { filled: true } => self.receive.acks_mut().demand(),
            Arrival::InOrder { filled: false } => self.owe_ack_in_order(now),
            Arrival::OutOfOrder => {
                self.receive.acks_mut().out_of_order(seq);
                device.counters_mut().out_of_order += 1;
                self.receive.count_out_of_order();
                self.send_ack(device, now);
            }
            Arrival::Nothing => {
                self.receive.acks_mut().demand();
                if duplicate.is_some() {
                    self.send_ack(device, now);
                }
            }
        }
    }

    fn owe_ack_in_order(&mut self, now: Instant) {
        if self.receive.is_finished() {
            self.receive.acks_mut().owe();
        } else {
            self.receive.acks_mut().owe_soon(now);
        }
    }

    /// Records whether to report congestion to the peer: the mark of this packet (RFC 8257 §3.2),
    /// or any mark since the peer's last CWR (RFC 3168 §6.1.3). A change is reported at once. With
    /// exact marks, data before it is acknowledged first.
    fn notice_congestion(&mut self, segment: &Segment, device: &mut Device, now: Instant) {
        if !self.negotiation.agreed().ecn || segment.payload.is_empty() {
            return;
        }
        let classic = self.congestion.marks() == Marks::Classic;
        let goes_on = classic && self.receive.met_congestion() && !segment.ecn.cwr;
        let met = segment.ecn.ce || goes_on;
        if met == self.receive.met_congestion() {
            return;
        }
        if !classic && self.receive.acks().is_owed() {
            self.send_ack(device, now);
        }
        self.receive.set_met_congestion(met);
        self.receive.acks_mut().demand();
    }
}
