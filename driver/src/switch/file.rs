//! Files that processes share: memory of a fixed length, sealed so that a process that has it can
//! rely on it.
#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use super::layout::{AT_MAGIC, AT_VERSION, MAGIC};
use crate::memory::{Arena, SharedBytes};
use xwarp_switchd::VERSION;

/// Seals without which a file is refused: its length stays, and so do the seals.
const FIXED: SealFlag = SealFlag::F_SEAL_SHRINK
    .union(SealFlag::F_SEAL_GROW)
    .union(SealFlag::F_SEAL_SEAL);

/// Why a file of another process is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// It could be shortened while it is mapped, or it is not in memory alone.
    #[error("the file is not sealed memory")]
    NotSealed,
    /// It has another length than this version's.
    #[error("the file has {0} bytes, and not {1}")]
    Length(i64, usize),
    /// It is no file of the switch's, or of another version.
    #[error("the file does not begin as one of version {VERSION} does")]
    Header,
    /// The kernel refuses.
    #[error("the file cannot be mapped: {0}")]
    System(#[from] io::Error),
}

impl From<nix::errno::Errno> for FileError {
    fn from(errno: nix::errno::Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Who may write a file, besides by the mappings that its maker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writers {
    /// Only its maker.
    Maker,
    /// Each process that has it.
    All,
}

/// A new file of zeros with the magic number and the version, mapped to be written, and sealed.
/// Nothing can change its length.
pub(super) fn create(
    name: &CStr,
    bytes: usize,
    writers: Writers,
) -> Result<(OwnedFd, Mapping), FileError> {
    let (file, mapping) = unsealed(name, bytes)?;
    let mut seals = FIXED;
    if writers == Writers::Maker {
        seals |= SealFlag::F_SEAL_FUTURE_WRITE;
    }
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok((file, mapping))
}

/// The same, before it is sealed.
pub(super) fn unsealed(name: &CStr, bytes: usize) -> Result<(OwnedFd, Mapping), FileError> {
    let file = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&file, i64::try_from(bytes).unwrap_or(i64::MAX))?;
    let map = MmapOptions::new().len(bytes).map_raw(&file)?;
    let mapping = Mapping(Arc::new(map));
    mapping.number(AT_MAGIC).store(MAGIC, Ordering::Relaxed);
    let version = u32::from(VERSION);
    mapping.word(AT_VERSION).store(version, Ordering::Relaxed);
    Ok((file, mapping))
}

/// A mapping of a file.
#[derive(Clone)]
pub(super) struct Mapping(Arc<MmapRaw>);

impl Mapping {
    /// Maps a file of another process: to write it, if all may, or to read it. The file is memory
    /// of `bytes` bytes that keeps its length: so no access to it waits for a file system or fails.
    pub(super) fn of(
        file: BorrowedFd<'_>,
        bytes: usize,
        writers: Writers,
    ) -> Result<Self, FileError> {
        // Only memory has seals: a file of FUSE has none, whose pages could take for ever.
        let seals = fcntl(file, FcntlArg::F_GET_SEALS).map_err(|_| FileError::NotSealed)?;
        if !SealFlag::from_bits_retain(seals).contains(FIXED) {
            return Err(FileError::NotSealed);
        }
        let len = fstat(file)?.st_size;
        if usize::try_from(len) != Ok(bytes) {
            return Err(FileError::Length(len, bytes));
        }
        let (mut options, file) = (MmapOptions::new(), file.as_raw_fd());
        let options = options.len(bytes);
        let map = match writers {
            Writers::All => options.map_raw(file)?,
            Writers::Maker => options.map_raw_read_only(file)?,
        };
        let mapping = Self(Arc::new(map));
        let magic = mapping.number(AT_MAGIC).load(Ordering::Relaxed);
        let version = mapping.word(AT_VERSION).load(Ordering::Relaxed);
        if magic == MAGIC && version == u32::from(VERSION) {
            Ok(mapping)
        } else {
            Err(FileError::Header)
        }
    }

    fn start(&self) -> NonNull<u8> {
        match NonNull::new(self.0.as_mut_ptr()) {
            Some(start) => start,
            None => unreachable!("a mapping at address 0"),
        }
    }

    /// The address of `bytes` bytes at a multiple of their number.
    fn aligned(&self, at: usize, bytes: usize) -> NonNull<u8> {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.0.len());
        assert!(inside && at.is_multiple_of(bytes), "offsets are constants");
        // SAFETY: `at` lies in the mapping, as the assertion has shown.
        unsafe { self.start().add(at) }
    }

    /// The word at an offset of the layout. A mapping that can only be read is only loaded from,
    /// and relaxed.
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.aligned(at, size_of::<u32>()).cast();
        // SAFETY: the word lies in the mapping, which `self` keeps, and is aligned. No other
        // access to it in this process is without atomics. Other processes may write anything,
        // at any time.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }
    }

    /// The number of 8 bytes at an offset of the layout.
    pub(super) fn number(&self, at: usize) -> &AtomicU64 {
        let number = self.aligned(at, size_of::<u64>()).cast();
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(number.as_ptr()) }
    }

    /// All bytes of a file that this process has made, to write them.
    pub(super) fn own_bytes(&self) -> SharedBytes {
        // SAFETY: the mapping has that many bytes, which this process can read and write. It lives
        // as long as its owner, and no reference covers its frames: this process accesses them
        // through the result alone.
        unsafe { SharedBytes::new(self.start(), self.0.len(), Arc::clone(&self.0) as _) }
    }

    /// All bytes of another process's file, for reads that race with that process's writes.
    pub(super) fn bytes(&self) -> SharedBytes {
        let owner = Arc::clone(&self.0) as _;
        // SAFETY: the mapping has that many bytes, which this process can read. It lives as long as
        // its owner, and no reference covers its frames in this process.
        unsafe { SharedBytes::new_read_only(self.start(), self.0.len(), owner) }
    }

    /// An arena to cut frames from: those of `up`, which this process made, to be sent.
    pub(super) fn arena(&self) -> Arena {
        let mapping = Box::new(Arc::clone(&self.0));
        // SAFETY: the mapping has that many initialized bytes, and `mapping` keeps it. The frames
        // are this process's: the switch reads them, and writes none, as the kernel does. The
        // words in front of the frames are no frame's (`layout`).
        unsafe { Arena::new(self.start(), self.0.len(), mapping) }
    }

    /// An arena to cut frames from: those of another process's file, to be received. They are only
    /// read: no [`TxFrame`](crate::TxFrame) may be made of one.
    pub(super) fn received(&self) -> Arena {
        self.arena()
    }
}

/// A word of a file.
pub(crate) struct MappedWord {
    mapping: Mapping,
    at: usize,
}

impl MappedWord {
    pub(super) fn new(mapping: &Mapping, at: usize) -> Self {
        Self {
            mapping: mapping.clone(),
            at,
        }
    }
}

impl Borrow<AtomicU32> for MappedWord {
    fn borrow(&self) -> &AtomicU32 {
        self.mapping.word(self.at)
    }
}
