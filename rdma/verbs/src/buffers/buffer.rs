//! Buffers, and how a domain allocates them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use xwarp_driver::{CopyError, OutOfBounds, SharedBytes};

use crate::memory::region::MemoryRegion;
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use xwarp_rnic::model::{Access, RegisterError, Sge};

/// Memory that belongs either to the application or to a work request. Posting moves it away, and
/// [`PostedBuffers::take`](crate::buffers::PostedBuffers::take) returns it for the completion.
/// [`PostedBuffers`](crate::buffers::PostedBuffers) describes how buffers are posted and returned.
///
/// A buffer is a piece of a region without remote rights, whose `STag` is never disclosed. No
/// Write, Read or Atomic Operation of a peer can access it, and no other work request can. It
/// serves for Sends, Writes and Receives, but not as the sink of a Read, which the peer writes. A
/// privileged queue pair can access it by its physical address, like all memory of the region area.
pub struct Buffer {
    bytes: SharedBytes,
    /// The region of this and other buffers: it stays registered until the last of them is dropped.
    region: Arc<MemoryRegion>,
    /// Offset of the buffer's first byte in the region.
    offset: u64,
}

impl ProtectionDomain {
    /// Allocates `count` zeroed buffers of `len` bytes from the RNIC's region area, all in one
    /// region of this domain. The region is deregistered when the last buffer is dropped.
    ///
    /// # Errors
    ///
    /// - [`RegisterError::Full`]: the region area has no free piece of that length.
    /// - [`RegisterError::TooManyStags`]: the RNIC has its maximum number of regions and windows.
    /// - [`RegisterError::Memory`], [`RegisterError::NoRandomness`]: the host has no memory, or no
    ///   random bytes for an `STag`.
    /// - [`RegisterError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn allocate_buffers(&self, count: usize, len: u32) -> Result<Vec<Buffer>, RegisterError> {
        let each = usize::try_from(len).unwrap_or(usize::MAX);
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        // A total that overflows is too long for the area. An empty buffer counts as one byte, as
        // otherwise the number of empty buffers would have no bound.
        let bytes = each.max(1).saturating_mul(count);
        let region = Arc::new(self.allocate(bytes, access)?);
        let piece = |number: usize| {
            let at = number * each;
            Ok(Buffer {
                bytes: region.bytes().part(at..at + each)?,
                region: Arc::clone(&region),
                offset: at as u64,
            })
        };
        let pieces: Result<_, OutOfBounds> = (0..count).map(piece).collect();
        Ok(pieces.unwrap_or_else(|error| unreachable!("the region was made for all: {error}")))
    }
}

impl Buffer {
    /// Length of the buffer in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True for a buffer of no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Copies `dst.len()` bytes from `offset` on into `dst`.
    ///
    /// # Errors
    ///
    /// [`CopyError::OutOfBounds`]: the bytes leave the buffer. Nothing is copied.
    pub fn read(&self, offset: usize, dst: &mut [u8]) -> Result<(), CopyError> {
        self.bytes.read(offset, dst)
    }

    /// Copies `src` to `offset`.
    ///
    /// # Errors
    ///
    /// [`CopyError::OutOfBounds`]: the bytes leave the buffer. Nothing is copied.
    pub fn write(&mut self, offset: usize, src: &[u8]) -> Result<(), CopyError> {
        self.bytes.write(offset, src)
    }

    /// Sets all bytes of `range` to `value`.
    ///
    /// # Errors
    ///
    /// [`CopyError::OutOfBounds`]: `range` leaves the buffer. Its part inside the buffer may be
    /// set.
    pub fn fill(&mut self, range: Range<usize>, value: u8) -> Result<(), CopyError> {
        self.bytes.fill(range, value)
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    pub(super) fn control(&self) -> &Arc<Control> {
        self.region.control()
    }

    pub(super) fn is_of(&self, control: &Arc<Control>) -> bool {
        Arc::ptr_eq(self.control(), control)
    }

    /// The buffer's first `len` bytes.
    pub(super) fn first(&self, len: u32) -> Result<Sge, OutOfBounds> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        self.bytes.part(0..bytes)?;
        Ok(self.region.local(self.offset, len))
    }

    pub(super) fn whole(&self) -> Sge {
        // `allocate_buffers` takes a length of 32 bits.
        let len = u32::try_from(self.len()).unwrap_or(u32::MAX);
        self.region.local(self.offset, len)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::FixedHost;
    use crate::rnic::Rnic;
    use crate::rnic::config::RnicConfig;
    use crate::runtime::config::Progress;
    use xwarp_driver::{MemoryIo, RegionPool};
    use xwarp_tcp::StackConfig;

    fn rnic() -> Rnic {
        let (io, _wire) = MemoryIo::new(64).unwrap();
        let host = FixedHost::new([10, 0, 0, 1].into(), []);
        let config = RnicConfig {
            progress: Progress::Manual,
            ..RnicConfig::default()
        };
        let regions = RegionPool::anonymous(1 << 16).unwrap();
        let (io, host) = (Box::new(io), Arc::new(host));
        Rnic::with_io(io, &StackConfig::default(), host, regions, &config).unwrap()
    }

    #[test]
    fn buffer_gives_the_peer_no_right_and_takes_no_window() {
        let rnic = rnic();
        let pd = rnic.allocate_pd().unwrap();
        for buffer in pd.allocate_buffers(2, 100).unwrap() {
            let info = buffer.region.query().unwrap();
            assert_eq!(info.access, Access::LOCAL_READ | Access::LOCAL_WRITE);
            assert!(!info.remote_access);
        }
    }

    #[test]
    fn buffers_lie_side_by_side_and_go_together() {
        let rnic = rnic();
        let pd = rnic.allocate_pd().unwrap();
        let mut buffers = pd.allocate_buffers(3, 100).unwrap();
        for (number, buffer) in (1..).zip(&mut buffers) {
            assert!(buffer.write(1, &[number; 100]).is_err());
            buffer.fill(0..100, number).unwrap();
            let Sge { stag, to, len } = buffer.whole();
            let at = 100 * u64::from(number - 1);
            assert_eq!((stag, to, len), (buffer.region.stag(), at, 100));
            let OutOfBounds {
                offset, len, size, ..
            } = buffer.first(101).unwrap_err();
            assert_eq!((offset, len, size), (0, 101, 100));
        }
        let last = buffers.pop().unwrap();
        let all = last.region.bytes().to_vec();
        assert_eq!(all, [[1; 100], [2; 100], [3; 100]].concat());
        drop(buffers);
        assert!(last.region.query().is_ok(), "one is left");
    }

    #[test]
    fn buffers_may_be_none_and_none_may_be_too_large() {
        let rnic = rnic();
        let pd = rnic.allocate_pd().unwrap();
        assert!(pd.allocate_buffers(0, 100).unwrap().is_empty());
        let empty = pd.allocate_buffers(1, 0).unwrap();
        assert!(empty[0].is_empty() && empty[0].first(0).is_ok());
        for (count, len) in [
            (1, u32::MAX),
            (usize::MAX, 2),
            (1 << 32, 1 << 31),
            (usize::MAX, 0),
        ] {
            let refused = pd.allocate_buffers(count, len);
            assert!(matches!(refused, Err(RegisterError::Full(_))));
        }
    }
}
