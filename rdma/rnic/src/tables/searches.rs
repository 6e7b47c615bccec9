//! Searches for next hops, which connections wait for before TCP begins.
//!
//! Polling a search takes system calls. So searches are only stored here, and the thread that runs
//! the engine polls them.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::model::NextHopSearch;

/// Identity of a search. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SearchId(pub u64);

/// The owner of a search, which waits for the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Searcher {
    /// The queue pair with this key.
    Qp(usize),
    /// A stream.
    Stream,
}

/// Running searches.
#[derive(Default)]
pub(crate) struct Searches {
    running: FxHashMap<SearchId, (Box<dyn NextHopSearch>, Searcher)>,
    next: u64,
    /// Searches that the thread that runs the engine has not taken. Some may have ended.
    begun: VecDeque<SearchId>,
}

impl Searches {
    /// Adds a search.
    pub(crate) fn begin(&mut self, search: Box<dyn NextHopSearch>, searcher: Searcher) -> SearchId {
        let id = SearchId(self.next);
        self.next += 1;
        self.running.insert(id, (search, searcher));
        self.begun.push_back(id);
        id
    }

    /// Removes a search that has ended or is cancelled. Returns what waited for it.
    pub(crate) fn end(&mut self, id: SearchId) -> Option<Searcher> {
        self.running.remove(&id).map(|(_, searcher)| searcher)
    }

    /// True if no search is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// A running search.
    pub(crate) fn get_mut(&mut self, id: SearchId) -> Option<&mut dyn NextHopSearch> {
        let (search, _) = self.running.get_mut(&id)?;
        Some(&mut **search)
    }

    /// True if a search has begun since the last [`take_begun`](Self::take_begun).
    pub(crate) fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Takes a search that has begun and was not taken yet.
    pub(crate) fn take_begun(&mut self) -> Option<SearchId> {
        while let Some(id) = self.begun.pop_front() {
            if self.running.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}
