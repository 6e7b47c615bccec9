//! A copy from or to memory that another thread or process may change meanwhile, or take away
//! (decision record driver/0003).
//!
//! Where another thread or process accesses the shared memory at the same time, each byte is either
//! the old or the new one. An ordinary copy would be a data race, which the language leaves
//! undefined.
//!
//! On x86-64 all accesses are in assembler, invisible to the compiler. If the memory is gone
//! (unmapped, protected, or its file truncated), the signal handler of
//! [`fault`](crate::memory::fault) has the access return [`Fault`]. The instructions of an access
//! that succeeds are the same as without.
//!
//! Elsewhere, and under Miri, they are relaxed atomics: of 8 bytes where these are aligned, as
//! `SharedBytes::update_u64` has them, of 1 byte at the ends. The language does not define yet what
//! happens when such an end and an access of 8 bytes race for the same bytes. Memory that may only
//! be read is read by volatile accesses there: an atomic demands that its memory may be written.
//! There a signal ends the process if the memory is gone.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// The memory is gone: some of its bytes could not be accessed. Those of a write may have been
/// written up to there, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Copies `dst.len()` bytes of shared memory from `src` on into `dst`.
///
/// # Safety
///
/// `src` may be used to read and write that many initialised bytes, which no reference covers, or
/// they are gone.
#[inline]
pub(crate) unsafe fn racy_read(dst: &mut [u8], src: NonNull<u8>) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller vouches for the source; the destination is a slice, which is none of the
    // shared memory.
    unsafe {
        assembler::copy(dst.as_mut_ptr(), src.as_ptr(), dst.len())
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for the source.
    unsafe {
        atomics::read(dst, src);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Ok(())
}

/// Copies `dst.len()` bytes of memory that may only be read, from `src` on, into `dst`.
///
/// # Safety
///
/// `src` may be used to read that many initialised bytes, which no exclusive reference covers, or
/// they are gone.
#[inline]
pub(crate) unsafe fn racy_read_constant(dst: &mut [u8], src: NonNull<u8>) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller vouches for the source; the destination is a slice, which is none of the
    // shared memory.
    unsafe {
        assembler::copy(dst.as_mut_ptr(), src.as_ptr(), dst.len())
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for the source.
    unsafe {
        atomics::read_constant(dst, src);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Ok(())
}

/// Copies `src` to shared memory from `dst` on.
///
/// # Safety
///
/// `dst` may be used to read and write that many initialised bytes, which no reference covers, or
/// they are gone.
#[inline]
pub(crate) unsafe fn racy_write(dst: NonNull<u8>, src: &[u8]) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller vouches for the destination; the source is a slice, which is none of the
    // shared memory.
    unsafe {
        assembler::copy(dst.as_ptr(), src.as_ptr(), src.len())
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for the destination.
    unsafe {
        atomics::write(dst, src);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Ok(())
}

/// Copies `len` bytes of shared memory from `src` on to other shared memory from `dst` on.
///
/// # Safety
///
/// As for [`racy_read`] of `src` and [`racy_write`] of `dst`, and the two do not overlap.
#[inline]
pub(crate) unsafe fn racy_copy(
    dst: NonNull<u8>,
    src: NonNull<u8>,
    len: usize,
) -> Result<(), Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller vouches for both.
    unsafe {
        assembler::copy(dst.as_ptr(), src.as_ptr(), len)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for both.
    unsafe {
        atomics::copy(dst, src, len);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    Ok(())
}

/// Puts `after` in the place of the number at `number` if that is `before`, atomically, and returns
/// what was found there.
///
/// # Safety
///
/// `number` is aligned, and may be used to read and write its initialised bytes, which no reference
/// covers, or they are gone.
#[inline]
pub(crate) unsafe fn compare_exchange(
    number: NonNull<u64>,
    before: u64,
    after: u64,
) -> Result<u64, Fault> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller vouches for the number.
    unsafe {
        assembler::compare_exchange(number.as_ptr(), before, after)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller vouches for the number.
    unsafe {
        Ok(atomics::compare_exchange(number, before, after))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use assembler::fallible;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod assembler {
    use core::arch::asm;

    use super::Fault;

    /// Assembler whose function returns [`Fault`] if one of the instructions faults. A section that
    /// becomes the table of `fault` says where they begin, where they end and where to go on. Each
    /// is a distance from itself.
    macro_rules! fallible {
        ([$($line:expr),+ $(,)?], $($operand:tt)*) => {
            asm!(
                "8:",
                $($line,)+
                "9:",
                ".pushsection xwarp_faults, \"aR\", @progbits",
                ".balign 4",
                ".long 8b - .",
                ".long 9b - .",
                ".long {gone} - .",
                ".popsection",
                gone = label { return Err($crate::memory::Fault) },
                $($operand)*
            )
        };
    }

    pub(crate) use fallible;

    /// Copies the first `$bytes` bytes and the last, through registers whose part of that size is
    /// named by `$part`.
    macro_rules! copy_ends {
        ($bytes:literal, $part:literal, $dst:ident, $src:ident, $len:ident) => {
            fallible!(
                [
                    concat!("mov {first", $part, "}, [{src}]"),
                    concat!("mov {last", $part, "}, [{src} + {len} - ", $bytes, "]"),
                    concat!("mov [{dst}], {first", $part, "}"),
                    concat!("mov [{dst} + {len} - ", $bytes, "], {last", $part, "}"),
                ],
                first = out(reg) _, last = out(reg) _,
                src = in(reg) $src, dst = in(reg) $dst, len = in(reg) $len,
                options(nostack, preserves_flags),
            )
        };
    }

    /// Lengths for which vectors are faster: a string instruction takes a while to begin.
    const VECTORS: std::ops::Range<usize> = 16..4096;
    /// From this length on, four vectors at a time.
    const FOURS: usize = 64;

    /// Copies `len` bytes.
    ///
    /// # Safety
    ///
    /// `src..src+len` is readable, `dst..dst+len` writable, and they do not overlap; or either is
    /// gone.
    #[inline]
    pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        if len >= VECTORS.end {
            // SAFETY: the caller vouches for both ranges.
            unsafe { copy_string(dst, src, len) }
        } else if len >= FOURS {
            // SAFETY: the caller vouches for both ranges, and there are 64 bytes or more.
            unsafe { copy_fours(dst, src, len) }
        } else if len >= VECTORS.start {
            // SAFETY: the caller vouches for both ranges, and there are 16 bytes or more.
            unsafe { copy_vectors(dst, src, len) }
        } else if len > 0 {
            // SAFETY: the caller vouches for both ranges, and there are 1 to 15 bytes.
            unsafe { copy_few(dst, src, len) }
        } else {
            Ok(())
        }
    }

    /// # Safety
    ///
    /// As for [`copy`].
    #[inline]
    unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        // SAFETY: the caller vouches for both ranges; the direction flag is clear at every asm
        // block (ABI).
        unsafe {
            fallible!(
                [
                    "rep movsb",
                ],
                inout("rcx") len => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        }
        Ok(())
    }

    /// Copies the last 16 bytes, and then blocks of 16 up to them: the last block and they may
    /// share bytes, which are copied twice.
    ///
    /// # Safety
    ///
    /// As for [`copy`], and `len` is at least 16.
    #[inline]
    unsafe fn copy_vectors(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        let blocks = (len - 1) / 16;
        // SAFETY: the last 16 bytes are in the ranges, which are no shorter; `blocks` are fewer
        // than 1 + `len / 16`, and begin at the first.
        unsafe {
            fallible!(
                [
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
                ],
                block = out(xmm_reg) _,
                src = inout(reg) src => _,
                dst = inout(reg) dst => _,
                len = in(reg) len,
                blocks = inout(reg) blocks => _,
                options(nostack),
            );
        }
        Ok(())
    }

    /// Copies the last 64 bytes, and then blocks of 64 up to them: the last block and they may share
    /// bytes, which are copied twice.
    ///
    /// # Safety
    ///
    /// As for [`copy`], and `len` is at least 64.
    #[inline]
    unsafe fn copy_fours(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        let blocks = (len - 1) / FOURS;
        // SAFETY: the last 64 bytes are in the ranges, which are no shorter; `blocks` are fewer
        // than 1 + `len / 64`, and begin at the first.
        unsafe {
            fallible!(
                [
                    "movups {a}, [{src} + {len} - 64]",
                    "movups {b}, [{src} + {len} - 48]",
                    "movups {c}, [{src} + {len} - 32]",
                    "movups {d}, [{src} + {len} - 16]",
                    "movups [{dst} + {len} - 64], {a}",
                    "movups [{dst} + {len} - 48], {b}",
                    "movups [{dst} + {len} - 32], {c}",
                    "movups [{dst} + {len} - 16], {d}",
                    "test {blocks}, {blocks}",
                    "jz 3f",
                    "2:",
                    "movups {a}, [{src}]",
                    "movups {b}, [{src} + 16]",
                    "movups {c}, [{src} + 32]",
                    "movups {d}, [{src} + 48]",
                    "movups [{dst}], {a}",
                    "movups [{dst} + 16], {b}",
                    "movups [{dst} + 32], {c}",
                    "movups [{dst} + 48], {d}",
                    "add {src}, 64",
                    "add {dst}, 64",
                    "dec {blocks}",
                    "jnz 2b",
                    "3:",
                ],
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                src = inout(reg) src => _,
                dst = inout(reg) dst => _,
                len = in(reg) len,
                blocks = inout(reg) blocks => _,
                options(nostack),
            );
        }
        Ok(())
    }

    /// Copies the first and the last bytes, as many at once as half of them are at least. Some may
    /// be copied twice.
    ///
    /// # Safety
    ///
    /// As for [`copy`], and `len` is 1 to 15.
    #[inline]
    unsafe fn copy_few(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
        match len {
            // SAFETY: the first 8 bytes and the last 8 are in the ranges, which are no shorter.
            8.. => unsafe { copy_ends!(8, "", dst, src, len) },
            // SAFETY: the first 4 bytes and the last 4 are in the ranges, which are no shorter.
            4.. => unsafe { copy_ends!(4, ":e", dst, src, len) },
            // SAFETY: the first 2 bytes and the last 2 are in the ranges, which are no shorter.
            2.. => unsafe { copy_ends!(2, ":x", dst, src, len) },
            // SAFETY: there is one byte.
            _ => unsafe {
                fallible!(
                    [
                        "mov {byte}, [{src}]",
                        "mov [{dst}], {byte}",
                    ],
                    byte = out(reg_byte) _,
                    src = in(reg) src, dst = in(reg) dst,
                    options(nostack, preserves_flags),
                );
            },
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As for [`compare_exchange`](super::compare_exchange).
    #[inline]
    pub(super) unsafe fn compare_exchange(
        number: *mut u64,
        before: u64,
        after: u64,
    ) -> Result<u64, Fault> {
        let mut found = before;
        // SAFETY: the caller vouches for the number; `found` is a variable of ours.
        unsafe {
            fallible!(
                [
                    "lock cmpxchg [{number}], {after}",
                    "mov [{found}], rax",
                ],
                number = in(reg) number,
                after = in(reg) after,
                found = in(reg) &raw mut found,
                inout("rax") before => _,
                options(nostack),
            );
        }
        Ok(found)
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod atomics {
    use std::ptr::NonNull;
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
    use std::sync::atomic::{AtomicU8, AtomicU64};

    /// Bytes of a word.
    const WORD: usize = size_of::<AtomicU64>();

    /// Bytes ahead of the first whole word.
    fn lead_of(shared: NonNull<u8>) -> usize {
        shared.addr().get().wrapping_neg() % WORD
    }

    /// # Safety
    ///
    /// As for [`racy_read`](super::racy_read).
    pub(super) unsafe fn read(dst: &mut [u8], src: NonNull<u8>) {
        let lead = lead_of(src).min(dst.len());
        let (head, rest) = dst.split_at_mut(lead);
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        let (begin, end) = (lead, lead + words.len() * WORD);
        for (i, word) in words.iter_mut().enumerate() {
            // SAFETY: the word lies in the bytes that the caller vouches for, and begins a multiple
            // of 8 behind the first whole one.
            *word = unsafe { word_at(src, begin + i * WORD) }
                .load(Relaxed)
                .to_ne_bytes();
        }
        for (i, byte) in (0..).zip(head).chain((end..).zip(tail)) {
            // SAFETY: the byte is one of those that the caller vouches for.
            *byte = unsafe { byte_at(src, i) }.load(Relaxed);
        }
    }

    /// # Safety
    ///
    /// As for [`racy_read_constant`](super::racy_read_constant).
    pub(super) unsafe fn read_constant(dst: &mut [u8], src: NonNull<u8>) {
        for (i, byte) in dst.iter_mut().enumerate() {
            // SAFETY: the byte is one of those that the caller vouches for.
            let src = unsafe { src.add(i) };
            // SAFETY: as above.
            *byte = unsafe { src.read_volatile() };
        }
    }

    /// # Safety
    ///
    /// As for [`racy_write`](super::racy_write).
    pub(super) unsafe fn write(dst: NonNull<u8>, src: &[u8]) {
        let lead = lead_of(dst).min(src.len());
        let (head, rest) = src.split_at(lead);
        let (words, tail) = rest.as_chunks::<WORD>();
        let (begin, end) = (lead, lead + words.len() * WORD);
        for (i, word) in words.iter().enumerate() {
            // SAFETY: as in `read`.
            unsafe { word_at(dst, begin + i * WORD) }.store(u64::from_ne_bytes(*word), Relaxed);
        }
        for (i, byte) in (0..).zip(head).chain((end..).zip(tail)) {
            // SAFETY: as in `read`.
            unsafe { byte_at(dst, i) }.store(*byte, Relaxed);
        }
    }

    /// # Safety
    ///
    /// As for [`racy_copy`](super::racy_copy).
    pub(super) unsafe fn copy(dst: NonNull<u8>, src: NonNull<u8>, len: usize) {
        let mut between = [0; 64];
        for at in (0..len).step_by(between.len()) {
            let piece = (len - at).min(between.len());
            // SAFETY: the piece lies in the bytes that the caller vouches for.
            let from = unsafe { src.add(at) };
            // SAFETY: as above.
            unsafe { read(&mut between[..piece], from) };
            // SAFETY: as above.
            let to = unsafe { dst.add(at) };
            // SAFETY: as above.
            unsafe { write(to, &between[..piece]) };
        }
    }

    /// # Safety
    ///
    /// As for [`compare_exchange`](super::compare_exchange).
    pub(super) unsafe fn compare_exchange(number: NonNull<u64>, before: u64, after: u64) -> u64 {
        // SAFETY: the caller vouches for the number, which is aligned as an `AtomicU64` must be.
        let number = unsafe { AtomicU64::from_ptr(number.as_ptr()) };
        number
            .compare_exchange(before, after, AcqRel, Acquire)
            .unwrap_or_else(|found| found)
    }

    /// # Safety
    ///
    /// `shared` may be used to read and write more than `i` bytes as long as the result lives, and
    /// no reference covers them.
    unsafe fn byte_at<'a>(shared: NonNull<u8>, i: usize) -> &'a AtomicU8 {
        // SAFETY: the byte lies in the memory that the caller vouches for.
        let byte = unsafe { shared.add(i) };
        // SAFETY: the byte is readable and writable, and no code has a plain reference to it.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// # Safety
    ///
    /// As for [`byte_at`], for 8 bytes from `i` on, whose address is a multiple of 8.
    unsafe fn word_at<'a>(shared: NonNull<u8>, i: usize) -> &'a AtomicU64 {
        // SAFETY: the word lies in the memory that the caller vouches for.
        let word = unsafe { shared.add(i) };
        // SAFETY: the word is aligned, readable and writable, and no code has a plain reference to
        // it.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{racy_read, racy_write};
    use std::ptr::NonNull;

    /// Bytes around those that are copied.
    const MARGIN: usize = 20;

    /// Copies to and from the middle of shared memory, and gives what is then in it, and what was
    /// read.
    fn there_and_back(src: &[u8], begin: usize) -> (Vec<u8>, Vec<u8>) {
        let mut shared = vec![0xee; begin + src.len() + MARGIN];
        let mut back = vec![0xdd; src.len() + 2 * MARGIN];
        let start = NonNull::new(shared.as_mut_ptr()).unwrap();
        // SAFETY: `begin` lies in the vector.
        let at = unsafe { start.add(begin) };
        // SAFETY: from there on the vector has as many bytes as the source and more, and it is not
        // borrowed.
        unsafe { racy_write(at, src) }.unwrap();
        // SAFETY: as above, and the destination is as long.
        unsafe { racy_read(&mut back[MARGIN..MARGIN + src.len()], at) }.unwrap();
        (shared, back)
    }

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        let src: Vec<u8> = (0..8300_u32).map(|i| (i % 251) as u8).collect();
        // Miri takes a while for a byte, and knows one way of copying only.
        let lens = if cfg!(miri) {
            vec![0, 1, 2, 15, 16, 17, 40]
        } else {
            (0..300).chain([4095, 4096, 4097, 8192]).collect()
        };
        for len in lens {
            for begin in [0, 1, 13] {
                let (shared, back) = there_and_back(&src[..len], begin);
                for (copy, begin) in [(shared, begin), (back, MARGIN)] {
                    let (before, rest) = copy.split_at(begin);
                    let (copied, after) = rest.split_at(len);
                    assert_eq!(copied, &src[..len], "{len} bytes");
                    let beside = before.iter().chain(after);
                    assert!(beside.copied().all(|byte| byte == 0xee || byte == 0xdd));
                }
            }
        }
    }
}
