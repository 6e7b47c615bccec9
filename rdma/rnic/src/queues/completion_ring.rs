//! The completion ring of one completion queue: the engine appends, the application polls (verbs
//! draft §5.3, §8.2).

use std::fmt;
use std::sync::Arc;

use rtrb::Producer;
use xwarp_driver::Doorbell;

use super::cq_shared::CqShared;
use super::credits::SlotKey;
use super::identities::Identity;
use super::notices::CompletionNotices;
use crate::model::{CqId, HandlerId, ResizeError, WorkCompletion};

/// An entry of a completion queue.
pub struct Cqe {
    /// The completion.
    pub completion: WorkCompletion,
    /// The work queue whose slot is freed when the entry is polled.
    pub slots: SlotKey,
}

/// An entry takes one cache line.
const _: () = assert!(size_of::<Cqe>() == 64);

impl Cqe {
    /// Whether it also wakes waiters for solicited completions only (verbs draft §8.2.5).
    #[inline]
    fn wakes_solicited(&self) -> bool {
        self.completion.solicited || !self.completion.is_success()
    }
}

/// Receiver of the event of an armed completion queue, besides threads that wait for the queue
/// itself.
#[derive(Clone)]
pub enum EventTarget {
    /// No receiver.
    None,
    /// A completion event handler, which the engine calls.
    Handler(HandlerId),
    /// A completion channel.
    Channel(Arc<CompletionNotices>),
}

/// Result of appending a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Appended. Earlier completions are not announced yet, either.
    Joined,
    /// Appended as the first completion since the last announcement.
    Began,
    /// The ring was full.
    Full {
        /// Whether this is the first completion that the queue has lost.
        first: bool,
    },
}

/// The engine's end of a completion queue.
pub struct CqSink {
    identity: Arc<Identity>,
    ring: Producer<Cqe>,
    shared: Arc<CqShared>,
    bell: Doorbell,
    pub(crate) target: EventTarget,
    /// Number of completions that were ever appended to the ring and its predecessors.
    pushed: u64,
    /// Whether any unannounced completion wakes waiters for solicited completions; `None` without
    /// unannounced ones.
    unannounced: Option<bool>,
}

impl Drop for CqSink {
    /// Wakes threads that wait for a completion, as the RNIC is closed.
    fn drop(&mut self) {
        self.bell.ring();
    }
}

impl CqSink {
    /// The engine's end of a ring. The application has the other end.
    pub fn new(
        identity: Arc<Identity>,
        ring: Producer<Cqe>,
        (shared, bell): (Arc<CqShared>, Doorbell),
        target: EventTarget,
    ) -> Self {
        Self {
            identity,
            ring,
            shared,
            bell,
            target,
            pushed: 0,
            unannounced: None,
        }
    }

    /// The queue's identity. No other queue has it until the last engine has dropped its end.
    pub(crate) fn id(&self) -> CqId {
        self.identity.cq()
    }

    /// State that the ends of the queue share.
    pub(crate) fn shared(&self) -> &Arc<CqShared> {
        &self.shared
    }

    /// Appends a completion, which can be polled at once. An unread entry is never overwritten.
    #[inline]
    pub(crate) fn push(&mut self, entry: Cqe) -> Pushed {
        let wakes_solicited = entry.wakes_solicited();
        if self.ring.push(entry).is_err() {
            let first = self.shared.overflow();
            return Pushed::Full { first };
        }
        self.pushed += 1;
        self.note(wakes_solicited)
    }

