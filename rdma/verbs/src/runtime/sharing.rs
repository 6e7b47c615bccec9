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

    /// Whether all work rings the doorbell, so that threads may sleep on its word.
    fn rings_for_all(&self) -> bool;

    /// Arms the doorbell to wake these when there is work, at once unless the engine is `idle` now.
    /// For an event loop, the descriptor also becomes readable at the engine's next deadline.
    fn arm(&mut self, idle: bool, waiting: Waiting) -> Result<(), Self::Error>;

    /// Makes the descriptor readable until it is armed again, and wakes these. Meanwhile frames are
    /// not signaled.
    fn open(&mut self, waiting: Waiting) -> Result<(), Self::Error>;

    /// Wakes those that the doorbell is armed for.
    fn ring(&self);
}

/// What a thread sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bed {
    /// The engine's descriptor, and those of others.
    Descriptor,
    /// The doorbell's word.
    Word,
}

/// Who waits for an engine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// Whether an event loop has called [`progress`](Sharing::progress): it waits for the
    /// descriptor and needs its timer.
    pub(crate) in_loop: bool,
    /// Number of threads that sleep on the descriptor.
    pub(crate) on_descriptor: usize,
    /// Number of threads that sleep on the doorbell's word.
    pub(crate) on_word: usize,
}

impl Waiting {
    /// Number of sleeping threads.
    pub(crate) fn sleepers(&self) -> usize {
        self.on_descriptor + self.on_word
    }

    fn count(&mut self, bed: Bed) -> &mut usize {
        match bed {
            Bed::Descriptor => &mut self.on_descriptor,
            Bed::Word => &mut self.on_word,
        }
    }
}

/// An engine that threads share.
///
/// A sleeper sleeps no longer than the engine allowed before. A thread that changes the engine
/// later wakes the sleepers, at the latest when it stops running the engine. While no thread sleeps
/// and no event loop has armed the descriptor, it is readable, so that a later event loop runs a
/// first step.
pub(crate) struct Sharing<S> {
    shared: S,
    /// Whether the doorbell is armed, so that a thread may be waiting for it.
    armed: bool,
    waiting: Waiting,
}

