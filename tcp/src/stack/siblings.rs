//! Siblings: the stacks of one interface, each at queues of its own, and which of them has a flow.
//!
//! A connection stays on its stack, whatever queue the NIC chooses for its frames. A stack that gets a segment of no flow of its own asks the
//! directory. If a sibling has the flow, that one gets the frame.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::quality::RandomState;
use xwarp_driver::{Inlet, RxFrame};

use crate::wire::flow::Flow;

/// What all siblings share.
struct Directory {
    /// By a hash with a random key, as peers choose their ports.
    flows: RwLock<HashMap<Flow, usize, RandomState>>,
    inlets: Vec<Inlet>,
}

/// One of the stacks, as the others know it.
pub(super) struct Sibling {
    index: usize,
    directory: Arc<Directory>,
}

impl Sibling {
    /// One for each stack, whose inlets these are, in the same order.
    pub(super) fn all(inlets: Vec<Inlet>) -> impl Iterator<Item = Self> {
        let count = inlets.len();
        let directory = Arc::new(Directory {
            flows: RwLock::default(),
            inlets,
        });
        (0..count).map(move |index| Self {
            index,
            directory: Arc::clone(&directory),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Flow, usize, RandomState>> {
        let flows = self.directory.flows.read();
        flows.unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Flow, usize, RandomState>> {
        let flows = self.directory.flows.write();
        flows.unwrap_or_else(PoisonError::into_inner)
    }

    /// This stack has the flow from now on.
    pub(super) fn enter(&self, flow: Flow) {
        self.write().insert(flow, self.index);
    }

    /// This stack has the flow no more.
    pub(super) fn leave(&self, flow: &Flow) {
        let mut flows = self.write();
        if flows.get(flow) == Some(&self.index) {
            flows.remove(flow);
        }
    }

    /// The sibling that has a flow, if it is another one than this.
    pub(super) fn other_with(&self, flow: &Flow) -> Option<usize> {
        let owner = self.read().get(flow).copied();
        owner.filter(|owner| *owner != self.index)
    }

    /// Hands a frame to the sibling that has its flow. False if none has.
    pub(super) fn hand_over(&self, flow: &Flow, frame: &RxFrame) -> bool {
        let other = self.other_with(flow);
        let inlet = other.and_then(|other| self.directory.inlets.get(other));
        if let Some(inlet) = inlet {
            inlet.put(frame);
        }
        inlet.is_some()
    }
}
