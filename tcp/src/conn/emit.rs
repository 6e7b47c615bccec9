//! Segment output: data, retransmissions, ACKs, SYN, FIN and RST (RFC 9293 §3.10.2).

use smoltcp::wire::TcpControl;
use xwarp_driver::{PartialSum, TxFrame};

use super::send::send_queue::{Held, Piece};
use super::{Conn, State};
use crate::device::Device;
use crate::time::Instant;
use crate::wire::outbound::{Header, OutOptions};
use crate::wire::seq::{Seq, bytes};

impl Conn {
    /// Sends all pending segments except new data, and returns their number. Afterwards
    /// `is_drained` returns whether that was all.
    pub(crate) fn egress(&mut self, device: &mut Device, now: Instant) -> usize {
        self.act_on_deferred_ack(device);
        self.pending.clear_lack_of_frame();
        if !self.is_pressed() {
            return 0;
        }
        let before = device.counters().segments_out;
        if self.pending.reset() {
            self.send_reset(device, now);
        }
        if self.state.get() != State::Closed {
            if self.pending.syn() && self.send_first(TcpControl::Syn, device, now) {
                self.pending.sent_syn();
            }
            self.send_lost(device, now);
            if self.pending.fin()
                && !self.send.queue().has_lost()
                && self.may_send_fin()
                && self.send_first(TcpControl::Fin, device, now)
            {
                self.pending.sent_fin();
            }
            if self.receive.acks().is_due() {
                self.send_ack(device, now);
            }
        }
        let sent = device.counters().segments_out - before;
        usize::try_from(sent).unwrap_or(usize::MAX)
    }

