//! Siblings: the stacks of one interface, each on queues of its own, and the directory of their
//! flows.
//!
//! A connection stays on its stack, whichever queue the NIC chooses for its frames. A stack that
//! receives a segment of no flow of its own asks the directory. If a sibling has the flow, the
//! frame is handed to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::quality::RandomState;
use xwarp_driver::{FrameOrigin, HandoffQueue, PacketIo, RxFrame};

use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;

/// Counter of answers to SYNs that arrived at another stack of the interface than the sender of the
/// SYN. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct StrayAnswers(Arc<AtomicU64>);

impl StrayAnswers {
    /// The count.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// State that all siblings share.
struct Directory {
    /// Hashed with a random key, as peers choose their ports.
    flows: RwLock<HashMap<Flow, usize, RandomState>>,
    inlets: Vec<HandoffQueue>,
    stray_answers: StrayAnswers,
}

/// One stack's access to the directory and to the other stacks.
pub(super) struct Sibling {
    index: usize,
    directory: Arc<Directory>,
}

impl Sibling {
    /// One for each stack, in the order of their inlets.
    pub(super) fn all(
        inlets: Vec<HandoffQueue>,
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

    /// Claims a flow for this stack. Returns false if a sibling has it. Of two that claim it at
    /// once, one succeeds.
    pub(super) fn claim(&self, flow: Flow) -> bool {
        *self.write().entry(flow).or_insert(self.index) == self.index
    }

    /// Enters a flow of this stack.
    pub(super) fn enter(&self, flow: Flow) {
        self.write().insert(flow, self.index);
    }

    /// Removes a flow of this stack.
    pub(super) fn leave(&self, flow: &Flow) {
        let mut flows = self.write();
        if flows.get(flow) == Some(&self.index) {
            flows.remove(flow);
        }
    }

    /// The sibling that has a flow, unless it is this stack.
    pub(super) fn other_with(&self, flow: &Flow) -> Option<usize> {
        let owner = self.read().get(flow).copied();
        owner.filter(|owner| *owner != self.index)
    }

    /// Hands a frame to the sibling that has its segment's flow. Returns false if there is none.
    /// `io` has received the frame.
    pub(super) fn hand_over(&self, segment: &Segment, frame: &RxFrame, io: &dyn PacketIo) -> bool {
        let other = self.other_with(&segment.flow);
        let inlet = other.and_then(|other| self.directory.inlets.get(other));
        if let Some(inlet) = inlet {
            inlet.put(frame, FrameOrigin::of(frame, io));
            let answers = &self.directory.stray_answers.0;
            answers.fetch_add(u64::from(segment.answers_syn()), Ordering::Relaxed);
        }
        inlet.is_some()
    }
}
