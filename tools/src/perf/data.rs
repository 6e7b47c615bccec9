//! What the buffers of a test are filled with, and whether they hold it.

use xwarp::{OutOfBounds, SharedBytes};

/// Octet `at` of slot `slot`. Slots differ from each other, and octets from their neighbours and from those a page away.
fn octet(slot: usize, at: usize) -> u8 {
    let mixed = (at ^ (at >> 8) ^ (at >> 16))
        .wrapping_mul(167)
        .wrapping_add(slot * 29 + 1);
    mixed.to_le_bytes()[0]
}

/// The content of one slot.
pub(crate) fn pattern(slot: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| octet(slot, at)).collect()
}

/// Fills slots `0..slots` of a region.
pub(crate) fn fill(bytes: &SharedBytes, size: usize, slots: usize) -> Result<(), OutOfBounds> {
    for slot in 0..slots {
        bytes.write(slot * size, &pattern(slot, size))?;
    }
    Ok(())
}

/// The first octet of slots `0..slots` that is not the pattern's, if any: slot and offset in it.
pub(crate) fn first_wrong(
    bytes: &SharedBytes,
    size: usize,
    slots: usize,
) -> Result<Option<(usize, usize)>, OutOfBounds> {
    let mut held = vec![0; size];
    for slot in 0..slots {
        bytes.read(slot * size, &mut held)?;
        let wrong = held
            .iter()
            .enumerate()
            .find(|&(at, held)| *held != octet(slot, at));
        if let Some((at, _)) = wrong {
            return Ok(Some((slot, at)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_wrong_octet_is_found() {
        let bytes = SharedBytes::anonymous(3000).unwrap();
        fill(&bytes, 1000, 3).unwrap();
        assert_eq!(first_wrong(&bytes, 1000, 3), Ok(None));
        let mut held = [0];
        bytes.read(2999, &mut held).unwrap();
        bytes.write(2999, &[held[0] ^ 1]).unwrap();
        assert_eq!(first_wrong(&bytes, 1000, 3), Ok(Some((2, 999))));
        assert_eq!(first_wrong(&bytes, 1000, 2), Ok(None));
    }

    #[test]
    fn slots_are_not_each_other_nor_zero() {
        for (slot, other) in [(0, 1), (0, 2), (1, 2)] {
            let same = (0..1000)
                .filter(|&at| octet(slot, at) == octet(other, at))
                .count();
            assert!(same < 100, "{slot} and {other}");
        }
        assert_ne!(pattern(0, 64)[..32], [0; 32]);
    }
}
