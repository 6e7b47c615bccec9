//! Ready set: queue pairs with new work. Posting gives the engine no other information.
//!
//! A post to a queue pair whose bit is set, and still set after a full barrier, neither adds the
//! queue pair nor rings the doorbell. The engine has a full barrier between emptying a word of the
//! set and reading the rings. So either the poster finds the bit cleared, or the engine finds what
//! was posted. The thread that has set the bit rings. The model checker (`tests/models`) finds a
//! lost post if either barrier is missing.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).

use super::sync::{AtomicU64, Ordering, fence};

const BITS: usize = u64::BITS as usize;

/// A set of small numbers that any thread can add to and the engine empties. Checking an empty set
/// costs one load.
pub struct ReadySet {
    words: Vec<AtomicU64>,
    /// A bit for each group of words, set if one of its words may have a bit.
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

    /// Adds `number`. Everything that the caller wrote before is visible to the thread that takes
    /// it. Returns false if it was in the set already, so that no notification is needed.
    ///
    /// In that case it costs a barrier, but no locked instruction. The caller writes, then reads
    /// the bit; the taker clears the bit, then reads the caller's data. Each has a full barrier in
    /// between. So either the caller finds the bit cleared, or the taker finds the data.
    #[inline]
    pub fn add(&self, number: usize) -> bool {
        let (at, bit) = (number / BITS, 1 << (number % BITS));
        let Some(word) = self.words.get(at) else {
            return false;
        };
        let is_set = || word.load(Ordering::Relaxed) & bit != 0;
        if is_set() {
            fence(Ordering::SeqCst);
            if is_set() {
                return false;
            }
        }
        self.set(at, word, bit)
    }

    #[inline(never)]
    fn set(&self, at: usize, word: &AtomicU64, bit: u64) -> bool {
        word.fetch_or(bit, Ordering::Release);
        // Set after the word: a thread that finds this bit finds the word's bit, too.
        self.summary
            .fetch_or(1 << (at >> self.group_shift), Ordering::Release);
        true
    }

    /// True if the set is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.summary.load(Ordering::Relaxed) == 0
    }

    /// Empties the set, calling `each` with every number.
    pub(crate) fn drain(&self, mut each: impl FnMut(usize)) {
        for group in bits(take(&self.summary)) {
            let first = group << self.group_shift;
            let words = self.words.get(first..).unwrap_or_default();
            for (at, word) in words.iter().enumerate().take(1 << self.group_shift) {
                let taken = take(word);
                if taken == 0 {
                    continue;
                }
                fence(Ordering::SeqCst); // see `add`
                for bit in bits(taken) {
                    each((first + at) * BITS + bit);
                }
            }
        }
    }
}

/// Empties a word. Returns its former value.
fn take(word: &AtomicU64) -> u64 {
    if word.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    word.swap(0, Ordering::Acquire)
}

/// The numbers of the set bits.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < BITS).then_some(bit)
    })
}
