//! Packet I/O: the interface between the protocol stack and the queue that carries its frames.
//!
//! This module has the trait [`PacketIo`], the frames that it moves, and every queue that wraps
//! another one: for captures, for the own host, for several queues as one. The queue of AF_XDP is
//! in `xdp`.

mod crossing;
mod forward;
mod frame;
mod frame_copies;
mod frame_pool;
mod hairpin;
mod levels;
mod memory_io;
mod queue_group;
mod tap;
mod tx_metadata;
mod with_rx_metadata;

use std::os::fd::BorrowedFd;

pub use crossing::{CrossQueueIo, FrameOrigin, HandoffQueue};
pub(crate) use frame::{Foreign, Frame, Layout, NotLent, Parking};
pub use frame::{RxFrame, SentFrame, TxFrame};
pub(crate) use frame_pool::FramePool;
pub use hairpin::Hairpin;
pub use levels::QueueLevels;
pub use memory_io::{LocalHop, MemoryIo, Wire};
pub use queue_group::QueueGroup;
pub use tap::{Capture, CaptureError, Tap, TapError};
pub(crate) use tx_metadata::TX_METADATA_BYTES;
pub use with_rx_metadata::WithRxMetadata;

/// Frames that a connection may have in flight to an interface whose owner does not take any.
pub const BURST: usize = 256;

/// One queue of a network interface: Ethernet frames in, Ethernet frames out.
///
/// Every frame is an owned value. A received frame is returned by [`recycle`](Self::recycle); a
/// frame taken with [`tx_frame`](Self::tx_frame) is returned by [`send`](Self::send) or
/// [`discard`](Self::discard), or is sent and kept with [`send_kept`](Self::send_kept) for a
/// retransmission. A frame that is dropped instead is lost to its queue until the queue is closed.
///
/// A queue accepts only its own frames and tokens. One of another queue is dropped and counted in
/// [`IoCounters::drop_foreign`]; it is neither sent nor passed to the kernel.
pub trait PacketIo: Send {
    /// Appends up to `budget` received frames to `out`.
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>);

    /// Returns a received frame's memory to the queue.
    fn recycle(&mut self, frame: RxFrame);

    /// True for a received frame in this queue's memory.
    fn owns(&self, frame: &RxFrame) -> bool;

    /// Takes an empty frame to be filled; `None` while all frames are in flight.
    fn tx_frame(&mut self) -> Option<TxFrame>;

    /// Queues a filled frame for transmission; [`flush`](Self::flush) submits it.
    fn send(&mut self, frame: TxFrame);

    /// Queues a filled frame for transmission like [`send`](Self::send), and keeps it for the
    /// caller. No code can access its bytes until [`reclaim`](Self::reclaim) returns it. The token
    /// of another queue's frame, which is not sent, is never redeemed.
    fn send_kept(&mut self, frame: TxFrame) -> SentFrame;

    /// Takes a filled frame that was sent by other means. It can be reclaimed at once.
    fn keep(&mut self, frame: TxFrame) -> SentFrame;

    /// Returns a sent frame, with the length and bytes that it was sent with. While its
    /// transmission has not completed, it returns the token again. It also does so for another
    /// queue's token.
    ///
    /// # Errors
    ///
    /// The token, if the frame is not available.
    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame>;

    /// Releases a sent frame: its memory is free once its transmission has completed.
    fn release(&mut self, sent: SentFrame);

    /// Number of frames that can be taken for transmission now, or once all frames that are neither
    /// kept nor taken have completed.
    fn tx_free(&self) -> usize;

    /// Number of frames to receive into, including those that were received and not recycled.
    fn rx_frames(&self) -> usize;

    /// Returns a frame that will not be sent.
    fn discard(&mut self, frame: TxFrame);

    /// Submits all queued frames and collects those whose transmission has completed.
    ///
    /// # Errors
    ///
    /// - [`IoError::Transmit`], [`IoError::Receive`]: the kernel refuses to transmit, or to
    ///   receive.
    /// - [`IoError::Stalled`]: no frame has completed for too long.
    fn flush(&mut self) -> Result<(), IoError>;

    /// True while the kernel has not taken all queued frames, or must be called because there is
    /// memory to receive into: call [`flush`](Self::flush) again then. False while the link is
    /// down, as that would be useless.
    fn backlog(&self) -> bool;

    /// Sets whether the link is up. While it is down, sent frames wait, and missing completions are
    /// no failure.
    fn set_up(&mut self, up: bool);

    /// Takes the oldest ICMP message about a packet that was too large for its path: for a sender
    /// that misses an acknowledgment. By default there are none.
    fn too_big(&mut self) -> Option<Icmp> {
        None
    }

    /// True if the checksum of a frame can be left to the NIC ([`TxFrame::leave_checksum`]). The
    /// caller must check whether the NIC really computes it: some drivers accept the request and do
    /// nothing. By default false.
    fn offers_checksums(&self) -> bool {
        false
    }

    /// True while frames wait to be received that [`readiness`](Self::readiness) does not report.
    /// By default there are none.
    fn has_looped(&self) -> bool {
        false
    }

    /// True for a received frame of this host: this queue has sent it itself, or another process
    /// has. By default none is.
    fn is_looped(&self, _frame: &RxFrame) -> bool {
        false
    }

    /// True for the Ethernet address of a next hop whose peers are all processes of this host.
    /// Frames to it reach no wire. By default there is none.
    fn stays_on_host(&self, _next_hop: [u8; 6]) -> bool {
        false
    }

    /// Size in bytes of the largest IP packet to a next hop, if the MTU of the interface is not the
    /// bound. By default it always is.
    fn mtu_towards(&self, _next_hop: [u8; 6]) -> Option<usize> {
        None
    }

    /// True if the TCP checksum of a received frame need not be verified, and may be 0: its bytes
    /// were in the memory of this kernel all the time. By default false.
    fn trusts(&self, _frame: &RxFrame) -> bool {
        false
    }

    /// True if frames to a next hop need no TCP checksum: all its receivers trust them
    /// ([`trusts`](Self::trusts)). By default false.
    fn needs_no_checksum(&self, _next_hop: [u8; 6]) -> bool {
        false
    }

    /// True for a received frame that arrived at another engine's queue. By default none has.
    fn has_crossed(&self, _frame: &RxFrame) -> bool {
        false
    }

    /// Descriptor that is readable when a frame arrives; `None` if there is none to sleep on.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Counters since the queue was opened.
    fn counters(&self) -> IoCounters;

    /// Contents of its rings and places of its frames. By default, and without rings, zeros.
    fn levels(&self) -> QueueLevels {
        QueueLevels::default()
    }

    /// State of its rings and what it waits for, for a test that has timed out.
    #[doc(hidden)]
    fn diagnosis(&self) -> String {
        format!("{:?}", self.levels())
    }
}

