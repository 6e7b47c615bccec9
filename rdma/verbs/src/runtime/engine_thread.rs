//! Engine threads: each runs one engine, and has a mailbox for verbs.

use std::fmt;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use xwarp_driver::{Doorbell, Sleeper, join};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use super::config::WaitMode;
use super::deferred_drops::DeferredDrops;
use super::mode::Mode;
use super::runner::{Command, Runner, run};

/// A thread for each engine ([`Progress::Thread`](super::config::Progress::Thread)).
pub(crate) struct EngineThreads(Vec<EngineThread>);

impl EngineThreads {
    /// Starts a thread for each engine.
    pub(crate) fn start(
        engines: impl Iterator<Item = (Engine, (Sleeper, Doorbell))>,
        waiting: WaitMode,
    ) -> io::Result<Self> {
        let threads = engines.map(|(engine, waking)| EngineThread::start(engine, waiting, waking));
        Ok(Self(threads.collect::<io::Result<_>>()?))
    }

    fn thread(&self, engine: usize) -> Result<&EngineThread, RnicUnavailable> {
        self.0.get(engine).ok_or(RnicUnavailable::Closed)
    }
}

impl Mode for EngineThreads {
    fn call<R: Send + 'static>(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.thread(engine)?.call(work)
    }

    /// The thread takes the work from its mailbox after the handler has returned.
    fn release_from_handler(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) + Send + 'static,
        _: &DeferredDrops,
    ) {
        if let Ok(thread) = self.thread(engine) {
            thread.release(work);
        }
    }

    /// If a handler drops the last handle, it runs in one of the threads, which cannot join itself:
    /// the threads then end without a join.
    fn close(&self, from_handler: bool) {
        self.0.iter().for_each(EngineThread::end);
        if !from_handler {
            self.0.iter().for_each(EngineThread::join);
        }
    }
}

impl fmt::Debug for EngineThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads", self.0.len())
    }
}

/// A thread that runs an engine. Dropping it ends the thread and the engine.
struct EngineThread {
    commands: Mutex<Option<Sender<Command>>>,
    bell: Doorbell,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EngineThread {
    /// Starts the thread.
    fn start(
        engine: Engine,
        waiting: WaitMode,
        (sleeper, bell): (Sleeper, Doorbell),
    ) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let runner = Runner::new(engine, waiting)?;
        let thread = std::thread::Builder::new()
            .name("xwarp-engine".to_owned())
            .spawn(move || run(runner, &sleeper, &inbox))?;
        Ok(Self {
            commands: Mutex::new(Some(commands)),
            bell,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs a verb on the engine.
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        let (answer, reply) = mpsc::sync_channel(1);
        self.send(Box::new(move |runner| {
            if let Ok(done) = runner.call(work) {
                // The caller may have stopped waiting.
                let _ = answer.send(done);
            }
        }))?;
        reply.recv().map_err(|_| RnicUnavailable::Closed)
    }

    /// Makes the thread release an object later.
    fn release(&self, work: impl FnOnce(&mut Engine) + Send + 'static) {
        // An engine that has ended has no objects left to release.
        let _ = self.send(Box::new(|runner| drop(runner.call(work))));
    }

    /// Puts a command into the mailbox.
    fn send(&self, command: Command) -> Result<(), RnicUnavailable> {
        let sent = lock(&self.commands).as_ref().map(|them| them.send(command));
        sent.ok_or(RnicUnavailable::Closed)?
            .map_err(|_| RnicUnavailable::Closed)?;
        self.bell.ring();
        Ok(())
    }

    /// Makes the thread end the engine and itself.
    fn end(&self) {
        lock(&self.commands).take();
        self.bell.ring();
    }

    /// Waits until the thread has ended.
    fn join(&self) {
        if let Some(thread) = lock(&self.thread).take() {
            join(thread, "the engine's thread");
        }
    }
}

impl Drop for EngineThread {
    /// Runs if opening the RNIC has failed.
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
