//! Levels of a queue: contents of its rings, and places of its frames.

/// Contents of a queue's rings and places of its frames at one moment, and counters of the kernel
/// other than drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLevels {
    /// Chunks in the fill ring that the kernel has not taken.
    pub fill_ring: u64,
    /// Descriptors in the receive ring that the engine has not taken.
    pub rx_ring: u64,
    /// Descriptors in the transmit ring that the kernel has not taken.
    pub tx_ring: u64,
    /// Chunks in the completion ring that the engine has not taken.
    pub completion_ring: u64,
    /// Chunks that the kernel has to receive into.
    pub rx_chunks_lent: u64,
    /// Free chunks to receive into.
    pub rx_chunks_spare: u64,
    /// Received chunks that the engine has not recycled, such as those in reassembly.
    pub rx_chunks_held: u64,
    /// Frames that are free for transmission.
    pub tx_frames_free: u64,
    /// Frames whose transmission has not completed.
    pub tx_frames_in_flight: u64,
    /// Frames that TCP fills, or keeps until they are acknowledged.
    pub tx_frames_kept: u64,
    /// Chunks that the kernel refused to receive into.
    pub fill_invalid: u64,
    /// Times that the kernel found the transmit ring empty.
    pub tx_ring_empty: u64,
}

crate::named_counters!(QueueLevels {
    fill_ring,
    rx_ring,
    tx_ring,
    completion_ring,
    rx_chunks_lent,
    rx_chunks_spare,
    rx_chunks_held,
    tx_frames_free,
    tx_frames_in_flight,
    tx_frames_kept,
    fill_invalid,
    tx_ring_empty,
});
