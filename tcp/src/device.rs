//! Device: the packet interface below the connections, the frames and memory that they share, and
//! the counters.
//!
//! A segment keeps its TX frame until it is acknowledged, so silent peers with full windows could
//! hold all frames. Three rules prevent that:
//!
//! - A connection never takes more frames than it leaves free.
//! - If a connection finds no free frame, the stack moves payload that has been unacknowledged for
//!   5 ms to memory: parking. What else the peer sends makes no difference, as an ACK with a closed
//!   window or of one byte costs an attacker little. A parked segment is retransmitted as a copy.
//! - Once 64 MiB are parked, a connection gets a frame only while it has fewer than four
//!   unacknowledged segments. So all data in flight can still be parked.
//!
//! Out-of-order bytes are bounded as well: decision record tcp/0014.

use std::io;

use xwarp_driver::{
    CrossQueueIo, Doorbell, Hairpin, HandoffQueue, Icmp, IoError, PacketIo, RxFrame, SentFrame,
    TxFrame,
};

use crate::counters::StackCounters;
use crate::wire::discard::Discard;
use crate::wire::ethernet::{self, LinkHeader};
use crate::wire::outbound::{CHECKSUM_AT, Header};
use crate::wire::template::HeaderTemplate;

/// Bounds of the MTU in bytes: the size that every host must accept (RFC 9293 §3.7.1), and the
/// largest value of the length field.
const MTU_LIMITS: (usize, usize) = (576, 65535);
/// Frames that data leaves to ACKs, retransmissions and RSTs, and their maximum as a part of all
/// receive frames.
const RESERVE: usize = 16;
const RESERVE_PART: usize = 8;
/// Connections may hold one part in this many of the receive frames between steps. The kernel
/// receives into the rest.
const HELD_PART: usize = 2;
/// Bytes of payload parked in all before connections get few frames: their payload may have to be
/// parked as well.
const MAX_PARKED: usize = 64 << 20;
/// Unacknowledged segments that a connection may have even then.
const FEW: usize = 4;
/// Bytes of out-of-order data that all connections may hold together.
const MAX_MEMORY: usize = 64 << 20;

/// The packet interface, and the frames and memory that all connections share.
pub(crate) struct Device {
    io: Box<dyn PacketIo>,
    counters: StackCounters,
    /// Size in bytes of the largest IP packet on the interface.
    mtu: usize,
    /// Size in bytes of the largest IP packet that fits into a TX frame.
    largest_packet: usize,
    /// Last reported state of the link.
    up: bool,
    /// Received frames that connections hold.
    held: usize,
    /// Bytes of payload that are parked.
    parked: usize,
    /// Bytes of out-of-order data that connections hold.
    memory: usize,
    /// Segments were sent since the last flush.
    unflushed: bool,
    /// Frames to the local interface are looped back.
    turns_back: bool,
    checksums: Checksums,
    small: SmallSegments,
}

/// Way to a next hop.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub(crate) link: LinkHeader,
    /// Size in bytes of the largest IP packet.
    pub(crate) mtu: usize,
    /// Segments carry TCP checksums.
    pub(crate) is_summed: bool,
}

/// Who computes the checksums of sent segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    /// The stack.
    Ours,
    /// The NIC may, on connections that have proved that it does.
    Offered,
}

/// Treatment of small received segments that wait behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SmallSegments {
    /// They are copied, so each needs no frame of its own.
    Copied,
    /// They stay in their frames, which carry their receive timestamps.
    Kept,
}

impl Device {
    /// A device on `io` with an MTU of `mtu` bytes, or of a TX frame's capacity if that is less.
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

    /// True if checksums may be left to the NIC.
    #[inline]
    pub(crate) fn offers_checksums(&self) -> bool {
        self.checksums == Checksums::Offered
    }

    /// The counters, to be updated by the module that finds the event.
    pub(crate) fn counters_mut(&mut self) -> &mut StackCounters {
        &mut self.counters
    }

    /// Size in bytes of the largest IP packet to a next hop: the interface's MTU, unless the queue
    /// has another one. At most a TX frame's capacity.
    pub(crate) fn mtu_towards(&self, next_hop: [u8; 6]) -> usize {
        let mtu = self.io.mtu_towards(next_hop);
        mtu.map_or(self.mtu, |mtu| {
            mtu.clamp(MTU_LIMITS.0, MTU_LIMITS.1)
                .min(self.largest_packet)
        })
    }

