//! Completion queues (verbs draft §5.3, §8.2): filled by the engine, polled by the application.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtrb::Consumer;
use xwarp_driver::Sleeper;

use crate::control::Control;
use crate::error::{Refused, WaitError};
use crate::inline::Bell;
use xwarp_rnic::model::{
    Capability, CqId, CreateError, DestroyError, HandlerId, MAX_CQ_ENTRIES, OutOfMemory,
    ResizeError, RnicUnavailable, WorkCompletion,
};
use xwarp_rnic::queues::Arm;
use xwarp_rnic::queues::CqShared;
use xwarp_rnic::queues::CqSink;
use xwarp_rnic::queues::EventTarget;
use xwarp_rnic::queues::{Cqe, SlotKey, ring};

/// What Query CQ tells (verbs draft §9.2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqInfo {
    /// Completions that it has room for.
    pub entries: usize,
    /// Whom its events are told, besides whoever waits for it.
    pub handler: Option<HandlerId>,
}

/// A completion queue. Send queues and receive queues of any queue pairs of its RNIC can complete on it.
///
/// It should have room for all work that can be outstanding on them, unsignaled work included, which completes if it fails. One that is
/// full loses what is to be added, never what it has: the queue pair whose completion is lost ends with
/// [`SendCqError`](crate::AsyncEventKind::SendCqError) or [`RecvCqError`](crate::AsyncEventKind::RecvCqError), no other is touched, and
/// the first time [`CqOverflow`](crate::AsyncEventKind::CqOverflow) names the queue (verbs draft §5.3.1).
pub struct CompletionQueue {
    id: CqId,
    ring: Consumer<Cqe>,
    /// What was in former rings, older than what is in this one.
    backlog: VecDeque<Cqe>,
    entries: usize,
    handler: Option<HandlerId>,
    shared: Arc<CqShared>,
    sleeper: Sleeper,
    /// There is nothing left to destroy.
    destroyed: bool,
    control: Arc<Control>,
}

fn check_entries(entries: usize) -> Result<(), Capability> {
    Capability::check(
        "a completion queue's number of entries",
        entries,
        1,
        MAX_CQ_ENTRIES,
    )
}

impl CompletionQueue {
    pub(crate) fn create(
        control: &Arc<Control>,
        entries: usize,
        target: EventTarget,
    ) -> Result<Self, CreateError> {
        check_entries(entries)?;
        let handler = match target {
            EventTarget::Handler(handler) => Some(handler),
            EventTarget::Nobody | EventTarget::Channel(_) => None,
        };
        let (producer, ring) = ring(entries)?;
        let (sleeper, bell) = Sleeper::new()?;
        let shared = Arc::new(CqShared::new());
        let sink = CqSink::new(producer, Arc::clone(&shared), bell, target);
        let id = control.call(move |engine| engine.cqs().insert(sink))??;
        Ok(Self {
            id,
            ring,
            backlog: VecDeque::new(),
            entries,
            handler,
            shared,
            sleeper,
            destroyed: false,
            control: Arc::clone(control),
        })
    }

    /// Its identity in events, and in what is told of queue pairs.
    pub fn id(&self) -> CqId {
        self.id
    }

    /// Query CQ (verbs draft §9.2.3.2).
    pub fn query(&self) -> Result<CqInfo, RnicUnavailable> {
        self.control.check_open()?;
        Ok(CqInfo {
            entries: self.entries,
            handler: self.handler,
        })
    }

    /// Modify CQ (verbs draft §9.2.3.3): gives it room for `entries` completions, whatever is going on. What it has stays in it, in order; a
    /// size that this does not fit into is refused, and nothing is changed then.
    pub fn resize(&mut self, entries: usize) -> Result<(), ResizeError> {
        check_entries(entries)?;
        let (producer, ring) = ring(entries)?;
        self.backlog
            .try_reserve(self.entries)
            .map_err(OutOfMemory::from)?;
        let (id, waiting) = (self.id, self.backlog.len());
        self.control
            .call(move |engine| engine.cqs().resize(id, producer, waiting))??;
        let mut former = std::mem::replace(&mut self.ring, ring);
        self.backlog
            .extend(std::iter::from_fn(|| former.pop().ok()));
        self.entries = entries;
        Ok(())
    }

    /// Destroy CQ (verbs draft §9.2.3.4): refused while a queue pair completes on it. Dropping it instead lets their completions go nowhere.
    pub fn destroy(mut self) -> Result<(), Refused<Self, DestroyError>> {
        let id = self.id;
        let ended = self.control.attempt(move |engine| engine.destroy_cq(id));
        self.destroyed = ended.is_ok();
        Refused::unless(ended, self)
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Lends what polls the queue and cannot change it.
    pub fn poller(&mut self) -> CompletionPoller<'_> {
        CompletionPoller(self)
    }

    /// Takes the oldest completion (verbs draft §9.3.2.1), and so frees the slot that its work request had in its queue. Where the engine runs
    /// inline, this is what drives it. Close RNIC takes the completions that were not polled along.
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicUnavailable> {
        self.control.check_open()?;
        if let Some(completion) = self.take() {
            return Ok(Some(completion));
        }
        self.control.turn();
        Ok(self.take())
    }

