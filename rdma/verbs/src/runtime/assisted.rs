//! Assisted engine: an inline one, and a thread that runs it while the application does not poll
//! (decision record verbs/0011).
//!
//! Polls of the application run the engine, as they run an inline one. When the thread sees a burst
//! of polls, it rests. It checks again after a short time, and at once when the application arms a
//! completion queue or waits. Its rests are always limited, so it also notices an application that
//! stops polling without a call, to spin on its memory for example.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use xwarp_driver::{Doorbell, Sleeper, join};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use super::burst::{Burst, Seen};
use super::config::WaitMode;
use super::deferred_drops::DeferredDrops;
use super::hand_over::HandOver;
use super::inline::Inline;
use super::mode::Mode;
use super::runner::{Runner, take_signals};
use super::sharing::{Bed, Turned, Uncounted};

/// After this time without a poll, the application counts as no longer polling.
const POLLED_LATELY: Duration = Duration::from_micros(50);
/// First and longest rest of the thread before it checks whether the application still polls. A
/// check takes about 10 µs of a core that the application needs: at most 0.6 % of it.
const RESTS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(1600)];

/// Pause between two steps of an engine that has failed and has no descriptor to sleep on.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// An engine that both the application's polls and its own thread run.
pub(crate) struct Assisted {
    shared: Arc<Shared>,
    helper: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inline: Inline,
    hand_over: HandOver,
    /// Number of verbs that wait for the engine.
    calls: AtomicUsize,
    deferred: Arc<DeferredDrops>,
}

impl Assisted {
    pub(crate) fn new(
        runner: Runner,
        waking: &(Sleeper, Doorbell),
        deferred: &Arc<DeferredDrops>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inline: Inline::new(runner, waking)?,
            hand_over: HandOver::new(),
            calls: AtomicUsize::new(0),
            deferred: Arc::clone(deferred),
        });
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("xwarp-engine".to_owned())
            .spawn(move || Helper::new(&its).run())?;
        Ok(Self {
            shared,
            helper: thread.thread().clone(),
            join: Mutex::new(Some(thread)),
        })
    }
}

impl Mode for Assisted {
    /// The engine's own thread takes the engine repeatedly; it yields the engine to the caller.
    fn call<R: Send + 'static>(
        &self,
        _: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let done = self.shared.inline.run(work);
        self.shared.calls.fetch_sub(1, Ordering::Relaxed);
        done
    }

    #[inline(never)]
    fn turn(&self, after: impl FnOnce()) {
        self.shared.hand_over.note_poll();
        self.shared.inline.try_turn();
        after();
    }

    fn ask_for_progress(&self) {
        if self.shared.hand_over.ask() {
            self.helper.unpark();
        }
    }

    fn close(&self, from_handler: bool) {
        if self.shared.hand_over.end() {
            self.helper.unpark();
        }
        if from_handler {
            return;
        }
        self.shared.inline.end();
        if let Some(thread) = lock(&self.join).take() {
            join(thread, "the engine's thread");
        }
    }
}

impl Drop for Assisted {
    /// Runs if opening the RNIC has failed.
    fn drop(&mut self) {
        if !self.shared.hand_over.has_ended() {
            self.close(false);
        }
    }
}

impl fmt::Debug for Assisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared {
            inline,
            hand_over,
            calls,
            ..
        } = &*self.shared;
        f.debug_struct("Assisted")
            .field("inline", inline)
            .field("hand_over", hand_over)
            .field("calls", calls)
            .finish_non_exhaustive()
    }
}

/// The thread that runs the engine while the application does not poll.
struct Helper<'a> {
    shared: &'a Shared,
    burst: Burst,
    /// On what the thread sleeps as far as others know.
    counted: Option<Bed>,
}

impl<'a> Helper<'a> {
    fn new(shared: &'a Shared) -> Self {
        let burst = Burst::new(shared.hand_over.polls(), Instant::now());
        Self {
            shared,
            burst,
            counted: None,
        }
    }

    /// Runs the engine until the RNIC is closed, and yields it to callers and pollers.
    fn run(mut self) {
        take_signals();
        while !self.shared.hand_over.has_ended() {
            self.yield_to_callers();
            match self.rest_or_step() {
                Ok(Turned::Ended) => return,
                Ok(Turned::On) => {}
                Ok(Turned::Elsewhere) => self.back_off(),
                Err(error) => {
                    self.fail(&error);
                    break;
                }
            }
            self.drop_released();
        }
        self.shared.inline.end();
    }

