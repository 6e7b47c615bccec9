//! Configuration of the engines' threads: which threads run an engine, and how it waits for work.

use std::time::Duration;

/// Which threads run the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A thread of its own. Best if the application has other work and a core is free.
    Thread,
    /// The thread that polls, connects or waits. Best for latency and on few cores. Between such
    /// calls the engine makes no progress.
    Inline,
    /// The thread that polls, and a thread of the engine's own while no thread polls. Best if
    /// programs poll, sleep and spin on memory in turn. While the application spins on a completion
    /// queue, the engine's own thread rests. It resumes 0.1 to 1.7 ms after the last poll, and at
    /// once when a queue is armed or a verb waits. It blocks the application's signals.
    Assisted,
    /// `Rnic::step_at` only, with the caller's clock: for simulation.
    Manual,
}

/// How the engine waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitMode {
    /// Spins: lowest latency, one core always busy.
    Busy,
    /// Spins for this time after the last work, then sleeps until something happens. After spins
    /// without success, most sleeps begin at once.
    Adaptive(Duration),
    /// Sleeps in the kernel at once.
    Blocking,
}
