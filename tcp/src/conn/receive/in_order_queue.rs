//! In-order queue: received bytes that are not consumed yet.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::chunk::Chunk;
use crate::device::Device;

/// A queue of chunks that are read as one stream.
pub(crate) struct InOrderQueue {
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl fmt::Debug for InOrderQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.chunks.len();
        write!(f, "{} bytes in {chunks} chunks", self.len)
    }
}

impl InOrderQueue {
    /// An empty queue with room for one chunk. Most connections are idle, and never have more.
    pub(crate) fn new() -> Self {
        Self {
            chunks: VecDeque::with_capacity(1),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.len += chunk.len();
        if !chunk.is_copied() {
            self.chunks.push_back(chunk);
            return;
        }
        let rest = match self.chunks.back_mut() {
            Some(last) => last.absorb(chunk),
            None => Some(chunk),
        };
        self.chunks.extend(rest);
    }

    /// At least `want` bytes in one slice if there are as many, otherwise the bytes of the first
    /// chunk. They are copied to `joined` only if the first chunk has too few.
    pub(crate) fn readable<'a>(&'a self, want: usize, joined: &'a mut Vec<u8>) -> &'a [u8] {
        let first = self.chunks.front().map_or(&[][..], Chunk::bytes);
        if first.len() >= want || self.len < want {
            return first;
        }
        joined.clear();
        for chunk in &self.chunks {
            let bytes = chunk.bytes();
            let missing = want - joined.len();
            joined.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
            if joined.len() == want {
                break;
            }
        }
        joined
    }

    /// Receive time of the frame with the `count`-th byte, by the NIC's clock.
    pub(crate) fn arrival(&self, count: usize) -> Option<Duration> {
        let mut end = 0;
        let its = self.chunks.iter().find(|chunk| {
            end += chunk.len();
            end >= count
        });
        its?.arrival()
    }

    /// Removes the first `n` bytes, and frees their frames.
    pub(crate) fn consume(&mut self, n: usize, device: &mut Device) {
        let mut left = n.min(self.len);
        self.len -= left;
        while left > 0 {
            let Some(chunk) = self.chunks.front_mut() else {
                return;
            };
            if left < chunk.len() {
                chunk.trim_front(left);
                return;
            }
            left -= chunk.len();
            if let Some(chunk) = self.chunks.pop_front() {
                chunk.free(device);
            }
        }
    }

    pub(crate) fn clear(&mut self, device: &mut Device) {
        self.consume(self.len, device);
    }
}

#[cfg(test)]
mod tests {
    use xwarp_driver::MemoryIo;

    use super::*;

    fn copied(bytes: &[u8]) -> Chunk {
        Chunk::Copied {
            bytes: bytes.to_vec(),
            begin: 0,
        }
    }

    #[test]
    fn slice_is_joined_only_across_chunks() {
        let (io, _) = MemoryIo::new(1).unwrap();
        let mut device = Device::new(Box::new(io), 1500);
        let mut queue = InOrderQueue::new();
        queue.push(copied(&[1; 4000]));
        queue.push(copied(&[2; 200]));
        let mut joined = Vec::new();
        assert_eq!(queue.readable(4000, &mut joined).len(), 4000);
        assert!(joined.is_empty());
        assert_eq!(queue.readable(4001, &mut joined)[3999..], [1, 2]);
        assert_eq!(queue.readable(5000, &mut joined).len(), 4000, "as it lies");
        queue.consume(4100, &mut device);
        assert_eq!(queue.readable(100, &mut joined), [2; 100]);
        queue.consume(999, &mut device);
        assert_eq!((queue.len(), queue.readable(0, &mut joined).len()), (0, 0));
    }

    #[test]
    fn byte_has_the_time_of_its_frame_and_a_copy_none() {
        let (mut io, wire) = MemoryIo::new(2).unwrap();
        let [early, late] = [5, 9].map(Duration::from_secs);
        for time in [early, late] {
            wire.deliver_at(vec![0; 100], time);
        }
        let mut frames = Vec::new();
        xwarp_driver::PacketIo::receive(&mut io, 2, &mut frames);
        let mut device = Device::new(Box::new(io), 1500);
        let mut queue = InOrderQueue::new();
        for frame in frames {
            queue.push(Chunk::Frame {
                frame,
                range: 50..100,
            });
        }
        queue.push(copied(&[1; 10]));
        let times = [1, 50, 51, 100, 101, 111].map(|count| queue.arrival(count));
        let (early, late) = (Some(early), Some(late));
        assert_eq!(times, [early, early, late, late, None, None]);
        queue.consume(20, &mut device);
        assert_eq!([30, 31].map(|count| queue.arrival(count)), [early, late]);
        queue.clear(&mut device);
    }

    #[test]
    fn small_chunks_are_gathered() {
        let mut queue = InOrderQueue::new();
        for _ in 0..4096 {
            queue.push(copied(&[7]));
        }
        assert_eq!((queue.chunks.len(), queue.len()), (1, 4096));
        queue.push(copied(&[8]));
        assert_eq!(queue.chunks.len(), 2);
    }
}
