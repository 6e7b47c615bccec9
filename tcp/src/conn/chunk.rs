//! A piece of the stream as it was received: part of a frame, or a copy if the frame is not worth keeping.

use std::ops::Range;

use xwarp_driver::RxFrame;

use crate::lower::Lower;

/// Payloads up to this many octets are copied where they have to wait: a frame of 4096 octets is too much for them.
const SMALL: usize = 256;
/// A copy takes further octets behind it up to so many.
const COMPACT: usize = 4096;

/// Octets of the stream.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// In the frame that brought them.
    Frame { frame: RxFrame, range: Range<usize> },
    /// Copied, from `begin` on.
    Copied { octets: Vec<u8>, begin: usize },
}

impl Chunk {
    /// The octets of `frame` in `range`, kept there however few, as those are that are read soon; copied if frames are short.
    pub(crate) fn keep(frame: RxFrame, range: Range<usize>, lower: &mut Lower) -> Self {
        if lower.hold() {
            return Self::Frame { frame, range };
        }
        Self::copied(frame, range, lower)
    }

    /// The octets of `frame` in `range`, kept there if they are many and frames are not short.
    pub(crate) fn new(frame: RxFrame, range: Range<usize>, lower: &mut Lower) -> Self {
        if range.len() > SMALL {
            return Self::keep(frame, range, lower);
        }
        Self::copied(frame, range, lower)
    }

    fn copied(frame: RxFrame, range: Range<usize>, lower: &mut Lower) -> Self {
        let octets = frame.get(range).unwrap_or_default().to_vec();
        lower.io.recycle(frame);
        Self::Copied { octets, begin: 0 }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        match self {
            Self::Frame { frame, range } => frame.get(range.clone()).unwrap_or_default(),
            Self::Copied { octets, begin } => octets.get(*begin..).unwrap_or_default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Frame { range, .. } => range.len(),
            Self::Copied { octets, begin } => octets.len().saturating_sub(*begin),
        }
    }

    /// Takes the first `n` octets away.
    pub(crate) fn trim_front(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.start = (range.start + n).min(range.end),
            Self::Copied { octets, begin } => *begin = (*begin + n).min(octets.len()),
        }
    }

    /// Takes all but the first `n` octets away.
    pub(crate) fn truncate(&mut self, n: usize) {
        match self {
            Self::Frame { range, .. } => range.end = range.end.min(range.start + n),
            Self::Copied { octets, begin } => octets.truncate(*begin + n),
        }
    }

    /// The same bytes without the memory around them, where that is most of it.
    pub(crate) fn compact(self, lower: &mut Lower) -> Self {
        let few = match &self {
            Self::Frame { range, .. } => range.len() <= SMALL,
            Self::Copied { octets, .. } => self.len() <= octets.capacity() / 2,
        };
        if !few {
            return self;
        }
        let octets = self.octets().to_vec();
        self.free(lower);
        Self::Copied { octets, begin: 0 }
    }

    /// Appends `next` to this copy if it is a copy itself and there is room; gives it back if not.
    pub(crate) fn absorb(&mut self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Copied { octets, .. }, next @ Self::Copied { .. })
                if octets.len() + next.len() <= COMPACT =>
            {
                octets.extend_from_slice(next.octets());
                None
            }
            (_, next) => Some(next),
        }
    }

    /// Gives the frame back.
    pub(crate) fn free(self, lower: &mut Lower) {
        if let Self::Frame { frame, .. } = self {
            lower.unhold(frame);
        }
    }
}
