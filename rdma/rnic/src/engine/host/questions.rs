//! Questions to the host. The thread that runs the engine asks them and hands in the answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use xwarp_tcp::{ConnId, Instant};

use crate::model::ListenKey;

/// The pause between two questions for next hops. The kernel takes a tenth of that for each, and
/// routers may have news without end.
const PATH_INTERVAL: Duration = Duration::from_millis(1);

/// A port that a listener wants.
#[derive(Clone, Copy, Debug)]
pub struct WantedPort {
    pub(in crate::engine) key: ListenKey,
    pub(in crate::engine) local: SocketAddr,
}

impl WantedPort {
    /// Address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }
}

/// Another port for a connection whose answer has come to another engine.
#[derive(Clone, Copy, Debug)]
pub struct OtherPort {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
}

impl OtherPort {
    /// Where the connection comes from so far: another port of that address is wanted.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// To where it leads.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// A question of the engine to its host, asked by the thread that runs the engine.
#[derive(Clone, Copy, Debug)]
pub enum HostQuestion {
    /// A port.
    Port(WantedPort),
    /// A port to connect from.
    OtherPort(OtherPort),
    /// The way of a connection that exists already.
    Path(DoubtfulPath),
    /// Metrics of the route to a peer whose SYN has come.
    Metrics(IncomingPath),
}

/// The way to a peer whose SYN has come.
#[derive(Clone, Copy, Debug)]
pub struct IncomingPath {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
}

impl IncomingPath {
    /// From where it leads.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// To where it leads.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }
}

/// The way of a connection whose next hop may be another one by now.
#[derive(Clone, Copy, Debug)]
pub struct DoubtfulPath {
    pub(in crate::engine) conn: ConnId,
    pub(in crate::engine) local: SocketAddr,
    pub(in crate::engine) remote: SocketAddr,
    pub(in crate::engine) silent: bool,
}

impl DoubtfulPath {
    /// From where it leads.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// To where it leads.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Whether the peer's silence puts it in doubt. Otherwise routes or neighbours have changed.
    pub fn is_silent(&self) -> bool {
        self.silent
    }
}

/// Questions that wait.
#[derive(Default)]
pub(in crate::engine) struct Questions {
    /// Questions for ports and metrics are in front of those for next hops.
    waiting: VecDeque<HostQuestion>,
    /// How many are for next hops.
    paths: usize,
    /// Paths have changed since the questions for all of them were put.
    again: bool,
    /// The next one for a next hop is asked then or later.
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

    /// When the next one is to be asked.
    pub(in crate::engine) fn due(&self) -> Option<Instant> {
        Some(match self.waiting.front()? {
            HostQuestion::Port(_) | HostQuestion::OtherPort(_) | HostQuestion::Metrics(_) => {
                Instant::ORIGIN
            }
            HostQuestion::Path(_) => self.path_due,
        })
    }

    /// The next one, if it is time to ask it.
    pub(in crate::engine) fn take(&mut self, now: Instant) -> Option<HostQuestion> {
        self.due().filter(|due| *due <= now)?;
        let question = self.waiting.pop_front()?;
        if matches!(question, HostQuestion::Path(_)) {
            self.paths -= 1;
            self.path_due = now + PATH_INTERVAL;
        }
        Some(question)
    }

    /// All paths are in doubt. True if it is time to put a question for each. While some wait, that
    /// comes later, so that all have their turn.
    pub(in crate::engine) fn begin_round(&mut self) -> bool {
        self.again = self.paths > 0;
        !self.again
    }

    /// True once if all paths were in doubt again and no question about any of them is left.
    pub(in crate::engine) fn owe_round(&self) -> bool {
        self.again && self.paths == 0
    }
}
