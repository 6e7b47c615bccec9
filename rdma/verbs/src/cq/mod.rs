//! Completion queues (verbs draft §5.3, §8.2), filled by the engines and polled by the application;
//! and completion channels, on which a thread waits for several queues.

pub(crate) mod channel;
mod rings;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer};
use xwarp_driver::{Sleeper, WokenBy};

use crate::error::{RefusedError, WaitError};
use crate::runtime::control::Control;
use crate::runtime::pause::{Bed, Bell};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{
    CapabilityError, CqId, CreateError, DestroyError, HandlerId, MAX_CQ_ENTRIES, OutOfMemory, QpId,
    ResizeError, RnicUnavailable, WorkCompletion,
};
use xwarp_rnic::queues::Arm;
use xwarp_rnic::queues::CqShared;
use xwarp_rnic::queues::CqSink;
use xwarp_rnic::queues::EventTarget;
use xwarp_rnic::queues::FreedSlots;
use xwarp_rnic::queues::{Cqe, arm_and_look, ring};

use rings::Rings;

/// Attributes of a completion queue, as Query CQ returns them (verbs draft §9.2.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqInfo {
    /// Number of completions that it has room for.
    pub entries: usize,
    /// Handler of its events, if it was created with one.
    pub handler: Option<HandlerId>,
}

/// A completion queue. Send queues and receive queues of any queue pairs of its RNIC can complete
/// on it.
///
/// It should have room for all work that can be outstanding on them, including unsignaled work,
/// which completes if it fails. A full queue loses new completions, never those that it holds. A
/// queue pair whose completion is lost ends with
/// [`SendCqError`](crate::event::AsyncEventKind::SendCqError) or
/// [`RecvCqError`](crate::event::AsyncEventKind::RecvCqError); other queue pairs are unaffected.
/// The first loss is reported by [`CqOverflow`](crate::event::AsyncEventKind::CqOverflow), which
/// names the queue (verbs draft §5.3.1).
pub struct CompletionQueue {
    id: CqId,
    rings: Rings,
    /// Completions from rings before a resize, older than those in the current rings.
    backlog: VecDeque<Cqe>,
    entries: usize,
    handler: Option<HandlerId>,
    shared: Arc<CqShared>,
    sleeper: Sleeper,
    /// Set once the queue was destroyed: dropping the handle then releases nothing.
    destroyed: bool,
    control: Arc<Control>,
}

fn check_entries(entries: usize) -> Result<(), CapabilityError> {
    CapabilityError::check(
        "a completion queue's number of entries",
        entries,
        1,
        MAX_CQ_ENTRIES,
    )
}

/// The two ends of a ring for each engine. The first engine's ends have their own fields.
struct CqRings {
    first: (Producer<Cqe>, Consumer<Cqe>),
    others: Vec<(Producer<Cqe>, Consumer<Cqe>)>,
}

impl CqRings {
    /// Rings with room for `entries` completions each, as any one engine may fill the queue.
    fn new(control: &Control, entries: usize) -> Result<Self, OutOfMemory> {
        let others = (1..control.shared_tables().engines()).map(|_| ring(entries));
        Ok(Self {
            first: ring(entries)?,
            others: others.collect::<Result<_, _>>()?,
        })
    }
}

/// Handler of the queue's completion events. Fails if there is no such handler.
fn checked_handler(
    control: &Control,
    target: &EventTarget,
) -> Result<Option<HandlerId>, CreateError> {
    control.check_no_handler()?;
    control.check_open()?;
    match target {
        EventTarget::Handler(handler) => {
            control.shared_tables().handlers().lock().check(*handler)?;
            Ok(Some(*handler))
        }
        EventTarget::None | EventTarget::Channel(_) => Ok(None),
    }
}

