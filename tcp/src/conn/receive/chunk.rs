//! Chunk of received bytes: a range of a frame, or a copy if the bytes are too few to keep the
//! frame.

use std::ops::Range;
use std::time::Duration;

use xwarp_driver::RxFrame;

use crate::device::Device;

/// Payloads of up to this many bytes are copied if they must wait: they do not justify a frame of
/// 4096 bytes.
const SMALL: usize = 256;
/// Maximum size in bytes to which a copy grows by following bytes.
const COMPACT: usize = 4096;

/// Bytes of the stream.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// In the received frame.
    Frame { frame: RxFrame, range: Range<usize> },
    /// In a copy, from `begin` on.
    Copied { bytes: Vec<u8>, begin: usize },
}

impl Chunk {
    /// The bytes of `frame` in `range`, which will be read soon. They stay in the frame even if
    /// few, and are copied only if frames are scarce.
    pub(crate) fn keep(frame: RxFrame, range: Range<usize>, device: &mut Device) -> Self {
        if device.hold() {
            return Self::Frame { frame, range };
        }
        Self::copied(frame, range, device)
    }

    /// The bytes of `frame` in `range`. They stay in the frame if they are many and frames are not
    /// scarce, or if receive timestamps are wanted.
    pub(crate) fn new(frame: RxFrame, range: Range<usize>, device: &mut Device) -> Self {
        if range.len() > SMALL || device.keeps_small_segments() {
            return Self::keep(frame, range, device);
        }
        Self::copied(frame, range, device)
    }

    fn copied(frame: RxFrame, range: Range<usize>, device: &mut Device) -> Self {
        let bytes = frame.get(range).unwrap_or_default().to_vec();
        device.recycle(frame);
        Self::Copied { bytes, begin: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Frame { frame, range } => frame.get(range.clone()).unwrap_or_default(),
            Self::Copied { bytes, begin } => bytes.get(*begin..).unwrap_or_default(),
        }
    }

    /// Receive time of the frame, by the NIC's clock. A copy has none.
    pub(crate) fn arrival(&self) -> Option<Duration> {
        match self {
            Self::Frame { frame, .. } => frame.arrival(),
            Self::Copied { .. } => None,
        }
    }

    /// True for a copy, which may be joined with other copies.
    pub(crate) fn is_copied(&self) -> bool {
        matches!(self, Self::Copied { .. })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Frame { range, .. } => range.len(),
            Self::Copied { bytes, begin } => bytes.len().saturating_sub(*begin),
        }
    }

    /// Removes the first `n` bytes.
    pub(crate) fn trim_front(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.start = (range.start + n).min(range.end),
            Self::Copied { bytes, begin } => *begin = (*begin + n).min(bytes.len()),
        }
    }

    /// Removes all bytes after the first `n`.
    pub(crate) fn truncate(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.end = range.end.min(range.start + n),
            Self::Copied { bytes, begin } => bytes.truncate(*begin + n),
        }
    }

    /// The same bytes without surrounding memory, if that is most of the chunk.
    pub(crate) fn compact(self, device: &mut Device) -> Self {
        let few = match &self {
            Self::Frame { range, .. } => range.len() <= SMALL,
            Self::Copied { bytes, .. } => self.len() <= bytes.capacity() / 2,
        };
        if !few {
            return self;
        }
        let bytes = self.bytes().to_vec();
        self.free(device);
        Self::Copied { bytes, begin: 0 }
    }

    /// Appends `next` to this copy if both are copies and there is room. Returns it otherwise.
    pub(crate) fn absorb(&mut self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Copied { bytes, .. }, next @ Self::Copied { .. })
                if bytes.len() + next.len() <= COMPACT =>
            {
                bytes.extend_from_slice(next.bytes());
                None
            }
            (_, next) => Some(next),
        }
    }

    /// Frees the frame.
    pub(crate) fn free(self, device: &mut Device) {
        if let Self::Frame { frame, .. } = self {
            device.unhold(frame);
        }
    }
}
