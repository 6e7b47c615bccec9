//! Next hops that connections wait for: whoever turns the engine asks the host for them, and gives the answers here.

use super::Engine;
use crate::model::{ConnectError, NextHopSearch};
use crate::tables::{SearchId, Searcher};

impl Engine {
    /// True while whoever turns the engine is to [open a port](Self::take_wanted_port) or has not seen
    /// [a search](Self::take_begun_search).
    #[inline]
    pub fn asks_host(&self) -> bool {
        self.interface.wants_port() || self.device.searches.has_begun()
    }

    /// True while a connection waits for its next hop.
    #[inline]
    pub fn is_searching(&self) -> bool {
        !self.device.searches.is_empty()
    }

    /// A search that has begun since this was asked last.
    pub fn take_begun_search(&mut self) -> Option<SearchId> {
        self.device.searches.take_begun()
    }

    /// A search, to be asked by whoever turns the engine. `None` if nobody waits for it any more.
    pub fn search(&mut self, id: SearchId) -> Option<&mut dyn NextHopSearch> {
        self.device.searches.get_mut(id)
    }

    /// What a search has found, which ends it.
    pub fn give_next_hop(&mut self, id: SearchId, answer: Result<[u8; 6], ConnectError>) {
        match self.device.searches.end(id) {
            Some(Searcher::Qp(key)) => {
                self.with_qp(key, |qp, device| qp.handle_next_hop(answer, device));
            }
            Some(Searcher::Stream) => self.on_next_hop_of_stream(id, answer),
            None => {}
        }
    }
}
