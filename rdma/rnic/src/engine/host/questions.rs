//! Questions to the host. The thread that runs the engine asks them and passes the answers to the
//! engine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use crate::model::ListenKey;

/// Pause between two questions for next hops. The kernel needs a tenth of that for each, and
/// routers may announce changes without end.
const PATH_INTERVAL: Duration = Duration::from_millis(1);

/// A port that a listener needs.
#[derive(Clone, Copy, Debug)]
pub struct WantedPort {
    pub(in crate::engine) key: ListenKey,
    pub(in crate::engine) local: SocketAddr,
}

impl WantedPort {
    /// Address and port, where the port may be 0.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Another port for a connection whose SYN-ACK arrived at another engine.
#[derive(Clone, Copy, Debug)]
pub struct OtherPort {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
}

impl OtherPort {
    /// Current local address and port. Another port of that address is needed.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Address and port of the peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// A question of the engine to its host, asked by the thread that runs the engine.
#[derive(Clone, Copy, Debug)]
pub enum HostQuestion {
    /// A port.
    Port(WantedPort),
    /// Another port to connect from.
    OtherPort(OtherPort),
    /// The path of an existing connection.
    Path(DoubtfulPath),
    /// Metrics of the route to a peer that has sent a SYN.
    Metrics(IncomingPath),
}

/// The path to a peer that has sent a SYN.
#[derive(Clone, Copy, Debug)]
pub struct IncomingPath {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
}

impl IncomingPath {
    /// Local address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Address and port of the peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// The path of a connection whose next hop may have changed.
#[derive(Clone, Copy, Debug)]
pub struct DoubtfulPath {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
    pub(in crate::engine) silent: bool,
}

impl DoubtfulPath {
    /// Local address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Address and port of the peer.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Whether the path is in doubt because the peer is silent. Otherwise routes or neighbours have
    /// changed.
    pub fn is_silent(&self) -> bool {
        self.silent
    }
}

/// Questions that wait for an answer.
#[derive(Default)]
pub(in crate::engine) struct Questions {
    /// Questions for ports and metrics are in front of those for next hops.
    waiting: VecDeque<HostQuestion>,
    /// Number of questions for next hops.
    paths: usize,
    /// Whether paths have changed since the last questions for all of them were added.
    again: bool,
    /// Earliest time of the next question for a next hop.
    path_due: Instant,
}

impl Questions {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::engine) fn put(&mut self, question: HostQuestion) {
        match question {
            HostQuestion::Port(_) | HostQuestion::OtherPort(_) | HostQuestion::Metrics(_) => {
                self.waiting.push_front(question);
            }
            HostQuestion::Path(_) => {
                self.paths += 1;
                self.waiting.push_back(question);
            }
        }
    }

    /// When the next question may be asked.
    pub(in crate::engine) fn due(&self) -> Option<Instant> {
        Some(match self.waiting.front()? {
            HostQuestion::Port(_) | HostQuestion::OtherPort(_) | HostQuestion::Metrics(_) => {
                Instant::ORIGIN
            }
            HostQuestion::Path(_) => self.path_due,
        })
    }

    /// Takes the next question, if it may be asked now.
    pub(in crate::engine) fn take(&mut self, now: Instant) -> Option<HostQuestion> {
        self.due().filter(|due| *due <= now)?;
        let question = self.waiting.pop_front()?;
        if matches!(question, HostQuestion::Path(_)) {
            self.paths -= 1;
            self.path_due = now + PATH_INTERVAL;
        }
        Some(question)
    }

    /// All paths are in doubt. Returns true if a question for each shall be added now. If earlier
    /// questions for next hops wait, that happens later, so that every path is asked for.
    pub(in crate::engine) fn begin_round(&mut self) -> bool {
        self.again = self.paths > 0;
        !self.again
    }

    /// True if all paths have become doubtful again and no question about any of them is left.
    pub(in crate::engine) fn owe_round(&self) -> bool {
        self.again && self.paths == 0
    }
}
