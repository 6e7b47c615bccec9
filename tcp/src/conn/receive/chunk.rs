//! Chunk of received bytes: part of a frame, or a copy if the frame is not worth keeping.

use std::ops::Range;
use std::time::Duration;

use xwarp_driver::RxFrame;

use crate::device::Device;

/// Payloads up to this many bytes are copied where they have to wait: a frame of 4096 bytes is too much for them.
const SMALL: usize = 256;
/// A copy takes further bytes behind it up to so many.
const COMPACT: usize = 4096;

/// Bytes of the stream.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// In the frame that brought them.
    Frame { frame: RxFrame, range: Range<usize> },
    /// Copied, from `begin` on.
    Copied { bytes: Vec<u8>, begin: usize },
}

impl Chunk {
    /// The bytes of `frame` in `range`, kept there however few, as those are that are read soon; copied if frames are short.
    pub(crate) fn keep(frame: RxFrame, range: Range<usize>, device: &mut Device) -> Self {
        if device.hold() {
            return Self::Frame { frame, range };
        }
        Self::copied(frame, range, device)
    }

    /// The bytes of `frame` in `range`, kept there if they are many and frames are not short, or if their times of arrival are wanted.
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

    /// When its frame arrived, by the NIC's clock. A copy has no time.
    pub(crate) fn arrival(&self) -> Option<Duration> {
        match self {
            Self::Frame { frame, .. } => frame.arrival(),
            Self::Copied { .. } => None,
        }
    }

    /// True for a copy, which may be joined with others.
    pub(crate) fn is_copied(&self) -> bool {
        matches!(self, Self::Copied { .. })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Frame { range, .. } => range.len(),
            Self::Copied { bytes, begin } => bytes.len().saturating_sub(*begin),
        }
    }

    /// Takes the first `n` bytes away.
    pub(crate) fn trim_front(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.start = (range.start + n).min(range.end),
            Self::Copied { bytes, begin } => *begin = (*begin + n).min(bytes.len()),
        }
    }

    /// Takes all but the first `n` bytes away.
    pub(crate) fn truncate(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.end = range.end.min(range.start + n),
            Self::Copied { bytes, begin } => bytes.truncate(*begin + n),
        }
    }

    /// The same bytes without the memory around them, where that is most of it.
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

    /// Appends `next` to this copy if it is a copy itself and there is room; gives it back if not.
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

    /// Gives the frame back.
    pub(crate) fn free(self, device: &mut Device) {
        if let Self::Frame { frame, .. } = self {
            device.unhold(frame);
        }
    }
}
