//! Existing memory of the application: allocated, mapped, or of a file.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::fault;
use super::shared::SharedBytes;

/// Why memory of the application cannot be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RawPartsError {
    /// Some of the addresses are not mapped.
    #[error("some of the {len} bytes at {start:#x} are not mapped")]
    NotMapped {
        /// Address of the first byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The process may read all of the bytes, but not write them.
    #[error("some of the {len} bytes at {start:#x} can only be read")]
    ReadOnly {
        /// Address of the first byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The process may not read some of the bytes, or they belong to a device. Also if the kernel
    /// cannot check this (Linux before 5.14).
    #[error("some of the {len} bytes at {start:#x} may not be accessed")]
    NotAccessible {
        /// Address of the first byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The bytes are mapped from a file that is too short.
    #[error("some of the {len} bytes at {start:#x} lie behind the end of their file")]
    BehindFile {
        /// Address of the first byte.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The kernel has no memory for the pages, or refuses for another reason.
    #[error("the kernel cannot provide the {len} bytes at {start:#x}: {}", io::Error::from_raw_os_error(*.errno))]
    Refused {
        /// Address of the first byte.
        start: usize,
        /// Length in bytes.
        len: usize,
        /// Error number from the kernel.
        errno: i32,
    },
}

/// A vector that was moved in. No reference to its bytes is handed out.
struct Given(Vec<u8>);

impl SharedBytes {
    /// The bytes of a vector, which moves in. [`into_vec`](Self::into_vec) returns it; otherwise it
    /// is freed with the last handle.
    ///
    /// All pages are faulted in, so that no later access waits for them.
    ///
    /// ```
    /// # mod xwarp { pub mod memory { pub use xwarp_driver::SharedBytes; } }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use xwarp::memory::SharedBytes;
    /// let memory = SharedBytes::from_vec(vec![0; 4096]);
    /// memory.write(0, b"hello")?;
    /// let bytes = memory.into_vec().expect("there is no other handle");
    /// assert_eq!(&bytes[..5], b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_vec(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        let Some(start) = NonNull::new(bytes.as_mut_ptr()) else {
            unreachable!("a vector at address 0");
        };
        if let Err(error) = populate(start.addr().get(), len, true) {
            log::debug!("pages of a vector are not faulted in: {error}");
        }
        // SAFETY: the vector owns `len` initialized bytes from `start` on. It moves into an owner
        // that lends no reference and never changes it, and moving a vector does not move its
        // bytes.
        unsafe { Self::new(start, len, Arc::new(Given(bytes))) }
    }

    /// Returns the vector that was moved into [`from_vec`](Self::from_vec), with its current
    /// contents.
    ///
    /// # Errors
    ///
    /// The handle itself, if the memory is no vector's, or while there are other handles. A region
    /// holds a handle until it is deallocated.
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        self.into_owner().map(|Given(bytes)| bytes)
    }

    /// The `len` bytes of existing memory at `start`, kept by `owner` until the last handle is
    /// dropped.
    ///
    /// All pages are faulted in, so that no later access waits for them. That takes a while for
    /// memory that was never touched: 64 MiB took 50 ms.
    ///
    /// If the memory is unmapped, protected or truncated while there are handles, copies return
    /// [`CopyError::Gone`](crate::CopyError::Gone) on x86-64. For that, handlers of SIGSEGV and
    /// SIGBUS are installed in front of the program's, which still receive all other faults. With
    /// `XWARP_FAULTS=off` in the environment, and on other architectures, there are none, and an
    /// access to such memory ends the process.
    ///
    /// # Safety
    ///
    /// As long as there is a handle, parts and clones included:
    ///
    /// - The addresses hold this memory or nothing. Where it is unmapped, nothing else may be
    ///   mapped or allocated.
    /// - No reference (`&[u8]`, `&mut [u8]`) covers any of the bytes while a handle, or a peer
    ///   through an RNIC, may access them.
    /// - Others access the bytes atomically, through raw pointers in other languages, or not at the
    ///   same time.
    ///
    /// # Errors
    ///
    /// [`RawPartsError`]: the addresses are not mapped, read-only, not accessible, or behind the
    /// end of a file.
    ///
    /// ```
    /// # mod xwarp { pub mod memory { pub use xwarp_driver::SharedBytes; } }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use xwarp::memory::SharedBytes;
    /// let mut numbers = vec![0_u64; 512];
    /// let (start, len) = (numbers.as_mut_ptr().cast(), size_of_val(&*numbers));
    /// // SAFETY: the numbers move into the owner, which lends no reference to them, and
    /// // are freed with the last handle.
    /// let memory = unsafe { SharedBytes::from_raw_parts(start, len, numbers) }?;
    /// memory.write(0, b"hello")?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn from_raw_parts(
        start: *mut u8,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self, RawPartsError> {
        let start = faulted_in(start, len, true)?;
        // SAFETY: the caller vouches for the memory, of which `faulted_in` has seen that it is
        // readable and writable.
        Ok(unsafe { Self::new(start, len, Arc::new(owner)) })
    }

    /// Read-only memory of a constant: see
    /// [`from_raw_parts_read_only`](Self::from_raw_parts_read_only).
    ///
    /// ```
    /// # mod xwarp { pub mod memory { pub use xwarp_driver::SharedBytes; } }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use xwarp::memory::SharedBytes;
    /// let memory = SharedBytes::from_static(b"a table");
    /// assert_eq!(memory.to_vec(), b"a table");
    /// assert!(memory.write(0, b"A").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_static(bytes: &'static [u8]) -> Self {
        let start = NonNull::from(bytes).cast();
        // SAFETY: a static reference keeps the bytes readable and unchanged for as long as the
        // program runs.
        unsafe { Self::new_read_only(start, bytes.len(), Arc::new(())) }
    }

    /// Read-only memory, such as a mapping of a file without write access. A write returns
    /// [`CopyError::ReadOnly`](crate::CopyError::ReadOnly), and registration refuses rights to
    /// write.
    ///
    /// # Safety
    ///
    /// As long as there is a handle, parts and clones included:
    ///
    /// - The addresses hold this memory or nothing. Where it is unmapped, nothing else may be
    ///   mapped or allocated.
    /// - No exclusive reference (`&mut [u8]`) covers any of the bytes while a handle, or a peer
    ///   through an RNIC, may read them. Shared ones (`&[u8]`) may.
    /// - Other code that changes the bytes does so atomically, through raw pointers in other
    ///   languages, or not at the same time.
    ///
    /// # Errors
    ///
    /// [`RawPartsError`]: the addresses are not mapped, not accessible, or behind the end of a
    /// file.
    pub unsafe fn from_raw_parts_read_only(
        start: *const u8,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self, RawPartsError> {
        let start = faulted_in(start.cast_mut(), len, false)?;
        // SAFETY: the caller vouches for the memory, of which `faulted_in` has seen that it is
        // readable.
        Ok(unsafe { Self::new_read_only(start, len, Arc::new(owner)) })
    }
}

