//! Protocols by which one thread wakes another, explored by a model checker: every interleaving
//! that the memory model allows.
//!
//! A model compiles the product's own file, with the model checker's atomics and locks in its
//! `sync`.
//!
//! | who wakes whom | file | verdict |
//! |---|---|---|
//! | doorbell of an engine, of a completion queue | `driver/src/wake/sleep_flag.rs`, used by `wake/mod.rs`, `wake/wait_set.rs` | model `sleeping` |
//! | posting to a queue pair, also while it moves | `rdma/rnic/src/queues/ready_set.rs`, used by `engine_doorbell.rs` | model `ready_set` |
//! | completion and armed queue | `rdma/rnic/src/queues/arming.rs`, used by `cq_shared.rs`, `completion_ring.rs` | model `arming` |
//! | end of an RNIC; state of a queue pair | `rdma/rnic/src/queues/waiters.rs`, used by `ending.rs`, `qp_shared.rs` | model `waiters` |
//! | frames for another engine; news of the interface | `driver/src/wake/hinted.rs`, used by `packet_io/crossing.rs`, `net/state.rs` | model `hinted` |
//! | application and thread of an assisted engine | `rdma/verbs/src/runtime/hand_over.rs`, used by `assisted.rs` | model `hand_over` |
//! | verb and engine's thread | `rdma/verbs/src/runtime/engine_thread.rs`, `runner.rs` | model `sleeping`: a channel is the work, and it is looked at after the announcement |
//! | switch and its clients | `driver/src/switch/ring.rs` with `wake/sleep_flag.rs`, used by `switch/io.rs`, `switch/client_memory.rs` | model `ring` |
//! | threads and event loops that share an inline engine | `rdma/verbs/src/runtime/sharing.rs`, used by `inline.rs` | model `sharing`, with the loops of its callers |
//! | calls of several steps | `rdma/dropin/src/verbs/turn.rs` | model `turn` |
//! | lock of the data path | `rdma/dropin/src/lock_state.rs`, used by `lock.rs` | model `lock` |
//! | events of the C interface | `rdma/dropin/src/verbs/waiting.rs`, used by `event_queue.rs` | model `waiting` |
//! | events, requests, channels | `rdma/rnic/src/queues/inbox.rs`, `events.rs`, `notices.rs` | mutex only: the signal is raised and cleared within it, exactly while there is something, and for good after the end |
//! | acknowledged events | `rdma/dropin/src/verbs/watched.rs`, `cm/id.rs` | mutex only: the count changes within it, and the condition variable looks at the count |
//! | connection manager's thread | `rdma/dropin/src/backend/local/watcher.rs` | mutex and eventfd: a note is put before the write, and the thread reads the eventfd before it looks |
//! | Ctrl-C | `tools/src/signals.rs` | signal that stays raised |
//! | what a handler has dropped | `rdma/verbs/src/runtime/deferred_drops.rs` | no wake-up: the thread that ran the handler looks after it; a test in `assisted.rs` |
//! | other atomics: credits, spinning, orders, counters | `credits.rs`, `spinning.rs`, `cq_orders.rs`, `siblings.rs`, `single.rs` | no wake-up: the reader asks by itself, and does not sleep for it |
//! | threads that wait for one stream | `rdma/verbs/src/cm/streaming.rs` | signal that the first clears: it counts the others and raises it again; a test with four threads |
//! | kernel and engine | `driver/src/xdp/xsk/ring.rs`, `xdp/rings.rs` | the kernel's: poll of the socket; where that reports nothing to the driver, `backlog` bounds the sleep |
//! | tasks of tokio | `rdma/verbs/src/tokio/waiter.rs` | tokio's: a task registers before each look; a test there has two tasks share a waiter |
#![cfg(test)]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a file is compiled as it is where it belongs, and models use a part of it"
)]

#[path = "../../../rdma/rnic/src/queues/arming.rs"]
mod arming;
#[path = "../../../rdma/verbs/src/runtime/hand_over.rs"]
mod hand_over;
#[path = "../../../driver/src/wake/hinted.rs"]
mod hinted;
#[path = "../../../rdma/dropin/src/lock_state.rs"]
mod lock_state;
#[path = "../../../rdma/rnic/src/queues/ready_set.rs"]
mod ready_set;
#[path = "../../../driver/src/switch/ring.rs"]
mod ring;
#[path = "../../../rdma/verbs/src/runtime/sharing.rs"]
mod sharing;
#[path = "../../../driver/src/wake/sleep_flag.rs"]
mod sleep_flag;
mod tests;
#[path = "../../../rdma/dropin/src/verbs/turn.rs"]
mod turn;
#[path = "../../../rdma/rnic/src/queues/waiters.rs"]
mod waiters;
#[path = "../../../rdma/dropin/src/verbs/waiting.rs"]
mod waiting;

/// The model checker's in place of the standard library's.
mod sync {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
    };
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::PoisonError;
}

/// What `entry.rs` of the drop-in libraries has for `turn.rs`.
mod entry {
    use crate::sync::{Mutex, MutexGuard, PoisonError};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mutex in place of the lock of `lock.rs`, whose state has a model of its own.
mod lock {
    use crate::sync::{Mutex, MutexGuard};

    pub(crate) struct Lock<T>(Mutex<T>);

    pub(crate) type Held<'a, T> = MutexGuard<'a, T>;

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> Held<'_, T> {
            crate::entry::lock(&self.0)
        }
    }
}

/// A word that threads sleep on, as the kernel's futex has it: it compares and falls asleep in one
/// step.
mod futex {
    use loom::thread::{self, Thread};

    use crate::entry::lock;
    use crate::sync::{AtomicU32, Mutex, Ordering};

    pub(crate) struct Word {
        number: AtomicU32,
        /// Those who sleep, in order. Its lock is the kernel's.
        sleepers: Mutex<Vec<Thread>>,
    }

    impl Word {
        pub(crate) fn new(value: u32) -> Self {
            Self {
                number: AtomicU32::new(value),
                sleepers: Mutex::new(Vec::new()),
            }
        }

        pub(crate) fn number(&self) -> &AtomicU32 {
            &self.number
        }

        pub(crate) fn sleep_while(&self, expected: u32) {
            let mut sleepers = lock(&self.sleepers);
            if self.number.load(Ordering::SeqCst) != expected {
                return;
            }
            sleepers.push(thread::current());
            drop(sleepers);
            thread::park();
            // The model checker may end a park by itself, as the kernel may end a sleep.
            let own = thread::current().id();
            lock(&self.sleepers).retain(|thread| thread.id() != own);
        }

        pub(crate) fn wake(&self, most: i32) {
            let mut sleepers = lock(&self.sleepers);
            let most = usize::try_from(most).unwrap_or(0).min(sleepers.len());
            let woken: Vec<_> = sleepers.drain(..most).collect();
            drop(sleepers);
            for thread in woken {
                thread.unpark();
            }
        }
    }
}
