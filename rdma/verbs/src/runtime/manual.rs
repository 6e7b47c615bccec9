//! Manual engines: a test runs them, with its own clock.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{RnicId, RnicUnavailable};

use super::config::WaitMode;
use super::in_handler::is_in_handler;
use super::mode::Mode;
use super::pause::{Bell, Paused};
use super::runner::Runner;

/// Engines that only [`step_at`](Mode::step_at) runs
/// ([`Progress::Manual`](super::config::Progress::Manual)).
pub(crate) struct Manual(Vec<Mutex<Option<Runner>>>);

impl Manual {
    pub(crate) fn new(engines: Vec<Engine>) -> io::Result<Self> {
        let runner = |engine| Ok(Mutex::new(Some(Runner::new(engine, WaitMode::Blocking)?)));
        let runners = engines.into_iter().map(runner);
        Ok(Self(runners.collect::<io::Result<_>>()?))
    }
}

impl Mode for Manual {
    fn call<R: Send + 'static>(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        let runner = self.0.get(engine).ok_or(RnicUnavailable::Closed)?;
        let done = (lock(runner).as_mut()).map(|runner| runner.call_at_last_step(work));
        Ok(done
            .ok_or(RnicUnavailable::Closed)?
            .unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn close(&self, _: bool) {
        for runner in &self.0 {
            let ended = lock(runner).take();
            drop(ended);
        }
    }

    fn step_at(&self, now: xwarp_tcp::Instant, rnic: RnicId, after: impl Fn()) -> usize {
        let runners = self.0.iter();
        runners
            .map(|runner| step_one(runner, now, rnic, &after))
            .sum()
    }

    /// Returns `None`: a wait does not run a manual engine.
    fn pause(&self, _: &dyn Bell, _: &[BorrowedFd<'_>], _: Duration) -> io::Result<Option<Paused>> {
        Ok(None)
    }
}

/// Runs one step of an engine, unless the caller is one of its handlers.
fn step_one(
    runner: &Mutex<Option<Runner>>,
    now: xwarp_tcp::Instant,
    rnic: RnicId,
    after: impl Fn(),
) -> usize {
    let Some(mut locked) = lock_out_of_handler(runner, rnic) else {
        return 0;
    };
    let stepped = locked.as_mut().map(|runner| runner.step_at(now));
    drop(locked);
    after();
    stepped.map_or(0, |done| done.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Locks an engine. Returns `None` in a handler of it, which runs with the engine locked.
#[inline]
fn lock_out_of_handler<T>(runner: &Mutex<T>, rnic: RnicId) -> Option<MutexGuard<'_, T>> {
    match runner.try_lock() {
        Ok(runner) => Some(runner),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => (!is_in_handler(rnic)).then(|| lock(runner)),
    }
}

impl fmt::Debug for Manual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("run by a test")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
