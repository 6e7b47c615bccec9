//! Handle lists: connections that wait for their turn, each listed at most once.

use std::collections::VecDeque;

use crate::handle_map::Handle;

/// Whether a connection is in one list. Kept beside the connection, to avoid searches of the list.
#[derive(Debug, Default)]
pub(super) struct Membership(bool);

impl Membership {
    pub(super) fn is_listed(&self) -> bool {
        self.0
    }

    /// Records that the connection was taken out of the list.
    pub(super) fn clear(&mut self) {
        self.0 = false;
    }
}

/// Connections in the order in which they were listed. Some handles may be stale.
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

    /// Removes and returns the first handle. The caller clears its membership or
    /// [keeps](Self::keep) it.
    pub(super) fn pop(&mut self) -> Option<Handle> {
        self.0.pop_front()
    }

    /// Puts a handle back at the end, whose membership was not cleared.
    pub(super) fn keep(&mut self, handle: Handle) {
        self.0.push_back(handle);
    }
}