    /// Takes the oldest completions, as many as there are and `completions` has room for, and returns their number, as `ibv_poll_cq` does.
    /// The slots of a queue whose completions follow one another are freed together. Places beyond that number are left as they were.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`] once the RNIC was closed, which takes the completions along.
    pub fn poll_into(
        &mut self,
        completions: &mut [WorkCompletion],
    ) -> Result<usize, RnicUnavailable> {
        self.control.check_open()?;
        let taken = self.take_into(completions);
        if taken > 0 || completions.is_empty() {
            return Ok(taken);
        }
        self.control.turn();
        Ok(self.take_into(completions))
    }

    fn take_into(&mut self, completions: &mut [WorkCompletion]) -> usize {
        let (mut taken, mut run): (usize, Option<(SlotKey, u32)>) = (0, None);
        for place in completions {
            let Some(entry) = self.pop() else { break };
            *place = entry.completion;
            taken += 1;
            run = match run {
                Some((slots, length)) if slots == entry.slots => Some((slots, length + 1)),
                other => {
                    self.free(other);
                    Some((entry.slots, 1))
                }
            };
        }
        self.free(run);
        taken
    }

    /// Frees the slots of a run of completions of one queue.
    fn free(&self, run: Option<(SlotKey, u32)>) {
        if let Some((slots, length)) = run {
            self.control.slots().free_many(slots, length);
        }
    }

    fn take(&mut self) -> Option<WorkCompletion> {
        let entry = self.pop()?;
        self.control.slots().free(entry.slots);
        Some(entry.completion)
    }

    fn pop(&mut self) -> Option<Cqe> {
        if self.backlog.is_empty() {
            self.ring.pop().ok()
        } else {
            self.take_former()
        }
    }

    #[cold]
    fn take_former(&mut self) -> Option<Cqe> {
        self.backlog.pop_front()
    }

    /// Asks for a wake-up by the next completion of that kind that comes from now on (verbs draft §8.2.5); one that is in the
    /// queue already does not count, so poll again afterwards. `Next` is not weakened by `Solicited`.
    pub fn arm(&self, kind: Arm) -> Result<(), RnicUnavailable> {
        self.control.check_open()?;
        self.shared.arm(kind);
        Ok(())
    }

    /// Takes the oldest completion, waiting for one up to `timeout`; `None` when none has come. Ends at once when the RNIC is closed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.arm(Arm::Next)?;
            self.wait_event(left)?;
        }
    }

    /// Sleeps until the event that [`arm`](Self::arm) asked for has come, up to `timeout`. True if it has. Ends at once when the RNIC is
    /// closed.
    pub fn wait_event(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.control.check_open()?;
        let waits = || self.shared.is_armed() && !self.control.is_closed();
        let bell = ArmedSleeper {
            sleeper: &self.sleeper,
            waits: &waits,
        };
        let deadline = Instant::now().checked_add(timeout);
        let over = || (!waits()).then_some(());
        self.control.wait_until(&bell, deadline, over)?;
        self.control.check_open()?;
        Ok(!self.shared.is_armed())
    }

    /// True once a completion was lost because the queue was full.
    pub fn overflowed(&self) -> bool {
        self.shared.overflowed()
    }
}

/// The doorbell of a queue that is armed, for as long as it is.
struct ArmedSleeper<'a> {
    sleeper: &'a Sleeper,
    waits: &'a dyn Fn() -> bool,
}

impl Bell for ArmedSleeper<'_> {
    fn arm(&self) -> io::Result<()> {
        self.sleeper.arm(self.waits)
    }

    fn disarm(&self) -> io::Result<()> {
        self.sleeper.clear()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.shared.set_destroyed();
        let id = self.id;
        if !self.destroyed {
            // Completions of queue pairs that still use it go nowhere from now on.
            self.control.release(move |engine| engine.cqs().remove(id));
        }
        // Nobody else can poll these, and their work requests are done.
        while self.take().is_some() {}
    }
}

/// What a Non-Privileged Consumer has of a completion queue (verbs draft §8.2.1): it polls, and asks to be told. For as long as it is lent by
/// [`CompletionQueue::poller`].
pub struct CompletionPoller<'a>(pub(crate) &'a mut CompletionQueue);

impl CompletionPoller<'_> {
    /// As [`CompletionQueue::poll`].
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicUnavailable> {
        self.0.poll()
    }

    /// As [`CompletionQueue::poll_into`].
    pub fn poll_into(
        &mut self,
        completions: &mut [WorkCompletion],
    ) -> Result<usize, RnicUnavailable> {
        self.0.poll_into(completions)
    }

    /// As [`CompletionQueue::arm`].
    pub fn arm(&self, kind: Arm) -> Result<(), RnicUnavailable> {
        self.0.arm(kind)
    }

    /// As [`CompletionQueue::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        self.0.wait(timeout)
    }

    /// As [`CompletionQueue::wait_event`].
    pub fn wait_event(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.0.wait_event(timeout)
    }
}
