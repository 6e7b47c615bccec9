//! Sharing of an inline engine: which threads sleep while another one runs it, and when they check
//! again.
//!
//! All of this is protected by one lock, which no thread holds while it sleeps. `tests/models`
//! explores it.

use std::ops::DerefMut;

/// An engine that threads share, and the descriptor that they and event loops wait for.
pub(crate) trait Shared {
    /// Type of the longest sleep that the engine allows.
    type Limit;
    /// Error of waiting for the descriptor.
    type Error;

    /// Runs one step. Returns how much work was done.
    fn turn(&mut self) -> usize;

    /// Whether the engine is closed.
    fn has_ended(&self) -> bool;

    /// After a step without work: how long a thread may sleep. `None` if the thread must check
    /// again instead.
    fn limit(&mut self) -> Option<Self::Limit>;

    /// Arms the descriptor to become readable when there is work, at once unless the engine is
    /// `idle` now. If `timed`, it also becomes readable at the engine's next deadline.
    fn arm(&mut self, idle: bool, timed: bool) -> Result<(), Self::Error>;

    /// Makes the descriptor readable until it is armed again. Meanwhile frames are not signaled.
    fn open(&mut self) -> Result<(), Self::Error>;

    /// Makes the descriptor readable if it is armed.
    fn ring(&self);
}

/// An engine that threads share.
///
/// A sleeper sleeps no longer than the engine allowed before. A thread that changes the engine
/// later wakes the sleepers, at the latest when it stops running the engine. While no thread sleeps
/// and no event loop has armed the descriptor, it is readable, so that a later event loop runs a
/// first step.
pub(crate) struct Sharing<S> {
    shared: S,
    /// Whether the descriptor is armed, so that a thread may be waiting for it.
    armed: bool,
    /// Whether an event loop has called [`progress`](Self::progress): it waits for the descriptor
    /// and needs its timer.
    in_loop: bool,
    /// Number of sleeping threads.
    sleepers: usize,
}

impl<S: Shared> Sharing<S> {
    /// Shares an engine that no thread waits for. The descriptor is readable from the beginning:
    /// the first step arms it.
    pub(crate) fn new(mut shared: S) -> Result<Self, S::Error> {
        shared.open()?;
        Ok(Self {
            shared,
            armed: false,
            in_loop: false,
            sleepers: 0,
        })
    }

    /// The shared engine.
    pub(crate) fn shared(&self) -> &S {
        &self.shared
    }

    /// The shared engine, to be changed: call [`settle`](Self::settle) afterwards.
    pub(crate) fn shared_mut(&mut self) -> &mut S {
        &mut self.shared
    }

