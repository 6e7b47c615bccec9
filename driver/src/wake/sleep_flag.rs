//! The flag between a sleeper and its wakers: no wake-up is lost, and none costs a system call
//! while no thread sleeps.
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).
//!
//! `tests/models` compiles this file with loom's atomics and tries every interleaving. Without
//! either of the two barriers a model fails.

use std::borrow::Borrow;

use super::sync::{AtomicU32, Ordering, fence};

/// How a sleeper is woken: by its descriptor, by the word of its flag, or by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WokenBy {
    /// By the descriptor, which becomes readable.
    pub descriptor: bool,
    /// By the word of the flag (futex(2)).
    pub word: bool,
}

impl WokenBy {
    /// By the descriptor alone.
    pub const DESCRIPTOR: Self = Self {
        descriptor: true,
        word: false,
    };
    /// By the word alone.
    pub const WORD: Self = Self {
        descriptor: false,
        word: true,
    };

    const DESCRIPTOR_BIT: u32 = 1;
    const WORD_BIT: u32 = 2;

    fn encode(self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.descriptor, Self::DESCRIPTOR_BIT) | bit(self.word, Self::WORD_BIT)
    }

    /// `None`: no thread sleeps.
    fn decode(word: u32) -> Option<Self> {
        (word != 0).then_some(Self {
            descriptor: word & Self::DESCRIPTOR_BIT != 0,
            word: word & Self::WORD_BIT != 0,
        })
    }
}

/// Says whether a thread is about to sleep, and how it is woken.
///
/// The sleeper announces itself, looks for work once more, and only then sleeps. The waker
/// publishes work, then asks [`must_wake`](Self::must_wake). Each side writes before it reads, with
/// a full barrier between, so at least one of them sees the other's write. Either the sleeper finds
/// the work or the waker finds the sleeper.
///
/// The word is the flag's own, or lies in memory that processes share. Another process may write
/// anything to it: then threads are woken too often, or that process's own sleeper too late.
pub(crate) struct SleepFlag<W = AtomicU32>(W);

impl SleepFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl<W: Borrow<AtomicU32>> SleepFlag<W> {
    /// A flag whose word lies elsewhere. No thread sleeps there yet.
    #[allow(dead_code, reason = "the models have their own words")]
    pub(crate) fn over(word: W) -> Self {
        Self(word)
    }

    /// The sleeper will sleep unless it finds work now.
    pub(crate) fn announce(&self, by: WokenBy) {
        self.0.borrow().store(by.encode(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the sleeper has announced itself, and nothing has woken it since.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn is_announced(&self) -> bool {
        self.0.borrow().load(Ordering::Relaxed) != 0
    }

    /// The word, for a thread that sleeps on it, and its present value. `None` if the thread would
    /// not be woken by the word: then it must not sleep.
    #[allow(dead_code, reason = "the models have no system calls")]
    pub(crate) fn to_sleep_on(&self) -> Option<(&AtomicU32, u32)> {
        let word = self.0.borrow();
        let value = word.load(Ordering::Relaxed);
        WokenBy::decode(value)
            .is_some_and(|by| by.word)
            .then_some((word, value))
    }

    /// The word, to wake the threads that sleep on it.
    #[allow(dead_code, reason = "the models have no system calls")]
    pub(crate) fn word(&self) -> &AtomicU32 {
        self.0.borrow()
    }

    /// The sleeper is awake again.
    pub(crate) fn awake(&self) {
        self.0.borrow().store(0, Ordering::Relaxed);
    }

    /// Called after work was published: how to wake the sleeper. `None` if it need not be woken. Of
    /// several wakers, one has to wake it.
    pub(crate) fn must_wake(&self) -> Option<WokenBy> {
        fence(Ordering::SeqCst);
        let word = self.0.borrow();
        if word.load(Ordering::Relaxed) == 0 {
            return None;
        }
        WokenBy::decode(word.swap(0, Ordering::Relaxed))
    }
}
