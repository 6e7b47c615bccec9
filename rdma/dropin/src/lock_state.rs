//! State of a lock: who has it, and who sleeps until it is left.
//!
//! The includer provides `futex` (a word that threads sleep on) and `sync` (of the standard
//! library, or of the model checker).

use super::futex::Word;
use super::sync::Ordering;

/// No thread has it.
const FREE: u32 = 0;
/// A thread has it, and no thread sleeps.
const HELD: u32 = 1;
/// A thread has it, and further threads may sleep.
const AWAITED: u32 = 2;
/// No thread gets it again: the value has ended.
const ENDED: u32 = 3;

/// See the module. A thread that was woken takes the lock as awaited: further threads may still
/// sleep, and it wakes the next.
pub(crate) struct LockState(Word);

impl LockState {
    pub(crate) fn new() -> Self {
        Self(Word::new(FREE))
    }

    /// Takes it if no thread has it.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        let number = self.0.number();
        let taken = number.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Waits until no other thread has it, and takes it.
    #[cold]
    pub(crate) fn await_turn(&self) {
        while self.0.number().swap(AWAITED, Ordering::Acquire) != FREE {
            self.0.sleep_while(AWAITED);
        }
    }

    /// Waits until no other thread has it, and takes it. Returns false once the value has ended.
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

    /// Leaves it, and wakes one sleeping thread.
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

    /// Ends it: no thread gets it again. A thread that has it may leave it later.
    pub(crate) fn end(&self) {
        // A store would do as well. But the model checker knows the order of exchanges alone.
        self.0.number().swap(ENDED, Ordering::Release);
        // Threads may sleep even if none came since: the thread that was woken last has not taken
        // it yet, to wake the next when it is left.
        self.0.wake(i32::MAX);
    }

    /// Whether a thread has it, and further threads may wait.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.number().load(Ordering::Relaxed) == AWAITED
    }

    /// Whether no thread has it.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        self.0.number().load(Ordering::Relaxed) == FREE
    }
}