impl<S: Shared> Sharing<S> {
    /// Shares an engine that no thread waits for. The descriptor is readable from the beginning:
    /// the first step arms it.
    pub(crate) fn new(mut shared: S) -> Result<Self, S::Error> {
        shared.open(Waiting::default())?;
        Ok(Self {
            shared,
            armed: false,
            waiting: Waiting::default(),
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
        self.waiting.sleepers()
    }

    /// Whether the doorbell is armed, and for whom.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn waits(&self) -> (bool, Waiting) {
        (self.armed, self.waiting)
    }

    /// Runs one step for a thread that polls.
    pub(crate) fn turn(&mut self) {
        if self.shared.turn() > 0 {
            self.wake();
        }
    }

    /// Runs one step for an event loop, and arms the descriptor for the next work.
    pub(crate) fn progress(&mut self) -> Result<(), S::Error> {
        self.waiting.in_loop = true;
        let done = self.shared.turn();
        self.arm(done == 0)
    }

    /// Runs one step. If there was no work and the wait mode is to sleep, counts a sleeper and
    /// returns how long it may sleep, and on what: on the word only if that `wanted`.
    pub(crate) fn prepare_sleep(
        &mut self,
        wanted: Bed,
    ) -> Result<Option<(S::Limit, Bed)>, S::Error> {
        if self.shared.turn() > 0 {
            self.wake();
            return Ok(None);
        }
        let Some(limit) = self.shared.limit() else {
            return Ok(None);
        };
        let bed = match wanted {
            Bed::Word if self.shared.rings_for_all() => Bed::Word,
            Bed::Word | Bed::Descriptor => Bed::Descriptor,
        };
        *self.waiting.count(bed) += 1;
        if let Err(error) = self.arm(true) {
            *self.waiting.count(bed) -= 1;
            return Err(error);
        }
        Ok(Some((limit, bed)))
    }

    /// Called after a verb, which may have left work. A verb that left none, such as a query, wakes
    /// no event loop: a loop that calls it in each round would never sleep.
    pub(crate) fn settle(&mut self) {
        if !self.armed {
            return;
        }
        let idle = self.sleepers() == 0 && self.shared.turn() == 0;
        if !idle || self.arm(true).is_err() {
            self.wake();
        }
    }

    /// Called after a thread has slept. If no other thread sleeps and no event loop waits, frames
    /// are not signaled while threads run the engine.
    pub(crate) fn end_sleep(&mut self, bed: Bed) -> Result<(), S::Error> {
        *self.waiting.count(bed) -= 1;
        if self.sleepers() == 0 && !self.waiting.in_loop {
            self.armed = false;
            self.shared.open(self.waiting)?;
        }
        Ok(())
    }

    /// Called after the engine's own thread has slept. Ends its sleep if it still counts as a
    /// sleeper.
    pub(crate) fn uncount(&mut self, counted: &mut Option<Bed>) -> Result<(), S::Error> {
        counted.take().map_or(Ok(()), |bed| self.end_sleep(bed))
    }

    /// A thread that waited stops running the engine: wakes sleepers and event loops.
    pub(crate) fn leave(&mut self) -> Result<(), S::Error> {
        if self.sleepers() > 0 || self.waiting.in_loop {
            self.arm(false)?;
        }
        Ok(())
    }

    /// Ends the engine by `end`. The descriptor stays readable.
    pub(crate) fn close<R>(&mut self, end: impl FnOnce(&mut S) -> R) -> (R, Result<(), S::Error>) {
        let ended = end(&mut self.shared);
        (ended, self.shared.open(self.waiting))
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
        let armed = self.shared.arm(idle, self.waiting);
        self.armed = armed.is_ok();
        if armed.is_err() {
            self.shared.open(self.waiting)?;
        }
        armed
    }
}

/// Runs one step for a thread that waits. If there was no work and the wait mode is to sleep, calls
/// `sleep`, on the word only if that `wanted`. It ends when the doorbell has rung, the limit has
/// expired, or the thread's own condition for waking is met. `None` if the thread has not slept.
pub(crate) fn turn_or_sleep<S: Shared, G: DerefMut<Target = Sharing<S>>, R>(
    lock: impl Fn() -> G,
    wanted: Bed,
    sleep: impl FnOnce(S::Limit, Bed) -> Result<R, S::Error>,
) -> Result<Option<R>, S::Error> {
    let Some((limit, bed)) = lock().prepare_sleep(wanted)? else {
        return Ok(None);
    };
    let slept = sleep(limit, bed);
    let mut sharing = lock();
    sharing.end_sleep(bed)?;
    if slept.is_err() {
        sharing.leave()?;
    }
    slept.map(Some)
}

/// Runs one step for the engine's own thread, unless `try_lock` fails because another thread has
/// the engine: the thread never waits for it. If there was no work and the wait mode is to sleep,
/// calls `sleep`. `counted`: on what the thread sleeps as far as others know.
pub(crate) fn turn_or_sleep_beside<S: Shared, G: DerefMut<Target = Sharing<S>>>(
    try_lock: impl Fn() -> Option<G>,
    counted: &mut Option<Bed>,
    sleep: impl FnOnce(S::Limit, Bed) -> Result<(), S::Error>,
) -> Result<Turned, S::Error> {
    let Some(mut sharing) = try_lock() else {
        return Ok(Turned::Elsewhere);
    };
    sharing.uncount(counted)?;
    if sharing.shared.has_ended() {
        return Ok(Turned::Ended);
    }
    let Some((limit, bed)) = sharing.prepare_sleep(Bed::Word)? else {
        return Ok(Turned::On);
    };
    *counted = Some(bed);
    drop(sharing);
    let slept = sleep(limit, bed);
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
