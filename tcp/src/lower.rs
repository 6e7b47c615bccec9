//! What lies below the connections: the packet interface, its frames, and what is counted on the way.

use xwarp_driver::{IoError, PacketIo, RxFrame, SentFrame, TxFrame};

use crate::counters::StackCounters;
use crate::flow::Flow;
use crate::outbound::{self, Header};

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

/// The packet interface.
pub(crate) struct Lower {
    pub(crate) io: Box<dyn PacketIo>,
    pub(crate) counters: StackCounters,
    /// Bytes of the largest IP packet.
    pub(crate) mtu: usize,
    /// The link is up, as far as is known.
    pub(crate) up: bool,
    /// Received frames that connections hold.
    held: usize,
    /// Bytes of payload that were moved out of TX frames.
    parked: usize,
    /// Bytes that wait for others in front of them, of all connections.
    memory: usize,
    /// Segments were sent since the last flush.
    unflushed: bool,
}

impl Lower {
    pub(crate) fn new(io: Box<dyn PacketIo>, mtu: usize) -> Self {
        Self {
            io,
            counters: StackCounters::default(),
            mtu,
            up: true,
            held: 0,
            parked: 0,
            memory: 0,
            unflushed: false,
        }
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
        if self.spare() <= taken && self.flush().is_err() {
            return None; // the next step reports it
        }
        if self.spare() <= taken {
            return None;
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

    /// True if a connection may keep one more received frame; it is counted as kept.
    pub(crate) fn hold(&mut self) -> bool {
        let may = self.held < self.io.rx_frames() / HELD_PART;
        self.held += usize::from(may);
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
    pub(crate) fn send_bare(&mut self, link: &[u8], flow: &Flow, header: &Header) -> bool {
        let Some(mut frame) = self.io.tx_frame() else {
            return false;
        };
        frame.set_len(link.len() + outbound::header_len(flow, header.options.len()));
        write_headers(&mut frame, link, flow, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send(frame);
        true
    }

    /// Sends a segment whose payload lies in `frame` behind the room for its headers, and keeps the frame.
    pub(crate) fn send_data(
        &mut self,
        mut frame: TxFrame,
        link: &[u8],
        flow: &Flow,
        header: &Header,
    ) -> SentFrame {
        write_headers(&mut frame, link, flow, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send_kept(frame)
    }

    /// The same, but the frame is not kept.
    pub(crate) fn send_copy(
        &mut self,
        mut frame: TxFrame,
        link: &[u8],
        flow: &Flow,
        header: &Header,
    ) {
        write_headers(&mut frame, link, flow, header);
        self.counters.segments_out += 1;
        self.unflushed = true;
        self.io.send(frame);
    }
}

fn write_headers(frame: &mut TxFrame, link: &[u8], flow: &Flow, header: &Header) {
    let (ethernet, packet) = frame.split_at_mut(link.len());
    ethernet.copy_from_slice(link);
    outbound::emit(packet, flow, header);
}