/// An ICMP message from its type on. None of its bytes are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Icmp {
    /// ICMP (RFC 792).
    V4(Vec<u8>),
    /// `ICMPv6` (RFC 4443).
    V6(Vec<u8>),
}

/// Frames moved and frames lost, by cause, since the queue was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, Ethernet headers included.
    pub rx_bytes: u64,
    /// Frames queued for transmission.
    pub tx_frames: u64,
    /// Bytes queued for transmission, Ethernet headers included.
    pub tx_bytes: u64,
    /// Frames that the kernel dropped because the receive ring was full.
    pub drop_rx_ring_full: u64,
    /// Frames that the kernel dropped because the fill ring was empty.
    pub drop_rx_no_frame: u64,
    /// Frames that the kernel dropped for another reason, such as being larger than a frame.
    pub drop_rx_other: u64,
    /// Descriptors that the kernel refused to transmit.
    pub drop_tx_invalid: u64,
    /// Frames and tokens of another queue that were given to this one.
    pub drop_foreign: u64,
    /// Times that no frame was free for transmission.
    pub tx_exhausted: u64,
    /// Frames from the interface to itself, which never reach it.
    pub looped_frames: u64,
    /// Frames from the interface to itself that found no memory to be received into.
    pub drop_looped: u64,
    /// Frames that arrived at queues of other engines, which handed them over.
    pub crossed_frames: u64,
    /// Frames that found no room in another engine's handoff queue.
    pub drop_crossed: u64,
    /// Times that the driver took nothing from the fill ring for 2 s while it had no chunks to
    /// receive into.
    pub fill_stalls: u64,
    /// Times that no frame in flight was completed for 2 s.
    pub completion_stalls: u64,
}

crate::named_counters!(IoCounters {
    rx_frames,
    rx_bytes,
    tx_frames,
    tx_bytes,
    drop_rx_ring_full,
    drop_rx_no_frame,
    drop_rx_other,
    drop_tx_invalid,
    drop_foreign,
    tx_exhausted,
    looped_frames,
    drop_looped,
    crossed_frames,
    drop_crossed,
    fill_stalls,
    completion_stalls,
});

/// Why a queue has stopped working.
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// The kernel refused to transmit, or the interface is gone.
    #[error("the kernel refused to transmit on {interface}: {source}; is the interface still up?")]
    Transmit {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel refused to look for chunks to receive into, or the interface is gone.
    #[error("the kernel refused to receive on {interface}: {source}; is the interface still up?")]
    Receive {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Frames were submitted to the kernel and none completed for too long.
    #[error(
        "{interface} has not completed one of {frames} frames for {seconds} s: the transmit path is stalled; set the interface down and up"
    )]
    Stalled {
        /// The interface.
        interface: String,
        /// Frames in flight.
        frames: usize,
        /// Seconds without progress.
        seconds: u64,
    },
}
