//! Completion channel, the engine's end: which armed completion queues have got the completion that
//! was asked for.

use std::io;
use std::sync::Arc;

use xwarp_driver::Signal;

use super::cq_shared::{CqShared, Notice as State};
use super::inbox::Inbox;
use crate::model::CqId;

/// Completion queues with news, each at most once however often it was armed.
pub struct CompletionNotices {
    inbox: Inbox<Notice>,
}

struct Notice {
    cq: CqId,
    shared: Arc<CqShared>,
}

impl CompletionNotices {
    /// A channel without news. It takes a file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inbox: Inbox::new()?,
        })
    }

    /// The completion has come that was asked for.
    pub(crate) fn put(&self, cq: CqId, shared: &Arc<CqShared>) {
        let mut state = shared.notice();
        match *state {
            State::Absent => {
                *state = State::Present;
                let shared = Arc::clone(shared);
                // The inbox is never closed.
                let _ = self.inbox.put(Notice { cq, shared });
            }
            State::Present | State::Destroyed => {}
        }
    }

    /// The queue that has waited longest. Its completions are in it already. Skips destroyed
    /// queues.
    pub fn take(&self) -> Option<CqId> {
        loop {
            let Notice { cq, shared } = self.inbox.take()?;
            let mut state = shared.notice();
            match *state {
                State::Destroyed => {}
                State::Absent | State::Present => {
                    *state = State::Absent;
                    return Some(cq);
                }
            }
        }
    }

    /// What is raised while there is news.
    pub fn signal(&self) -> &Arc<Signal> {
        self.inbox.signal()
    }
}
