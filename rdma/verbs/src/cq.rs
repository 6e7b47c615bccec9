//! Completion queues (verbs draft §5.3, §8.2): filled by the engine, polled by the application.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};
use xwarp_driver::{Doorbell, Sleeper};

use crate::completion::WorkCompletion;
use crate::control::Control;
use crate::engine::CqId;
use crate::error::CreateError;

/// Entries that a completion queue may have.
const MAX_ENTRIES: usize = 1 << 20;

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

struct Shared {
    armed: AtomicU8,
    overflowed: AtomicBool,
}

/// A completion queue.
pub struct CompletionQueue {
    id: CqId,
    ring: Consumer<WorkCompletion>,
    shared: Arc<Shared>,
    sleeper: Sleeper,
    control: Arc<Control>,
}

impl CompletionQueue {
    pub(crate) fn create(control: &Arc<Control>, entries: usize) -> Result<Self, CreateError> {
        if entries == 0 || entries > MAX_ENTRIES {
            return Err(CreateError::Capability {
                what: "a completion queue's number of entries",
                wanted: entries,
                max: MAX_ENTRIES,
            });
        }
        let (producer, ring) = RingBuffer::new(entries);
        let (sleeper, bell) = Sleeper::new()?;
        let shared = Arc::new(Shared {
            armed: AtomicU8::new(UNARMED),
            overflowed: AtomicBool::new(false),
        });
        let sink = CqSink {
            ring: producer,
            shared: Arc::clone(&shared),
            bell,
        };
        let id = control.call(move |engine| engine.cqs.insert(sink))?;
        Ok(Self {
            id,
            ring,
            shared,
            sleeper,
            control: Arc::clone(control),
        })
    }

    /// Its identity in what is told of queue pairs.
    pub fn id(&self) -> CqId {
        self.id
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Takes the oldest completion. Where the engine runs inline, this is what drives it.
    pub fn poll(&mut self) -> Option<WorkCompletion> {
        if let Ok(completion) = self.ring.pop() {
            return Some(completion);
        }
        self.control.progress();
        self.ring.pop().ok()
    }

    /// Asks for a wake-up by the next completion of that kind that comes from now on (verbs draft §8.2.5); one that is in the
    /// queue already does not count, so poll again afterwards. `Next` is not weakened by `Solicited`.
    pub fn arm(&self, kind: Arm) {
        self.shared.armed.fetch_max(kind as u8, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the oldest completion, waiting for one up to `patience`; `None` when none has come.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<WorkCompletion>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(completion) = self.poll() {
                return Ok(Some(completion));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.arm(Arm::Next);
            self.wait_event(left)?;
        }
    }

    /// Sleeps until the event that [`arm`](Self::arm) asked for has come, up to `patience`. True if it has.
    pub fn wait_event(&mut self, patience: Duration) -> io::Result<bool> {
        let armed = || self.shared.armed.load(Ordering::SeqCst) != UNARMED;
        self.control.sleep(&self.sleeper, patience, armed)?;
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
        // Completions of queue pairs that still use it go nowhere from now on.
        let _ = self.control.call(move |engine| engine.cqs.remove(id));
    }
}

/// The engine's end of a completion queue.
pub(crate) struct CqSink {
    ring: Producer<WorkCompletion>,
    shared: Arc<Shared>,
    bell: Doorbell,
}

impl CqSink {
    /// Appends a completion and wakes whoever waits for one like it. An unread entry is never overwritten: false when there
    /// was no room.
    #[must_use]
    pub(crate) fn push(&mut self, completion: WorkCompletion) -> bool {
        let wakes_solicited = completion.solicited || !completion.is_success();
        if self.ring.push(completion).is_err() {
            self.shared.overflowed.store(true, Ordering::Relaxed);
            return false;
        }
        // The entry must be visible before the arm state is read: the application arms before it looks again.
        fence(Ordering::SeqCst);
        let armed = self.shared.armed.load(Ordering::Relaxed);
        if armed == Arm::Next as u8 || (armed == Arm::Solicited as u8 && wakes_solicited) {
            self.shared.armed.store(UNARMED, Ordering::SeqCst);
            self.bell.ring();
        }
        true
    }
}