/// Faults in all pages of the bytes for reading or writing. Returns the first byte. From now on,
/// faults there are reported as errors.
fn faulted_in(start: *mut u8, len: usize, to_write: bool) -> Result<NonNull<u8>, RawPartsError> {
    let address = start.addr();
    let nothing = RawPartsError::NotMapped {
        start: address,
        len,
    };
    let start = NonNull::new(start).ok_or(nothing)?;
    populate(address, len, to_write)?;
    fault::survive();
    Ok(start)
}

/// Faults in all pages that have some of the bytes, for reading or writing.
#[cfg(not(miri))]
fn populate(start: usize, len: usize, to_write: bool) -> Result<(), RawPartsError> {
    use nix::errno::Errno;

    if len == 0 {
        return Ok(());
    }
    let Some(pages) = pages_of(start, len) else {
        return Err(RawPartsError::NotMapped { start, len });
    };
    let Err(errno) = fault_in(&pages, to_write) else {
        return Ok(());
    };
    Err(match errno {
        Errno::ENOMEM => RawPartsError::NotMapped { start, len },
        Errno::EINVAL if to_write && fault_in(&pages, false).is_ok() => {
            RawPartsError::ReadOnly { start, len }
        }
        Errno::EINVAL => RawPartsError::NotAccessible { start, len },
        Errno::EFAULT => RawPartsError::BehindFile { start, len },
        other => RawPartsError::Refused {
            start,
            len,
            errno: other as i32,
        },
    })
}