    /// False if only an acknowledgment is pending that waits for an answer to ride on.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pending.is_pressed() || self.receive.acks().is_due() || self.send.queue().has_lost()
    }

    /// True while nothing is pending, and no sent data awaits an acknowledgment.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.send.queue().is_empty()
            && self.is_uneventful()
            && self.deferred_ack.is_none()
            && !self.receive.acks().is_owed()
            && !self.is_pressed()
    }

    /// False if TX frames were too few for all pending segments.
    pub(crate) fn is_drained(&self) -> bool {
        !self.pending.lacks_frame()
    }

    /// A FIN takes a sequence number, which needs room in the peer's window.
    fn may_send_fin(&self) -> bool {
        self.send.room() > 0
    }

    /// Congestion window in bytes.
    pub(super) fn window(&self) -> usize {
        let window = self.recovery.window();
        window.unwrap_or_else(|| self.congestion.window())
    }

    /// Headers of a segment after the peer's SYN is known.
    pub(super) fn header(&mut self, control: TcpControl, seq: Seq, now: Instant) -> Header {
        Header {
            control,
            seq,
            ack: Some(self.receive.next()),
            window: self.receive.announce(self.negotiation.agreed().own_shift),
            options: OutOptions {
                timestamp: self
                    .negotiation
                    .agreed()
                    .timestamps
                    .then(|| self.stamps.pair(now)),
                ..OutOptions::default()
            },
            ece: self.negotiation.agreed().ecn && self.receive.met_congestion(),
            cwr: false,
            ect: false,
            payload_sum: None,
        }
    }

    /// Sends a segment without data. Returns false if there is no frame for it.
    fn send_bare(&mut self, header: &Header, device: &mut Device) -> bool {
        let sent = device.send_bare(self.route.headers(), header);
        if !sent {
            self.pending.note_lack_of_frame();
        }
        sent
    }

    /// Sends an ACK with all SACK and D-SACK blocks to report (RFC 2018 §4).
    pub(super) fn send_ack(&mut self, device: &mut Device, now: Instant) {
        if self.state.get() == State::SynSent {
            return;
        }
        let mut header = self.header(TcpControl::None, self.send.bare_seq(), now);
        if self.negotiation.agreed().sack {
            header.options.sack = self.receive.sack_blocks();
        }
        if self.send_bare(&header, device) {
            self.receive.acks_mut().sent();
        }
    }

    fn send_reset(&mut self, device: &mut Device, now: Instant) {
        let mut header = self.header(TcpControl::Rst, self.send.nxt(), now);
        header.window = 0;
        if self.send_bare(&header, device) {
            self.pending.sent_reset();
        }
    }

    /// Sends a segment that the peer must answer, as its sequence number is below the expected one
    /// (RFC 9293 §3.8.4).
    pub(super) fn send_probe(&mut self, device: &mut Device, now: Instant) {
        let header = self.header(TcpControl::None, self.send.una() - 1, now);
        if self.send_bare(&header, device) {
            device.counters_mut().probes_out += 1;
        }
    }

    fn control_header(&mut self, control: TcpControl, seq: Seq, now: Instant) -> Header {
        match control {
            TcpControl::Syn => self.syn_header(now),
            _ => self.header(control, seq, now),
        }
    }

    /// Sends our SYN or FIN for the first time. Returns false if there is no frame for it.
    fn send_first(&mut self, control: TcpControl, device: &mut Device, now: Instant) -> bool {
        let begin = self.send.end();
        let header = self.control_header(control, begin, now);
        if !self.send_bare(&header, device) {
            return false;
        }
        if control == TcpControl::Fin {
            self.receive.acks_mut().piggybacked();
        }
        self.track(begin, 0, control, None, now);
        true
    }

    /// Records a segment that was sent for the first time.
    #[inline]
    pub(super) fn track(
        &mut self,
        begin: Seq,
        len: usize,
        control: TcpControl,
        frame: Option<Held>,
        now: Instant,
    ) {
        self.send.track(Piece {
            begin,
            len,
            control,
            frame,
            sent_at: now,
            transmits: 1,
            stamp: self.stamps.sent(),
            rate: self
                .congestion
                .on_sent(now, self.send.pipe(self.route.emss())),
            sacked: false,
            lost: false,
        });
        self.clock.note_sent(now);
        self.recovery.sent(len);
        if self.clock.awaits_ack() {
            self.arm_tail(now);
        } else {
            self.arm_retransmission(now);
        }
    }

    /// Queues the first `n` bytes of the payload in `frame`, to be sent when the peer's window has
    /// room.
    pub(crate) fn enqueue(&mut self, mut frame: TxFrame, n: usize, now: Instant) {
        frame.set_len(self.head() + n);
        self.append(Held::Ready(frame), n, now);
    }

    /// Queues the first `n` bytes of the payload in `frame`, and sends at once what fits into the
    /// peer's window.
    pub(crate) fn enqueue_cut(
        &mut self,
        frame: TxFrame,
        n: usize,
        device: &mut Device,
        now: Instant,
    ) {
        if !self.state.get().may_send() {
            return device.discard(frame);
        }
        self.pending.set_may_cut(false);
        self.enqueue(frame, n, now);
        self.cut_at_edge(device);
    }

    /// Allows the next write to be cut at the end of the peer's window, if all of it has long had
    /// no room (RFC 9293 §3.8.6.2.1, the override timeout). Returns false if nothing fits, or if
    /// that was allowed before.
    pub(super) fn let_cut(&mut self, now: Instant) -> bool {
        let room = self.send.room();
        let small = self.send.queue().is_empty() && room > 0 && self.pending.wanted() > room;
        let cuts = small && !self.pending.may_cut() && self.clock.waits_long_for_window(now);
        if cuts {
            self.pending.set_may_cut(true);
        }
        cuts
    }

    /// Queues bytes to be sent when the peer's window has room, however small it is now.
    pub(crate) fn enqueue_bytes(&mut self, bytes: &[u8], device: &mut Device, now: Instant) {
        let part = match self.send.largest_window() {
            0 => self.emss(), // the window is not known yet
            _ => self.part_len(bytes.len()),
        };
        for part in bytes.chunks(part) {
            let held = Held::Parked(device.park_bytes(part));
            self.append(held, part.len(), now);
        }
    }

    /// Cuts waiting data at the end of the peer's window, as a window that never grows would block
    /// it (RFC 9293 §3.8.6.2.1, the override timeout). The next egress sends what fits. Returns
    /// false if nothing fits.
    pub(super) fn cut_at_edge(&mut self, device: &mut Device) -> bool {
        let room = bytes(self.send.una(), self.send.edge());
        let first = self.send.queue().first();
        if room == 0 || first.is_none_or(|first| first.transmits > 0 || first.len <= room) {
            return false;
        }
        let head = self.head();
        let Some(waiting) = self.send.queue_mut().take_frame(0) else {
            return false;
        };
        let payload = match waiting.park(head, device) {
            Held::Parked(payload) => payload,
            unparked => {
                self.send.queue_mut().put_frame(0, unparked);
                return false;
            }
        };
        let (front, rest) = payload.split_at(room.min(payload.len()));
        self.send.queue_mut().split(0, room);
        self.send
            .queue_mut()
            .put_frame(0, Held::Parked(front.into()));
        self.send
            .queue_mut()
            .put_frame(1, Held::Parked(rest.into()));
        true
    }

    fn append(&mut self, held: Held, n: usize, now: Instant) {
        if self.send.queue().is_empty() {
            self.clock.note_progress(now);
        }
        let rate = self.congestion.on_sent(now, self.pipe());
        self.send.enqueue(Piece {
            begin: self.send.end(),
            len: n,
            control: Self::DATA,
            frame: Some(held),
            sent_at: now,
            transmits: 0,
            stamp: 0,
            rate,
            sacked: false,
            lost: true,
        });
        if !self.clock.awaits_ack() {
            self.arm_retransmission(now);
        }
    }

    /// Sends the first `n` bytes of the payload in `frame` as a segment (RFC 9293 §3.10.2). `sum`
    /// is their known sum. A retransmission cannot use it, as it may be cut differently.
    pub(crate) fn commit(
        &mut self,
        mut frame: TxFrame,
        n: usize,
        sum: Option<PartialSum>,
        device: &mut Device,
        now: Instant,
    ) {
        if !self.state.get().may_send() || n == 0 {
            device.discard(frame);
            return;
        }
        if self.send.queue().is_empty() {
            self.clock.note_progress(now);
            let idle = self.clock.idle(now);
            let rto = self.rto();
            if idle > rto {
                self.congestion.on_idle(now, idle, rto);
            }
        }
        frame.set_len(self.head() + n);
        self.pending.set_may_cut(false);
        let begin = self.send.end();
        let mut header = self.header(Self::DATA, begin, now);
        self.mark_new(&mut header);
        header.payload_sum = sum;
        let sent = if sum.is_none() && device.offers_checksums() {
            self.send_where_offered(frame, &header, device, now)
        } else {
            device.send_data(frame, self.route.headers(), &header)
        };
        self.receive.acks_mut().answered(now);
        self.congestion.pace(n, now);
        self.track(begin, n, Self::DATA, Some(Held::Sent(sent)), now);
    }

    /// Marks new data as ECN-capable, and announces a reduction by CWR (RFC 3168 §6.1.2).
    /// Retransmissions do neither (§6.1.5).
    fn mark_new(&mut self, header: &mut Header) {
        header.ect = self.negotiation.agreed().ecn;
        header.cwr = self.congestion.take_reduced();
    }

    /// Retransmits lost segments, as far as the window allows; one always if nothing is in flight.
    fn send_lost(&mut self, device: &mut Device, now: Instant) {
        while let Some(at) = self.send.queue().first_lost() {
            let Some(piece) = self.send.queue().get(at) else {
                return;
            };
            let len = piece.len;
            let pipe = self.pipe();
            let closed = piece.transmits == 0 && self.send.edge().is_before(piece.end());
            let forced = self.pending.take_first();
            let full = !forced && pipe > 0 && pipe + len > self.window();
            if full {
                self.congestion.set_window_limited(true);
            }
            let early = !forced && pipe > 0 && !self.congestion.paces_out(now);
            if closed || full || early {
                return;
            }
            if !self.resend(at, device, now) {
                return;
            }
        }
    }

    /// Retransmits a segment. Returns false if that is not possible now.
    pub(super) fn resend(&mut self, at: usize, device: &mut Device, now: Instant) -> bool {
        let Some(piece) = self.send.queue().get(at) else {
            return false;
        };
        let begin = piece.begin;
        let control = piece.control;
        if control == Self::DATA {
            return self.resend_data(at, device, now);
        }
        let header = self.control_header(control, begin, now);
        let sent = self.send_bare(&header, device);
        if sent {
            self.note_resent(at, device, now);
        }
        sent
    }

    fn resend_data(&mut self, at: usize, device: &mut Device, now: Instant) -> bool {
        let frame = match self.send.queue_mut().take_frame(at) {
            Some(Held::Sent(sent)) => device.reclaim(sent),
            Some(Held::Ready(frame)) => Ok(frame),
            Some(Held::Parked(payload)) => return self.resend_parked(at, payload, device, now),
            None => return false,
        };
        let mut frame = match frame {
            Ok(frame) => frame,
            Err(sent) => {
                // It has not left yet: there is nothing to retransmit.
                self.send.queue_mut().put_frame(at, Held::Sent(sent));
                self.recheck_unsent(now);
                return false;
            }
        };
        self.cut(at, &mut frame, device, now);
        self.repeat(at, frame, device, now);
        true
    }

    /// Retransmits a parked payload. It stays parked, so that a silent peer occupies a frame only
    /// while the kernel has it.
    fn resend_parked(
        &mut self,
        at: usize,
        payload: Box<[u8]>,
        device: &mut Device,
        now: Instant,
    ) -> bool {
        let Some(mut frame) = device.unparked(&payload, self.head()) else {
            self.send.queue_mut().put_frame(at, Held::Parked(payload));
            self.pending.note_lack_of_frame();
            return false;
        };
        if payload.len() > self.emss() {
            device.unpark(&payload);
            self.cut(at, &mut frame, device, now);
            self.repeat(at, frame, device, now);
            return true;
        }
        let header = self.header_again(at, now);
        device.send_copy(frame, self.route.headers(), &header);
        self.send.queue_mut().put_frame(at, Held::Parked(payload));
        self.receive.acks_mut().piggybacked();
        self.note_resent(at, device, now);
        true
    }

    /// Cuts a segment to the size of a narrower path, and sends the first part.
    fn cut(&mut self, at: usize, frame: &mut TxFrame, device: &mut Device, now: Instant) {
        let head = self.head();
        let mss = self.emss();
        while let Some(len) = self.send.queue().get(at).map(|piece| piece.len)
            && len > mss
        {
            let keep = (len - 1) / mss * mss;
            let Some(mut rest) = device.tx_frame() else {
                return; // the whole segment is sent, and will be found lost again
            };
            rest.set_len(head + len - keep);
            let cut_off = frame.get(head + keep..head + len).unwrap_or_default();
            if let Some(place) = rest.get_mut(head..head + cut_off.len()) {
                place.copy_from_slice(cut_off);
            }
            frame.set_len(head + keep);
            self.send.queue_mut().split(at, keep);
            self.repeat(at + 1, rest, device, now);
        }
    }

    /// Retransmits a piece in its frame, with the current acknowledgment, window, timestamp and
    /// checksum.
    fn repeat(&mut self, at: usize, frame: TxFrame, device: &mut Device, now: Instant) {
        let header = self.header_again(at, now);
        let sent = device.send_data(frame, self.route.headers(), &header);
        self.send.queue_mut().put_frame(at, Held::Sent(sent));
        self.receive.acks_mut().piggybacked();
        self.note_resent(at, device, now);
    }

    /// Headers of a piece that is retransmitted, or whose first transmission had to wait.
    fn header_again(&mut self, at: usize, now: Instant) -> Header {
        let piece = self.send.queue().get(at);
        let (begin, transmits) = piece.map_or((self.send.nxt(), 0), |p| (p.begin, p.transmits));
        let mut header = self.header(Self::DATA, begin, now);
        if transmits == 0 {
            self.mark_new(&mut header);
        }
        header
    }

    fn note_resent(&mut self, at: usize, device: &mut Device, now: Instant) {
        let stamp = self.stamps.sent();
        let rate = self.congestion.on_sent(now, self.pipe());
        let Some(piece) = self.send.queue().get(at) else {
            return;
        };
        let len = piece.len;
        let again = piece.transmits > 0;
        self.send.resent(at, now, stamp, rate);
        self.recovery.sent(len);
        self.congestion.pace(len, now);
        self.clock.note_sent(now);
        if at == 0 {
            // From now on the timer waits for the answer to this transmission.
            self.arm_retry(now);
        }
        if again {
            self.recovery.repeated(stamp);
            device.counters_mut().retransmissions += 1;
        }
    }
}
