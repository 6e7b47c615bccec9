//! The chunks that the kernel receives into: those that it has, and those that are spare.

use super::depth::Depth;
use crate::packet_io::Frame;

/// Chunks that circulate between the fill ring and the receive ring, are spare, or are with their
/// receiver.
pub(super) struct ReceiveChunks {
    count: usize,
    /// Those that the kernel has.
    lent: usize,
    /// How many it is to have.
    depth: Depth,
    /// Some that it has not.
    spare: Vec<Frame>,
}

impl ReceiveChunks {
    /// The kernel has none of them yet, and is to have `least` or more.
    pub(super) fn new(chunks: Vec<Frame>, least: usize) -> Self {
        Self {
            count: chunks.len(),
            lent: 0,
            depth: Depth::new(least, chunks.len()),
            spare: chunks,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// How many the kernel has, and how many are free. The rest are with their receivers.
    pub(super) fn lent_and_spare(&self) -> (usize, usize) {
        (self.lent, self.spare.len())
    }

    /// A spare chunk.
    pub(super) fn take_spare(&mut self) -> Option<Frame> {
        self.spare.pop()
    }

    /// The kernel has fewer than it is to have.
    pub(super) fn too_few_lent(&self) -> bool {
        self.lent < self.depth.chunks()
    }

    /// One goes to the kernel.
    pub(super) fn note_lent(&mut self) {
        self.lent += 1;
    }

    /// Records that `chunks` filled chunks were taken. `all` means that the ring is empty now.
    pub(super) fn note_filled(&mut self, chunks: usize, all: bool) {
        self.lent = self.lent.saturating_sub(chunks);
        self.depth.taken(chunks, all);
    }

    /// Keeps one that the kernel is not to have now.
    pub(super) fn keep(&mut self, chunk: Frame) {
        self.spare.push(chunk);
    }
}
