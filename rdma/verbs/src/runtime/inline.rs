//! Inline engine, run by the threads that call it, and the descriptor that an event loop or a
//! sleeping caller waits for.
//!
//! [`Sharing`] defines how the threads wake each other.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use xwarp_driver::{Doorbell, Sleeper, WaitSet, WokenBy, is_any_readable, sleep_on};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use super::mode::Mode;
use super::pause::{Bell, Paused};
use super::runner::Runner;
use super::sharing::{
    Bed, Shared, Sharing, Turned, Uncounted, Waiting, turn_or_sleep, turn_or_sleep_beside,
};

/// An engine without a thread of its own, behind a lock (decision record verbs/0001).
pub(crate) struct Inline {
    sharing: Mutex<Sharing<State>>,
    /// Descriptor of the wait set, on which callers sleep (decision record verbs/0007).
    fd: OwnedFd,
    /// On whose word they sleep if they wait for no descriptors of others.
    sleeper: Sleeper,
}

/// State that the threads share.
struct State {
    /// `None` once the RNIC was closed.
    runner: Option<Runner>,
    waits: WaitSet,
    bell: Doorbell,
}

impl Inline {
    /// The descriptor is readable from the beginning: the first step arms it.
    pub(crate) fn new(runner: Runner, (sleeper, bell): &(Sleeper, Doorbell)) -> io::Result<Self> {
        let waits = WaitSet::new(sleeper)?;
        waits.watch(runner.searches())?;
        let fd = waits.as_fd().try_clone_to_owned()?;
        let state = State {
            runner: Some(runner),
            waits,
            bell: bell.clone(),
        };
        Ok(Self {
            sharing: Mutex::new(Sharing::new(state)?),
            fd,
            sleeper: sleeper.twin(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sharing<State>> {
        self.sharing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while another thread has the engine.
    fn try_lock(&self) -> Option<MutexGuard<'_, Sharing<State>>> {
        match self.sharing.try_lock() {
            Ok(sharing) => Some(sharing),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the engine as soon as `sleepers` threads sleep. The returned value holds the lock.
    /// `None` after `limit`.
    #[cfg(test)]
    pub(crate) fn hold_beside(&self, sleepers: usize, limit: Duration) -> Option<impl Sized + '_> {
        let began = std::time::Instant::now();
        while began.elapsed() < limit {
            let sharing = self.lock();
            if sharing.sleepers() == sleepers {
                return Some(sharing);
            }
            drop(sharing);
            std::thread::yield_now();
        }
        None
    }

    /// Runs a verb.
    pub(crate) fn run<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> Result<R, RnicUnavailable> {
        let mut sharing = self.lock();
        let runner = sharing.shared_mut().runner.as_mut();
        let runner = runner.ok_or(RnicUnavailable::Closed)?;
        let done = runner.call(work).map_err(|_| RnicUnavailable::Closed);
        sharing.settle();
        done
    }

    /// Runs one step for a caller that polls. Does nothing while the engine is locked: by another
    /// thread, or by this one in a handler.
    pub(crate) fn try_turn(&self) {
        if let Some(mut sharing) = self.try_lock() {
            sharing.turn();
        }
    }

    /// Runs one step for the engine's own thread, unless another thread has the engine. If there
    /// was no work, spins or sleeps by the wait mode until there is some. It never waits for the
    /// thread that has the engine. `counted`: on what the thread sleeps as far as others know.
    pub(crate) fn turn_or_sleep_long(&self, counted: &mut Option<Bed>) -> io::Result<Turned> {
        let sleep = |longest, bed| match bed {
            Bed::Word => Sleeper::sleep_on_words(&[&self.sleeper], Some(longest)),
            Bed::Descriptor => sleep_on([self.fd.as_fd()], &[], Some(longest)).map(drop),
        };
        turn_or_sleep_beside(|| self.try_lock(), counted, sleep)
    }

    /// Called when the engine's own thread is about to rest: it no longer counts as a sleeper.
    /// `None` while another thread has the engine, when the thread must not rest.
    pub(crate) fn may_rest(&self, counted: &mut Option<Bed>) -> io::Result<Option<Uncounted>> {
        if counted.is_none() {
            return Ok(Some(Uncounted));
        }
        match self.try_lock() {
            Some(mut sharing) => sharing.uncount(counted).map(|()| Some(Uncounted)),
            None => Ok(None),
        }
    }

    /// Time since the last turn began. Zero while another thread has the engine, and
    /// `Duration::MAX` after the RNIC is closed.
    pub(crate) fn idle_time(&self) -> Duration {
        let Some(sharing) = self.try_lock() else {
            return Duration::ZERO;
        };
        let runner = sharing.shared().runner.as_ref();
        runner.map_or(Duration::MAX, Runner::idle_time)
    }

    /// Ends the engine. The descriptor stays readable.
    pub(crate) fn end(&self) {
        let mut sharing = self.lock();
        let (ended, opened) = sharing.close(|state| state.runner.take());
        if let Err(error) = opened {
            log::error!("threads that wait for a closed RNIC are not woken: {error}");
        }
        drop(sharing);
        drop(ended);
    }
}

impl Mode for Inline {
    fn call<R: Send + 'static>(
        &self,
        _: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.run(work)
    }

    fn close(&self, _: bool) {
        self.end();
    }

    #[inline(never)]
    fn turn(&self, after: impl FnOnce()) {
        self.try_turn();
        after();
    }

    /// Arms the descriptor for the next work, too. The descriptor stays readable while work is
    /// left.
    fn progress(&self) -> io::Result<()> {
        self.lock().progress()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    /// Runs the engine once. If there was no work, spins or sleeps by the wait mode: until there is
    /// some, `bell` or one of `others` is readable, or `timeout` has expired.
    fn pause(
        &self,
        bell: &dyn Bell,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<Option<Paused>> {
        let word = bell.sleeper().filter(|_| others.is_empty());
        let sleep = |longest: Duration, bed| {
            let longest = Some(longest.min(timeout));
            let slept = bell.arm(bed).and_then(|()| match (bed, word) {
                (Bed::Word, Some(word)) => {
                    Sleeper::sleep_on_words(&[&self.sleeper, word], longest).map(|()| false)
                }
                _ => sleep_on([self.fd.as_fd(), bell.fd()], others, longest),
            });
            bell.disarm(bed)?;
            slept.map(Paused::after_sleep)
        };
        let wanted = word.map_or(Bed::Descriptor, |_| Bed::Word);
        let paused = turn_or_sleep(|| self.lock(), wanted, sleep)?;
        Ok(Some(paused.unwrap_or(Paused::Not)))
    }

    /// Wakes sleeping threads, since the caller no longer runs the engine for them.
    fn leave(&self) -> io::Result<()> {
        self.lock().leave()
    }
}

impl fmt::Debug for Inline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sharing) = self.try_lock() else {
            return f.write_str("Inline(a thread has the engine)");
        };
        let (armed, waiting) = sharing.waits();
        f.debug_struct("Inline")
            .field("armed", &armed)
            .field("waiting", &waiting)
            .field("bell", &sharing.shared().bell)
            .field("is_readable", &is_any_readable(&[self.fd.as_fd()]).ok())
            .finish_non_exhaustive()
    }
}

impl Shared for State {
    type Limit = Duration;
    type Error = io::Error;

    fn turn(&mut self) -> usize {
        self.runner.as_mut().map_or(0, Runner::step)
    }

    fn has_ended(&self) -> bool {
        self.runner.is_none()
    }

    fn limit(&mut self) -> Option<Duration> {
        let runner = self.runner.as_mut()?;
        if runner.spins() {
            std::hint::spin_loop();
            return None;
        }
        Some(runner.sleep_timeout().unwrap_or(Duration::MAX))
    }

    fn rings_for_all(&self) -> bool {
        let by_doorbell = |it: &Runner| it.readiness().is_none() && !it.is_searching();
        self.runner.as_ref().is_some_and(by_doorbell) && Sleeper::has_words()
    }

    fn arm(&mut self, idle: bool, waiting: Waiting) -> io::Result<()> {
        let Some(runner) = &self.runner else {
            return self.open(waiting);
        };
        let is_idle = || idle && runner.is_idle();
        if !waiting.in_loop && waiting.on_descriptor == 0 {
            return self.waits.arm_word(is_idle);
        }
        let deadline = waiting.in_loop.then(|| runner.sleep_timeout()).flatten();
        let by = WokenBy {
            descriptor: true,
            word: waiting.on_word > 0,
        };
        self.waits.arm(runner.readiness(), deadline, by, is_idle)
    }

    fn open(&mut self, waiting: Waiting) -> io::Result<()> {
        self.waits.open(waiting.on_word > 0)
    }

    fn ring(&self) {
        self.bell.ring();
    }
}
