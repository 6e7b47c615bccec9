//! Runner: an engine with its clock, and the thread that turns it.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use xwarp_driver::{Sleeper, unblock_faults};

use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::Waiting;

/// Something to be done by whoever owns the engine.
pub(crate) type Command = Box<dyn FnOnce(&mut Engine) + Send>;

/// An engine, the clock it lives by, and how it waits for work.
pub(crate) struct Runner {
    engine: Engine,
    origin: Instant,
    waiting: Waiting,
    last_work: Instant,
}

impl Runner {
    pub(crate) fn new(engine: Engine, waiting: Waiting) -> Self {
        let now = Instant::now();
        Self {
            engine,
            origin: now,
            waiting,
            last_work: now,
        }
    }

    /// One turn; how much was done.
    pub(crate) fn step(&mut self) -> usize {
        let began = Instant::now();
        let now = self.at(began);
        let done = guard(&mut self.engine, |engine| engine.step(now)).unwrap_or(1);
        if done > 0 {
            self.last_work = began;
        }
        done
    }

    /// The engine, for a verb. It may have slept since its last turn, and what begins now has all of its time.
    pub(crate) fn engine(&mut self) -> &mut Engine {
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
    pub(crate) fn spins(&self) -> bool {
        spins_after(self.waiting, self.last_work.elapsed())
    }

    /// How long a sleep may last; `None`: until something happens.
    pub(crate) fn sleep_limit(&self) -> Option<Duration> {
        self.engine.sleep_limit(self.now())
    }

    /// What becomes readable when a frame arrives.
    pub(crate) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.engine.readiness()
    }

    /// True when nothing has been posted since the last turn and nobody waits for a further one.
    pub(crate) fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// After a turn without work: spins or sleeps, as the policy says.
    fn pause(&self, sleeper: &Sleeper, no_command: impl FnOnce() -> bool) -> io::Result<()> {
        if self.spins() {
            std::hint::spin_loop();
            return Ok(());
        }
        let idle = || no_command() && self.is_idle();
        sleeper.sleep(self.readiness(), self.sleep_limit(), idle)
    }
}

/// Whether the engine still spins after it has been idle for so long.
fn spins_after(waiting: Waiting, idle: Duration) -> bool {
    match waiting {
        Waiting::Busy => true,
        Waiting::Adaptive(limit) => idle < limit,
        Waiting::Blocking => false,
    }
}

/// The engine's thread: commands, a turn, and rest when there is nothing to do. Ends when the last handle is gone.
pub(crate) fn run(mut runner: Runner, sleeper: &Sleeper, inbox: &Receiver<Command>) {
    // The thread has inherited the signal mask of whoever has opened the RNIC.
    if let Err(error) = unblock_faults() {
        log::warn!("memory that is unmapped while registered ends the process: {error}");
    }
    let mut next: Option<Command> = None;
    loop {
        if let Some(command) = next.take() {
            command(runner.engine());
        }
        loop {
            match inbox.try_recv() {
                Ok(command) => command(runner.engine()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
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
            log::error!("the engine cannot sleep, and ends: {error}");
            return;
        }
    }
}

/// A verb or a turn, and what has happened by it. A panic, which is a defect of ours, is the RNIC's catastrophic failure and ends its
/// connections; with a manual engine, it goes on to whoever tests.
pub(crate) fn guard<R>(
    engine: &mut Engine,
    work: impl FnOnce(&mut Engine) -> R,
) -> Result<R, Box<dyn Any + Send>> {
    let done = catch_unwind(AssertUnwindSafe(|| work(engine)));
    if done.is_err() {
        engine.on_panic();
    }
    open_wanted_ports(engine);
    engine.tell_events();
    done
}

/// Asks the host for the ports that listeners want at addresses which have come back.
fn open_wanted_ports(engine: &mut Engine) {
    while let Some(wanted) = engine.take_wanted_port() {
        let Some(host) = engine.host() else {
            return;
        };
        let local = wanted.local();
        let answer = host.open_port(local.ip(), local.port());
        engine.give_port(wanted, answer);
    }
}
