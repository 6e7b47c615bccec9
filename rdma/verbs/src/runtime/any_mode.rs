//! The mode of an RNIC: one of four, chosen by its configuration.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{RnicId, RnicUnavailable};

use super::assisted::Assisted;
use super::deferred_drops::DeferredDrops;
use super::engine_thread::EngineThreads;
use super::inline::Inline;
use super::manual::Manual;
use super::mode::Mode;
use super::pause::{Bell, Paused};

/// The mode of an RNIC.
#[expect(clippy::large_enum_variant, reason = "there is one per RNIC")]
pub(crate) enum AnyMode {
    /// Each engine has a thread of its own.
    Threads(EngineThreads),
    /// Threads that poll or wait run the only engine.
    Inline(Inline),
    /// Threads that poll run the only engine, and a thread of the engine's own while none polls.
    Assisted(Assisted),
    /// A test runs the engines, with its own clock.
    Manual(Manual),
}

/// Evaluates `$call` with `$mode` bound to the mode that `$any` contains.
macro_rules! in_mode {
    ($any:expr, $mode:ident => $call:expr) => {
        match $any {
            AnyMode::Threads($mode) => $call,
            AnyMode::Inline($mode) => $call,
            AnyMode::Assisted($mode) => $call,
            AnyMode::Manual($mode) => $call,
        }
    };
}

impl Mode for AnyMode {
    fn call<R: Send + 'static>(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        in_mode!(self, mode => mode.call(engine, work))
    }

    fn release_from_handler(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) + Send + 'static,
        deferred: &DeferredDrops,
    ) {
        in_mode!(self, mode => mode.release_from_handler(engine, work, deferred));
    }

    fn close(&self, from_handler: bool) {
        in_mode!(self, mode => mode.close(from_handler));
    }

    #[inline]
    fn turn(&self, after: impl FnOnce()) {
        in_mode!(self, mode => mode.turn(after));
    }

    fn ask_for_progress(&self) {
        in_mode!(self, mode => mode.ask_for_progress());
    }

    fn progress(&self) -> io::Result<()> {
        in_mode!(self, mode => mode.progress())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        in_mode!(self, mode => mode.fd())
    }

    fn step_at(&self, now: xwarp_tcp::Instant, rnic: RnicId, after: impl Fn()) -> usize {
        in_mode!(self, mode => mode.step_at(now, rnic, after))
    }

    fn pause(
        &self,
        bell: &dyn Bell,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<Option<Paused>> {
        in_mode!(self, mode => mode.pause(bell, others, timeout))
    }

    fn leave(&self) -> io::Result<()> {
        in_mode!(self, mode => mode.leave())
    }
}

impl fmt::Debug for AnyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        in_mode!(self, mode => mode.fmt(f))
    }
}
