//! Engine thread: an engine that a thread of its own turns, and the mailbox for verbs.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use xwarp_driver::{Doorbell, Sleeper, join};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicUnavailable;

use super::config::WaitMode;
use super::hosted::HostedEngine;
use super::runner::{Command, Runner, run};

/// See the module. Dropping it ends both.
pub(crate) struct EngineThread {
    commands: Mutex<Option<Sender<Command>>>,
    bell: Doorbell,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EngineThread {
    /// Begins to turn an engine.
    pub(crate) fn start(
        engine: Engine,
        waiting: WaitMode,
        (sleeper, bell): (Sleeper, Doorbell),
    ) -> io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let runner = Runner::new(HostedEngine::new(engine)?, waiting);
        let thread = std::thread::Builder::new()
            .name("xwarp-engine".to_owned())
            .spawn(move || run(runner, &sleeper, &inbox))?;
        Ok(Self {
            commands: Mutex::new(Some(commands)),
            bell,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// A verb.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        let (answer, reply) = mpsc::sync_channel(1);
        self.send(Box::new(move |engine| {
            if let Ok(done) = engine.call(work) {
                // Whoever asked may have stopped listening.
                let _ = answer.send(done);
            }
        }))?;
        reply.recv().map_err(|_| RnicUnavailable::Closed)
    }

    /// Has the thread let go of something later.
    pub(crate) fn release(&self, work: impl FnOnce(&mut Engine) + Send + 'static) {
        // An engine that is gone has nothing to let go of; and nobody is there to be told.
        let _ = self.send(Box::new(|engine| drop(engine.call(work))));
    }

    /// Puts a command into the mailbox.
    fn send(&self, command: Command) -> Result<(), RnicUnavailable> {
        let sent = lock(&self.commands).as_ref().map(|them| them.send(command));
        sent.ok_or(RnicUnavailable::Closed)?
            .map_err(|_| RnicUnavailable::Closed)?;
        self.bell.ring();
        Ok(())
    }

    /// Has the thread end the engine and itself.
    pub(crate) fn end(&self) {
        lock(&self.commands).take();
        self.bell.ring();
    }

    /// Waits until it has.
    pub(crate) fn join(&self) {
        if let Some(thread) = lock(&self.thread).take() {
            join(thread, "the engine's thread");
        }
    }
}

impl Drop for EngineThread {
    /// Where opening the RNIC has failed.
    fn drop(&mut self) {
        self.end();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
