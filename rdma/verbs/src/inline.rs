//! Inline engine: turned by the threads that call it, and the descriptor that an event loop or a sleeping caller waits for.
//!
//! Nobody holds the lock while it sleeps. Whoever turns the engine or calls a verb meanwhile rings, so that the sleepers look anew how long
//! they may sleep.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use xwarp_driver::{Doorbell, Signal, Sleeper, WaitSet, is_any_readable, sleep_on};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use crate::runner::Runner;

/// An engine without a thread of its own.
pub(crate) struct Inline {
    state: Mutex<State>,
    /// The wait set's.
    fd: OwnedFd,
    bell: Doorbell,
}

struct State {
    /// `None` once the RNIC was closed.
    runner: Option<Runner>,
    waits: WaitSet,
    /// The descriptor will be readable when there is something to do, and somebody may be waiting for that.
    armed: bool,
    /// An event loop has called [`Inline::progress`]: it waits for the descriptor and needs the wait set's timer.
    in_loop: bool,
    /// Callers that sleep.
    sleepers: usize,
}

impl Inline {
    /// Of a descriptor that is readable from the beginning: the first turn arms it.
    pub(crate) fn new(runner: Runner, (sleeper, bell): &(Sleeper, Doorbell)) -> io::Result<Self> {
        let mut waits = WaitSet::new(sleeper)?;
        waits.watch(runner.searches())?;
        waits.arm(None, None, || false)?;
        let fd = waits.as_fd().try_clone_to_owned()?;
        let state = State {
            runner: Some(runner),
            waits,
            armed: false,
            in_loop: false,
            sleepers: 0,
        };
        Ok(Self {
            state: Mutex::new(state),
            fd,
            bell: bell.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while somebody has the engine.
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes the engine as soon as so many sleep, and has it as long as this lives. `None` if that takes longer than `limit`.
    #[cfg(test)]
    pub(crate) fn hold_beside(&self, sleepers: usize, limit: Duration) -> Option<impl Sized + '_> {
        let began = std::time::Instant::now();
        while began.elapsed() < limit {
            let state = self.lock();
            if state.sleepers == sleepers {
                return Some(state);
            }
            drop(state);
            std::thread::yield_now();
        }
        None
    }

    /// A verb.
    pub(crate) fn call<R>(
        &self,
        work: impl FnOnce(&mut Engine) -> R,
    ) -> Result<R, RnicUnavailable> {
        let mut state = self.lock();
        let runner = state.runner.as_mut().ok_or(RnicUnavailable::Closed)?;
        let done = runner
            .engine()
            .call(work)
            .map_err(|_| RnicUnavailable::Closed);
        state.settle(&self.bell);
        done
    }

    /// One turn for a caller that polls, unless somebody turns it now: another thread, or this one, which is in a handler then.
    pub(crate) fn turn(&self) {
        let Some(mut state) = self.try_lock() else {
            return;
        };
        if state.turn() > 0 {
            state.wake(&self.bell);
        }
    }

    /// One turn for an event loop, and arms the descriptor for what is next. It stays readable as long as there is more to do.
    pub(crate) fn progress(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.in_loop = true;
        let done = state.turn();
        state.arm(done == 0)?;
        Ok(())
    }

    /// One turn for a caller that waits. If there was nothing to do, spins or sleeps as the policy says: until there is something, `bell` or one
    /// of `others` is readable or `timeout` is over.
    pub(crate) fn turn_or_sleep(
        &self,
        bell: &dyn Bell,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<Paused> {
        let Some(longest) = self.lock().prepare_sleep(&self.bell)? else {
            return Ok(Paused::Not);
        };
        let timeout = longest.min(timeout);
        let slept = bell
            .arm()
            .and_then(|()| sleep_on([self.fd.as_fd(), bell.fd()], others, Some(timeout)));
        self.lock().end_sleep()?;
        bell.disarm()?;
        slept.map(Paused::after_sleep)
    }

    /// One turn for the engine's own thread, unless somebody has the engine now. If there was nothing to do, spins or sleeps as the policy says,
    /// until there is something. It never waits for whoever has the engine. `counted` says whether the thread still counts as a sleeper.
    pub(crate) fn turn_or_sleep_long(&self, counted: &mut bool) -> io::Result<Turned> {
        let Some(mut state) = self.try_lock() else {
            return Ok(Turned::Elsewhere);
        };
        state.uncount(counted)?;
        if state.runner.is_none() {
            return Ok(Turned::Ended);
        }
        let Some(longest) = state.prepare_sleep(&self.bell)? else {
            return Ok(Turned::On);
        };
        *counted = true;
        drop(state);
        let slept = sleep_on([self.fd.as_fd()], &[], Some(longest));
        if let Some(mut state) = self.try_lock() {
            state.uncount(counted)?;
        }
        slept.map(|_| Turned::On)
    }

    /// The engine's own thread is going to rest, and counts as a sleeper no longer. `None` while another thread has the engine: then it does
    /// not rest yet.
    pub(crate) fn may_rest(&self, counted: &mut bool) -> io::Result<Option<Uncounted>> {
        if !*counted {
            return Ok(Some(Uncounted));
        }
        match self.try_lock() {
            Some(mut state) => state.uncount(counted).map(|()| Some(Uncounted)),
            None => Ok(None),
        }
    }

    /// How long ago the last turn began; no time at all while somebody has the engine, and without end once the RNIC was closed.
    pub(crate) fn idle_time(&self) -> Duration {
        let Some(state) = self.try_lock() else {
            return Duration::ZERO;
        };
        let runner = state.runner.as_ref();
        runner.map_or(Duration::MAX, Runner::idle_time)
    }

    /// A caller waits no longer, and so turns the engine no longer: others that sleep look anew.
    pub(crate) fn leave(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.sleepers > 0 || state.in_loop {
            state.arm(false)?;
        }
        Ok(())
    }

    /// Ends the engine. The descriptor stays readable.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        let ended = state.runner.take();
        if let Err(error) = state.arm(false) {
            log::error!("those who wait for a closed RNIC are not woken: {error}");
        }
        drop(state);
        drop(ended);
    }
}

impl AsFd for Inline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(state) = self.try_lock() else {
            return f.write_str("Inline(a thread has the engine)");
        };
        f.debug_struct("Inline")
            .field("armed", &state.armed)
            .field("in_loop", &state.in_loop)
            .field("sleepers", &state.sleepers)
            .field("bell", &self.bell)
            .field("is_readable", &is_any_readable(&[self.fd.as_fd()]).ok())
            .finish_non_exhaustive()
    }
}

