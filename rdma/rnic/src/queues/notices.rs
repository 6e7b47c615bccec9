//! Completion channel, the engine's end: armed completion queues that have received the requested
//! completion.

use std::io;
use std::sync::Arc;

use xwarp_driver::Signal;

use super::cq_shared::{CqShared, Notice as State};
use super::inbox::Inbox;
use crate::model::CqId;

/// Completion queues with an event, each at most once however often it was armed.
pub struct CompletionNotices {
    inbox: Inbox<Notice>,
}

struct Notice {
    cq: CqId,
    shared: Arc<CqShared>,
}

impl CompletionNotices {
    /// An empty channel. It takes a file descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            inbox: Inbox::new()?,
        })
    }

    /// Adds a queue whose requested completion has arrived.
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

    /// Takes the queue that has waited longest. Its completions can be polled already. Skips
    /// destroyed queues.
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

    /// Signal that is raised while the channel is not empty.
    pub fn signal(&self) -> &Arc<Signal> {
        self.inbox.signal()
    }
}
