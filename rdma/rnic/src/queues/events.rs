//! Queue of asynchronous events. They wait for the handler until the end of the engine's step, or
//! for a call that polls them.
//!
//! A peer can cause events, so the number that may wait is bounded (RFC 5042 §2.2.7;
//! `RnicConfig::max_events`). Events that find no room are counted by one `EventsLost` in their
//! place. The failure of the RNIC is always kept. Query QP returns the state of a queue pair.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xwarp_driver::Signal;

use crate::model::{AsyncEvent, AsyncEventKind, EventResource};

#[derive(Default)]
struct Lists {
    /// Whether there is a handler, which receives later events.
    handled: bool,
    /// Events for the handler, by engine. The handler receives an engine's events at the end of its
    /// step.
    unhandled: Vec<VecDeque<AsyncEvent>>,
    /// Events for calls that poll.
    polled: VecDeque<AsyncEvent>,
}

/// The event that reports `count` lost events. There is at most one until it is taken.
fn lost(count: u64) -> AsyncEvent {
    AsyncEvent {
        resource: EventResource::Rnic,
        kind: AsyncEventKind::EventsLost { count },
    }
}

/// Queue of asynchronous events. Each engine of an RNIC has one, and passes its own events to the
/// handler.
pub struct EventQueue {
    common: Arc<Common>,
    engine: usize,
    /// Whether events wait for the handler.
    has_unhandled: AtomicBool,
}

/// State that the queues of all engines share.
struct Common {
    lists: Mutex<Lists>,
    /// Raised while events can be polled.
    signal: Arc<Signal>,
    /// How many events may wait to be polled, besides those of the RNIC itself and the one that
    /// reports lost events.
    bound: usize,
    /// Number of events that found no room.
    lost: AtomicU64,
}

impl EventQueue {
    /// Queue for at most `bound` untaken events. It takes a file descriptor.
    pub fn new(bound: usize) -> io::Result<Self> {
        let common = Common {
            lists: Mutex::default(),
            signal: Arc::new(Signal::new()?),
            bound,
            lost: AtomicU64::new(0),
        };
        Ok(Self::with(Arc::new(common), 0))
    }

    fn with(common: Arc<Common>, engine: usize) -> Self {
        let mut lists = common.lists();
        let engines = lists.unhandled.len().max(engine + 1);
        lists.unhandled.resize_with(engines, VecDeque::new);
        drop(lists);
        Self {
            common,
            engine,
            has_unhandled: AtomicBool::new(false),
        }
    }

    /// The queue of engine number `engine` of the RNIC.
    pub(crate) fn of_engine(&self, engine: usize) -> Self {
        Self::with(Arc::clone(&self.common), engine)
    }

    /// Maximum number of events that wait to be polled.
    pub fn bound(&self) -> usize {
        self.common.bound
    }

    /// Number of lost events since the beginning.
    pub(crate) fn lost(&self) -> u64 {
        self.common.lost.load(Ordering::Relaxed)
    }
}

