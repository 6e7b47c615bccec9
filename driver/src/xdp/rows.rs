//! Frames to send as the kernel sees them: each a row of descriptors, one for each of its chunks
//! (decision record driver/0022).

use super::umem::CHUNK;
use super::xsk::Descriptor;
use crate::packet_io::NotLent;

/// A filled frame on its way to the transmit ring: bytes of the UMEM, from one address to another.
#[derive(Clone, Copy)]
pub(super) struct Row {
    begin: usize,
    end: usize,
    /// Metadata lies in front.
    described: bool,
}

impl Row {
    pub(super) fn new(begin: usize, len: usize, described: bool) -> Self {
        let end = begin + len;
        Self {
            begin,
            end,
            described,
        }
    }

    /// How many descriptors it has: one even without bytes.
    pub(super) fn pieces(self) -> usize {
        let last = self.end.max(self.begin + 1) - 1;
        last / CHUNK - self.begin / CHUNK + 1
    }

    /// Its descriptors in order. Each ends where its chunk does, or the frame. The first one is
    /// marked if there is metadata.
    pub(super) fn descriptors(self) -> impl Iterator<Item = Descriptor> {
        let mut next = Some(self.begin);
        std::iter::from_fn(move || {
            let begin = next?;
            let end = self.end.min((begin | (CHUNK - 1)) + 1);
            next = (end < self.end).then_some(end);
            let piece = Descriptor::new(begin, end - begin, next.is_some());
            Some(piece.described(self.described && begin == self.begin))
        })
    }
}

/// The chunks of frames to send, of which the kernel has some. A frame is back when all of its
/// chunks are.
pub(super) struct Rows {
    /// Number of the first frame's first chunk. The chunks before it are there to receive into.
    first: usize,
    /// Chunks of each frame.
    run: usize,
    /// For each frame, a bit for each of its chunks that the kernel has.
    lent: Vec<u32>,
}

impl Rows {
    /// `frames` frames of `run` chunks each, from the chunk with the number `first` on.
    pub(super) fn new(first: usize, run: usize, frames: usize) -> Self {
        Self {
            first,
            run,
            lent: vec![0; frames],
        }
    }

    /// Records that the kernel gets `chunks` chunks of the frame with this place in the arena.
    pub(super) fn lend(&mut self, place: usize, pieces: usize) {
        let slot = place.checked_sub(self.first);
        if let Some(lent) = slot.and_then(|frame| self.lent.get_mut(frame)) {
            *lent = u32::MAX >> u32::BITS.saturating_sub(bits(pieces));
        }
    }

    /// The kernel is done with the chunk of this number. The frame's place, if it was the last one.
    pub(super) fn returned(&mut self, chunk: usize) -> Result<Option<usize>, NotLent> {
        let ahead = chunk.checked_sub(self.first).ok_or(NotLent)?;
        let (frame, bit) = (ahead / self.run, 1 << (ahead % self.run));
        let lent = self.lent.get_mut(frame).ok_or(NotLent)?;
        if *lent & bit == 0 {
            return Err(NotLent);
        }
        *lent &= !bit;
        Ok((*lent == 0).then_some(self.first + frame))
    }

    /// The place of the chunk of this number, if it is there to receive into.
    pub(super) fn received(&self, chunk: usize) -> Result<usize, NotLent> {
        if chunk < self.first {
            Ok(chunk)
        } else {
            Err(NotLent)
        }
    }
}

fn bits(pieces: usize) -> u32 {
    u32::try_from(pieces).unwrap_or(u32::BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xdp::umem::chunks_of;

    #[test]
    fn frame_is_back_when_its_last_chunk_is() {
        let mut rows = Rows::new(64, 3, 2);
        rows.lend(65, 3);
        assert_eq!(rows.returned(69), Ok(None));
        assert_eq!(rows.returned(67), Ok(None));
        assert_eq!(rows.returned(69), Err(NotLent), "it was back already");
        assert_eq!(rows.returned(64), Err(NotLent), "the frame was not sent");
        assert_eq!(rows.returned(68), Ok(Some(65)));
        assert_eq!(rows.returned(68), Err(NotLent));
        rows.lend(64, 1);
        assert_eq!(rows.returned(65), Err(NotLent), "no byte was in it");
        assert_eq!(rows.returned(64), Ok(Some(64)));
    }

    #[test]
    fn chunks_to_receive_into_and_others_are_not_mistaken_for_each_other() {
        let mut rows = Rows::new(64, 17, 2);
        rows.lend(64, 17);
        assert_eq!(rows.received(63), Ok(63));
        assert_eq!(rows.received(64), Err(NotLent));
        assert_eq!(rows.returned(63), Err(NotLent));
        assert_eq!(rows.returned(64 + 2 * 17), Err(NotLent));
        assert_eq!(rows.returned(usize::MAX), Err(NotLent));
    }

    proptest! {
        /// Descriptors cover the frame once and in order. Each lies in one chunk, only the last one
        /// says that nothing follows, and there are as many as the frame has chunks. When they have
        /// come back in any order, the frame has.
        #[test]
        fn descriptors_are_the_frame(begin in 0..CHUNK, len in 1_usize..65_600, first in 0_usize..9, seed in any::<u64>(), described: bool) {
            let run = (begin + len).div_ceil(CHUNK);
            let row = Row::new(first * CHUNK + begin, len, described);
            let descriptors: Vec<_> = row.descriptors().collect();
            prop_assert_eq!(descriptors.len(), row.pieces());
            let mut at = first * CHUNK + begin;
            let mut chunks = Vec::new();
            for (number, descriptor) in descriptors.iter().enumerate() {
                let start = usize::try_from(descriptor.addr()).unwrap();
                prop_assert_eq!(start, at);
                at += descriptor.len();
                prop_assert!(descriptor.len() > 0);
                prop_assert_eq!(start / CHUNK, (at - 1) / CHUNK);
                prop_assert_eq!(descriptor.more(), number + 1 < descriptors.len());
                prop_assert_eq!(descriptor.is_described(), described && number == 0);
                chunks.push(start / CHUNK);
            }
            prop_assert_eq!(at, first * CHUNK + begin + len);

            let mut rows = Rows::new(first, run, 1);
            rows.lend(first, row.pieces());
            while chunks.len() > 1 {
                let chunk = chunks.swap_remove(usize::try_from(seed).unwrap() % chunks.len());
                prop_assert_eq!(rows.returned(chunk), Ok(None));
            }
            prop_assert_eq!(rows.returned(chunks[0]), Ok(Some(first)));
        }

        /// No two frames share a chunk, and each has room for its bytes.
        #[test]
        fn run_has_room(bytes in 1_usize..65_558) {
            let run = chunks_of(bytes);
            prop_assert!(run <= 17);
            let begin = CHUNK - crate::xdp::umem::FRAME_CAPACITY;
            prop_assert!(Row::new(begin, bytes, false).pieces() <= run);
        }
    }
}
