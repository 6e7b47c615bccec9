//! Runner: an engine with its clock and its host, for the threads that run it; and the loop of an
//! engine's own thread.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use xwarp_driver::{DescriptorSet, Sleeper, take_only_faults};
use xwarp_rnic::engine::Engine;

use super::config::WaitMode;
use super::host_questions::{ask_host, take_next_hops, watch_begun_searches};
use super::spinning::Spinning;
use super::state_publisher::StatePublisher;

/// Pause between two steps of an engine that has failed, and that has no descriptor to sleep on.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// A command for the thread that owns the engine.
pub(crate) type Command = Box<dyn FnOnce(&mut Runner) + Send>;

/// The payload of a panic in a verb or in a step.
type Panic = Box<dyn Any + Send>;

/// An engine, its clock, its wait mode, and the host's searches for the next hops of its
/// connections.
pub(crate) struct Runner {
    engine: Engine,
    /// Descriptors of the searches, by the search's number. A search closes its own descriptor at
    /// its end.
    searches: DescriptorSet,
    /// `None` if the engine's host has no board for other processes to read.
    publisher: Option<StatePublisher>,
    origin: Instant,
    spinning: Spinning,
    last_work: Instant,
    last_step: Instant,
}

impl Runner {
    /// Takes a file descriptor.
    pub(crate) fn new(engine: Engine, waiting: WaitMode) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            publisher: StatePublisher::begin(&engine),
            engine,
            searches: DescriptorSet::new()?,
            origin: now,
            spinning: Spinning::new(waiting),
            last_work: now,
            last_step: now,
        })
    }

    /// Runs one step of the engine. Returns how much work was done.
    pub(crate) fn step(&mut self) -> usize {
        let began = Instant::now();
        let now = self.at(began);
        let done = self.step_at(now).unwrap_or(1);
        self.last_step = began;
        if done > 0 {
            self.last_work = began;
            self.spinning.succeed();
        }
        done
    }

    /// Runs one step of the engine at a time that the caller chooses. Returns how much work was
    /// done.
    pub(crate) fn step_at(&mut self, now: xwarp_tcp::Instant) -> Result<usize, Panic> {
        let done = self.guarded(|engine, searches| {
            let found = if engine.is_searching() {
                engine.wake_at(now);
                take_next_hops(engine, searches)
            } else {
                0
            };
            found + engine.step(now)
        })?;
        if let Some(publisher) = &mut self.publisher {
            publisher.note_turn(now, done, &self.engine);
        }
        Ok(done)
    }

    /// Runs a verb. The engine may have slept since its last step, so the verb's timers start at
    /// the current time.
    pub(crate) fn call<R>(&mut self, work: impl FnOnce(&mut Engine) -> R) -> Result<R, Panic> {
        self.engine.wake_at(self.now());
        self.call_at_last_step(work)
    }

    /// Runs a verb at the time of the last step, for callers with their own clock.
    pub(crate) fn call_at_last_step<R>(
        &mut self,
        work: impl FnOnce(&mut Engine) -> R,
    ) -> Result<R, Panic> {
        self.guarded(|engine, _| work(engine))
    }

    /// Runs a verb or a step, then asks the host and reports events. A panic is a defect of this
    /// program: the RNIC fails, and its connections end. A manual engine passes the panic on to the
    /// test.
    fn guarded<R>(
        &mut self,
        work: impl FnOnce(&mut Engine, &DescriptorSet) -> R,
    ) -> Result<R, Panic> {
        let (engine, searches) = (&mut self.engine, &self.searches);
        let done = catch_unwind(AssertUnwindSafe(|| work(engine, searches)));
        if done.is_err() {
            engine.on_panic();
        }
        if engine.asks_host() {
            ask_host(engine);
            watch_begun_searches(engine, searches);
        }
        engine.deliver_events();
        done
    }

    /// Time since the last step began.
    pub(crate) fn idle_time(&self) -> Duration {
        self.last_step.elapsed()
    }

    fn now(&self) -> xwarp_tcp::Instant {
        self.at(Instant::now())
    }

    fn at(&self, clock: Instant) -> xwarp_tcp::Instant {
        let micros = clock.saturating_duration_since(self.origin).as_micros();
        xwarp_tcp::Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Whether the wait mode calls for another step instead of a sleep, after a step without work.
    pub(crate) fn spins(&mut self) -> bool {
        let last_work = self.last_work;
        self.spinning.goes_on(|| last_work.elapsed())
    }

    /// The longest sleep that the engine allows. `None`: no time limit.
    pub(crate) fn sleep_timeout(&self) -> Option<Duration> {
        let now = self.now();
        let shown = self.publisher.as_ref().and_then(|it| it.sleep_timeout(now));
        [self.engine.sleep_timeout(now), shown]
            .into_iter()
            .flatten()
            .min()
    }

    /// The longest sleep of the engine's own thread. `None`: no time limit.
    fn thread_timeout(&self) -> Option<Duration> {
        let now = self.now();
        let shown = self.publisher.as_ref().map(|it| it.idle_timeout(now));
        [self.engine.sleep_timeout(now), shown]
            .into_iter()
            .flatten()
            .min()
    }

    /// The descriptor that is readable when a frame has arrived.
    pub(crate) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.engine.readiness()
    }

    /// The descriptor that is readable when the host may have found a next hop.
    pub(crate) fn searches(&self) -> BorrowedFd<'_> {
        self.searches.as_fd()
    }

    /// Whether the host searches for a next hop.
    pub(crate) fn is_searching(&self) -> bool {
        self.engine.is_searching()
    }

    /// Whether no work was posted since the last step and no application waits for a further step.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// The engine's descriptors are unusable, as the program has closed or replaced them: the RNIC
    /// has failed. Posted work is flushed.
    fn fail(&mut self, error: &io::Error) {
        let reason = format!("the engine cannot wait for frames: {error}");
        // A panic counts as a failure of the RNIC, too.
        let _ = self.call_at_last_step(|engine| engine.fail(&reason));
        std::thread::sleep(FLUSH_PAUSE);
    }

    /// Executes the commands in the mailbox. Fails when the last handle is dropped.
    fn take_commands(&mut self, inbox: &Receiver<Command>) -> Result<(), TryRecvError> {
        loop {
            match inbox.try_recv() {
                Ok(command) => command(self),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(gone) => return Err(gone),
            }
        }
    }

    /// After a step without work: spins or sleeps by the wait mode.
    fn pause(&mut self, sleeper: &Sleeper, no_command: impl FnOnce() -> bool) -> io::Result<()> {
        if self.spins() {
            std::hint::spin_loop();
            return Ok(());
        }
        let idle = || no_command() && self.is_idle();
        let searches = self.is_searching().then(|| self.searches());
        let others = [self.readiness(), searches];
        let timeout = self.thread_timeout();
        sleeper.sleep(others, timeout, idle)
    }
}

/// The engine's thread has inherited the signal mask of the thread that opened the RNIC. It blocks
/// the application's signals, whose handlers must interrupt only the application's own threads.
pub(crate) fn take_signals() {
    if let Err(error) = take_only_faults() {
        log::warn!("memory that is unmapped while registered ends the process: {error}");
    }
}

/// Loop of the engine's thread: commands, a step, and a pause if there is no work. Ends when the
/// last handle is dropped.
pub(crate) fn run(mut runner: Runner, sleeper: &Sleeper, inbox: &Receiver<Command>) {
    take_signals();
    let mut next: Option<Command> = None;
    loop {
        if let Some(command) = next.take() {
            command(&mut runner);
        }
        if runner.take_commands(inbox).is_err() {
            return;
        }
        if runner.step() > 0 {
            continue;
        }
        let no_command = || match inbox.try_recv() {
            Ok(command) => {
                next = Some(command);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => false,
        };
        if let Err(error) = runner.pause(sleeper, no_command) {
            runner.fail(&error);
        }
    }
}