    /// Number of completions that were ever appended.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Number of completions that the queue has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.ring.slots()
    }

    /// Appends up to `most` completions, all by one store. The queue must have
    /// [`room`](Self::room).
    #[inline]
    pub(crate) fn push_run(&mut self, most: usize, entries: impl Iterator<Item = Cqe>) -> Pushed {
        let Ok(places) = self.ring.write_chunk_uninit(most) else {
            let first = self.shared.overflow();
            return Pushed::Full { first };
        };
        let mut wakes_solicited = false;
        let pushed = places.fill_from_iter(entries.inspect(|entry| {
            wakes_solicited |= entry.wakes_solicited();
        }));
        if pushed == 0 {
            return Pushed::Joined;
        }
        self.pushed += pushed as u64;
        self.note(wakes_solicited)
    }

    /// Records that completions were appended. Some may wake waiters for solicited completions.
    #[inline]
    fn note(&mut self, wakes_solicited: bool) -> Pushed {
        let before = self.unannounced;
        self.unannounced = Some(wakes_solicited || before == Some(true));
        if before.is_some() {
            Pushed::Joined
        } else {
            Pushed::Began
        }
    }

    /// Wakes threads that wait for completions like those appended since the last announcement.
    /// Returns true if a thread was waiting.
    #[inline]
    pub(crate) fn announce(&mut self) -> bool {
        let Some(wakes_solicited) = self.unannounced.take() else {
            return false;
        };
        let wakes = self.shared.disarm_for(wakes_solicited);
        if wakes {
            self.bell.ring();
        }
        wakes
    }

    /// Replaces the ring. The new one must have room for the unread completions, and for `waiting`
    /// completions that are elsewhere.
    pub(crate) fn resize(
        &mut self,
        ring: Producer<Cqe>,
        waiting: Option<usize>,
    ) -> Result<(), ResizeError> {
        let unread = self.ring.buffer().capacity() - self.ring.slots();
        let (present, wanted) = (waiting.map(|it| it + unread), ring.buffer().capacity());
        if let Some(present) = present.filter(|present| *present > wanted) {
            return Err(ResizeError::TooManyPresent { present, wanted });
        }
        self.ring = ring;
        Ok(())
    }
}

impl fmt::Debug for CqSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqSink")
            .field("cq", &self.id())
            .field("pushed", &self.pushed)
            .field("room", &self.room())
            .field("unannounced", &self.unannounced)
            .field("shared", &self.shared)
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::arming::Arm;
    use super::*;
    use crate::model::{CompletionStatus, Opcode, QpId, WrId};
    use crate::queues::credits::SlotTable;
    use crate::queues::identities::Identities;
    use rtrb::RingBuffer;
    use std::time::{Duration, Instant};
    use xwarp_driver::Sleeper;

    /// Completions that are appended while the application polls, arms, polls again and sleeps.
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
                sink.announce();
                std::thread::yield_now();
            }
            // Batches of 1 to 8 completions.
            if number % 3 == 0 || number % 8 == 0 {
                sink.announce();
            }
            if number % 64 == 0 {
                std::thread::yield_now();
            }
        }
        sink.announce();
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn no_wake_up_is_lost_however_publishing_and_arming_meet() {
        let table = SlotTable::new(1, 0).unwrap();
        let [slots, _] = table.open_pair(QpId::new(0, 0));
        let (producer, mut ring) = RingBuffer::new(64);
        let (sleeper, bell) = Sleeper::new().unwrap();
        let shared = Arc::new(CqShared::new());
        let identity = Arc::new(Identities::new("queues", 1).allocate().unwrap());
        let mut sink = CqSink::new(
            identity,
            producer,
            (Arc::clone(&shared), bell),
            EventTarget::None,
        );
        std::thread::scope(|scope| {
            scope.spawn(move || publish(&mut sink, slots));
            let mut next = 0;
            while next < COMPLETIONS {
                if let Ok(entry) = ring.pop() {
                    assert_eq!(entry.completion.wr_id, WrId(next));
                    next += 1;
                    continue;
                }
                shared.arm(Arm::Next);
                if !ring.is_empty() {
                    continue;
                }
                let armed = || shared.is_armed();
                let (timeout, asleep) = (Duration::from_secs(20), Instant::now());
                // A wake-up before the waiter is armed would end a sleep early.
                while armed() {
                    sleeper.sleep([None; 2], Some(timeout), armed).unwrap();
                    assert!(asleep.elapsed() < timeout, "the doorbell was not rung");
                }
            }
        });
    }
}
