//! The way from an application's handles to the engine: verbs as messages.

use std::io;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use xwarp_driver::net::PortError;
use xwarp_driver::{Doorbell, RegionPool, Sleeper};

use crate::error::RnicEnded;
use crate::runner::{Command, Runner, guard, run};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicId;
use xwarp_rnic::model::{
    AsyncEvent, Host, HostError, LocalPort, MpaConfig, QpId, RnicClosed, Waiting,
};
use xwarp_rnic::queues::{EventQueue, ReadySet, SlotTable};

/// How long a waiter without an event to sleep on sleeps before it looks again.
const RECHECK: Duration = Duration::from_millis(1);

/// What all handles of an RNIC share.
pub(crate) struct Control {
    id: RnicId,
    mode: Mode,
    closed: AtomicBool,
    ready: Arc<ReadySet>,
    slots: Arc<SlotTable>,
    events: Arc<EventQueue>,
    host: Arc<dyn Host>,
    /// Why the engine does nothing any more.
    failure: Arc<OnceLock<String>>,
    regions: RegionPool,
    mpa: MpaConfig,
}

enum Mode {
    /// A thread of its own runs the engine.
    Thread {
        commands: Mutex<Option<Sender<Command>>>,
        bell: Doorbell,
        thread: Mutex<Option<JoinHandle<()>>>,
    },
    /// Whoever polls runs the engine. The lock is there for handles on other threads; one thread never waits for it.
    Inline(Mutex<Option<Runner>>),
    /// A test runs the engine, with its own clock.
    Manual(Mutex<Option<Engine>>),
}

