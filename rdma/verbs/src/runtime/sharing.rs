//! Sharing of an inline engine: which threads sleep while another one turns it, and when they look
//! again.
//!
//! All of it happens within one lock, which no thread holds while it sleeps. `tests/models`
//! explores it.

use std::ops::DerefMut;

/// An engine that threads share, and the descriptor that they and event loops wait for.
pub(crate) trait Shared {
    /// How long the engine lets a thread sleep.
    type Limit;
    /// Why no thread can wait for the descriptor.
    type Error;

    /// One turn; how much was done.
    fn turn(&mut self) -> usize;

    /// Whether the engine is closed.
    fn has_ended(&self) -> bool;

    /// After a turn without work: how long a thread may sleep. `None` if it is to look again
    /// instead.
    fn limit(&mut self) -> Option<Self::Limit>;

    /// Has the descriptor become readable when there is something to do; at once, unless the engine
    /// is `idle` now. If `timed`, also when the engine's next deadline comes.
    fn arm(&mut self, idle: bool, timed: bool) -> Result<(), Self::Error>;

    /// Makes the descriptor readable until it is armed again. Frames are not announced meanwhile.
    fn open(&mut self) -> Result<(), Self::Error>;

    /// Makes the descriptor readable if it is armed.
    fn ring(&self);
}

/// See the module.
///
/// A sleeper sleeps for as long as the engine has said before. A thread that changes the engine
/// later has the sleepers look again, at the latest when it stops turning the engine. While no
/// thread sleeps and no event loop has armed the descriptor, it is readable, so that a later loop
/// makes a first turn.
pub(crate) struct Sharing<S> {
    shared: S,
    /// The descriptor will be readable when there is something to do, and a thread may be waiting
    /// for that.
    armed: bool,
    /// An event loop has called [`progress`](Self::progress): it waits for the descriptor and needs
    /// its timer.
    in_loop: bool,
    /// Threads that sleep.
    sleepers: usize,
}

impl<S: Shared> Sharing<S> {
    /// Of an engine that no thread waits for. The descriptor is readable from the beginning: the
    /// first turn arms it.
    pub(crate) fn new(mut shared: S) -> Result<Self, S::Error> {
        shared.open()?;
        Ok(Self {
            shared,
            armed: false,
            in_loop: false,
            sleepers: 0,
        })
    }

    /// What is shared.
    pub(crate) fn shared(&self) -> &S {
        &self.shared
    }

    /// What is shared, to be changed: [`settle`](Self::settle) follows.
    pub(crate) fn shared_mut(&mut self) -> &mut S {
        &mut self.shared
    }

    /// Threads that sleep.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn sleepers(&self) -> usize {
        self.sleepers
    }

    /// Whether the descriptor is armed, and whether an event loop waits for it.
    #[allow(dead_code, reason = "a model need not look")]
    pub(crate) fn waits(&self) -> (bool, bool) {
        (self.armed, self.in_loop)
    }

    /// One turn for a thread that polls.
    pub(crate) fn turn(&mut self) {
        if self.shared.turn() > 0 {
            self.wake();
        }
    }

    /// One turn for an event loop, and arms the descriptor for what is next.
    pub(crate) fn progress(&mut self) -> Result<(), S::Error> {
        self.in_loop = true;
        let done = self.shared.turn();
        self.arm(done == 0)
    }

    /// Turns; if there was nothing to do and the policy is to sleep, counts a sleeper and says how
    /// long the engine lets it sleep.
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

    /// A verb was called, which may have left something to do. One that has not, such as a query,
    /// wakes no event loop: a loop that calls it in each round would never sleep.
    pub(crate) fn settle(&mut self) {
        if !self.armed {
            return;
        }
        let idle = self.sleepers == 0 && self.shared.turn() == 0;
        if !idle || self.arm(true).is_err() {
            self.wake();
        }
    }

    /// A thread has slept. If no other one sleeps and no event loop waits, frames are not announced
    /// while threads turn.
    pub(crate) fn end_sleep(&mut self) -> Result<(), S::Error> {
        self.sleepers -= 1;
        if self.sleepers == 0 && !self.in_loop {
            self.armed = false;
            self.shared.open()?;
        }
        Ok(())
    }

    /// The engine's own thread has slept, if it still counts as a sleeper.
    pub(crate) fn uncount(&mut self, counted: &mut bool) -> Result<(), S::Error> {
        if std::mem::take(counted) {
            self.end_sleep()?;
        }
        Ok(())
    }

    /// A thread that has waited stops turning the engine: sleepers and event loops look again.
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

    /// The engine's state has changed after the descriptor was armed.
    fn wake(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.shared.ring();
        }
    }

    /// If that fails, all who wait look anew, and find out.
    fn arm(&mut self, idle: bool) -> Result<(), S::Error> {
        let armed = self.shared.arm(idle, self.in_loop);
        self.armed = armed.is_ok();
        if armed.is_err() {
            self.shared.open()?;
        }
        armed
    }
}

/// One turn for a thread that waits. If there was nothing to do and the policy is to sleep, sleeps
/// by `sleep`. That ends when the descriptor is readable, when the limit is over, or by what else
/// the thread waits for. `None` if it has not slept.
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

/// One turn for the engine's own thread, unless `try_lock` says that another thread has the engine
/// now: the thread never waits for that. If there was nothing to do and the policy is to sleep,
/// sleeps by `sleep`. `counted` says whether the thread still counts as a sleeper.
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

/// What the engine's own thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It has turned the engine, or slept.
    On,
    /// Another thread has the engine now.
    Elsewhere,
    /// The engine is closed.
    Ended,
}

/// The engine's own thread counts as a sleeper no longer: without that it must not rest.
#[derive(Debug)]
pub(crate) struct Uncounted;
