//! Completion queues (verbs draft §5.3, §8.2): filled by the engine, polled by the application.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer};
use xwarp_driver::{Doorbell, Sleeper};

use crate::completion::WorkCompletion;
use crate::control::Control;
use crate::engine::CqId;
use crate::error::{
    Capability, CreateError, DestroyError, OutOfMemory, Refused, ResizeError, RnicClosed, WaitError,
};
use crate::handlers::HandlerId;
use crate::limits::MAX_CQ_ENTRIES;
use crate::poller::CompletionPoller;
use crate::ring::ring;
use crate::slots::SlotKey;

/// Which completions wake a waiter. Each value includes the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Arm {
    /// The next received message that asks for an event, and the next failure.
    Solicited = 1,
    /// The next completion of any kind.
    Next = 2,
}

/// Nobody waits.
const UNARMED: u8 = 0;

/// An entry of a completion queue.
pub(crate) struct Cqe {
    pub(crate) completion: WorkCompletion,
    /// Where a slot is free when it has been polled.
    pub(crate) slots: SlotKey,
}

struct Shared {
    armed: AtomicU8,
    overflowed: AtomicBool,
}

/// What Query CQ tells (verbs draft §9.2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqInfo {
    /// Completions that it has room for.
    pub entries: usize,
    /// Whom its events are told, besides whoever waits for it.
    pub handler: Option<HandlerId>,
}

/// Before the queue is looked at again.
fn arm(shared: &Shared, kind: Arm) {
    shared.armed.fetch_max(kind as u8, Ordering::SeqCst);
    fence(Ordering::SeqCst);
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
    shared: Arc<Shared>,
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
        handler: Option<HandlerId>,
    ) -> Result<Self, CreateError> {
        check_entries(entries)?;
        let (producer, ring) = ring(entries)?;
        let (sleeper, bell) = Sleeper::new()?;
        let shared = Arc::new(Shared {
            armed: AtomicU8::new(UNARMED),
            overflowed: AtomicBool::new(false),
        });
        let sink = CqSink {
            ring: producer,
            shared: Arc::clone(&shared),
            bell,
            handler,
        };
        let id = control.call(move |engine| engine.cqs.insert(sink))??;
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
    pub fn query(&self) -> Result<CqInfo, RnicClosed> {
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
            .call(move |engine| engine.cqs.resize(id, producer, waiting))??;
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
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicClosed> {
        self.control.check_open()?;
        if let Some(completion) = self.take() {
            return Ok(Some(completion));
        }
        self.control.progress();
        Ok(self.take())
    }

    fn take(&mut self) -> Option<WorkCompletion> {
        let entry = if self.backlog.is_empty() {
            self.ring.pop().ok()?
        } else {
            self.take_former()?
        };
        self.control.slots().free(entry.slots);
        Some(entry.completion)
    }

    #[cold]
    fn take_former(&mut self) -> Option<Cqe> {
        self.backlog.pop_front()
    }

    /// Asks for a wake-up by the next completion of that kind that comes from now on (verbs draft §8.2.5); one that is in the
    /// queue already does not count, so poll again afterwards. `Next` is not weakened by `Solicited`.
    pub fn arm(&self, kind: Arm) -> Result<(), RnicClosed> {
        self.control.check_open()?;
        arm(&self.shared, kind);
        Ok(())
    }

    /// Takes the oldest completion, waiting for one up to `patience`; `None` when none has come. Ends at once when the RNIC is closed.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        let deadline = Instant::now() + patience;
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

    /// Sleeps until the event that [`arm`](Self::arm) asked for has come, up to `patience`. True if it has. Ends at once when the RNIC is
    /// closed.
    pub fn wait_event(&mut self, patience: Duration) -> Result<bool, WaitError> {
        self.control.check_open()?;
        let armed = || self.shared.armed.load(Ordering::SeqCst) != UNARMED;
        let waits = || armed() && !self.control.is_closed();
        self.control.sleep(&self.sleeper, patience, waits)?;
        self.control.check_open()?;
        Ok(!armed())
    }

    /// True once a completion was lost because the queue was full.
    pub fn overflowed(&self) -> bool {
        self.shared.overflowed.load(Ordering::Relaxed)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let id = self.id;
        if !self.destroyed {
            // Completions of queue pairs that still use it go nowhere from now on.
            let _ = self.control.call(move |engine| engine.cqs.remove(id));
        }
        // Nobody else can poll these, and their work requests are done.
        while self.take().is_some() {}
    }
}

/// What became of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Quiet,
    /// Somebody waited for one like it, and was woken.
    Woke,
    /// There was no room, for the first time or again.
    Full {
        first: bool,
    },
}

