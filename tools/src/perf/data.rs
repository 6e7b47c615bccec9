//! Payload of a test: fills buffers, and checks their contents.

use std::ops::Range;

use xwarp::memory::SharedBytes;

use crate::signals::Interrupted;

/// Bytes between two checks for Ctrl-C.
const CHUNK: usize = 1 << 20;

/// Slots `0..count` of a connection's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) connection: usize,
    /// Size in bytes of each.
    pub(crate) size: usize,
    pub(crate) count: usize,
}

impl Slots {
    /// Size in bytes of all.
    pub(crate) fn bytes(self) -> usize {
        self.size * self.count
    }

    /// A part of the contents of one slot.
    fn pattern(self, slot: usize, range: Range<usize>) -> Vec<u8> {
        let bytes = range.map(|at| byte(self.connection, slot, at));
        bytes.collect()
    }
}

/// Byte `at` of slot `slot`. Slots differ from each other and between connections, and bytes from
/// their neighbours and from those a page away.
fn byte(connection: usize, slot: usize, at: usize) -> u8 {
    let mixed = (at ^ (at >> 8) ^ (at >> 16))
        .wrapping_mul(167)
        .wrapping_add(slot * 29 + connection * 113 + 1);
    mixed.to_le_bytes()[0]
}

/// Ranges of a slot that are checked one after the other.
fn chunks(size: usize) -> impl Iterator<Item = Range<usize>> {
    let begins = (0..size).step_by(CHUNK);
    begins.map(move |at| at..size.min(at.saturating_add(CHUNK)))
}

/// Fills these slots of a region.
pub(crate) fn fill(
    bytes: &SharedBytes,
    slots: Slots,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    for slot in 0..slots.count {
        for range in chunks(slots.size) {
            interrupted.check()?;
            let at = slot * slots.size + range.start;
            bytes.write(at, &slots.pattern(slot, range))?;
        }
    }
    Ok(())
}

/// The first byte of these slots that differs from the pattern, if any: slot and offset in it.
pub(crate) fn first_wrong(
    bytes: &SharedBytes,
    slots: Slots,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<(usize, usize)>> {
    let mut held = vec![0; slots.size.min(CHUNK)];
    for slot in 0..slots.count {
        for range in chunks(slots.size) {
            interrupted.check()?;
            let held = &mut held[..range.len()];
            bytes.read(slot * slots.size + range.start, held)?;
            let wrong = held
                .iter()
                .zip(range)
                .find(|&(held, at)| *held != byte(slots.connection, slot, at));
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

    fn slots(size: usize, count: usize) -> Slots {
        Slots {
            connection: 7,
            size,
            count,
        }
    }

    #[test]
    fn single_wrong_byte_is_found() {
        let never = Interrupted::never();
        for size in [1000, CHUNK, 2 * CHUNK + 1] {
            let bytes = SharedBytes::anonymous(3 * size).unwrap();
            fill(&bytes, slots(size, 3), &never).unwrap();
            let wrong = |count| first_wrong(&bytes, slots(size, count), &never).unwrap();
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
    fn bytes_of_another_connection_are_wrong() {
        let never = Interrupted::never();
        let bytes = SharedBytes::anonymous(64).unwrap();
        fill(&bytes, slots(64, 1), &never).unwrap();
        for connection in (0..256).filter(|it| *it != 7) {
            let other = Slots {
                connection,
                ..slots(64, 1)
            };
            assert_eq!(
                first_wrong(&bytes, other, &never).unwrap(),
                Some((0, 0)),
                "{connection}"
            );
        }
    }

    #[test]
    fn neither_filling_nor_comparing_outlasts_ctrl_c() {
        let bytes = SharedBytes::anonymous(1000).unwrap();
        let asked = Interrupted::asked();
        assert!(fill(&bytes, slots(1000, 1), &asked).is_err());
        assert!(first_wrong(&bytes, slots(1000, 1), &asked).is_err());
    }

    #[test]
    fn slots_are_not_each_other_nor_zero() {
        for (slot, other) in [(0, 1), (0, 2), (1, 2)] {
            let same = (0..1000)
                .filter(|&at| byte(0, slot, at) == byte(0, other, at))
                .count();
            assert!(same < 100, "{slot} and {other}");
        }
        assert_ne!(slots(64, 1).pattern(0, 0..64)[..32], [0; 32]);
    }
}
