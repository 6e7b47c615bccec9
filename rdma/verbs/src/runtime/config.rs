//! Configuration of the engines: what connects them to the network, which threads run them, and how
//! they wait for work.

use std::path::PathBuf;
use std::time::Duration;

/// Names the socket of a software switch.
const SERVICE: &str = "XWARP_SERVICE";

/// What connects an RNIC to the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attach {
    /// The switch whose socket the environment variable `XWARP_SERVICE` names. Without the
    /// variable, the interface.
    #[default]
    Auto,
    /// The interface itself. Needs root.
    Direct,
    /// The switch that listens at a socket, by `xwarp serve`. Needs no right but that to write to
    /// the socket.
    Service(PathBuf),
}

impl Attach {
    /// The socket of the switch, if there is to be one.
    pub fn service(&self) -> Option<PathBuf> {
        match self {
            Self::Auto => {
                let named = std::env::var_os(SERVICE).filter(|path| !path.is_empty());
                named.map(PathBuf::from)
            }
            Self::Direct => None,
            Self::Service(path) => Some(path.clone()),
        }
    }
}

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
