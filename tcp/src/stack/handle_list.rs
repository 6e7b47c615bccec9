//! Handle lists: connections that are waiting for their turn, each listed at most once.

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
pub(super) struct HandleList {
    handles: Vec<Handle>,
    /// Memory for the next list; empty.
    spare: Vec<Handle>,
}

impl HandleList {
    pub(super) fn new() -> Self {
        Self {
            handles: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Lists a connection, unless it is listed already.
    pub(super) fn add(&mut self, handle: Handle, membership: &mut Membership) {
        if !std::mem::replace(&mut membership.0, true) {
            self.handles.push(handle);
        }
    }

    /// Takes all handles. Of each, either its membership is cleared, or it is [kept](Self::keep).
    pub(super) fn take(&mut self) -> Vec<Handle> {
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(&mut self.handles, spare)
    }

    /// Puts a handle back that was taken, and whose membership was not cleared.
    pub(super) fn keep(&mut self, handle: Handle) {
        self.handles.push(handle);
    }

    /// Gives the memory of a list back that was taken.
    pub(super) fn give_back(&mut self, mut taken: Vec<Handle>) {
        taken.clear();
        self.spare = taken;
    }
}
