//! Device: the packet interface below the connections, the frames and the memory that they share, and the counters.

use std::io;

use xwarp_driver::{
    Crossing, Doorbell, Hairpin, Icmp, Inlet, IoError, PacketIo, RxFrame, SentFrame, TxFrame,
};

use crate::counters::StackCounters;
use crate::wire::discard::Discard;
use crate::wire::ethernet;
use crate::wire::outbound::{CHECKSUM_AT, Header};
use crate::wire::template::HeaderTemplate;

/// Bytes of an IP packet: what every host must take (RFC 9293 §3.7.1), and what the length field can say.
const MTU_LIMITS: (usize, usize) = (576, 65535);
/// Frames that data leaves to ACKs, retransmissions and RSTs, and the part of all receive frames that they are at most.
const RESERVE: usize = 16;
const RESERVE_PART: usize = 8;
/// The part of the receive frames that connections may hold between steps: the rest is the kernel's to receive into.
const HELD_PART: usize = 2;
/// Bytes of payload that are parked in all before connections get few frames: what these carry may have to be parked as well.
const MAX_PARKED: usize = 64 << 20;
/// Segments that a connection may have unacknowledged even then.
const FEW: usize = 4;
/// Bytes that all connections may take for what came before the bytes in front of it.
const MAX_MEMORY: usize = 64 << 20;

/// The packet interface, and the budgets of frames and memory that all connections share.
pub(crate) struct Device {
    io: Box<dyn PacketIo>,
    counters: StackCounters,
    /// Bytes of the largest IP packet.
    mtu: usize,
    /// Bytes of the largest IP packet that a TX frame holds.
    largest_packet: usize,
    /// The link is up, as far as is known.
    up: bool,
    /// Received frames that connections hold.
    held: usize,
    /// Bytes of payload that were moved out of TX frames.
    parked: usize,
    /// Bytes that wait for others in front of them, of all connections.
    memory: usize,
    /// Segments were sent since the last flush.
    unflushed: bool,
    /// Frames to the own interface come back.
    turns_back: bool,
    checksums: Checksums,
    small: SmallSegments,
}

/// Who computes the checksums of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    /// The stack.
    Ours,
    /// The NIC may, where connections find out that it does.
    Offered,
}

/// What becomes of received segments of few bytes that wait behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SmallSegments {
    /// They are copied, so that they need no frame each.
    Copied,
    /// They stay in their frames, which have their times of arrival.
    Kept,
}

impl Device {
    /// A device on `io` with an MTU of `mtu` bytes, or of what a TX frame holds if that is less.
    pub(crate) fn new(mut io: Box<dyn PacketIo>, mtu: usize) -> Self {
        let mut largest_packet = MTU_LIMITS.1;
        if let Some(frame) = io.tx_frame() {
            let fits = frame.capacity().saturating_sub(ethernet::MAX_HEADER);
            io.discard(frame);
            largest_packet = fits.max(MTU_LIMITS.0);
        }
        let wanted = mtu.clamp(MTU_LIMITS.0, MTU_LIMITS.1);
        let mtu = wanted.min(largest_packet);
        if mtu < wanted {
            log::warn!("an MTU of {wanted} bytes does not fit a TX frame; using {mtu}");
        }
        Self {
            checksums: if io.offers_checksums() {
                Checksums::Offered
            } else {
                Checksums::Ours
            },
            io,
            counters: StackCounters::default(),
            mtu,
            largest_packet,
            up: true,
            held: 0,
            parked: 0,
            memory: 0,
            unflushed: false,
            turns_back: false,
            small: SmallSegments::Copied,
        }
    }

    pub(crate) fn io(&self) -> &dyn PacketIo {
        self.io.as_ref()
    }

    pub(crate) fn io_mut(&mut self) -> &mut dyn PacketIo {
        self.io.as_mut()
    }

    pub(crate) fn counters(&self) -> &StackCounters {
        &self.counters
    }

    /// True if the checksum of a segment can be left to the NIC.
    #[inline]
    pub(crate) fn offers_checksums(&self) -> bool {
        self.checksums == Checksums::Offered
    }

    /// The counters, for whoever finds what is to be counted.
    pub(crate) fn counters_mut(&mut self) -> &mut StackCounters {
        &mut self.counters
    }

    /// Bytes of the largest IP packet.
    pub(crate) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Sets the MTU, as far as TX frames have room for it. The new one if it is smaller than the one before.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> Option<usize> {
        let mtu = mtu
            .clamp(MTU_LIMITS.0, MTU_LIMITS.1)
            .min(self.largest_packet);
        let before = std::mem::replace(&mut self.mtu, mtu);
        (mtu < before).then_some(mtu)
    }