impl CompletionQueue {
    pub(crate) fn create(
        control: &Arc<Control>,
        entries: usize,
        target: &EventTarget,
    ) -> Result<Self, CreateError> {
        check_entries(entries)?;
        let handler = checked_handler(control, target)?;
        let identity = Arc::new(control.shared_tables().cqs().allocate()?);
        let (sleeper, bell) = Sleeper::new()?;
        let shared = Arc::new(CqShared::new());
        let CqRings { first, others } = CqRings::new(control, entries)?;
        let id = identity.cq();
        let (others, consumers): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        for (engine, producer) in [first.0].into_iter().chain(others).enumerate() {
            let ends = (Arc::clone(&shared), bell.clone());
            let sink = CqSink::new(Arc::clone(&identity), producer, ends, target.clone());
            control.call_on(engine, move |engine| engine.cqs().insert(sink))?;
        }
        Ok(Self {
            id,
            rings: Rings::new(first.1, consumers.into_iter(), &shared),
            backlog: VecDeque::new(),
            entries,
            handler,
            shared,
            sleeper,
            destroyed: false,
            control: Arc::clone(control),
        })
    }

    /// Identity of the queue in events and in attributes of queue pairs.
    pub fn id(&self) -> CqId {
        self.id
    }

    /// Query CQ (verbs draft §9.2.3.2).
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable::Closed`]: the RNIC was closed.
    pub fn query(&self) -> Result<CqInfo, RnicUnavailable> {
        self.control.check_open()?;
        Ok(CqInfo {
            entries: self.entries,
            handler: self.handler,
        })
    }

    /// Modify CQ (verbs draft §9.2.3.3): changes the room to `entries` completions, also under
    /// load. Completions in the queue stay, in order. A size that they do not fit into is refused,
    /// and changes nothing.
    ///
    /// # Errors
    ///
    /// - [`ResizeError::TooManyPresent`]: the completions in the queue do not fit.
    /// - [`ResizeError::Capability`]: `entries` is 0 or more than a queue can have (verbs draft
    ///   §9.5.1).
    /// - [`ResizeError::Memory`]: the host has no memory for it.
    /// - [`ResizeError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn resize(&mut self, entries: usize) -> Result<(), ResizeError> {
        check_entries(entries)?;
        let CqRings { first, others } = CqRings::new(&self.control, entries)?;
        let room = (1 + others.len()) * self.entries;
        self.backlog.try_reserve(room).map_err(OutOfMemory::from)?;
        let (id, mut waiting) = (
            self.id,
            Some(self.backlog.len() + self.rings.len_of_others()),
        );
        let (others, consumers): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        for (engine, producer) in [first.0].into_iter().chain(others).enumerate() {
            // The first engine makes all checks: a refused size is refused by it.
            let waiting = waiting.take();
            let resize = move |engine: &mut Engine| engine.cqs().resize(id, producer, waiting);
            self.control.call_on(engine, resize)??;
        }
        let consumers = [first.1].into_iter().chain(consumers);
        self.rings.replace(consumers, &mut self.backlog);
        self.entries = entries;
        Ok(())
    }

    /// Returns whether the queue has successful completions of this queue pair that were not polled
    /// yet.
    #[must_use]
    pub fn has_successes_of(&mut self, qp: QpId) -> bool {
        let is_success = |entry: &Cqe| entry.completion.qp == qp && entry.completion.is_success();
        self.backlog.iter().any(is_success) || self.rings.has(is_success)
    }

    /// Discards the unpolled completions of a destroyed queue pair, and returns their number.
    /// Completions of other work stay in order.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable::Closed`]: the RNIC was closed, which discards the completions.
    pub fn discard(&mut self, qp: QpId) -> Result<usize, RnicUnavailable> {
        self.control.check_open()?;
        let is_of_it = |entry: &Cqe| entry.completion.qp == qp;
        if self.rings.has(is_of_it) {
            self.rings.set_aside(&mut self.backlog);
        }
        let before = self.backlog.len();
        self.backlog.retain(|entry| {
            if is_of_it(entry) {
                self.control.slots().free(entry.slots);
            }
            !is_of_it(entry)
        });
        Ok(before - self.backlog.len())
    }

