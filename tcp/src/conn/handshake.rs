//! Handshake: how a connection begins (RFC 9293 §3.5).
//!
//! An ACK that returns a cookie echoes the SYN-ACK's timestamp. Its age is the first round-trip
//! sample if it is at most 333 ms; see [`acked`](super::acked) for other samples of SYNs.

use std::net::IpAddr;
use std::time::Duration;

use smoltcp::wire::TcpControl;

use super::stray::StrayAnswer;
use super::{Conn, State};
use crate::device::Device;
use crate::time::Instant;
use crate::wire::inbound::{Options, Segment};
use crate::wire::outbound::{Header, OutOptions};

/// Lifetime of a half-open connection that the peer has begun. The SYN-ACK leaves after 0, 1, 3, 7,
/// 15 and 31 s (RFC 6298 §5.5), and the last one has 32 s for its answer. The peer takes the
/// connection for established from its first ACK on, and repeats that ACK only if asked or with
/// data. A host that forgets the connection earlier resets a peer whose ACKs were lost.
const HALF_OPEN: Duration = Duration::from_secs(63);

/// An ACK that returns a cookie within this time measures the round trip (RFC 7323 §4). A later one
/// may have waited for a timeout of the peer. A sample of this length gives the timeout without a
/// sample (RFC 6298 §2.1 and §2.2).
const SOON: Duration = Duration::from_millis(333);

impl Conn {
    /// Active OPEN (RFC 9293 §3.10.1): the next egress sends the SYN.
    pub(crate) fn open(&mut self, now: Instant) {
        self.enter(State::SynSent);
        self.pending.demand_syn();
        self.clock.note_progress(now);
    }

    /// Passive OPEN by a SYN to a listener (RFC 9293 §3.10.7.2, third): the next egress answers it.
    pub(crate) fn open_passive(&mut self, syn: &Segment, now: Instant) {
        self.enter(State::SynReceived);
        self.negotiation.answer();
        self.pending.demand_syn();
        self.clock.note_progress(now);
        self.set_connect_timeout(HALF_OPEN);
        self.agree(syn, syn.ecn.ece && syn.ecn.cwr, 0, now);
    }

    /// Delays the answer to the peer's SYN until the metrics of the route are known.
    pub(crate) fn await_metrics(&mut self) {
        self.pending.withhold_syn();
    }

    /// Answers the peer's SYN if it waits for the metrics of the route.
    pub(crate) fn end_metrics_wait(&mut self) {
        if self.state.get() == State::SynReceived && !self.send.has_begun() {
            self.pending.demand_syn();
        }
    }

    /// Answers the SYN of this connection, which the caller then forgets. Returns false if there is
    /// no frame for the answer. A cookie has no room for ECN.
    pub(crate) fn answer_without_memory(&mut self, device: &mut Device, now: Instant) -> bool {
        self.negotiation.forgo_ecn();
        let header = self.syn_header(now);
        device.send_bare(self.route.headers(), &header)
    }

    /// Restores the connection of a cookie that `segment` acknowledges, as if its SYN with these
    /// `options` had been kept. Only the SYN's window is unknown; the segment's is used instead.
    pub(crate) fn open_by_cookie(&mut self, options: &Options, segment: &Segment, now: Instant) {
        self.enter(State::SynReceived);
        self.negotiation.answer();
        self.clock.note_progress(now);
        let local = IpAddr::from(self.route.flow().local.addr);
        self.negotiation.accept(options, local, false);
        self.route.agree(self.negotiation.agreed());
        let announced = usize::from(self.receive.syn_window());
        self.receive.begin(segment.seq - 1, announced);
        self.send.skip_syn();
        if let Some((_, echoed)) = options.timestamp {
            let age = self.stamps.age(echoed, now);
            self.clock.sample_echo(age, SOON, now);
        }
    }

    /// Takes options and numbers of the peer's SYN. `announced`: the window that our own SYN
    /// announced.
    fn agree(&mut self, syn: &Segment, ecn: bool, announced: usize, now: Instant) {
        let local = IpAddr::from(self.route.flow().local.addr);
        self.negotiation.accept(&syn.options, local, ecn);
        self.route.agree(self.negotiation.agreed());
        self.receive.begin(syn.seq, announced);
        if let Some((tsval, _)) = syn.options.timestamp {
            self.stamps.begin(tsval, now);
        }
        self.send.begin_window(syn);
    }

