//! A copy from or to memory that someone else may change meanwhile.
#![allow(unsafe_code)]

/// Copies `len` octets. Where another thread writes the source or reads the destination at the same time, each octet is
/// either the old or the new one; an ordinary copy would be a data race, which the language leaves undefined.
///
/// On x86-64 the copy is one string instruction, invisible to the compiler; elsewhere, and under Miri, relaxed atomics.
///
/// # Safety
///
/// `src..src+len` is readable, `dst..dst+len` writable, both initialised, and they do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) unsafe fn racy_copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear at every asm block (ABI).
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            options(nostack, preserves_flags),
        );
    }
}

/// See the x86-64 version.
///
/// # Safety
///
/// `src..src+len` is readable, `dst..dst+len` writable, both initialised, and they do not overlap.
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(crate) unsafe fn racy_copy(dst: *mut u8, src: *const u8, len: usize) {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
    for i in 0..len {
        // SAFETY: `i < len`, so the octet lies in the source range that the caller vouches for.
        let from = unsafe { AtomicU8::from_ptr(src.cast_mut().add(i)) };
        // SAFETY: likewise for the destination.
        let to = unsafe { AtomicU8::from_ptr(dst.add(i)) };
        to.store(from.load(Relaxed), Relaxed);
    }
}
