//! Next hops that connections wait for, or that are in doubt. The thread that runs the engine asks
//! the host for them and hands in the answers here.

use xwarp_driver::net::MacAddr;
use xwarp_tcp::{ConnId, RouteMetrics};

use super::questions::{DoubtfulPath, HostQuestion, IncomingPath};
use crate::engine::Engine;
use crate::model::{ConnectError, HostError, NextHopSearch, PresentWay};
use crate::tables::{SearchId, Searcher};

/// Paths in doubt.
impl Engine {
    /// Doubts the path of a connection whose peer is silent.
    pub(in crate::engine) fn doubt_path(&mut self, conn: ConnId) {
        self.ask_for_path(conn, true);
    }

    /// Doubts all paths, as routes or neighbours of the host have changed.
    pub(in crate::engine) fn doubt_all_paths(&mut self) {
        if !self.interface.questions.begin_round() {
            return;
        }
        for conn in self.connections.conns() {
            self.ask_for_path(conn, false);
        }
    }

    fn ask_for_path(&mut self, conn: ConnId, silent: bool) {
        let Some(found) = self.device.stack.conn(conn) else {
            return;
        };
        let path = DoubtfulPath {
            conn,
            local: found.local_addr(),
            remote: found.peer_addr(),
            silent,
        };
        // The host has no next hop to its own address.
        if path.local.ip() != path.remote.ip() {
            self.interface.ask(HostQuestion::Path(path));
        }
    }

    /// Handles the host's answer for a path that was in doubt. If the host does not know a next hop
    /// at the moment, the connection keeps its next hop.
    pub fn give_path(&mut self, path: &DoubtfulPath, answer: Result<PresentWay, HostError>) {
        let (now, remote) = (self.device.now, path.remote);
        let way = match answer {
            Ok(way) => way,
            Err(error) => return log::debug!("the next hop to {remote} stays: {error}"),
        };
        self.device.stack.set_metrics(path.conn, way.metrics, now);
        if let Some(mac) = way.next_hop
            && self.device.stack.set_next_hop(path.conn, mac, now)
        {
            log::debug!("the next hop to {remote} is {} now", MacAddr(mac));
        }
    }
}

/// Routes to peers that have sent a SYN.
impl Engine {
    /// Asks the host for the metrics of a connection's route, as the SYN-ACK offers an MSS.
    pub(in crate::engine) fn ask_for_metrics(&mut self, conn: ConnId) {
        let Some(found) = self.device.stack.conn(conn) else {
            return;
        };
        let (local, remote) = (found.local_addr(), found.peer_addr());
        let path = IncomingPath {
            conn,
            local,
            remote,
        };
        // The host has no route over the interface to its own address.
        if local.ip() == remote.ip() {
            self.give_metrics(&path, Ok(RouteMetrics::default()));
        } else {
            self.interface.ask(HostQuestion::Metrics(path));
        }
    }

    /// Handles the host's answer for a peer that has sent a SYN. If the host knows no route, the
    /// interface's MTU is used.
    pub fn give_metrics(&mut self, path: &IncomingPath, answer: Result<RouteMetrics, HostError>) {
        let metrics = answer.unwrap_or_else(|error| {
            log::debug!(
                "the MTU of the way to {} is the interface's: {error}",
                path.remote
            );
            RouteMetrics::default()
        });
        let now = self.device.now;
        self.device.stack.set_metrics(path.conn, metrics, now);
    }
}

/// Searches.
impl Engine {
    /// True if the thread that runs the engine has to [ask its host](Self::take_question) or has
    /// not taken [a search](Self::take_begun_search) yet.
    #[inline]
    pub fn asks_host(&self) -> bool {
        self.interface.has_questions() || self.device.searches.has_begun()
    }

    /// True while a connection waits for its next hop.
    #[inline]
    pub fn is_searching(&self) -> bool {
        !self.device.searches.is_empty()
    }

    /// A search that has begun since the last call.
    pub fn take_begun_search(&mut self) -> Option<SearchId> {
        self.device.searches.take_begun()
    }

    /// A search, to be polled by the thread that runs the engine. `None` if no connection waits for
    /// it any longer.
    pub fn search(&mut self, id: SearchId) -> Option<&mut dyn NextHopSearch> {
        self.device.searches.get_mut(id)
    }

    /// Ends a search with its result.
    pub fn give_next_hop(&mut self, id: SearchId, answer: Result<[u8; 6], ConnectError>) {
        match self.device.searches.end(id) {
            Some(Searcher::Qp(key)) => {
                self.with_qp(key, |qp, device| qp.handle_next_hop(answer, device));
            }
            Some(Searcher::Stream) => {
                let next_hop = answer.and_then(|next_hop| match self.failure() {
                    Some(reason) => Err(ConnectError::Failed(reason)),
                    None => Ok(next_hop),
                });
                self.connections
                    .on_next_hop_of_stream(id, next_hop, &mut self.device);
            }
            None => {}
        }
    }
}
