//! A copy from or to memory that someone else may change meanwhile.
#![allow(unsafe_code)]

/// Where vectors are faster: a string instruction takes a while to begin.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const VECTORS: std::ops::Range<usize> = 16..4096;

/// Copies `len` octets. Where another thread writes the source or reads the destination at the same time, each octet is
/// either the old or the new one; an ordinary copy would be a data race, which the language leaves undefined.
///
/// On x86-64 all but the smallest copies are in assembler, invisible to the compiler; elsewhere, and under Miri, they are relaxed atomics.
///
/// # Safety
///
/// `src..src+len` is readable, `dst..dst+len` writable, both initialised, and they do not overlap.
#[inline]
pub(crate) unsafe fn racy_copy(dst: *mut u8, src: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= VECTORS.end {
        // SAFETY: the caller vouches for both ranges.
        return unsafe { copy_string(dst, src, len) };
    } else if len >= VECTORS.start {
        // SAFETY: the caller vouches for both ranges, and there are 16 octets or more.
        return unsafe { copy_vectors(dst, src, len) };
    }
    // SAFETY: the caller vouches for both ranges.
    unsafe { copy_octets(dst, src, len) };
}

/// # Safety
///
/// As for [`racy_copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) {
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

/// Copies the last 16 octets, and then blocks of 16 up to them: the last block and they may share octets, which are copied twice.
///
/// # Safety
///
/// As for [`racy_copy`], and `len` is at least 16.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
unsafe fn copy_vectors(dst: *mut u8, src: *const u8, len: usize) {
    let blocks = (len - 1) / 16;
    // SAFETY: the last 16 octets are in the ranges, as there are so many; `blocks` are fewer than 1 + `len / 16`, and begin at the
    // first.
    unsafe {
        core::arch::asm!(
            "movups {block}, [{src} + {len} - 16]",
            "movups [{dst} + {len} - 16], {block}",
            "test {blocks}, {blocks}",
            "jz 3f",
            "2:",
            "movups {block}, [{src}]",
            "movups [{dst}], {block}",
            "add {src}, 16",
            "add {dst}, 16",
            "dec {blocks}",
            "jnz 2b",
            "3:",
            block = out(xmm_reg) _,
            src = inout(reg) src => _,
            dst = inout(reg) dst => _,
            len = in(reg) len,
            blocks = inout(reg) blocks => _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// As for [`racy_copy`].
#[inline]
unsafe fn copy_octets(dst: *mut u8, src: *const u8, len: usize) {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
    for i in 0..len {
        // SAFETY: `i < len`, so the octet lies in the source range that the caller vouches for.
        let from = unsafe { src.cast_mut().add(i) };
        // SAFETY: likewise for the destination.
        let to = unsafe { dst.add(i) };
        // SAFETY: the octet is readable, and nobody has a reference to it.
        let from = unsafe { AtomicU8::from_ptr(from) };
        // SAFETY: the octet is writable, and nobody has a reference to it.
        let to = unsafe { AtomicU8::from_ptr(to) };
        to.store(from.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::racy_copy;

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        let src: Vec<u8> = (0..8300_u32).map(|i| (i % 251) as u8).collect();
        for len in (0..300).chain([4095, 4096, 4097, 8192]) {
            for begin in [0, 1, 13] {
                let mut dst = vec![0xee; begin + len + 40];
                // SAFETY: both vectors are longer than that from there on, and apart.
                let to = unsafe { dst.as_mut_ptr().add(begin) };
                // SAFETY: as above.
                unsafe { racy_copy(to, src.as_ptr(), len) };
                assert_eq!(dst[begin..begin + len], src[..len]);
                let (before, after) = (&dst[..begin], &dst[begin + len..]);
                assert!(before.iter().chain(after).all(|octet| *octet == 0xee));
            }
        }
    }
}
