//! Handle lists: connections that are waiting for their turn, each listed at most once.

use std::collections::VecDeque;

use crate::handle_map::Handle;

/// Whether a connection is in one list: kept beside the connection, so that nobody has to search the list.
#[derive(Debug, Default)]
pub(super) struct Membership(bool);

impl Membership {
    pub(super) fn is_listed(&self) -> bool {
        self.0
    }

    /// The connection was taken out of the list.
    pub(super) fn clear(&mut self) {
        self.0 = false;
    }
}

/// Connections in the order in which they were listed. Handles of connections that are gone may be among them.
#[derive(Debug)]
pub(super) struct HandleList(VecDeque<Handle>);

impl HandleList {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists a connection, unless it is listed already.
    pub(super) fn add(&mut self, handle: Handle, membership: &mut Membership) {
        if !std::mem::replace(&mut membership.0, true) {
            self.0.push_back(handle);
        }
    }

    /// Takes the first handle. Either its membership is cleared, or it is [kept](Self::keep).
    pub(super) fn pop(&mut self) -> Option<Handle> {
        self.0.pop_front()
    }

    /// Puts a handle back that was taken, and whose membership was not cleared, behind all others.
    pub(super) fn keep(&mut self, handle: Handle) {
        self.0.push_back(handle);
    }
}