/// Miri has no such call.
#[cfg(miri)]
#[expect(clippy::unnecessary_wraps, reason = "as in earnest")]
fn populate(_start: usize, _len: usize, _to_write: bool) -> Result<(), RawPartsError> {
    Ok(())
}

/// The whole pages that bytes lie in; `None` if they leave the address space.
#[cfg(not(miri))]
fn pages_of(start: usize, len: usize) -> Option<std::ops::Range<usize>> {
    // SAFETY: it has no preconditions.
    let page = unsafe { nix::libc::sysconf(nix::libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).ok()?;
    isize::try_from(len).ok()?;
    let end = start.checked_add(len)?.checked_next_multiple_of(page)?;
    Some(start - start % page..end)
}

/// Makes the kernel provide pages as for a read, or for a write.
#[cfg(not(miri))]
fn fault_in(pages: &std::ops::Range<usize>, to_write: bool) -> Result<(), nix::errno::Errno> {
    use nix::sys::mman::{MmapAdvise, madvise};

    let advice = if to_write {
        MmapAdvise::MADV_POPULATE_WRITE
    } else {
        MmapAdvise::MADV_POPULATE_READ
    };
    let start = std::ptr::without_provenance_mut(pages.start);
    let start = NonNull::new(start).ok_or(nix::errno::Errno::ENOMEM)?;
    // SAFETY: the advice changes no bytes, and fails where there is nothing.
    unsafe { madvise(start, pages.len(), advice) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AtomicAccessError, CopyError};

    #[test]
    fn memory_of_the_application_is_shared_until_the_last_handle_goes() {
        let mut buffer = vec![1_u8; 100];
        let start = buffer.as_mut_ptr();
        let owner = Arc::new(buffer);
        let kept = Arc::clone(&owner);
        // SAFETY: no code uses the vector itself while there are handles.
        let memory = unsafe { SharedBytes::from_raw_parts(start, 100, kept) }.unwrap();
        let part = memory.part(10..20).unwrap();
        memory.fill(0..100, 2).unwrap();
        drop(memory);
        assert_eq!((part.to_vec(), Arc::strong_count(&owner)), (vec![2; 10], 2));
        drop(part);
        assert_eq!((&*owner, Arc::strong_count(&owner)), (&vec![2; 100], 1));
    }

    #[test]
    fn vector_comes_back_when_the_last_handle_goes() {
        let mut bytes = Vec::with_capacity(8192);
        bytes.resize(5000, 7);
        let place = bytes.as_ptr();
        let memory = SharedBytes::from_vec(bytes);
        let part = memory.part(4096..4098).unwrap();
        memory.write(4096, b"ok").unwrap();
        let memory = memory.into_vec().unwrap_err();
        assert_eq!((memory.len(), part.to_vec()), (5000, b"ok".to_vec()));
        drop(part);
        let bytes = memory.into_vec().unwrap();
        assert_eq!((bytes.as_ptr(), bytes.len()), (place, 5000));
        assert_eq!((bytes[0], &bytes[4095..4099]), (7, &b"\x07ok\x07"[..]));
        assert!(SharedBytes::anonymous(8).unwrap().into_vec().is_err());
        let none = SharedBytes::from_vec(Vec::new());
        assert_eq!(none.into_vec().unwrap(), Vec::<u8>::new());
    }

    #[test]
    fn memory_that_may_only_be_read_is_never_written() {
        static TABLE: [u8; 64] = [7; 64];
        // SAFETY: a constant lives for ever and never changes.
        let memory = unsafe { SharedBytes::from_raw_parts_read_only(TABLE.as_ptr(), 64, ()) };
        let memory = memory.unwrap();
        let part = memory.part(8..24).unwrap();
        let constant = SharedBytes::from_static(&TABLE);
        for (memory, len) in [(&memory, 64), (&part, 16), (&constant, 64)] {
            assert_eq!((memory.len(), memory.is_writable()), (len, false));
            assert_eq!(memory.to_vec(), TABLE[..len]);
            assert_eq!(memory.write(0, &[1]), Err(CopyError::ReadOnly));
            assert_eq!(memory.fill(0..8, 1), Err(CopyError::ReadOnly));
            let changed = memory.update_u64(0, |number| number + 1);
            assert_eq!(changed, Err(AtomicAccessError::ReadOnly));
        }
        assert_eq!(TABLE, [7; 64]);
    }

    #[test]
    fn no_bytes_need_no_memory() {
        let start = NonNull::<u8>::dangling().as_ptr();
        // SAFETY: there are no bytes.
        let memory = unsafe { SharedBytes::from_raw_parts(start, 0, ()) }.unwrap();
        assert_eq!(memory.to_vec(), []);
    }
}

#[cfg(all(test, not(miri)))]
mod refusals {
    use super::*;
    use crate::memory::vanishing::{PAGE, Right, Vanishing};

    type Refusal = fn(usize, usize) -> RawPartsError;
    const NOT_MAPPED: Refusal = |start, len| RawPartsError::NotMapped { start, len };
    const READ_ONLY: Refusal = |start, len| RawPartsError::ReadOnly { start, len };
    const NOT_ACCESSIBLE: Refusal = |start, len| RawPartsError::NotAccessible { start, len };
    const BEHIND_FILE: Refusal = |start, len| RawPartsError::BehindFile { start, len };

    /// Three pages, of which something happens to the second.
    fn refused(memory: &Vanishing, spoil: impl FnOnce(&Vanishing), why: Refusal) {
        assert!(memory.share().is_ok());
        spoil(memory);
        let (start, len) = (memory.start().addr(), 3 * PAGE);
        assert_eq!(memory.share().unwrap_err(), why(start, len));
    }

    #[test]
    fn range_with_an_unmapped_page_is_refused() {
        refused(&Vanishing::anonymous(3), |it| it.unmap(1), NOT_MAPPED);
        for address in [0, usize::MAX - 100] {
            let start = std::ptr::without_provenance_mut(address);
            // SAFETY: there is no memory, which is found out.
            let refused = unsafe { SharedBytes::from_raw_parts(start, 4096, ()) };
            assert_eq!(refused.unwrap_err(), NOT_MAPPED(address, 4096));
        }
    }

    #[test]
    fn range_with_a_page_of_too_few_rights_is_refused() {
        let protect = |right| move |it: &Vanishing| it.protect(1, right);
        refused(&Vanishing::anonymous(3), protect(Right::Read), READ_ONLY);
        refused(
            &Vanishing::anonymous(3),
            protect(Right::None),
            NOT_ACCESSIBLE,
        );
    }

    #[test]
    fn pages_that_can_only_be_read_are_enough_to_read() {
        let memory = Vanishing::anonymous(3);
        let share = |memory: &Vanishing| {
            // SAFETY: the memory goes after the last handle, and no other code uses it.
            unsafe { SharedBytes::from_raw_parts_read_only(memory.start(), 3 * PAGE, ()) }
        };
        memory.protect(1, Right::Read);
        assert_eq!(share(&memory).unwrap().to_vec(), vec![0; 3 * PAGE]);
        let (start, len) = (memory.start().addr(), 3 * PAGE);
        memory.protect(1, Right::None);
        assert_eq!(share(&memory).unwrap_err(), NOT_ACCESSIBLE(start, len));
        memory.unmap(1);
        assert_eq!(share(&memory).unwrap_err(), NOT_MAPPED(start, len));
    }

    #[test]
    fn range_behind_the_end_of_its_file_is_refused() {
        refused(&Vanishing::of_file(3), |it| it.truncate(1), BEHIND_FILE);
    }

    #[test]
    fn first_and_last_byte_decide_which_pages_are_looked_at() {
        let memory = Vanishing::anonymous(3);
        memory.unmap(0);
        memory.unmap(2);
        assert!(memory.share_part(PAGE, PAGE).is_ok());
        assert!(memory.share_part(PAGE - 1, 2).is_err());
        assert!(memory.share_part(2 * PAGE - 1, 2).is_err());
    }
}
