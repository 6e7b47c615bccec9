//! State of a lock: whether a thread holds it, and whether others sleep until it is released.
//!
//! The includer provides `futex` (a word that threads sleep on) and `sync` (of the standard
//! library, or of the model checker).

use super::futex::Word;
use super::sync::Ordering;

/// No thread holds the lock.
const FREE: u32 = 0;
/// A thread holds the lock, and no thread sleeps.
const HELD: u32 = 1;
/// A thread holds the lock, and further threads may sleep.
const AWAITED: u32 = 2;
/// No thread gets it again: the value has ended.
const ENDED: u32 = 3;

/// State of a lock, in one word. A woken thread takes the lock as `AWAITED`: further threads may
/// still sleep, and its release wakes the next one.
pub(crate) struct LockState(Word);

impl LockState {
    pub(crate) fn new() -> Self {
        Self(Word::new(FREE))
    }

    /// Takes the lock if no thread holds it.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        let number = self.0.number();
        let taken = number.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Waits until no other thread holds the lock, and takes it.
    #[cold]
    pub(crate) fn await_turn(&self) {
        while self.0.number().swap(AWAITED, Ordering::Acquire) != FREE {
            self.0.sleep_while(AWAITED);
        }
    }

    /// Waits until no other thread holds the lock, and takes it. Returns false once the value has
    /// ended.
    #[cold]
    pub(crate) fn await_turn_unless_ended(&self) -> bool {
        let awaited = |state| (state != ENDED).then_some(AWAITED);
        loop {
            let number = self.0.number();
            match number.fetch_update(Ordering::Acquire, Ordering::Acquire, awaited) {
                Ok(FREE) => return true,
                Ok(_) => self.0.sleep_while(AWAITED),
                Err(_ended) => return false,
            }
        }
    }

    /// Releases the lock, and wakes one sleeping thread.
    #[inline]
    pub(crate) fn leave(&self) {
        let state = self.0.number().swap(FREE, Ordering::Release);
        if state != HELD {
            self.leave_to_others(state);
        }
    }

    #[cold]
    fn leave_to_others(&self, state: u32) {
        if state == ENDED {
            // Another thread has ended it meanwhile.
            self.end();
        } else {
            self.0.wake(1);
        }
    }

    /// Ends the lock: no thread takes it again. Its present owner may release it later.
    pub(crate) fn end(&self) {
        // A store would do as well, but the model checker orders exchanges only.
        self.0.number().swap(ENDED, Ordering::Release);
        // Threads may sleep even if the state is not `AWAITED`: a woken thread that is to wake the
        // next one has not taken the lock yet.
        self.0.wake(i32::MAX);
    }

    /// Whether a thread holds the lock, and further threads may wait.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.number().load(Ordering::Relaxed) == AWAITED
    }

    /// Whether no thread holds the lock.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.0.number().load(Ordering::Relaxed) == FREE
    }
}