impl State {
    /// One turn; how much was done.
    fn turn(&mut self) -> usize {
        self.runner.as_mut().map_or(0, Runner::step)
    }

    /// Turns; if there was nothing to do and the policy is to sleep, counts a sleeper and says how long the engine lets it sleep.
    fn prepare_sleep(&mut self, bell: &Doorbell) -> io::Result<Option<Duration>> {
        if self.turn() > 0 {
            self.wake(bell);
            return Ok(None);
        }
        let Some(runner) = self.runner.as_mut() else {
            return Ok(None);
        };
        if runner.spins() {
            std::hint::spin_loop();
            return Ok(None);
        }
        let timeout = runner.sleep_timeout().unwrap_or(Duration::MAX);
        self.arm(true)?;
        self.sleepers += 1;
        Ok(Some(timeout))
    }

    /// A verb was called, which may have left something to do. One that has not, such as a query, wakes no event loop: a loop that calls it in
    /// each round would never sleep.
    fn settle(&mut self, bell: &Doorbell) {
        if !self.armed {
            return;
        }
        let idle = self.sleepers == 0 && self.turn() == 0;
        if !idle || self.arm(true).is_err() {
            self.wake(bell);
        }
    }

    /// A caller has slept. Unless others wait, frames are not announced while callers turn.
    fn end_sleep(&mut self) -> io::Result<()> {
        self.sleepers -= 1;
        if self.sleepers == 0 && !self.in_loop {
            self.armed = false;
            self.waits.ignore_frames();
            self.waits.clear()?;
        }
        Ok(())
    }

    /// The engine's own thread sleeps no longer, if it still counts.
    fn uncount(&mut self, counted: &mut bool) -> io::Result<()> {
        if std::mem::take(counted) {
            self.end_sleep()?;
        }
        Ok(())
    }

    /// The engine's state has changed after the descriptor was armed.
    fn wake(&mut self, bell: &Doorbell) {
        if std::mem::take(&mut self.armed) {
            bell.ring();
        }
    }

    /// Has the descriptor become readable when there is something to do; at once, unless it is `idle` now.
    fn arm(&mut self, idle: bool) -> io::Result<()> {
        self.waits.clear()?;
        let Some(runner) = &self.runner else {
            return self.waits.arm(None, None, || false);
        };
        let timer = if self.in_loop {
            runner.sleep_timeout()
        } else {
            None
        };
        let is_idle = || idle && runner.is_idle();
        self.waits.arm(runner.readiness(), timer, is_idle)?;
        self.armed = true;
        Ok(())
    }
}

/// What the engine's own thread has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It has turned the engine, or slept.
    On,
    /// Somebody else has the engine now.
    Elsewhere,
    /// There is no engine any more.
    Ended,
}

/// The engine's own thread counts as a sleeper no longer: without that it must not rest.
#[derive(Debug)]
pub(crate) struct Uncounted;

/// What a caller that waits has done between two looks at its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// It has not slept.
    Not,
    /// It has slept.
    Slept,
    /// It has slept, and one of the other descriptors is readable.
    ForOther,
}

impl Paused {
    pub(crate) fn after_sleep(is_other_readable: bool) -> Self {
        if is_other_readable {
            Self::ForOther
        } else {
            Self::Slept
        }
    }
}

/// What else ends the sleep of a caller that waits.
pub(crate) trait Bell {
    /// Before the sleep.
    fn arm(&self) -> io::Result<()>;

    /// After it.
    fn disarm(&self) -> io::Result<()>;

    /// The descriptor that it makes readable.
    fn fd(&self) -> BorrowedFd<'_>;
}

impl Bell for BorrowedFd<'_> {
    /// It is readable as long as there is something to do.
    fn arm(&self) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl Bell for Signal {
    /// Whoever takes what it announces clears it.
    fn arm(&self) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&self) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}
