//! Ctrl-C and `kill` end a run in order, so that nothing stays attached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Turns true when the program is asked to end. A second signal ends it at once.
#[derive(Clone)]
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Begins to watch for signals.
    pub(crate) fn watch() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&flag),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot watch for signals")?;
        }
        Ok(Self(flag))
    }

    /// Fails once a signal has come.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.0.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }
}
