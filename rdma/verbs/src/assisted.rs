//! Assisted engine: an inline one, and a thread that turns it while nobody polls.
//!
//! The application's polling turns the engine as it does an inline one. When the thread sees a burst of polls, it rests. It looks again after a
//! short time, and at once when the application asks to be told of a completion or waits. Its rests are always limited, so an application that
//! stops polling without a word, to spin on its memory for example, is noticed, too.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use xwarp_driver::{Doorbell, Sleeper};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use crate::burst::{Burst, Seen};
use crate::config::WaitMode;
use crate::hand_over::HandOver;
use crate::inline::{Inline, Turned};
use crate::released::Released;
use crate::runner::{Runner, take_signals};

/// An application whose last poll is longer ago polls no longer.
const POLLED_LATELY: Duration = Duration::from_micros(50);
/// How long the thread rests at first, and at most, before it looks whether the application still polls. A look takes some 10 µs of a core that
/// the application needs, and so 0.6 % of it at most.
const RESTS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(1600)];

/// See the module.
pub(crate) struct Assisted {
    shared: Arc<Shared>,
    helper: Thread,
    join: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    inline: Inline,
    hand_over: HandOver,
    /// Verbs that wait for the engine.
    calls: AtomicUsize,
    released: Arc<Released>,
}

impl Assisted {
    pub(crate) fn new(
        runner: Runner,
        waking: &(Sleeper, Doorbell),
        released: &Arc<Released>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inline: Inline::new(runner, waking)?,
            hand_over: HandOver::new(),
            calls: AtomicUsize::new(0),
            released: Arc::clone(released),
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

    /// A verb. The thread, which takes the engine again and again, lets it go first.
    pub(crate) fn call<R>(
        &self,
        work: impl FnOnce(&mut Engine) -> R,
    ) -> Result<R, RnicUnavailable> {
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let done = self.shared.inline.call(work);
        self.shared.calls.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// One turn for a caller that polls, unless somebody turns it now.
    pub(crate) fn turn(&self) {
        self.shared.hand_over.note_poll();
        self.shared.inline.turn();
    }

    /// The application is going to wait: the thread turns the engine.
    pub(crate) fn ask(&self) {
        if self.shared.hand_over.ask() {
            self.helper.unpark();
        }
    }

    /// Ends the engine, and its thread unless that calls: then it ends both after the turn.
    pub(crate) fn close(&self, from_handler: bool) {
        if self.shared.hand_over.end() {
            self.helper.unpark();
        }
        if from_handler {
            return;
        }
        self.shared.inline.close();
        if let Some(thread) = lock(&self.join).take()
            && thread.join().is_err()
        {
            log::error!("the engine's thread has panicked");
        }
    }
}

impl Drop for Assisted {
    /// Where opening the RNIC has failed.
    fn drop(&mut self) {
        if !self.shared.hand_over.has_ended() {
            self.close(false);
        }
    }
}

/// The thread that turns the engine while nobody polls.
struct Helper<'a> {
    shared: &'a Shared,
    burst: Burst,
}

impl<'a> Helper<'a> {
    fn new(shared: &'a Shared) -> Self {
        let burst = Burst::new(shared.hand_over.polls(), Instant::now());
        Self { shared, burst }
    }

    /// Until the RNIC is closed.
    fn run(mut self) {
        take_signals();
        while !self.shared.hand_over.has_ended() {
            self.give_way();
            if self.sees_burst() {
                self.rest();
                continue;
            }
            match self.shared.inline.turn_or_sleep_long() {
                Ok(Turned::Ended) => return,
                Ok(Turned::On) => {}
                Ok(Turned::Elsewhere) => self.stand_by(),
                Err(error) => {
                    log::error!("the engine cannot sleep, and ends: {error}");
                    break;
                }
            }
            self.let_go();
        }
        self.shared.inline.close();
    }

    /// Lets verbs have the engine first.
    fn give_way(&self) {
        while self.shared.calls.load(Ordering::Relaxed) > 0 && !self.shared.hand_over.has_ended() {
            std::thread::yield_now();
        }
    }

    /// What a handler has dropped.
    fn let_go(&self) {
        for (_, release) in self.shared.released.take() {
            // An engine that is gone has nothing to let go of.
            let _ = self.shared.inline.call(release);
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

    /// Somebody has the engine: as long as a poll lasts, the application polls.
    fn stand_by(&mut self) {
        self.burst
            .lasts(self.shared.hand_over.polls(), Instant::now());
        std::thread::yield_now();
    }

    /// While it rests: whether it is asked for, or the application polls no longer. A poll that has just sent for long is no sign of that.
    fn is_wanted(&self) -> bool {
        let Shared {
            hand_over, inline, ..
        } = self.shared;
        if inline.idle_time() > POLLED_LATELY {
            let before = hand_over.polls();
            std::thread::park_timeout(POLLED_LATELY);
            if hand_over.polls() == before {
                return true;
            }
        }
        hand_over.is_asked() || hand_over.has_ended()
    }

    /// Leaves the engine to the application until that polls no longer.
    fn rest(&mut self) {
        let hand_over = &self.shared.hand_over;
        let [mut rest, longest] = RESTS;
        if hand_over.may_rest() {
            loop {
                std::thread::park_timeout(rest);
                if self.is_wanted() {
                    break;
                }
                rest = (2 * rest).min(longest);
            }
            hand_over.end_rest();
        }
        hand_over.begin_burst();
        self.burst = Burst::new(hand_over.polls(), Instant::now());
    }
}

/// How the thread waits for work. Where it has to share a single processor with the application, spinning only keeps that from running.
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
    use super::*;

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
