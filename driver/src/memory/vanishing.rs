//! Memory that a test takes away while it is shared.
#![allow(unsafe_code)]
#![expect(clippy::missing_panics_doc, reason = "the type says it")]

use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use super::raw_parts::RawPartsError;
use super::shared::SharedBytes;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Addresses that the kernel hands out only on demand, so that what is unmapped here stays so.
const SPOTS: usize = 0x1000_0000_0000;
/// Bytes between two of them.
const DISTANCE: usize = 1 << 24;

/// A process's access rights to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    Write,
}

impl Right {
    fn flags(self) -> ProtFlags {
        match self {
            Self::None => ProtFlags::PROT_NONE,
            Self::Read => ProtFlags::PROT_READ,
            Self::Write => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        }
    }
}

/// Pages at addresses of their own, which no other memory of the process has, before or after.
///
/// It panics if the kernel refuses something.
pub struct Vanishing {
    start: NonNull<u8>,
    pages: usize,
    file: Option<File>,
}

// SAFETY: the pointer is to memory that is only accessed through `SharedBytes`, by any thread.
unsafe impl Send for Vanishing {}
// SAFETY: its functions are system calls, which threads may do at once.
unsafe impl Sync for Vanishing {}

impl Vanishing {
    /// Anonymous memory.
    pub fn anonymous(pages: usize) -> Self {
        let (spot, len) = spot(pages);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: these addresses are unused.
        let start = unsafe { mmap_anonymous(Some(spot), len, Right::Write.flags(), flags) };
        Self {
            start: start.expect("free addresses").cast(),
            pages,
            file: None,
        }
    }

    /// Memory of a file, which has as many pages.
    pub fn of_file(pages: usize) -> Self {
        let file = memfd_create("vanishing", MFdFlags::MFD_CLOEXEC).expect("a file in memory");
        let file = File::from(file);
        file.set_len((pages * PAGE) as u64)
            .expect("room for the file");
        let (spot, len) = spot(pages);
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED_NOREPLACE;
        // SAFETY: these addresses are unused, and no other code has the file.
        let start = unsafe { mmap(Some(spot), len, Right::Write.flags(), flags, &file, 0) };
        Self {
            start: start.expect("free addresses").cast(),
            pages,
            file: Some(file),
        }
    }

    /// Address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// All of it as region memory.
    ///
    /// # Errors
    ///
    /// As [`SharedBytes::from_raw_parts`].
    pub fn share(&self) -> Result<SharedBytes, RawPartsError> {
        self.share_part(0, self.pages * PAGE)
    }

    /// `len` bytes from `offset` on as region memory.
    ///
    /// # Errors
    ///
    /// As [`SharedBytes::from_raw_parts`].
    pub fn share_part(&self, offset: usize, len: usize) -> Result<SharedBytes, RawPartsError> {
        assert!(offset + len <= self.pages * PAGE);
        let start = self.start().wrapping_add(offset);
        // SAFETY: these addresses hold this memory or nothing as long as the process lives, and
        // only `SharedBytes` accesses it.
        unsafe { SharedBytes::from_raw_parts(start, len, ()) }
    }

    /// Unmaps a page.
    pub fn unmap(&self, page: usize) {
        // SAFETY: the page is ours, and `share` has prepared every access to it.
        let unmapped = unsafe { munmap(self.page(page).cast(), PAGE) };
        unmapped.expect("a page of ours");
    }

    /// Changes what the process may do with a page.
    pub fn protect(&self, page: usize, right: Right) {
        // SAFETY: as for `unmap`.
        let done = unsafe { mprotect(self.page(page).cast(), PAGE, right.flags()) };
        done.expect("a page of ours");
    }

    /// Truncates the file to `pages` pages.
    pub fn truncate(&self, pages: usize) {
        let file = self.file.as_ref().expect("memory of a file");
        file.set_len((pages * PAGE) as u64).expect("a file of ours");
    }

    fn page(&self, page: usize) -> NonNull<u8> {
        assert!(page < self.pages);
        // SAFETY: the page is one of those that were mapped.
        unsafe { self.start.add(page * PAGE) }
    }
}

impl Drop for Vanishing {
    fn drop(&mut self) {
        (0..self.pages).for_each(|page| self.unmap(page));
    }
}

/// Addresses that were not used before.
fn spot(pages: usize) -> (NonZeroUsize, NonZeroUsize) {
    static USED: AtomicUsize = AtomicUsize::new(0);
    let len = NonZeroUsize::new(pages * PAGE).expect("a page at least");
    assert!(len.get() <= DISTANCE);
    let spot = SPOTS + USED.fetch_add(1, Ordering::Relaxed) * DISTANCE;
    (NonZeroUsize::new(spot).expect("not 0"), len)
}
