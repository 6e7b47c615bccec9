//! Which queue pairs have been posted to: the only thing that posting tells the engine.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// A set of small numbers that any thread can add to and the engine empties.
pub(crate) struct ReadySet(Vec<AtomicU64>);

impl ReadySet {
    /// For numbers below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        Self(
            (0..capacity.div_ceil(BITS))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    /// Adds `number`. What the caller did before is visible to whoever takes it out.
    pub(crate) fn add(&self, number: usize) {
        if let Some(word) = self.0.get(number / BITS) {
            word.fetch_or(1 << (number % BITS), Ordering::Release);
        }
    }

    /// True if nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Empties the set, calling `each` with every number.
    pub(crate) fn drain(&self, mut each: impl FnMut(usize)) {
        for (i, word) in self.0.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                each(i * BITS + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_out_once_in_order() {
        let set = ReadySet::new(130);
        for number in [129, 0, 64, 0, 63, 5000] {
            set.add(number);
        }
        let mut taken = Vec::new();
        set.drain(|number| taken.push(number));
        assert_eq!(
            taken,
            [0, 63, 64, 129],
            "a number beyond the capacity is no member"
        );
        assert!(set.is_empty());
    }
}