    /// The engine's descriptors are unusable, as the program has closed or replaced them: the RNIC
    /// has failed. Posted work is flushed until the program closes the RNIC.
    fn fail(&mut self, error: &io::Error) {
        let reason = format!("the engine cannot wait for frames: {error}");
        let failed = self.shared.inline.run(|engine| engine.fail(&reason));
        while failed.is_ok() && !self.shared.hand_over.has_ended() {
            self.shared.inline.try_turn();
            self.drop_released();
            std::thread::park_timeout(FLUSH_PAUSE);
        }
    }

    /// Rests while the application polls, and otherwise runs the engine.
    fn rest_or_step(&mut self) -> io::Result<Turned> {
        let inline = &self.shared.inline;
        if !self.sees_burst() {
            return inline.turn_or_sleep_long(&mut self.counted);
        }
        let Some(uncounted) = inline.may_rest(&mut self.counted)? else {
            return Ok(Turned::Elsewhere);
        };
        self.rest(uncounted);
        Ok(Turned::On)
    }

    /// Gives waiting verbs precedence.
    fn yield_to_callers(&self) {
        while self.shared.calls.load(Ordering::Relaxed) > 0 && !self.shared.hand_over.has_ended() {
            std::thread::yield_now();
        }
    }

    /// Releases the objects that a handler has dropped.
    fn drop_released(&self) {
        for (_, release) in self.shared.deferred.take() {
            // An engine that has ended has no objects left to release.
            let _ = self.shared.inline.run(release);
        }
    }

    /// Whether the application spins on a completion queue.
    fn sees_burst(&mut self) -> bool {
        let polls = self.shared.hand_over.polls();
        match self.burst.see(polls, Instant::now()) {
            Seen::Begins => {
                self.shared.hand_over.begin_burst();
                false
            }
            Seen::Goes => false,
            Seen::IsLong => true,
        }
    }

    /// Another thread has the engine. The application counts as polling for the duration of a poll.
    fn back_off(&mut self) {
        self.burst
            .lasts(self.shared.hand_over.polls(), Instant::now());
        std::thread::yield_now();
    }

    /// Called during a rest: whether the application has stopped polling. A poll that spends long
    /// on sending does not count as a stop.
    fn polls_no_longer(&self) -> bool {
        let Shared {
            hand_over, inline, ..
        } = self.shared;
        if inline.idle_time() <= POLLED_LATELY {
            return false;
        }
        let before = hand_over.polls();
        std::thread::park_timeout(POLLED_LATELY);
        hand_over.polls() == before
    }

    /// Leaves the engine to the application until the application stops polling. The thread must
    /// not count as a sleeper.
    fn rest(&mut self, Uncounted: Uncounted) {
        let hand_over = &self.shared.hand_over;
        if let Some(rest) = hand_over.may_rest() {
            let [mut length, longest] = RESTS;
            let pause = || {
                std::thread::park_timeout(length);
                length = (2 * length).min(longest);
            };
            rest.last(pause, || self.polls_no_longer());
        }
        hand_over.begin_burst();
        self.burst = Burst::new(hand_over.polls(), Instant::now());
    }
}