    /// The way by an Ethernet header.
    pub(crate) fn hop(&self, link: LinkHeader) -> Hop {
        let next_hop = link.destination();
        Hop {
            link,
            mtu: self.mtu_towards(next_hop),
            is_summed: self.needs_checksum(next_hop),
        }
    }

    /// True if segments to a next hop need TCP checksums.
    pub(crate) fn needs_checksum(&self, next_hop: [u8; 6]) -> bool {
        !self.io.needs_no_checksum(next_hop)
    }

    /// Sets the interface's MTU, at most a TX frame's capacity. Returns true if it is smaller than
    /// before.
    pub(crate) fn set_mtu(&mut self, mtu: usize) -> bool {
        let mtu = mtu
            .clamp(MTU_LIMITS.0, MTU_LIMITS.1)
            .min(self.largest_packet);
        let before = std::mem::replace(&mut self.mtu, mtu);
        mtu < before
    }

    /// Sets the link state. Returns true if the link was down and is up again.
    pub(crate) fn set_up(&mut self, up: bool) -> bool {
        self.io.set_up(up);
        let was_up = std::mem::replace(&mut self.up, up);
        up && !was_up
    }

    /// Keeps in-order bytes in their frames from now on, even small ones, to preserve their receive
    /// timestamps.
    pub(crate) fn keep_small_segments(&mut self) {
        self.small = SmallSegments::Kept;
    }

    #[inline]
    pub(crate) fn keeps_small_segments(&self) -> bool {
        self.small == SmallSegments::Kept
    }

    /// Loops frames to the local interface back, from now on.
    pub(crate) fn turn_back(&mut self) -> io::Result<()> {
        if !self.turns_back {
            let capacity = self.largest_frame();
            Hairpin::put_on(&mut self.io, capacity)?;
            self.turns_back = true;
        }
        Ok(())
    }

    /// Lets other engines hand frames over, and wake this stack's owner through `bell`.
    pub(crate) fn open_inlet(&mut self, bell: Doorbell) -> io::Result<HandoffQueue> {
        let capacity = self.largest_frame();
        CrossQueueIo::put_on(&mut self.io, capacity, bell)
    }

    fn largest_frame(&self) -> usize {
        self.largest_packet + ethernet::MAX_HEADER
    }

    /// True while received frames wait that the interface's descriptor does not report.
    #[inline]
    pub(crate) fn has_looped(&self) -> bool {
        self.io.has_looped()
    }

    /// Appends up to `budget` received frames to `frames`.
    pub(crate) fn receive(&mut self, budget: usize, frames: &mut Vec<RxFrame>) {
        self.io.receive(budget, frames);
    }

    /// The next ICMP message about a packet that was too large for its path.
    pub(crate) fn packet_too_big(&mut self) -> Option<Icmp> {
        self.io.too_big()
    }

    /// Returns a received frame to the kernel.
    pub(crate) fn recycle(&mut self, frame: RxFrame) {
        self.io.recycle(frame);
    }

    /// Returns a frame that is no segment of ours, and counts the reason. Logs the first frame of a
    /// kind that has a remedy.
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

    /// Returns a TX frame that was not sent.
    pub(crate) fn discard(&mut self, frame: TxFrame) {
        self.io.discard(frame);
    }

    /// Returns a sent frame that is no longer needed.
    pub(crate) fn release(&mut self, frame: SentFrame) {
        self.io.release(frame);
    }

    /// Takes a sent frame back to retransmit it. Returns the frame in `Err` while the kernel still
    /// has to send it.
    pub(crate) fn reclaim(&mut self, frame: SentFrame) -> Result<TxFrame, SentFrame> {
        self.io.reclaim(frame)
    }

    /// A free TX frame, without regard to fair shares.
    pub(crate) fn tx_frame(&mut self) -> Option<TxFrame> {
        self.io.tx_frame()
    }

    /// Submits sent frames, and lets the interface process completions.
    pub(crate) fn flush(&mut self) -> Result<(), IoError> {
        self.unflushed = false;
        self.io.flush()
    }

    /// Submits sent frames, if there are any.
    pub(crate) fn set_off(&mut self) -> Result<(), IoError> {
        if self.unflushed { self.flush() } else { Ok(()) }
    }