/// The engine's end of a completion queue.
pub(crate) struct CqSink {
    ring: Producer<Cqe>,
    shared: Arc<Shared>,
    bell: Doorbell,
    pub(crate) handler: Option<HandlerId>,
}

impl Drop for CqSink {
    /// Whoever waits for a completion learns that the RNIC is closed.
    fn drop(&mut self) {
        self.bell.ring();
    }
}

impl CqSink {
    /// Appends a completion and wakes whoever waits for one like it. An unread entry is never overwritten.
    #[inline]
    pub(crate) fn push(&mut self, entry: Cqe) -> Pushed {
        let wakes_solicited = entry.completion.solicited || !entry.completion.is_success();
        if self.ring.push(entry).is_err() {
            let first = !self.shared.overflowed.swap(true, Ordering::Relaxed);
            return Pushed::Full { first };
        }
        // The entry must be visible before the arm state is read: the application arms before it looks again.
        fence(Ordering::SeqCst);
        let armed = self.shared.armed.load(Ordering::Relaxed);
        if armed == Arm::Next as u8 || (armed == Arm::Solicited as u8 && wakes_solicited) {
            self.shared.armed.store(UNARMED, Ordering::SeqCst);
            self.bell.ring();
            return Pushed::Woke;
        }
        Pushed::Quiet
    }

    /// Goes on with another ring, which must have room for what is unread here and the `waiting` ones that the application has taken out.
    pub(crate) fn resize(
        &mut self,
        ring: Producer<Cqe>,
        waiting: usize,
    ) -> Result<(), ResizeError> {
        let unread = self.ring.buffer().capacity() - self.ring.slots();
        let (present, wanted) = (unread + waiting, ring.buffer().capacity());
        if present > wanted {
            return Err(ResizeError::TooManyPresent { present, wanted });
        }
        self.ring = ring;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::{CompletionStatus, Opcode};
    use crate::qp_state::QpId;
    use crate::slots::SlotTable;
    use crate::work::WrId;
    use rtrb::RingBuffer;

    /// Completions that are published while the application polls, arms, polls again and sleeps.
    const COMPLETIONS: u64 = 1_000_000;

    fn publish(sink: &mut CqSink, slots: SlotKey) {
        for number in 0..COMPLETIONS {
            loop {
                let (status, opcode) = (CompletionStatus::Success, Opcode::Receive);
                let completion =
                    WorkCompletion::new(WrId(number), QpId::new(0, 0), opcode, status, 0);
                if !matches!(sink.push(Cqe { completion, slots }), Pushed::Full { .. }) {
                    break;
                }
                std::thread::yield_now();
            }
            if number % 64 == 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn no_wake_up_is_lost_however_publishing_and_arming_meet() {
        let [slots, _] = SlotTable::new(1, 0).open_pair(QpId::new(0, 0));
        let (producer, mut ring) = RingBuffer::new(64);
        let (sleeper, bell) = Sleeper::new().unwrap();
        let shared = Arc::new(Shared {
            armed: AtomicU8::new(UNARMED),
            overflowed: AtomicBool::new(false),
        });
        let mut sink = CqSink {
            ring: producer,
            shared: Arc::clone(&shared),
            bell,
            handler: None,
        };
        std::thread::scope(|scope| {
            scope.spawn(move || publish(&mut sink, slots));
            let mut next = 0;
            while next < COMPLETIONS {
                if let Ok(entry) = ring.pop() {
                    assert_eq!(entry.completion.wr_id, WrId(next));
                    next += 1;
                    continue;
                }
                arm(&shared, Arm::Next);
                if !ring.is_empty() {
                    continue;
                }
                let armed = || shared.armed.load(Ordering::SeqCst) != UNARMED;
                let (patience, asleep) = (Duration::from_secs(20), Instant::now());
                // An earlier ring that nobody waited for ends a sleep early.
                while armed() {
                    sleeper.sleep(None, Some(patience), armed).unwrap();
                    assert!(asleep.elapsed() < patience, "nobody rang");
                }
            }
        });
    }
}
