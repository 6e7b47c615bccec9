//! A queue pair's state, as the engine publishes it to the application's threads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use xwarp_driver::Signal;

use super::waiters::Waiters;
use crate::model::{AsyncEventKind, ConnectionEnd, ConnectionInfo, QpState, StartUpParameters};

/// Copies of the requested and of the negotiated start-up parameters.
struct StartUp {
    wanted: StartUpParameters,
    settled: Option<ConnectionInfo>,
}

/// Published state of a queue pair. The engine itself reads none of it.
pub struct QpShared {
    state: AtomicU8,
    destroyed: AtomicBool,
    /// The end of a connection is quiet while no request is unfinished.
    quiet_end: AtomicBool,
    /// Sends may carry immediate data.
    send_immediates: AtomicBool,
    engine: AtomicUsize,
    start_up: Mutex<StartUp>,
    /// Cause of the current or last connection's end.
    end: Mutex<Option<ConnectionEnd>>,
    /// Signals raised by every new state.
    watchers: Waiters<Weak<Signal>>,
}

impl QpShared {
    /// State of a queue pair in Idle on this engine, with the parameters of its next start-up.
    pub fn new(wanted: StartUpParameters, engine: usize) -> Self {
        let settled = None;
        Self {
            state: AtomicU8::new(QpState::Idle as u8),
            destroyed: AtomicBool::new(false),
            quiet_end: AtomicBool::new(false),
            send_immediates: AtomicBool::new(false),
            engine: AtomicUsize::new(engine),
            start_up: Mutex::new(StartUp { wanted, settled }),
            end: Mutex::new(None),
            watchers: Waiters::default(),
        }
    }

    /// Sets whether Sends may carry immediate data.
    #[must_use]
    pub fn send_immediates(self, send_immediates: bool) -> Self {
        self.set_send_immediates(send_immediates);
        self
    }

    /// Raises `signal` at every further state, until its other references are dropped.
    pub fn watch(&self, signal: &Arc<Signal>) {
        let gone = |watcher: &Weak<Signal>| watcher.strong_count() == 0;
        // The watcher checks the state itself.
        (self.watchers).register(Arc::downgrade(signal), gone, || ());
    }

    /// Whether the end of a connection is quiet while no request is unfinished.
    pub fn ends_quietly(&self) -> bool {
        self.quiet_end.load(Ordering::Relaxed)
    }

    pub(crate) fn set_quiet_end(&self, quiet_end: bool) {
        self.quiet_end.store(quiet_end, Ordering::Relaxed);
    }

    /// Whether Sends may carry immediate data.
    pub fn has_send_immediates(&self) -> bool {
        self.send_immediates.load(Ordering::Relaxed)
    }

    pub(crate) fn set_send_immediates(&self, send_immediates: bool) {
        self.send_immediates
            .store(send_immediates, Ordering::Relaxed);
    }

    /// The last published state.
    #[inline]
    pub fn state(&self) -> QpState {
        QpState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Publishes a new state. A thread that reads after this call finds all work that the
    /// application posted before it could see the state.
    pub(crate) fn set(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
        fence(Ordering::SeqCst);
        self.watchers.notify_each(|watcher| {
            if let Some(signal) = watcher.upgrade() {
                signal.raise();
            }
        });
    }

    /// The engine of the queue pair, which may have changed a moment ago. The former engine passes
    /// notifications on.
    #[inline]
    pub fn engine(&self) -> usize {
        self.engine.load(Ordering::Relaxed)
    }

    /// Records that the queue pair is on this engine now.
    pub(crate) fn set_engine(&self, engine: usize) {
        self.engine.store(engine, Ordering::Relaxed);
    }

    /// Records that the queue pair is destroyed, once its state is Error.
    pub(crate) fn set_destroyed(&self) {
        self.destroyed.store(true, Ordering::Release);
    }

    /// True once the queue pair is destroyed.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    fn shown_end(&self) -> MutexGuard<'_, Option<ConnectionEnd>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes why the connection ends, before the resulting state and completions. The first
    /// failure is kept; a close that began well may still fail.
    pub(crate) fn set_end(&self, end: ConnectionEnd) {
        let mut shown = self.shown_end();
        if let None | Some(ConnectionEnd::Event(AsyncEventKind::Closed)) = *shown {
            *shown = Some(end);
        }
    }

    /// Clears the end of the last connection, as there is a new one.
    pub(crate) fn clear_end(&self) {
        *self.shown_end() = None;
    }

    /// Why the last connection has ended, or is ending.
    pub fn end(&self) -> Option<ConnectionEnd> {
        self.shown_end().clone()
    }

    fn shown_start_up(&self) -> MutexGuard<'_, StartUp> {
        self.start_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_start_up(&self, wanted: StartUpParameters) {
        self.shown_start_up().wanted = wanted;
    }

    /// Parameters of the next start-up.
    pub fn start_up(&self) -> StartUpParameters {
        self.shown_start_up().wanted
    }

    pub(crate) fn set_connection(&self, info: ConnectionInfo) {
        self.shown_start_up().settled = Some(info);
    }

    /// Negotiated parameters of the current or last connection.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        self.shown_start_up().settled
    }
}