    /// Headers of our SYN, with an ACK once the peer's SYN is known.
    pub(super) fn syn_header(&mut self, now: Instant) -> Header {
        let pair = Some(self.stamps.pair(now));
        let mut header = Header {
            control: TcpControl::Syn,
            seq: self.send.iss(),
            ack: None,
            window: self.receive.syn_window(),
            options: self.negotiation.offered().options(pair),
            ece: self.negotiation.offered().ecn,
            cwr: self.negotiation.offered().ecn,
            ect: false,
            payload_sum: None,
        };
        if self.state.get() != State::SynSent {
            header.ack = Some(self.receive.next());
            header.window = self.receive.announce(0);
            header.ece = self.negotiation.agreed().ecn;
            header.cwr = false;
            header.options = OutOptions {
                shift: header
                    .options
                    .shift
                    .filter(|_| self.negotiation.agreed().scaled),
                sack_permitted: self.negotiation.agreed().sack,
                timestamp: pair.filter(|_| self.negotiation.agreed().timestamps),
                ..header.options
            };
        }
        header
    }

    /// True in SYN-SENT, and for an answer to our SYN that follows another one. The first may have
    /// been forged by an attacker who does not know our number and only guessed when we open.
    pub(super) fn awaits_answer(&self, segment: &Segment) -> bool {
        match self.state.get() {
            State::SynSent => true,
            State::SynReceived => {
                !self.negotiation.is_passive() && segment.has_syn() && self.knows_our_syn(segment)
            }
            _ => false,
        }
    }

    /// True for a segment that acknowledges our SYN.
    pub(super) fn knows_our_syn(&self, segment: &Segment) -> bool {
        segment.ack.is_some_and(|ack| self.send.acks_new_data(ack))
    }

    /// Processes a segment in SYN-SENT (RFC 9293 §3.10.7.3). `stray`: it arrived at another stack
    /// of the interface.
    pub(super) fn arrive_in_syn_sent(
        &mut self,
        segment: &Segment,
        stray: bool,
        device: &mut Device,
        now: Instant,
    ) {
        if segment.ack.is_some_and(|ack| !self.send.acks_new_data(ack)) {
            if !segment.is_reset() {
                self.refuse_ack(segment, device, now);
            }
            return;
        }
        if segment.is_reset() {
            if segment.ack.is_some() {
                self.enter(State::Closed);
            }
            return;
        }
        if segment.has_syn() {
            if self.is_unwanted(segment, stray) {
                self.refuse_ack(segment, device, now);
            } else {
                self.take_syn(segment, device, now);
            }
        }
    }

    /// True for a RST that is acceptable in SYN-SENT (RFC 9293 §3.10.7.3, second).
    pub(crate) fn is_refused_by(&self, reset: &Segment) -> bool {
        let acceptable = reset.ack.is_some_and(|ack| self.send.acks_new_data(ack));
        self.state.get() == State::SynSent && reset.is_reset() && acceptable
    }

    /// True for an answer that is refused. After a simultaneous open no answer is, as the peer has
    /// only this flow for its connection.
    fn is_unwanted(&mut self, segment: &Segment, stray: bool) -> bool {
        let answers = segment.ack.is_some() && self.state.get() == State::SynSent;
        answers && self.stray_answer.is_refused(stray)
    }

    /// Refuses an answer to our SYN that arrives at another stack, from now on.
    pub(crate) fn refuse_stray_answer(&mut self) {
        self.stray_answer = StrayAnswer::Unwanted;
    }

    /// True if an answer was refused, so that this connection can only be opened again.
    pub(crate) fn has_refused_answer(&self) -> bool {
        self.state.get() == State::SynSent && self.stray_answer.was_refused()
    }

    /// Returns true once after an answer was refused.
    pub(crate) fn take_refused_answer(&mut self) -> bool {
        self.stray_answer.take_report()
    }

    /// Processes the peer's SYN in SYN-SENT (RFC 9293 §3.10.7.3, fourth).
    fn take_syn(&mut self, segment: &Segment, device: &mut Device, now: Instant) {
        let ecn = segment.ecn.ece && !segment.ecn.cwr;
        let announced = usize::from(self.receive.syn_window());
        self.agree(segment, ecn, announced, now);
        if let Some(ack) = segment.ack {
            self.on_ack(segment, ack, device, now);
            self.establish(now);
            self.receive.acks_mut().owe();
        } else {
            // Simultaneous open: our SYN is sent again, with an ACK (RFC 9293 §3.5, figure 7).
            self.enter(State::SynReceived);
            self.send.queue_mut().mark_lost(0);
        }
    }

    /// Answers an unacceptable ACK on a connection that is not synchronized (RFC 9293 §3.5.2, group
    /// 2), within the limit of challenge ACKs.
    pub(super) fn refuse_ack(&mut self, segment: &Segment, device: &mut Device, now: Instant) {
        if !self.challenge_acks.allow(now) {
            device.counters_mut().resets_withheld += 1;
            return;
        }
        let header = Header::reset_for(segment);
        if device.send_bare(self.route.headers(), &header) {
            device.counters_mut().resets_out += 1;
        }
    }

    /// Enters ESTABLISHED: both SYNs are acknowledged.
    pub(super) fn establish(&mut self, now: Instant) {
        self.enter(State::Established);
        self.clock.note_progress(now);
        self.congestion.establish(self.emss(), now);
        self.recovery.cancel();
    }
}
