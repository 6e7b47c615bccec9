//! Which queue pairs have been posted to: the only thing that posting tells the engine.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// A set of small numbers that any thread can add to and the engine empties. Looking at an empty one costs a load per 4096 numbers.
pub struct ReadySet {
    words: Vec<AtomicU64>,
    /// A bit for each word that may have one.
    summary: Vec<AtomicU64>,
}

fn zeroed(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Empties a word, calling `each` with the number of every bit.
fn drain_word(words: &[AtomicU64], at: usize, mut each: impl FnMut(usize)) {
    let Some(word) = words.get(at) else {
        return;
    };
    if word.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut bits = word.swap(0, Ordering::Acquire);
    while bits != 0 {
        each(at * BITS + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

impl ReadySet {
    /// For numbers below `capacity`.
    pub fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(BITS);
        Self {
            words: zeroed(words),
            summary: zeroed(words.div_ceil(BITS)),
        }
    }

    /// Adds `number`. What the caller did before is visible to whoever takes it out.
    pub fn add(&self, number: usize) {
        let at = number / BITS;
        if let Some(word) = self.words.get(at) {
            word.fetch_or(1 << (number % BITS), Ordering::Release);
            // After the word: whoever finds this bit finds that one.
            self.summary[at / BITS].fetch_or(1 << (at % BITS), Ordering::Release);
        }
    }

    /// True if nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.summary
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Empties the set, calling `each` with every number.
    pub(crate) fn drain(&self, mut each: impl FnMut(usize)) {
        for at in 0..self.summary.len() {
            drain_word(&self.summary, at, |word| {
                drain_word(&self.words, word, &mut each);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