/// How the thread waits for work. On a single processor, which it shares with the application,
/// spinning would only keep the application from running.
pub(crate) fn waiting_on(processors: usize, wished: WaitMode) -> WaitMode {
    match wished {
        WaitMode::Adaptive(_) if processors == 1 => WaitMode::Blocking,
        _ => wished,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sim::{MemoryIo, RegionPool, StackConfig, Wire};
    use xwarp_rnic::model::{MpaConfig, PblMode};
    use xwarp_rnic::queues::{EngineDoorbell, InCommon};
    use xwarp_rnic::stags::StagTable;
    use xwarp_rnic::tables::SharedTables;
    use xwarp_tcp::Stack;

    /// Time limit for steps of a test that should be immediate.
    const LIMIT: Duration = Duration::from_secs(20);

    /// An engine that has nothing to do.
    struct Idle {
        shared: Shared,
        waking: (Sleeper, Doorbell),
        _wire: Wire,
        _regions: RegionPool,
    }

    fn idle() -> Idle {
        let waking = Sleeper::new().unwrap();
        let (io, wire) = MemoryIo::new(64).unwrap();
        let stack = Stack::new(Box::new(io), StackConfig::default());
        let doorbell = Arc::new(EngineDoorbell::new(64, Some(waking.1.clone())));
        let shared_tables =
            SharedTables::new(Arc::clone(&doorbell), std::iter::empty(), 64).unwrap();
        let regions = RegionPool::anonymous(4096).unwrap();
        let stags = StagTable::new(regions.area(), PblMode::default(), || Some(1));
        let stags = InCommon::of_engines(stags, 1, StagTable::share).remove(0);
        let engine = Engine::new(
            stack,
            MpaConfig::default(),
            stags,
            &shared_tables,
            0,
            &doorbell,
        );
        let runner = Runner::new(engine, WaitMode::Blocking).unwrap();
        let shared = Shared {
            inline: Inline::new(runner, &waking).unwrap(),
            hand_over: HandOver::new(),
            calls: AtomicUsize::new(0),
            deferred: Arc::default(),
        };
        Idle {
            shared,
            waking,
            _wire: wire,
            _regions: regions,
        }
    }

    /// Returns the result of `work` on a thread of its own, within the limit.
    fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, outcome) = mpsc::channel();
        std::thread::spawn(move || done.send(work()));
        outcome.recv_timeout(LIMIT).expect("it waits for the lock")
    }

    /// A poller holds the engine all the time.
    #[test]
    #[cfg_attr(miri, ignore = "needs a timerfd")]
    fn thread_never_waits_for_a_poller() {
        let Idle { shared, .. } = idle();
        let shared = Arc::new(shared);
        let held = shared.inline.hold_beside(0, LIMIT);
        let its = Arc::clone(&shared);
        let turned = soon(move || {
            let mut counted = Some(Bed::Descriptor);
            let turned = its.inline.turn_or_sleep_long(&mut counted).unwrap();
            assert!(its.inline.may_rest(&mut counted).unwrap().is_none() && counted.is_some());
            assert_eq!(its.inline.idle_time(), Duration::ZERO);
            turned
        });
        assert_eq!(turned, Turned::Elsewhere);
        drop(held);
    }

    /// The thread sleeps, and a poller holds the engine when the thread wakes up.
    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn thread_that_wakes_up_does_not_wait_for_a_poller_either() {
        let idle = idle();
        let (shared, bell) = (Arc::new(idle.shared), idle.waking.1);
        let its = Arc::clone(&shared);
        let (woken, outcome) = mpsc::channel();
        std::thread::spawn(move || {
            let mut counted = None;
            while counted.is_none() {
                its.inline.turn_or_sleep_long(&mut counted).unwrap();
            }
            woken.send(counted)
        });
        let held = shared.inline.hold_beside(1, LIMIT);
        assert!(held.is_some(), "it does not sleep");
        bell.ring();
        let woken = outcome.recv_timeout(LIMIT);
        let mut counted = woken.expect("it waits for the lock");
        drop(held);
        assert!(shared.inline.may_rest(&mut counted).unwrap().is_some() && counted.is_none());
        assert!(shared.inline.hold_beside(0, LIMIT).is_some(), "none sleeps");
    }

    /// Polls follow one another, and none releases the engine: a burst.
    #[test]
    #[cfg_attr(miri, ignore = "takes its time by the clock")]
    fn thread_rests_while_polls_follow_one_another() {
        let Idle { shared, .. } = idle();
        let shared = Arc::new(shared);
        let held = shared.inline.hold_beside(0, LIMIT);
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || Helper::new(&its).run());
        let began = Instant::now();
        while !shared.hand_over.ask() {
            shared.hand_over.begin_burst();
            shared.hand_over.note_poll();
            assert!(began.elapsed() < LIMIT, "it waits for the lock");
        }
        if shared.hand_over.end() {
            thread.thread().unpark();
        }
        drop(held);
        thread.join().unwrap();
    }

    /// A handler drops a handle in a step of the thread. No other thread calls a verb or polls.
    #[test]
    #[cfg_attr(miri, ignore = "needs poll of an eventfd")]
    fn thread_releases_what_a_handler_has_dropped() {
        let idle = idle();
        let (shared, bell) = (Arc::new(idle.shared), idle.waking.1);
        let its = Arc::clone(&shared);
        let thread = std::thread::spawn(move || Helper::new(&its).run());
        let (tell, told) = mpsc::channel();
        let release = move |_: &mut Engine| tell.send(()).unwrap();
        drop(shared.inline.hold_beside(1, LIMIT).expect("it sleeps"));
        shared.deferred.add(0, Box::new(release));
        bell.ring();
        told.recv_timeout(LIMIT).expect("it is never released");
        if shared.hand_over.end() {
            thread.thread().unpark();
        }
        shared.inline.end();
        thread.join().unwrap();
    }

    #[test]
    fn thread_spins_only_beside_another_processor_or_if_told_to() {
        let adaptive = WaitMode::Adaptive(Duration::from_micros(50));
        assert_eq!(waiting_on(1, adaptive), WaitMode::Blocking);
        for (processors, wished) in [
            (2, adaptive),
            (1, WaitMode::Busy),
            (1, WaitMode::Blocking),
            (2, WaitMode::Blocking),
        ] {
            assert_eq!(waiting_on(processors, wished), wished, "{processors}");
        }
    }
}