    /// Destroy CQ (verbs draft §9.2.3.4): refused while a queue pair completes on it. If the queue
    /// is dropped instead, later completions are discarded.
    ///
    /// # Errors
    ///
    /// - [`DestroyError::InUse`]: a queue pair completes on it.
    /// - [`DestroyError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn destroy(mut self) -> Result<(), RefusedError<Self, DestroyError>> {
        let id = self.id;
        let ended = self.control.attempt(move |engine| engine.destroy_cq(id));
        if ended.is_ok() {
            (self.control).release_on_each(move |engine| engine.cqs().remove(id));
        }
        self.destroyed = ended.is_ok();
        RefusedError::unless(ended, self)
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Borrows the queue as a handle that can poll it and cannot change it.
    pub fn poller(&mut self) -> CompletionPoller<'_> {
        CompletionPoller(self)
    }

    /// Takes the oldest completion (verbs draft §9.3.2.1), which frees the slot of its work request
    /// in the send or receive queue. Runs an inline engine. Close RNIC discards completions that
    /// were not polled.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable::Closed`]: the RNIC was closed, which discards the completions.
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicUnavailable> {
        let mut taken = None;
        let mut copy = |completion: &WorkCompletion| {
            taken = Some(*completion);
            true
        };
        if self.take_if(&mut copy) {
            return Ok(taken);
        }
        self.control.check_open()?;
        if self.has_one_place() {
            self.control.turn();
            self.take_if(&mut copy);
        } else {
            self.poll_places(&mut |completion| taken = Some(*completion));
        }
        Ok(taken)
    }

    /// Whether the ring of the only engine holds all completions.
    fn has_one_place(&mut self) -> bool {
        self.backlog.is_empty() && self.rings.only().is_some()
    }

    /// Polls the backlog of former rings, then the rings of all engines.
    #[inline(never)]
    fn poll_places(&mut self, see: &mut impl FnMut(&WorkCompletion)) {
        if self.take_each(1, see) == 0 {
            self.control.turn();
            self.take_each(1, see);
        }
    }

    /// Takes the oldest completions, as many as there are and `completions` has room for, and
    /// returns their number, as `ibv_poll_cq` does. The slots of a queue are freed together.
    /// Entries of `completions` beyond that number are unchanged.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`] once the RNIC was closed, which discards the completions.
    pub fn poll_into(
        &mut self,
        completions: &mut [WorkCompletion],
    ) -> Result<usize, RnicUnavailable> {
        let most = completions.len();
        let mut places = completions.iter_mut();
        self.poll_each(most, |completion| {
            if let Some(place) = places.next() {
                *place = *completion;
            }
        })
    }

    /// Takes the oldest completions, at most `most`, and returns their number. Calls `see` with a
    /// reference to each, so that it need not be copied.
    ///
    /// # Errors
    ///
    /// As [`poll_into`](Self::poll_into).
    pub fn poll_each(
        &mut self,
        most: usize,
        mut see: impl FnMut(&WorkCompletion),
    ) -> Result<usize, RnicUnavailable> {
        self.control.check_open()?;
        let mut has_turned = false;
        loop {
            let taken = self.take_each(most, &mut see);
            if taken > 0 || most == 0 || has_turned {
                return Ok(taken);
            }
            self.control.turn();
            has_turned = true;
        }
    }

    /// Takes the oldest completion if `accept` returns true for it. Returns false if there is none,
    /// if `accept` refuses, or if several rings must be searched; use
    /// [`poll_each`](Self::poll_each) then.
    #[inline]
    pub fn take_if(&mut self, mut accept: impl FnMut(&WorkCompletion) -> bool) -> bool {
        if self.control.is_closed() || !self.backlog.is_empty() {
            return false;
        }
        // With several engines, `poll_each` determines which completion is next.
        let Some(ring) = self.rings.only() else {
            return false;
        };
        let Ok(entry) = ring.peek() else {
            return false;
        };
        if !accept(&entry.completion) {
            return false;
        }
        let slots = entry.slots;
        // Frees the slot in the ring before the application posts again.
        let _seen = ring.pop();
        self.control.slots().free(slots);
        true
    }

    fn take_each(&mut self, most: usize, see: &mut impl FnMut(&WorkCompletion)) -> usize {
        let mut taken = 0;
        while taken < most {
            let run = if self.backlog.is_empty() {
                self.take_run(most - taken, see)
            } else {
                self.take_former(see)
            };
            if run == 0 {
                break;
            }
            taken += run;
        }
        taken
    }

    /// Takes the oldest completion of the backlog.
    #[cold]
    fn take_former(&mut self, see: &mut impl FnMut(&WorkCompletion)) -> usize {
        self.backlog.pop_front().map_or(0, |entry| {
            see(&entry.completion);
            self.control.slots().free(entry.slots);
            1
        })
    }

    /// Takes the oldest completions as long as they belong to a few queues, whose slots are freed
    /// together.
    #[inline]
    fn take_run(&mut self, most: usize, see: &mut impl FnMut(&WorkCompletion)) -> usize {
        let (ring, there) = self.rings.next_run(most);
        let Ok(entries) = ring.read_chunk(there) else {
            return 0;
        };
        let (first, second) = entries.as_slices();
        let Some(oldest) = first.first() else {
            return 0;
        };
        let (mut taken, mut freed) = (0, FreedSlots::beginning_with(oldest.slots));
        for entry in first.iter().chain(second) {
            if !freed.note(entry.slots) {
                break;
            }
            see(&entry.completion);
            taken += 1;
        }
        // Frees the slots in the ring before the application posts again.
        entries.commit(taken);
        self.rings.pass(taken);
        let slots = u32::try_from(taken).unwrap_or(u32::MAX); // at most the depth of the queue
        freed.free(slots, self.control.slots());
        taken
    }

    /// Requests an event for the next completion of that kind that arrives from now on (verbs draft
    /// §8.2.5). A completion that is in the queue already does not count, so poll again afterwards.
    /// Arming with `Solicited` does not replace an earlier `Next`.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable::Closed`]: the RNIC was closed.
    pub fn arm(&self, kind: Arm) -> Result<(), RnicUnavailable> {
        self.control.check_open()?;
        self.shared.arm(kind);
        self.control.ask_for_progress();
        Ok(())
    }

    /// Takes the oldest completion, waiting for one up to `timeout`. `None` if none arrives in
    /// time. Returns at once when the RNIC is closed.
    ///
    /// # Errors
    ///
    /// - [`WaitError::Unavailable`]: the RNIC was closed, or its handler made the call.
    /// - [`WaitError::System`]: the kernel refuses the sleep.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        self.wait_or(&[], timeout)
    }

    /// Waits as [`wait`](Self::wait) does, and also returns when one of `others` is readable: a
    /// descriptor that reports Ctrl-C, for example. The descriptors are checked when the caller
    /// sleeps and, while it spins, from time to time.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_or(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Option<WorkCompletion>, WaitError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(None);
            }
            let arm = |queue: &Self| queue.arm(Arm::Next);
            if let Some(completion) = arm_and_look(self, arm, Self::poll)? {
                return Ok(Some(completion));
            }
            if !self.await_event(others, deadline)? {
                // A completion may have arrived just before the timeout.
                return Ok(self.poll()?);
            }
        }
    }

    /// Sleeps until the event that [`arm`](Self::arm) requested has occurred, up to `timeout`.
    /// Returns true if it has. Returns at once when the RNIC is closed.
    ///
    /// # Errors
    ///
    /// - [`WaitError::Unavailable`]: the RNIC was closed, or its handler made the call.
    /// - [`WaitError::System`]: the kernel refuses the sleep.
    pub fn wait_event(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.control.check_open()?;
        let deadline = Instant::now().checked_add(timeout);
        self.await_event(&[], deadline)
    }

    /// Sleeps until the event has occurred, one of `others` is readable, or the deadline has
    /// passed. Returns true if the event has occurred.
    fn await_event(
        &self,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
    ) -> Result<bool, WaitError> {
        let waits = || self.shared.is_armed() && !self.control.is_closed();
        let bell = ArmedSleeper {
            sleeper: &self.sleeper,
            waits: &waits,
        };
        let over = || (!waits()).then_some(());
        (self.control).wait_until_or(&bell, others, deadline, over)?;
        self.control.check_open()?;
        Ok(!self.shared.is_armed())
    }

    /// True once a completion was lost because the queue was full.
    pub fn overflowed(&self) -> bool {
        self.shared.overflowed()
    }
}

