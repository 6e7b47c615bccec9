//! Mode: how the engines of an RNIC are run, and the calls that its handles make on them.
//!
//! `Control` makes no decision by the mode. It calls `AnyMode`, which is one match over the four
//! modes and no dynamic call.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use xwarp_driver::sleep_on;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{RnicId, RnicUnavailable};

use super::deferred_drops::DeferredDrops;
use super::pause::{Bed, Bell, Paused};

/// A way to run the engines of an RNIC. The default methods are those of engines that need no
/// caller to run them.
pub(crate) trait Mode: fmt::Debug {
    /// Runs a verb on an engine, and waits for its result.
    fn call<R: Send + 'static>(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable>;

    /// Releases an object that a handler of the engine has dropped, after the handler.
    fn release_from_handler(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) + Send + 'static,
        deferred: &DeferredDrops,
    ) {
        deferred.add(engine, Box::new(work));
    }

    /// Ends the engines and their threads. If a handler makes the call, the threads end after the
    /// handler.
    fn close(&self, from_handler: bool);

    /// Runs one step for a caller that polls, then `after`. Does nothing if callers do not run the
    /// engine.
    #[inline]
    fn turn(&self, _after: impl FnOnce()) {}

    /// Called before the caller sleeps on a descriptor of its own: the engine's own thread has to
    /// run the engine meanwhile.
    fn ask_for_progress(&self) {}

    /// Runs one step for an event loop that waits for [`fd`](Self::fd) next.
    fn progress(&self) -> io::Result<()> {
        Ok(())
    }

    /// The descriptor that is readable while the engine has work for its callers. `None` if the
    /// engine does not depend on callers.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Runs one step of each manual engine at the time `now`, each followed by `after`. Returns how
    /// much work was done.
    fn step_at(&self, _now: xwarp_tcp::Instant, _rnic: RnicId, _after: impl Fn()) -> usize {
        0
    }

    /// Runs the engine once for a caller that waits, or sleeps until `bell` or one of `others` ends
    /// the sleep. Returns `None` if waiting is useless.
    fn pause(
        &self,
        bell: &dyn Bell,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<Option<Paused>> {
        self.ask_for_progress();
        let slept = sleep_for(bell, others, timeout)?;
        Ok(Some(Paused::after_sleep(slept)))
    }

    /// The caller stops waiting, and so stops running the engine.
    fn leave(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Sleeps until `bell`, one of `others` or a signal handler ends the sleep, `timeout` at most.
/// Returns true if one of `others` is readable.
fn sleep_for(bell: &dyn Bell, others: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<bool> {
    let slept = bell
        .arm(Bed::Descriptor)
        .and_then(|()| sleep_on([bell.fd()], others, Some(timeout)));
    bell.disarm(Bed::Descriptor)?;
    slept
}