impl Common {
    /// Keeps an event to be polled, or counts it if there is no room. The failure of the RNIC is
    /// always kept: it occurs once, and no verb reports it.
    fn keep(&self, polled: &mut VecDeque<AsyncEvent>, event: AsyncEvent) {
        if polled.len() < self.bound || event.resource == EventResource::Rnic {
            self.append(polled, event);
            return;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        if let Some(AsyncEventKind::EventsLost { count }) = polled.back_mut().map(|it| &mut it.kind)
        {
            *count += 1;
            return;
        }
        log::warn!(
            "asynchronous events are not polled: those after {} are lost",
            self.bound
        );
        self.append(polled, lost(1));
    }

    /// The signal is changed under the lock of the list, so that it is raised exactly while there
    /// are events.
    fn append(&self, polled: &mut VecDeque<AsyncEvent>, event: AsyncEvent) {
        polled.push_back(event);
        if polled.len() == 1 {
            self.signal.raise();
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventQueue {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.common.lists()
    }

    fn unhandled<'a>(&self, lists: &'a mut Lists) -> Option<&'a mut VecDeque<AsyncEvent>> {
        lists.unhandled.get_mut(self.engine)
    }

    /// Reports an event.
    pub(crate) fn report(&self, event: AsyncEvent) {
        self.report_before(event, || ());
    }

    /// Reports an event and then runs `next`. A thread that has taken the event sees the effect of
    /// `next`, and a thread that sees the effect can take the event.
    pub(crate) fn report_before(&self, event: AsyncEvent, next: impl FnOnce()) {
        let mut lists = self.lists();
        let handled = lists.handled;
        match self.unhandled(&mut lists).filter(|_| handled) {
            Some(unhandled) => {
                unhandled.push_back(event);
                self.has_unhandled.store(true, Ordering::Relaxed);
            }
            None => self.common.keep(&mut lists.polled, event),
        }
        next();
    }

    /// Called by the engine, which alone reports.
    pub(crate) fn has_unhandled(&self) -> bool {
        self.has_unhandled.load(Ordering::Relaxed)
    }

    /// Takes the oldest event that the handler has not received.
    pub(crate) fn take_unhandled(&self) -> Option<AsyncEvent> {
        let event = self.unhandled(&mut self.lists())?.pop_front();
        if event.is_none() {
            self.has_unhandled.store(false, Ordering::Relaxed);
        }
        event
    }

    /// Returns an event that the handler did not receive to the queue.
    pub(crate) fn put_back(&self, event: AsyncEvent) {
        if let Some(unhandled) = self.unhandled(&mut self.lists()) {
            unhandled.push_front(event);
        }
    }

    /// Sets whether there is a handler. Events that no handler has received are kept to be polled.
    pub(crate) fn set_handled(&self, handled: bool) {
        let mut lists = self.lists();
        lists.handled = handled;
        if !handled {
            let lists = &mut *lists;
            for event in lists.unhandled.iter_mut().flat_map(std::mem::take) {
                self.common.keep(&mut lists.polled, event);
            }
        }
    }

    /// Takes the oldest event that no handler has received. Taking the last one clears the signal.
    pub fn take(&self) -> Option<AsyncEvent> {
        let mut lists = self.lists();
        let event = lists.polled.pop_front();
        if lists.polled.is_empty() {
            self.common.signal.clear();
        }
        event
    }

    /// Signal that is raised while there is an event to take.
    pub fn signal(&self) -> &Arc<Signal> {
        &self.common.signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QpId;
    use AsyncEventKind::{Closed, EventsLost, Failed};
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// An event of queue pair `qp`.
    fn closed(qp: u64) -> AsyncEvent {
        AsyncEvent {
            resource: EventResource::Qp(QpId::new(qp, 0)),
            kind: Closed,
        }
    }

    fn taken(events: &EventQueue) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| events.take()).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs hours for a million events")]
    fn million_events_that_nobody_takes_are_as_many_as_the_bound_and_one_that_counts_the_rest() {
        let events = EventQueue::new(4).unwrap();
        (0..1_000_000).for_each(|qp| events.report(closed(qp)));
        assert!(events.lists().polled.capacity() < 32);
        assert_eq!(events.lost(), 999_996);
        let expected: Vec<AsyncEvent> = (0..4).map(closed).chain([lost(999_996)]).collect();
        assert_eq!(taken(&events), expected);
        events.report(closed(7));
        assert_eq!(taken(&events), [closed(7)], "there is room again");
    }

    #[test]
    fn what_follows_an_event_comes_after_it_and_before_anybody_takes_it() {
        let events = EventQueue::new(2).unwrap();
        events.report_before(closed(1), || {
            assert!(
                events.common.lists.try_lock().is_err(),
                "it cannot be taken yet"
            );
        });
        assert_eq!(events.take(), Some(closed(1)));
        // The event stays even if `next` panics: it was reported before.
        let stopped = catch_unwind(AssertUnwindSafe(|| {
            events.report_before(closed(2), || resume_unwind(Box::new(())));
        }));
        assert!(stopped.is_err());
        assert_eq!(events.take(), Some(closed(2)));
    }

    #[test]
    fn what_was_lost_is_told_where_it_is_missing_and_once_for_each_gap() {
        let events = EventQueue::new(2).unwrap();
        (0..3).for_each(|qp| events.report(closed(qp)));
        assert_eq!(events.take(), Some(closed(0)));
        events.report(closed(3)); // the event that reports the loss has a place
        assert_eq!(events.take(), Some(closed(1)));
        events.report(closed(4));
        events.report(closed(5));
        assert_eq!(taken(&events), [lost(2), closed(4), lost(1)]);
        assert_eq!(events.lost(), 3);
    }

    #[test]
    fn failure_of_the_rnic_is_never_lost() {
        let events = EventQueue::new(1).unwrap();
        let failed = AsyncEvent {
            resource: EventResource::Rnic,
            kind: Failed {
                reason: "the interface is gone".to_owned(),
            },
        };
        (0..3).for_each(|qp| events.report(closed(qp)));
        events.report(failed.clone());
        events.report(closed(3));
        assert_eq!(taken(&events), [closed(0), lost(2), failed, lost(1)]);
    }

    #[test]
    fn event_that_the_handler_did_not_get_stays_the_oldest() {
        let events = EventQueue::new(2).unwrap();
        events.set_handled(true);
        (0..3).for_each(|qp| events.report(closed(qp)));
        let oldest = events.take_unhandled().unwrap();
        events.put_back(oldest);
        let taken = std::iter::from_fn(|| events.take_unhandled());
        assert!(taken.eq((0..3).map(closed)));
    }

    #[test]
    fn handler_is_told_all_of_a_turn_and_what_it_leaves_is_bounded() {
        let events = EventQueue::new(2).unwrap();
        events.set_handled(true);
        (0..9).for_each(|qp| events.report(closed(qp)));
        assert_eq!(events.lost(), 0, "the turn is not over");
        assert_eq!(events.take_unhandled(), Some(closed(0)));
        events.set_handled(false);
        assert_eq!(taken(&events), [closed(1), closed(2), lost(6)]);
        assert!(matches!(lost(6).kind, EventsLost { count: 6 }));
    }
}
