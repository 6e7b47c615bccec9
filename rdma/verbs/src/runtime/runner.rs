//! Runner: an engine with its clock, and the thread that turns it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use xwarp_driver::{Sleeper, take_only_faults};

use super::config::WaitMode;
use super::hosted::HostedEngine;
use super::spinning::Spinning;

/// Between two turns of an engine that has failed, and that has no descriptor to sleep on.
const FLUSH_PAUSE: Duration = Duration::from_millis(5);

/// Something to be done by whoever owns the engine.
pub(crate) type Command = Box<dyn FnOnce(&mut HostedEngine) + Send>;

/// An engine, the clock it lives by, and how it waits for work.
pub(crate) struct Runner {
    engine: HostedEngine,
    origin: Instant,
    spinning: Spinning,
    last_work: Instant,
    last_turn: Instant,
}

impl Runner {
    pub(crate) fn new(engine: HostedEngine, waiting: WaitMode) -> Self {
        let now = Instant::now();
        Self {
            engine,
            origin: now,
            spinning: Spinning::new(waiting),
            last_work: now,
            last_turn: now,
        }
    }

    /// One turn; how much was done.
    pub(crate) fn step(&mut self) -> usize {
        let began = Instant::now();
        let now = self.at(began);
        let done = self.engine.step(now).unwrap_or(1);
        self.last_turn = began;
        if done > 0 {
            self.last_work = began;
            self.spinning.succeed();
        }
        done
    }

    /// How long ago the last turn began.
    pub(crate) fn idle_time(&self) -> Duration {
        self.last_turn.elapsed()
    }

    /// The engine, for a verb. It may have slept since its last turn, and what begins now has all of its time.
    pub(crate) fn engine(&mut self) -> &mut HostedEngine {
        self.engine.wake_at(self.now());
        &mut self.engine
    }

    fn now(&self) -> xwarp_tcp::Instant {
        self.at(Instant::now())
    }

    fn at(&self, clock: Instant) -> xwarp_tcp::Instant {
        let micros = clock.saturating_duration_since(self.origin).as_micros();
        xwarp_tcp::Instant::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Whether, after a turn without work, the policy is to turn again rather than to sleep.
    pub(crate) fn spins(&mut self) -> bool {
        let last_work = self.last_work;
        self.spinning.goes_on(|| last_work.elapsed())
    }

    /// How long a sleep may last; `None`: until something happens.
    pub(crate) fn sleep_timeout(&self) -> Option<Duration> {
        self.engine.sleep_timeout(self.now())
    }

    /// What becomes readable when a frame arrives.
    pub(crate) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.engine.engine().readiness()
    }

    /// What is readable when the host may have found a next hop.
    pub(crate) fn searches(&self) -> BorrowedFd<'_> {
        self.engine.searches()
    }

    /// True when nothing has been posted since the last turn and nobody waits for a further one.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.engine().is_idle()
    }

    /// The engine's descriptors are unusable: the program has closed or replaced them. The RNIC has
    /// failed then. What is posted is flushed.
    fn fail(&mut self, error: &io::Error) {
        let reason = format!("the engine cannot wait for frames: {error}");
        // A panic is the RNIC's failure, too.
        let _ = self.engine.call(|engine| engine.fail(&reason));
        std::thread::sleep(FLUSH_PAUSE);
    }

    /// Does what is in the mailbox; an error when the last handle is gone.
    fn take_commands(&mut self, inbox: &Receiver<Command>) -> Result<(), TryRecvError> {
        loop {
            match inbox.try_recv() {
                Ok(command) => command(self.engine()),
                Err(TryRecvError::Empty) => return Ok(()),
                Err(gone) => return Err(gone),
            }
        }
    }

    /// After a turn without work: spins or sleeps, as the policy says.
    fn pause(&mut self, sleeper: &Sleeper, no_command: impl FnOnce() -> bool) -> io::Result<()> {
        if self.spins() {
            std::hint::spin_loop();
            return Ok(());
        }
        let idle = || no_command() && self.is_idle();
        let others = [self.readiness(), Some(self.searches())];
        let timeout = self.engine.thread_timeout(self.now());
        sleeper.sleep(others, timeout, idle)
    }
}

/// The engine's thread has inherited the signal mask of whoever has opened the RNIC. The application's signals are for its own threads, whose
/// system calls they interrupt.
pub(crate) fn take_signals() {
    if let Err(error) = take_only_faults() {
        log::warn!("memory that is unmapped while registered ends the process: {error}");
    }
}

/// The engine's thread: commands, a turn, and rest when there is nothing to do. Ends when the last handle is gone.
pub(crate) fn run(mut runner: Runner, sleeper: &Sleeper, inbox: &Receiver<Command>) {
    take_signals();
    let mut next: Option<Command> = None;
    loop {
        if let Some(command) = next.take() {
            command(runner.engine());
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
