//! Siblings: the stacks of one interface, each at queues of its own, and which of them has a flow.
//!
//! A connection stays on its stack, whatever queue the NIC chooses for its frames. A stack that gets a segment of no flow of its own asks the
//! directory. If a sibling has the flow, that one gets the frame.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::quality::RandomState;
use xwarp_driver::{Inlet, RxFrame};

use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;

/// How many answers to SYNs have come to another stack of the interface than the one that had sent the SYN. Clones are the same count.
#[derive(Clone, Debug, Default)]
pub struct StrayAnswers(Arc<AtomicU64>);

impl StrayAnswers {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What all siblings share.
struct Directory {
    /// By a hash with a random key, as peers choose their ports.
    flows: RwLock<HashMap<Flow, usize, RandomState>>,
    inlets: Vec<Inlet>,
    stray_answers: StrayAnswers,
}

/// One of the stacks, as the others know it.
pub(super) struct Sibling {
    index: usize,
    directory: Arc<Directory>,
}

impl Sibling {
    /// One for each stack, whose inlets these are, in the same order.
    pub(super) fn all(
        inlets: Vec<Inlet>,
        stray_answers: &StrayAnswers,
    ) -> impl Iterator<Item = Self> {
        let count = inlets.len();
        let directory = Arc::new(Directory {
            flows: RwLock::default(),
            inlets,
            stray_answers: stray_answers.clone(),
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

    /// This stack has the flow from now on, unless a sibling has it: then false. Of two that claim
    /// it at once, one gets it.
    pub(super) fn claim(&self, flow: Flow) -> bool {
        *self.write().entry(flow).or_insert(self.index) == self.index
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

    /// Hands a frame to the sibling that has its segment's flow. False if none has.
    pub(super) fn hand_over(&self, segment: &Segment, frame: &RxFrame) -> bool {
        let other = self.other_with(&segment.flow);
        let inlet = other.and_then(|other| self.directory.inlets.get(other));
        if let Some(inlet) = inlet {
            inlet.put(frame);
            let answers = &self.directory.stray_answers.0;
            answers.fetch_add(u64::from(segment.answers_syn()), Ordering::Relaxed);
        }
        inlet.is_some()
    }
}