    /// Number of sleeping threads.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers
    }

    /// Whether the descriptor is armed, and whether an event loop waits for it.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn waits(&self) -> (bool, bool) {
        (self.armed, self.in_loop)
    }

    /// Runs one step for a thread that polls.
    pub(crate) fn turn(&mut self) {
        if self.shared.turn() > 0 {
            self.wake();
        }
    }

    /// Runs one step for an event loop, and arms the descriptor for the next work.
    pub(crate) fn progress(&mut self) -> Result<(), S::Error> {
        self.in_loop = true;
        let done = self.shared.turn();
        self.arm(done == 0)
    }

    /// Runs one step. If there was no work and the wait mode is to sleep, counts a sleeper and
    /// returns how long it may sleep.
    pub(crate) fn prepare_sleep(&mut self) -> Result<Option<S::Limit>, S::Error> {
        if self.shared.turn() > 0 {
            self.wake();
            return Ok(None);
        }
        let Some(limit) = self.shared.limit() else {
            return Ok(None);
        };
        self.arm(true)?;
        self.sleepers += 1;
        Ok(Some(limit))
    }

    /// Called after a verb, which may have left work. A verb that left none, such as a query, wakes
    /// no event loop: a loop that calls it in each round would never sleep.
    pub(crate) fn settle(&mut self) {
        if !self.armed {
            return;
        }
        let idle = self.sleepers == 0 && self.shared.turn() == 0;
        if !idle || self.arm(true).is_err() {
            self.wake();
        }
    }

    /// Called after a thread has slept. If no other thread sleeps and no event loop waits, frames
    /// are not signaled while threads run the engine.
    pub(crate) fn end_sleep(&mut self) -> Result<(), S::Error> {
        self.sleepers -= 1;
        if self.sleepers == 0 && !self.in_loop {
            self.armed = false;
            self.shared.open()?;
        }
        Ok(())
    }

    /// Called after the engine's own thread has slept. Ends its sleep if it still counts as a
    /// sleeper.
    pub(crate) fn uncount(&mut self, counted: &mut bool) -> Result<(), S::Error> {
        if std::mem::take(counted) {
            self.end_sleep()?;
        }
        Ok(())
    }

    /// A thread that waited stops running the engine: wakes sleepers and event loops.
    pub(crate) fn leave(&mut self) -> Result<(), S::Error> {
        if self.sleepers > 0 || self.in_loop {
            self.arm(false)?;
        }
        Ok(())
    }

    /// Ends the engine by `end`. The descriptor stays readable.
    pub(crate) fn close<R>(&mut self, end: impl FnOnce(&mut S) -> R) -> (R, Result<(), S::Error>) {
        let ended = end(&mut self.shared);
        (ended, self.shared.open())
    }

    /// Wakes waiting threads if the engine's state has changed after the descriptor was armed.
    fn wake(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.ring();
        }
    }

    /// Arms the descriptor. If that fails, all waiting threads wake, and find the error when they
    /// arm.
    fn arm(&mut self, idle: bool) -> Result<(), S::Error> {
        let armed = self.shared.arm(idle, self.in_loop);
        self.armed = armed.is_ok();
        if armed.is_err() {
            self.shared.open()?;
        }
        armed
    }
}

/// Runs one step for a thread that waits. If there was no work and the wait mode is to sleep, calls
/// `sleep`. It ends when the descriptor is readable, the limit has expired, or the thread's own
/// condition for waking is met. `None` if the thread has not slept.
pub(crate) fn turn_or_sleep<S: Shared, G: DerefMut<Target = Sharing<S>>, R>(
    lock: impl Fn() -> G,
    sleep: impl FnOnce(S::Limit) -> Result<R, S::Error>,
) -> Result<Option<R>, S::Error> {
    let Some(limit) = lock().prepare_sleep()? else {
        return Ok(None);
    };
    let slept = sleep(limit);
    let mut sharing = lock();
    sharing.end_sleep()?;
    if slept.is_err() {
        sharing.leave()?;
    }
    slept.map(Some)
}

/// Runs one step for the engine's own thread, unless `try_lock` fails because another thread has
/// the engine: the thread never waits for it. If there was no work and the wait mode is to sleep,
/// calls `sleep`. `counted`: whether the thread still counts as a sleeper.
pub(crate) fn turn_or_sleep_beside<S: Shared, G: DerefMut<Target = Sharing<S>>>(
    try_lock: impl Fn() -> Option<G>,
    counted: &mut bool,
    sleep: impl FnOnce(S::Limit) -> Result<(), S::Error>,
) -> Result<Turned, S::Error> {
    let Some(mut sharing) = try_lock() else {
        return Ok(Turned::Elsewhere);
    };
    sharing.uncount(counted)?;
    if sharing.shared.has_ended() {
        return Ok(Turned::Ended);
    }
    let Some(limit) = sharing.prepare_sleep()? else {
        return Ok(Turned::On);
    };
    *counted = true;
    drop(sharing);
    let slept = sleep(limit);
    if let Some(mut sharing) = try_lock() {
        sharing.uncount(counted)?;
    }
    slept.map(|()| Turned::On)
}

/// Result of a turn of the engine's own thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It ran the engine, or slept.
    On,
    /// Another thread has the engine now.
    Elsewhere,
    /// The engine is closed.
    Ended,
}

/// Proof that the engine's own thread does not count as a sleeper, without which it must not rest.
#[derive(Debug)]
pub(crate) struct Uncounted;