    /// Says whether the link is up. True if it was down and is up again.
    pub(crate) fn set_up(&mut self, up: bool) -> bool {
        self.io.set_up(up);
        let was_up = std::mem::replace(&mut self.up, up);
        up && !was_up
    }

    /// Has bytes that come in order stay in their frames, however few, so that their times of arrival are known.
    pub(crate) fn keep_small_segments(&mut self) {
        self.small = SmallSegments::Kept;
    }

    #[inline]
    pub(crate) fn keeps_small_segments(&self) -> bool {
        self.small == SmallSegments::Kept
    }

    /// Has frames to the own interface come back, from now on.
    pub(crate) fn turn_back(&mut self) -> io::Result<()> {
        if !self.turns_back {
            let capacity = self.largest_frame();
            Hairpin::put_on(&mut self.io, capacity)?;
            self.turns_back = true;
        }
        Ok(())
    }

    /// Has frames come by an inlet, too, which wakes the owner by `bell`.
    pub(crate) fn open_inlet(&mut self, bell: Doorbell) -> io::Result<Inlet> {
        let capacity = self.largest_frame();
        Crossing::put_on(&mut self.io, capacity, bell)
    }

    fn largest_frame(&self) -> usize {
        self.largest_packet + ethernet::MAX_HEADER
    }

    /// True while frames wait to be received of which the interface's descriptor does not tell.
    #[inline]
    pub(crate) fn has_looped(&self) -> bool {
        self.io.has_looped()
    }

    /// Appends up to `budget` received frames to `frames`.
    pub(crate) fn receive(&mut self, budget: usize, frames: &mut Vec<RxFrame>) {
        self.io.receive(budget, frames);
    }

    /// The next ICMP message that says that a packet was too large for its path.
    pub(crate) fn packet_too_big(&mut self) -> Option<Icmp> {
        self.io.too_big()
    }

    /// Gives a received frame back.
    pub(crate) fn recycle(&mut self, frame: RxFrame) {
        self.io.recycle(frame);
    }

    /// Gives a received frame back that is no segment of ours, and counts why. The first of a kind that can be mended is told.
    pub(crate) fn refuse(&mut self, frame: RxFrame, discard: Discard) {
        let packet = frame.len().saturating_sub(ethernet::MAX_HEADER);
        let discard = discard.at(packet, self.mtu);
        let before = discard.count(&mut self.counters);
        if before == 0
            && let Some(remedy) = discard.remedy()
        {
            log::warn!("a frame was dropped: {remedy}");
        }
        self.recycle(frame);
    }

    /// Gives a TX frame back that was not sent.
    pub(crate) fn discard(&mut self, frame: TxFrame) {
        self.io.discard(frame);
    }

    /// Gives a frame back that was sent and is not needed any more.
    pub(crate) fn release(&mut self, frame: SentFrame) {
        self.io.release(frame);
    }

    /// Takes a sent frame to send it again. `Err` with the frame while the kernel has not sent it.
    pub(crate) fn reclaim(&mut self, frame: SentFrame) -> Result<TxFrame, SentFrame> {
        self.io.reclaim(frame)
    }

    /// A free TX frame, without regard to the share of others.
    pub(crate) fn tx_frame(&mut self) -> Option<TxFrame> {
        self.io.tx_frame()
    }