    /// A frame for data of a connection that holds `taken` frames. Returns `None` if the remaining
    /// ones are left to other connections: a connection never holds more frames than it leaves
    /// free.
    pub(crate) fn data_frame(&mut self, taken: usize) -> Option<TxFrame> {
        if self.spare() <= taken {
            self.flush().ok()?; // the next step reports it
            if self.spare() <= taken {
                return None;
            }
        }
        self.io.tx_frame()
    }

    /// Free frames, less the reserve for other segments. Few if too much is parked.
    pub(crate) fn spare(&self) -> usize {
        let reserve = RESERVE.min(self.io.rx_frames() / RESERVE_PART);
        let spare = self.io.tx_free().saturating_sub(reserve);
        let scarce = self.parked >= MAX_PARKED;
        if scarce { spare.min(FEW) } else { spare }
    }

    /// Moves the payload of a frame, which begins at `head`, to memory and frees the frame.
    pub(crate) fn park(&mut self, frame: TxFrame, head: usize) -> Box<[u8]> {
        let payload: Box<[u8]> = Box::from(frame.get(head..).unwrap_or_default());
        self.parked += payload.len();
        self.io.discard(frame);
        payload
    }

    /// Parks bytes that were never in a frame.
    pub(crate) fn park_bytes(&mut self, payload: &[u8]) -> Box<[u8]> {
        self.parked += payload.len();
        Box::from(payload)
    }

    /// Releases a parked payload.
    pub(crate) fn unpark(&mut self, payload: &[u8]) {
        self.parked -= payload.len();
    }

    /// A frame with a parked payload behind `head` bytes for its headers, or `None` if no frame is
    /// free.
    pub(crate) fn unparked(&mut self, payload: &[u8], head: usize) -> Option<TxFrame> {
        let mut frame = self.io.tx_frame()?;
        frame.set_len(head + payload.len());
        frame.get_mut(head..)?.copy_from_slice(payload);
        Some(frame)
    }

    /// Returns true if a connection may hold one more received frame, and counts it. Otherwise its
    /// bytes must be copied out.
    pub(crate) fn hold(&mut self) -> bool {
        let may = self.held < self.io.rx_frames() / HELD_PART;
        self.held += usize::from(may);
        self.counters.copied_out += u64::from(!may);
        may
    }

    /// Returns a received frame that a connection held.
    pub(crate) fn unhold(&mut self, frame: RxFrame) {
        self.held = self.held.saturating_sub(1);
        self.io.recycle(frame);
    }

    /// Reserves `bytes` of memory for a connection that has reserved `taken`. Returns false if the
    /// rest is left to other connections: as with frames, a connection never has more than it
    /// leaves free.
    pub(crate) fn take_memory(&mut self, bytes: usize, taken: usize) -> bool {
        let left = MAX_MEMORY.saturating_sub(self.memory);
        let may = taken + bytes <= left;
        self.memory += if may { bytes } else { 0 };
        may
    }

    /// Returns reserved memory.
    pub(crate) fn give_memory(&mut self, bytes: usize) {
        self.memory -= bytes;
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Sends a segment without payload in a fresh frame. Returns false if there is none.
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

    /// Sends a segment with one byte of filler, whose checksum is left to the NIC. Returns false if
    /// the free frames are left to other connections.
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

    /// Sends a segment as [`send_data`](Self::send_data) does, but leaves its checksum to the NIC.
    pub(crate) fn send_left(
        &mut self,
        mut frame: TxFrame,
        template: &HeaderTemplate,
        header: &Header,
    ) -> SentFrame {
        self.leave(&mut frame, template, header);
        self.io.send_kept(frame)
    }

    /// Writes the headers of a segment whose checksum is left to the NIC.
    fn leave(&mut self, frame: &mut TxFrame, template: &HeaderTemplate, header: &Header) {
        template.emit_left(frame, header);
        frame.leave_checksum(template.tcp_at(), CHECKSUM_AT);
        self.counters.segments_out += 1;
        self.unflushed = true;
    }

    /// Sends a segment whose payload lies in `frame` behind the room for headers, and returns the
    /// sent frame to keep.
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

    /// Sends a segment whose payload lies in `frame`, without keeping the frame.
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
