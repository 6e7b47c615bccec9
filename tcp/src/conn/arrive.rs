//! Segment arrival: the checks of RFC 9293 §3.10.7.4 in their order, with RFC 5961 and RFC 7323.

use xwarp_driver::RxFrame;

use super::receive::Arrival;
use super::{Conn, State};
use crate::congestion::Marks;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// What the checks before the ACK field have found.
enum Checked {
    /// The segment is to be processed further.
    Acceptable,
    /// It has been dealt with.
    Done,
}

impl Conn {
    /// Processes a segment and takes its frame. True if there are bytes to read that were not there before.
    pub(crate) fn arrive(
        &mut self,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
        now: Instant,
    ) -> bool {
        self.act_on_deferred_ack(device);
        let (before, unread) = (self.state.get(), self.readable_len());
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

    /// Timestamp, sequence number, RST and SYN.
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

    /// The test of RFC 7323 §5.3, R1, and §3.2: a segment without a timestamp is none of this connection.
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

    /// A pure ACK at RCV.NXT must be heard with a closed window too, as must the ACK of a segment whose bytes have no room
    /// (RFC 9293 §3.10.7.4).
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

    /// True for the peer's FIN, received before, with an ACK that the peer can have sent.
    fn repeats_fin(&self, segment: &Segment) -> bool {
        let ack = segment.ack.is_some_and(|ack| self.send.is_plausible(ack));
        ack && segment.has_fin() && segment.seq + segment.len() == self.receive.next()
    }

    /// Tells the peer what we have. A duplicate is named (RFC 2883); what anybody can provoke is limited (RFC 5961 §7): all that lies
    /// further back than a peer can have repeated.
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

    /// Probes are right before RCV.NXT (RFC 9293 §3.8.4), which a stranger does not know: he must not use up the answers to them.
    fn may_answer(&mut self, segment: &Segment, now: Instant) -> bool {
        if segment.seq + 1 == self.receive.next() {
            self.challenge_acks.allow_to_probe(now)
        } else {
            self.challenge_acks.allow(now)
        }
    }

    /// An ACK that asks the peer whether it means it (RFC 5961).
    fn challenge(&mut self, device: &mut Device, now: Instant) {
        if self.challenge_acks.allow(now) {
            device.counters_mut().challenge_acks += 1;
            self.receive.acks_mut().demand();
        }
    }

    /// A RST in the window (RFC 5961 §3.2). In TIME-WAIT it must not end the waiting (RFC 1337). Where both have opened, the number that is
    /// expected is that of a SYN that anybody can have sent. There the RST must know ours, as in SYN-SENT.
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

    /// The ACK field.
    fn check_ack(&mut self, segment: &Segment, device: &mut Device, now: Instant) -> Checked {
        let Some(ack) = segment.ack else {
            return Checked::Done;
        };
        if self.state.get() == State::SynReceived {
            if !self.send.is_news(ack) {
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

    /// Takes the timestamp of a segment whose sequence number and ACK are good (RFC 7323 §5.3, R3): anybody else's would have the
    /// peer's own taken for old.
    fn take_timestamp(&mut self, segment: &Segment, now: Instant) {
        if let Some((tsval, tsecr)) = segment.options.timestamp
            && self.negotiation.agreed().timestamps
        {
            let acked = self.receive.acked();
            self.stamps.take(tsval, segment.seq, acked, now);
            self.stamps.take_echo(tsecr);
        }
    }

    /// Goes on once our FIN is acknowledged.
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

    /// The segment's bytes and its FIN.
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

    /// Acknowledges at the end of the turn, or with an answer soon after, and what says of a loss at once (RFC 5681 §4.2).
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

    /// Notes whether the peer is to be told of congestion. That is what this packet met (RFC 8257 §3.2), or what any has met since the peer
    /// last said that it had reduced its window (RFC 3168 §6.1.3). A change is told at once; what came before an exact one is acknowledged
    /// first.
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
