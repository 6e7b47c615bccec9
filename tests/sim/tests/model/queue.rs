//! The reference of a send queue: what was posted, in order, and what its completions may report
//! (verbs.md §4.3, §8.2).

use std::collections::VecDeque;

use xwarp::work::AtomicOperation;
use xwarp::{CompletionStatus, Opcode, Stag, WorkCompletion};

use crate::memory::Patch;
use crate::stag::Which;

/// What a work request changes when it is done.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Nothing,
    /// Bytes in the peer's memory.
    Write(Patch),
    /// Bytes in the memory of this end.
    Read(Patch),
    /// The same, and Fast-Register's `STag` is invalidated, by which they were placed.
    ReadInvalidate(Patch),
    /// Something is made of the peer's counter.
    Atomic(Change),
    /// An `STag` of this end becomes this.
    Bind(Which, Stag),
    /// An `STag` of this end is invalidated.
    Unbind(Which),
}

/// What an Atomic Operation does (RFC 7306 §5.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change(pub(crate) AtomicOperation);

impl Change {
    pub(crate) fn apply(self, original: u64) -> u64 {
        match self.0 {
            AtomicOperation::FetchAdd { add, .. } => original.wrapping_add(add),
            AtomicOperation::CompareSwap {
                compare,
                compare_mask,
                swap,
                swap_mask,
            } => {
                let equal = original & compare_mask == compare & compare_mask;
                let swapped = original & !swap_mask | swap & swap_mask;
                if equal { swapped } else { original }
            }
        }
    }
}

/// What a queue's Reads and Atomic Operations come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reads {
    #[default]
    Fine,
    /// ORD has been 0, or was changed to or from it.
    Open,
    /// ORD is 0.
    Refused,
}

/// What the peer is to receive.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The work request's name.
    pub(crate) id: u64,
    pub(crate) solicited: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) immediate: Option<[u8; 8]>,
    pub(crate) invalidate: Option<Stag>,
}

/// How a work request must end, if its connection lives for long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Good,
    /// With this status.
    Refused(CompletionStatus),
    /// The peer ends the connection.
    Fatal,
    /// It depends on what is under way.
    Open,
}

/// What a work request needs to stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// What Fast-Register has registered here.
    Fast,
    /// The peer's region that is registered anew time and again.
    Spare,
}

/// A work request.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signaled: bool,
    /// It waits for everything in front of it.
    pub(crate) fenced: bool,
    pub(crate) len: usize,
    pub(crate) effect: Effect,
    pub(crate) message: Option<Message>,
    pub(crate) fate: Fate,
    pub(crate) needs: Option<Needs>,
}

/// What cannot be done when something before it was not. What is behind a Read that was not
/// answered may have been done all the same, and a change of memory may run early (verbs.md §7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Barred {
    #[default]
    Nothing,
    /// What is answered.
    Answered,
    /// What is sent.
    Sent,
    All,
}

impl Work {
    fn is_answered(&self) -> bool {
        use Opcode::{CompareSwap, FetchAdd, Read, ReadInvalidate};
        matches!(self.opcode, Read | ReadInvalidate | FetchAdd | CompareSwap)
    }

    pub(crate) fn is_memory(&self) -> bool {
        use Opcode::{Bind, FastRegister, Invalidate};
        matches!(self.opcode, Bind | FastRegister | Invalidate)
    }
}

/// A send queue.
#[derive(Default)]
pub(crate) struct SendQueue {
    pub(crate) posted: VecDeque<Work>,
    /// The kinds of work that may not succeed, because earlier work has failed.
    barred: Barred,
    /// A completion has reported the cause of the failure.
    told: bool,
    pub(crate) reads: Reads,
}

impl SendQueue {
    /// Slots that are taken for certain: of what has a completion, which was not polled.
    pub(crate) fn held(&self) -> usize {
        self.posted.iter().filter(|work| work.signaled).count()
    }

    pub(crate) fn fate(&self, work: &Work) -> Fate {
        match self.reads {
            Reads::Open if work.is_answered() => Fate::Open,
            Reads::Refused if work.is_answered() => {
                Fate::Refused(CompletionStatus::ZeroReadResources)
            }
            Reads::Fine | Reads::Open | Reads::Refused => work.fate,
        }
    }

    /// Everything that is posted must be done.
    pub(crate) fn is_fine(&self) -> bool {
        self.posted.iter().all(|work| self.fate(work) == Fate::Good)
    }

    /// What is posted and needs this may end one way or another.
    pub(crate) fn open(&mut self, needs: Needs) {
        let its = |work: &&mut Work| work.needs == Some(needs);
        for work in self.posted.iter_mut().filter(its) {
            work.fate = Fate::Open;
        }
    }

    /// Work that a completion ends: unsignaled work that succeeded before it, then its own.
    pub(crate) fn complete(&mut self, completion: &WorkCompletion) -> Vec<(Work, bool)> {
        let mut ended = Vec::new();
        loop {
            let Some(work) = self.posted.pop_front() else {
                panic!("{completion:?} of nothing that is posted");
            };
            if work.id == completion.wr_id.0 {
                let success = self.judge(&work, completion);
                ended.push((work, success));
                return ended;
            }
            assert!(!work.signaled, "{work:?} was passed by {completion:?}");
            self.assert_may_succeed(&work);
            ended.push((work, true));
        }
    }

    fn judge(&mut self, work: &Work, completion: &WorkCompletion) -> bool {
        assert_eq!(completion.opcode, work.opcode, "{work:?}");
        match completion.status {
            CompletionStatus::Success => {
                assert!(work.signaled, "{work:?} is not to be told of");
                assert_eq!(completion.byte_len as usize, work.len, "{work:?}");
                self.assert_may_succeed(work);
                return true;
            }
            CompletionStatus::Flushed => {}
            status => {
                assert!(!self.told, "a second failure: {completion:?}");
                self.told = true;
                match self.fate(work) {
                    Fate::Refused(expected) => assert_eq!(status, expected, "{work:?}"),
                    Fate::Open => {}
                    // Whether the peer may end the connection is looked at elsewhere.
                    Fate::Good | Fate::Fatal if status == CompletionStatus::RemoteTermination => {}
                    Fate::Good | Fate::Fatal => panic!("{completion:?} of {work:?}"),
                }
            }
        }
        // What comes behind a message that the peer refuses may have been sent before the peer says
        // so.
        let is_local = !matches!(
            completion.status,
            CompletionStatus::Flushed | CompletionStatus::RemoteTermination
        );
        let bars = if work.is_memory() || is_local {
            Barred::All
        } else if work.is_answered() {
            Barred::Answered
        } else {
            Barred::Sent
        };
        self.barred = self.barred.max(bars);
        false
    }

    fn assert_may_succeed(&self, work: &Work) {
        let (fate, answered) = (self.fate(work), work.is_answered());
        assert!(!matches!(fate, Fate::Refused(_)), "{work:?} was done");
        assert!(fate != Fate::Fatal || !answered, "{work:?} was done");
        let bar = if work.is_memory() {
            Barred::All
        } else if answered {
            Barred::Answered
        } else {
            Barred::Sent
        };
        assert!(
            self.barred < bar,
            "{work:?} was done, but not what was before it"
        );
    }

    /// Call this when the connection is over and all completions were polled. The work that is left
    /// has succeeded.
    pub(crate) fn end(&mut self) -> Vec<Work> {
        for work in &self.posted {
            assert!(!work.signaled, "nothing was told of {work:?}");
            self.assert_may_succeed(work);
        }
        (self.barred, self.told) = (Barred::Nothing, false);
        self.posted.drain(..).collect()
    }
}