impl Control {
    fn with_mode(mode: Mode, parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            id: RnicId::next(),
            mode,
            closed: AtomicBool::new(false),
            ready: parts.ready,
            slots: parts.slots,
            events: parts.events,
            host: parts.host,
            failure: parts.failure,
            regions: parts.regions,
            mpa: parts.mpa,
        })
    }

    pub(crate) fn threaded(
        engine: Engine,
        parts: Parts,
        waiting: Waiting,
        (sleeper, bell): (Sleeper, Doorbell),
    ) -> io::Result<Arc<Self>> {
        let (commands, inbox) = mpsc::channel();
        let runner = Runner::new(engine, sleeper, waiting);
        let thread = std::thread::Builder::new()
            .name("xwarp-engine".to_owned())
            .spawn(move || run(runner, &inbox))?;
        let mode = Mode::Thread {
            commands: Mutex::new(Some(commands)),
            bell,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Self::with_mode(mode, parts))
    }

    pub(crate) fn inline(
        engine: Engine,
        parts: Parts,
        waiting: Waiting,
        sleeper: Sleeper,
    ) -> Arc<Self> {
        let runner = Runner::new(engine, sleeper, waiting);
        Self::with_mode(Mode::Inline(Mutex::new(Some(runner))), parts)
    }

    pub(crate) fn manual(engine: Engine, parts: Parts) -> Arc<Self> {
        Self::with_mode(Mode::Manual(Mutex::new(Some(engine))), parts)
    }

    /// Which RNIC it is.
    pub(crate) fn id(&self) -> RnicId {
        self.id
    }

    /// Where slots of work queues are freed.
    pub(crate) fn slots(&self) -> &Arc<SlotTable> {
        &self.slots
    }

    /// Ends the engine, and with it all objects that it has. Calls are refused from now on.
    pub(crate) fn shut_down(&self) -> Result<(), RnicClosed> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(RnicClosed);
        }
        match &self.mode {
            Mode::Inline(runner) => {
                let ended = lock(runner).take();
                drop(ended);
            }
            Mode::Manual(engine) => {
                let ended = lock(engine).take();
                drop(ended);
            }
            Mode::Thread {
                commands,
                bell,
                thread,
            } => {
                lock(commands).take();
                bell.ring();
                if let Some(thread) = lock(thread).take()
                    && thread.join().is_err()
                {
                    log::error!("the engine's thread has panicked");
                }
            }
        }
        Ok(())
    }

    /// Whether the RNIC was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses what needs no call of the engine once the RNIC was closed.
    pub(crate) fn check_open(&self) -> Result<(), RnicClosed> {
        if self.is_closed() {
            return Err(RnicClosed);
        }
        Ok(())
    }

    /// Why nothing comes any more, once that is so.
    pub(crate) fn ended(&self) -> Option<RnicEnded> {
        let failed = (self.failure.get()).map(|reason| RnicEnded::Failed(reason.clone()));
        failed.or_else(|| self.check_open().err().map(RnicEnded::from))
    }

    pub(crate) fn events(&self) -> &EventQueue {
        &self.events
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// A port of the host. If no file descriptor is left for it, those of connections that have ended are given up for it.
    pub(crate) fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        match self.host.open_port(address, port) {
            Err(HostError::Port(PortError::NoDescriptors)) => {
                // A closed RNIC has none to give up.
                let _ = self.call(Engine::release_ports);
                self.host.open_port(address, port)
            }
            opened => opened,
        }
    }

    pub(crate) fn regions(&self) -> &RegionPool {
        &self.regions
    }

    pub(crate) fn mpa(&self) -> MpaConfig {
        self.mpa
    }

    /// Has the engine's owner do something, and waits for the answer.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicClosed> {
        match &self.mode {
            Mode::Inline(runner) => {
                let mut runner = lock(runner);
                let engine = runner.as_mut().ok_or(RnicClosed)?.engine();
                guard(engine, work).map_err(|_| RnicClosed)
            }
            Mode::Manual(engine) => {
                let done = lock(engine).as_mut().map(|engine| guard(engine, work));
                Ok(done
                    .ok_or(RnicClosed)?
                    .unwrap_or_else(|panic| resume_unwind(panic)))
            }
            Mode::Thread { commands, bell, .. } => {
                let (answer, reply) = mpsc::sync_channel(1);
                let command: Command = Box::new(move |engine| {
                    if let Ok(done) = guard(engine, work) {
                        // Whoever asked may have stopped listening.
                        let _ = answer.send(done);
                    }
                });
                let sent = lock(commands)
                    .as_ref()
                    .map(|commands| commands.send(command));
                sent.ok_or(RnicClosed)?.map_err(|_| RnicClosed)?;
                bell.ring();
                reply.recv().map_err(|_| RnicClosed)
            }
        }
    }

    /// The same with something that may fail for other reasons than that there is no RNIC.
    pub(crate) fn attempt<R: Send + 'static, E: From<RnicClosed> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> Result<R, E> + Send + 'static,
    ) -> Result<R, E> {
        self.call(work)?
    }

    /// Tells the engine that a queue pair has been posted to.
    pub(crate) fn notify(&self, qp: QpId) {
        self.ready.add(qp.slot());
        if let Mode::Thread { bell, .. } = &self.mode {
            bell.ring();
        }
    }

    /// One turn of an inline engine.
    pub(crate) fn progress(&self) {
        if let Mode::Inline(runner) = &self.mode
            && let Some(runner) = lock(runner).as_mut()
        {
            runner.step();
        }
    }

    /// One turn of a manual engine at the time given; how much was done.
    pub(crate) fn step_at(&self, now: xwarp_tcp::Instant) -> usize {
        match &self.mode {
            Mode::Manual(engine) => {
                let turned = (lock(engine).as_mut()).map(|engine| guard(engine, |it| it.step(now)));
                turned.map_or(0, |done| done.unwrap_or_else(|panic| resume_unwind(panic)))
            }
            Mode::Thread { .. } | Mode::Inline(_) => 0,
        }
    }

    /// Sleeps until `sleeper`'s doorbell rings or `patience` is over, while `still` holds; inline, turns the engine once instead.
    pub(crate) fn sleep(
        &self,
        sleeper: &Sleeper,
        patience: Duration,
        still: impl Fn() -> bool,
    ) -> io::Result<()> {
        match &self.mode {
            Mode::Thread { .. } => sleeper.sleep(None, Some(patience), still),
            Mode::Inline(runner) => turn_or_pause(runner, patience, still),
            Mode::Manual(_) => Ok(()),
        }
    }

    /// The oldest asynchronous event that no handler has taken, up to `patience`. A manual engine is not waited for.
    pub(crate) fn wait_event(&self, patience: Duration) -> io::Result<Option<AsyncEvent>> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.events.take() {
                return Ok(Some(event));
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() || self.is_closed() {
                return Ok(None);
            }
            match &self.mode {
                Mode::Thread { .. } => self.events.wait(left),
                Mode::Inline(runner) => turn_or_pause(runner, left, || !self.events.is_due())?,
                Mode::Manual(_) => return Ok(None),
            }
        }
    }

    /// The next message on `channel`; `None` at the deadline, or when nobody will send any more.
    pub(crate) fn receive<T>(&self, channel: &Receiver<T>, deadline: Option<Instant>) -> Option<T> {
        if let Mode::Thread { .. } = &self.mode {
            return match deadline {
                None => channel.recv().ok(),
                Some(deadline) => {
                    let patience = deadline.saturating_duration_since(Instant::now());
                    channel.recv_timeout(patience).ok()
                }
            };
        }
        let far = deadline.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
        self.wait_until(far, || match channel.try_recv() {
            Ok(message) => Some(Some(message)),
            Err(TryRecvError::Disconnected) => Some(None),
            Err(TryRecvError::Empty) => None,
        })
        .flatten()
    }

    /// What `condition` returns as soon as it returns something; `None` at the deadline. A manual engine is not waited for.
    pub(crate) fn wait_until<T>(
        &self,
        deadline: Instant,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(value) = condition() {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match &self.mode {
                _ if left.is_zero() => return None,
                Mode::Manual(_) => return None,
                Mode::Thread { .. } => std::thread::sleep(RECHECK.min(left)),
                Mode::Inline(runner) => {
                    let mut runner = lock(runner);
                    let runner = runner.as_mut()?;
                    if runner.step() == 0 && runner.pause(Some(RECHECK.min(left)), || true).is_err()
                    {
                        return None;
                    }
                }
            }
        }
    }
}

/// What an engine shares with its handles.
pub(crate) struct Parts {
    pub(crate) ready: Arc<ReadySet>,
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) failure: Arc<OnceLock<String>>,
    pub(crate) regions: RegionPool,
    pub(crate) mpa: MpaConfig,
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have been closed before.
        let _ = self.shut_down();
    }
}

/// Turns an inline engine once; if there was nothing to do, sleeps until there is, up to `patience`, while `still` holds.
fn turn_or_pause(
    runner: &Mutex<Option<Runner>>,
    patience: Duration,
    still: impl Fn() -> bool,
) -> io::Result<()> {
    let mut runner = lock(runner);
    let Some(runner) = runner.as_mut() else {
        return Ok(());
    };
    if runner.step() == 0 && still() {
        runner.pause(Some(patience), still)?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
