//! Payload of a test: filling buffers, and checking what they hold.

use std::ops::Range;

use xwarp::memory::SharedBytes;

use crate::signals::Interrupted;

/// Bytes between two looks for Ctrl-C.
const CHUNK: usize = 1 << 20;

/// Byte `at` of slot `slot`. Slots differ from each other, and bytes from their neighbours and from those a page away.
fn byte(slot: usize, at: usize) -> u8 {
    let mixed = (at ^ (at >> 8) ^ (at >> 16))
        .wrapping_mul(167)
        .wrapping_add(slot * 29 + 1);
    mixed.to_le_bytes()[0]
}

/// A part of the content of one slot.
fn pattern(slot: usize, range: Range<usize>) -> Vec<u8> {
    range.map(|at| byte(slot, at)).collect()
}

/// The parts of a slot that are looked at one after the other.
fn chunks(size: usize) -> impl Iterator<Item = Range<usize>> {
    let begins = (0..size).step_by(CHUNK);
    begins.map(move |at| at..size.min(at.saturating_add(CHUNK)))
}

/// Fills slots `0..slots` of a region.
pub(crate) fn fill(
    bytes: &SharedBytes,
    size: usize,
    slots: usize,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    for slot in 0..slots {
        for range in chunks(size) {
            interrupted.check()?;
            bytes.write(slot * size + range.start, &pattern(slot, range))?;
        }
    }
    Ok(())
}

/// The first byte of slots `0..slots` that is not the pattern's, if any: slot and offset in it.
pub(crate) fn first_wrong(
    bytes: &SharedBytes,
    size: usize,
    slots: usize,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<(usize, usize)>> {
    let mut held = vec![0; size.min(CHUNK)];
    for slot in 0..slots {
        for range in chunks(size) {
            interrupted.check()?;
            let held = &mut held[..range.len()];
            bytes.read(slot * size + range.start, held)?;
            let wrong = held
                .iter()
                .zip(range)
                .find(|&(held, at)| *held != byte(slot, at));
            if let Some((_, at)) = wrong {
                return Ok(Some((slot, at)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_wrong_byte_is_found() {
        let never = Interrupted::never();
        for size in [1000, CHUNK, 2 * CHUNK + 1] {
            let bytes = SharedBytes::anonymous(3 * size).unwrap();
            fill(&bytes, size, 3, &never).unwrap();
            let wrong = |slots| first_wrong(&bytes, size, slots, &never).unwrap();
            assert_eq!(wrong(3), None);
            for (slot, at) in [(2, size - 1), (1, CHUNK.min(size - 2)), (0, 0)] {
                let mut held = [0];
                bytes.read(slot * size + at, &mut held).unwrap();
                bytes.write(slot * size + at, &[held[0] ^ 1]).unwrap();
                assert_eq!(wrong(3), Some((slot, at)));
                assert_eq!(wrong(slot), None);
            }
        }
    }

    #[test]
    fn neither_filling_nor_comparing_outlasts_ctrl_c() {
        let bytes = SharedBytes::anonymous(1000).unwrap();
        let asked = Interrupted::asked();
        assert!(fill(&bytes, 1000, 1, &asked).is_err());
        assert!(first_wrong(&bytes, 1000, 1, &asked).is_err());
    }

    #[test]
    fn slots_are_not_each_other_nor_zero() {
        for (slot, other) in [(0, 1), (0, 2), (1, 2)] {
            let same = (0..1000)
                .filter(|&at| byte(slot, at) == byte(other, at))
                .count();
            assert!(same < 100, "{slot} and {other}");
        }
        assert_ne!(pattern(0, 0..64)[..32], [0; 32]);
    }
}