impl fmt::Debug for CompletionQueue {
    /// Shows the completions that can be polled, and whether an event would wake the waiter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("id", &self.id)
            .field("rings", &self.rings)
            .field("backlog", &self.backlog.len())
            .field("shared", &self.shared)
            .field("sleeper", &self.sleeper)
            .finish_non_exhaustive()
    }
}

/// Sleeper of a completion queue, armed only while `waits` returns true.
struct ArmedSleeper<'a> {
    sleeper: &'a Sleeper,
    waits: &'a dyn Fn() -> bool,
}

impl Bell for ArmedSleeper<'_> {
    fn arm(&self, bed: Bed) -> io::Result<()> {
        let by = match bed {
            Bed::Descriptor => WokenBy::DESCRIPTOR,
            Bed::Word => WokenBy::WORD,
        };
        self.sleeper.arm_by(by, self.waits)
    }

    fn disarm(&self, bed: Bed) -> io::Result<()> {
        match bed {
            Bed::Descriptor => self.sleeper.clear(),
            Bed::Word => {
                self.sleeper.disarm();
                Ok(())
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sleeper.as_fd()
    }

    fn sleeper(&self) -> Option<&Sleeper> {
        Some(self.sleeper)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.shared.set_destroyed();
        let id = self.id;
        if !self.destroyed {
            // Queue pairs that still use the queue discard their completions from now on.
            (self.control).release_on_each(move |engine| engine.cqs().remove(id));
        }
        // No other handle can poll these completions. Polling them frees the slots of their work
        // requests.
        self.take_each(usize::MAX, &mut |_completion| {});
    }
}

/// Polling handle of a completion queue, for a Non-Privileged Consumer (verbs draft §8.2.1): it can
/// poll, arm and wait, and nothing else. [`CompletionQueue::poller`] borrows it from the queue.
pub struct CompletionPoller<'a>(pub(crate) &'a mut CompletionQueue);

