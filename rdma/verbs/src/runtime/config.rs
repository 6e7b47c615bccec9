//! Configuration of running: who runs an engine, and what it does when there is nothing to do.

use std::time::Duration;

/// Who runs the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A thread of its own. Best where the application has other work and a core is free.
    Thread,
    /// The thread that polls, connects or waits. Best for latency and where cores are few. Between
    /// such calls the engine stands still.
    Inline,
    /// The thread that polls, and a thread of the engine's own while no thread polls. Best where
    /// programs poll, sleep and spin on memory in turn. While the application spins on a completion
    /// queue, the engine's own thread rests. It resumes 0.1 to 1.7 ms after the last poll, and at
    /// once when a queue is armed or a verb waits. It blocks the application's signals.
    Assisted,
    /// `Rnic::step_at` only, with the caller's clock: for simulation.
    Manual,
}

/// What the engine does when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitMode {
    /// Spins: lowest latency, one core always busy.
    Busy,
    /// Spins this long after the last work, then sleeps until something happens. Where spins were
    /// in vain, most sleeps begin at once.
    Adaptive(Duration),
    /// Sleeps in the kernel at once.
    Blocking,
}