    /// Sets off what was sent, and has the interface see to its frames.
    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        self.unflushed = false;
        self.io.flush()
    }

    /// Sets off what was sent, if anything was.
    pub(crate) fn set_off(&mut self) -> Result<(), IoError> {
        if self.unflushed { self.flush() } else { Ok(()) }
    }

    /// A frame for data of a connection that has `taken` so many already; `None` when those that are left are for others. A
    /// connection never has more frames than it leaves free: what a silent peer keeps is a share, however many peers are silent.
    pub(crate) fn data_frame(&mut self, taken: usize) -> Option<TxFrame> {
        if self.spare() <= taken {
            self.flush().ok()?; // the next step reports it
            if self.spare() <= taken {
                return None;
            }
        }
        self.io.tx_frame()
    }

    /// Free frames, less those that data leaves to other segments. They are few if too much is parked.
    pub(crate) fn spare(&self) -> usize {
        let reserve = RESERVE.min(self.io.rx_frames() / RESERVE_PART);
        let spare = self.io.tx_free().saturating_sub(reserve);
        let scarce = self.parked >= MAX_PARKED;
        if scarce { spare.min(FEW) } else { spare }
    }

    /// Moves the payload of a frame, which begins at `head`, to memory of its own and gives the frame back.
    pub(crate) fn park(&mut self, frame: TxFrame, head: usize) -> Box<[u8]> {
        let payload: Box<[u8]> = Box::from(frame.get(head..).unwrap_or_default());
        self.parked += payload.len();
        self.io.discard(frame);
        payload
    }

    /// Parks bytes that no frame has carried yet.
    pub(crate) fn park_bytes(&mut self, payload: &[u8]) -> Box<[u8]> {
        self.parked += payload.len();
        Box::from(payload)
    }

    /// A parked payload is no longer needed.
    pub(crate) fn unpark(&mut self, payload: &[u8]) {
        self.parked -= payload.len();
    }

    /// A frame with a parked payload behind `head` bytes for its headers; `None` if there is none.
    pub(crate) fn unparked(&mut self, payload: &[u8], head: usize) -> Option<TxFrame> {
        let mut frame = self.io.tx_frame()?;
        frame.set_len(head + payload.len());
        frame.get_mut(head..)?.copy_from_slice(payload);
        Some(frame)
    }

    /// True if a connection may keep one more received frame, which is counted as kept. Its bytes are to be copied out if not.
    pub(crate) fn hold(&mut self) -> bool {
        let may = self.held < self.io.rx_frames() / HELD_PART;
        self.held += usize::from(may);
        self.counters.copied_out += u64::from(!may);
        may
    }

    /// A connection gives a frame back that it kept.
    pub(crate) fn unhold(&mut self, frame: RxFrame) {
        self.held = self.held.saturating_sub(1);
        self.io.recycle(frame);
    }

    /// Takes so many bytes for a connection that has `taken` already; false if they are left to others. As of frames, a connection
    /// never has more than it leaves free.
    pub(crate) fn take_memory(&mut self, bytes: usize, taken: usize) -> bool {
        let left = MAX_MEMORY.saturating_sub(self.memory);
        let may = taken + bytes <= left;
        self.memory += if may { bytes } else { 0 };
        may
    }

    /// Gives bytes back that were taken.
    pub(crate) fn give_memory(&mut self, bytes: usize) {
        self.memory -= bytes;
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Sends a segment without payload in a fresh frame; false if there is none.
    pub(crate) fn send_bare(&mut self, template: &HeaderTemplate, header: &Header) -> bool {
        let Some(mut frame) = self.io.tx_frame() else {
            return false;
        };
        frame.set_len(template.header_len(header.options.len()));
        template.emit(&mut frame, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send(frame);
        true
    }

    /// Sends a segment with a byte that says nothing, whose checksum is left to the NIC. False if the frames that are left are for others.
    pub(crate) fn send_filler(&mut self, template: &HeaderTemplate, header: &Header) -> bool {
        let Some(mut frame) = self.data_frame(0) else {
            return false;
        };
        frame.set_len(template.header_len(header.options.len()) + 1);
        if let Some(filler) = frame.last_mut() {
            *filler = 0;
        }
        self.leave(&mut frame, template, header);
        self.io.send(frame);
        true
    }

    /// Sends a segment as [`send_data`](Self::send_data) does, and leaves its checksum to the NIC.
    pub(crate) fn send_left(
        &mut self,
        mut frame: TxFrame,
        template: &HeaderTemplate,
        header: &Header,
    ) -> SentFrame {
        self.leave(&mut frame, template, header);
        self.io.send_kept(frame)
    }

    /// Writes the headers of a segment that is sent, and leaves its checksum to the NIC.
    fn leave(&mut self, frame: &mut TxFrame, template: &HeaderTemplate, header: &Header) {
        template.emit_left(frame, header);
        frame.leave_checksum(template.tcp_at(), CHECKSUM_AT);
        self.counters.segments_out += 1;
        self.unflushed = true;
    }

    /// Sends a segment whose payload lies in `frame` behind the room for its headers, and keeps the frame.
    pub(crate) fn send_data(
        &mut self,
        mut frame: TxFrame,
        template: &HeaderTemplate,
        header: &Header,
    ) -> SentFrame {
        template.emit(&mut frame, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send_kept(frame)
    }

    /// Sends a segment whose payload lies in `frame`, and does not keep the frame.
    pub(crate) fn send_copy(
        &mut self,
        mut frame: TxFrame,
        template: &HeaderTemplate,
        header: &Header,
    ) {
        template.emit(&mut frame, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send(frame);
    }
}
