//! Ready set: the queue pairs that have been posted to. Posting tells the engine nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// A set of small numbers that any thread can add to and the engine empties. Looking at an empty one costs one load.
pub struct ReadySet {
    words: Vec<AtomicU64>,
    /// A bit for each group of words of which one may have a bit.
    summary: AtomicU64,
    /// A group has 2 to the power of this many words, so that there are at most 64 groups.
    group_shift: u32,
}

impl ReadySet {
    /// For numbers below `capacity`.
    pub fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(BITS);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            summary: AtomicU64::new(0),
            group_shift: words.div_ceil(BITS).next_power_of_two().trailing_zeros(),
        }
    }

    /// Adds `number`. What the caller did before is visible to whoever takes it out.
    pub fn add(&self, number: usize) {
        let at = number / BITS;
        if let Some(word) = self.words.get(at) {
            word.fetch_or(1 << (number % BITS), Ordering::Release);
            // After the word: whoever finds this bit finds that one.
            self.summary
                .fetch_or(1 << (at >> self.group_shift), Ordering::Release);
        }
    }

    /// True if nothing is in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.summary.load(Ordering::Relaxed) == 0
    }

    /// Empties the set, calling `each` with every number.
    pub(crate) fn drain(&self, mut each: impl FnMut(usize)) {
        drain_word(&self.summary, |group| {
            let first = group << self.group_shift;
            let words = self.words.get(first..).unwrap_or_default();
            for (at, word) in words.iter().enumerate().take(1 << self.group_shift) {
                drain_word(word, |bit| each((first + at) * BITS + bit));
            }
        });
    }
}

/// Empties a word, calling `each` with the number of every bit.
fn drain_word(word: &AtomicU64, mut each: impl FnMut(usize)) {
    if word.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut bits = word.swap(0, Ordering::Acquire);
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_a_bit_each_whatever_the_capacity() {
        for capacity in [1, 64, 65, 4096, 4097, 8193, 16_384, 1 << 20] {
            let set = ReadySet::new(capacity);
            let numbers = [0, capacity / 2, capacity - 1];
            for number in numbers {
                set.add(number);
            }
            set.add(capacity.next_multiple_of(BITS));
            let mut taken = Vec::new();
            set.drain(|number| taken.push(number));
            let mut expected = numbers.to_vec();
            expected.dedup();
            assert_eq!(taken, expected, "{capacity}");
            assert!(set.is_empty());
        }
    }

    #[test]
    fn each_number_comes_out_once_in_order() {
        let set = ReadySet::new(5000);
        assert!(set.is_empty());
        for _ in 0..2 {
            for number in [129, 0, 64, 4999, 4096, 0, 63, 6000] {
                set.add(number);
            }
            assert!(!set.is_empty());
            let mut taken = Vec::new();
            set.drain(|number| taken.push(number));
            assert_eq!(
                taken,
                [0, 63, 64, 129, 4096, 4999],
                "a number beyond the capacity is no member"
            );
            assert!(set.is_empty());
        }
    }
}
