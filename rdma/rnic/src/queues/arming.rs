//! Arm state: whether the next completion wakes a waiter (verbs draft §8.2.5).
//!
//! The includer provides `sync` (atomics of the standard library, or of the model checker).

use super::sync::{AtomicU8, Ordering, fence};

/// Completions that wake a waiter. Each value includes the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arm {
    /// The next received message that asks for an event, and the next failure.
    Solicited = 1,
    /// The next completion of any kind.
    Next = 2,
}

/// No thread waits.
const UNARMED: u8 = 0;

/// Completions that the waiter has requested an event for.
///
/// The waiter arms, then checks the ring once more. An engine appends an entry, then reads the arm
/// state. Each writes before it reads, with a full barrier in between. So either the waiter finds
/// the entry, or the engine finds the waiter.
#[derive(Debug)]
pub(super) struct ArmState(AtomicU8);

impl ArmState {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(UNARMED))
    }

    /// Requests a wake-up. The application calls it before it checks the queue again.
    pub(super) fn arm(&self, kind: Arm) {
        self.0.fetch_max(kind as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// True until a completion of the requested kind has arrived.
    pub(super) fn is_armed(&self) -> bool {
        self.0.load(Ordering::SeqCst) != UNARMED
    }

    /// Whether a waiter must be woken for an entry that was just appended; it is disarmed then. Of
    /// several engines only one wakes it.
    #[inline]
    pub(super) fn disarm_for(&self, wakes_solicited: bool) -> bool {
        // The entry must be visible before the arm state is read: the application arms before it
        // checks again.
        fence(Ordering::SeqCst);
        let armed = self.0.load(Ordering::Relaxed);
        let wakes = armed == Arm::Next as u8 || (armed == Arm::Solicited as u8 && wakes_solicited);
        wakes && self.disarm()
    }

    /// True unless another engine has disarmed it.
    fn disarm(&self) -> bool {
        self.0.swap(UNARMED, Ordering::SeqCst) != UNARMED
    }
}

/// Arms a queue for a waiter that has found it empty, and checks again. `None`: the waiter may
/// sleep, as a later completion wakes it. A completion that arrived between the waiter's check and
/// the arming has woken no thread: the second check finds it.
pub fn arm_and_look<Q, T, E>(
    queue: &mut Q,
    arm: impl FnOnce(&Q) -> Result<(), E>,
    look: impl FnOnce(&mut Q) -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    arm(queue)?;
    look(queue)
}