impl CompletionPoller<'_> {
    /// As [`CompletionQueue::poll`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll`].
    pub fn poll(&mut self) -> Result<Option<WorkCompletion>, RnicUnavailable> {
        self.0.poll()
    }

    /// As [`CompletionQueue::poll_into`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::poll_into`].
    pub fn poll_into(
        &mut self,
        completions: &mut [WorkCompletion],
    ) -> Result<usize, RnicUnavailable> {
        self.0.poll_into(completions)
    }

    /// As [`CompletionQueue::arm`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::arm`].
    pub fn arm(&self, kind: Arm) -> Result<(), RnicUnavailable> {
        self.0.arm(kind)
    }

    /// As [`CompletionQueue::wait`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<WorkCompletion>, WaitError> {
        self.0.wait(timeout)
    }

    /// As [`CompletionQueue::wait_or`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait_or`].
    pub fn wait_or(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Option<WorkCompletion>, WaitError> {
        self.0.wait_or(others, timeout)
    }

    /// As [`CompletionQueue::wait_event`].
    ///
    /// # Errors
    ///
    /// As [`CompletionQueue::wait_event`].
    pub fn wait_event(&mut self, timeout: Duration) -> Result<bool, WaitError> {
        self.0.wait_event(timeout)
    }
}
