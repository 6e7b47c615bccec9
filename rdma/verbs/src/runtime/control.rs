//! Control: passes verbs from an application's handles to the engines, as closures.
//!
//! Close RNIC removes the engines and leaves every handle with a `Control` that refuses calls. It
//! puts all queue pairs into Error, so that posting has to check for a closed RNIC only on its
//! error path. Polling, arming and Query CQ call no engine; they check one flag.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use xwarp_driver::net::PortError;
use xwarp_driver::{RegionPool, Signal, is_any_readable};

use super::any_mode::AnyMode;
use super::deferred_drops::DeferredDrops;
use super::in_handler::is_in_handler;
use super::mode::Mode;
use super::open_rnics;
use super::pause::{Bell, Paused};
use crate::error::{RnicEnded, WaitError};
use crate::host::ports::{Claim, Ports};
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::RnicId;
use xwarp_rnic::model::{
    HandlerError, Host, HostError, LocalPort, MpaConfig, QpId, RnicUnavailable,
};
use xwarp_rnic::queues::{
    CompletionNotices, Ending, EngineDoorbell, EventQueue, Inbox, QpShared, SlotTable,
};
use xwarp_rnic::tables::{Handlers, SharedTables};

/// Steps between two checks of the descriptors that end a caller's wait, while the caller does not
/// sleep.
const TURNS_WITHOUT_LOOK: u32 = 256;

/// The first engine, for calls that any engine can answer from the shared tables.
const FIRST: usize = 0;

/// State that all handles of an RNIC share.
pub(crate) struct Control {
    id: RnicId,
    mode: AnyMode,
    closed: AtomicBool,
    shared_tables: Arc<SharedTables>,
    /// Doorbell of the first engine, the only one of most RNICs.
    first_doorbell: Arc<EngineDoorbell>,
    slots: Arc<SlotTable>,
    /// Number of queue pairs and of streams so far, to spread each kind over the engines.
    qps: AtomicUsize,
    streams: AtomicUsize,
    host: Arc<Ports>,
    ending: Arc<Ending>,
    deferred: Arc<DeferredDrops>,
    /// Descriptor of an RNIC whose engines do not depend on an event loop: raised once the RNIC was
    /// closed.
    quiet: Signal,
    regions: RegionPool,
    mpa: MpaConfig,
}

impl Control {
    pub(crate) fn new(mode: AnyMode, parts: Parts) -> io::Result<Arc<Self>> {
        let shared_tables = parts.shared_tables;
        parts.ending.watch(shared_tables.events().signal());
        let control = Arc::new(Self {
            id: RnicId::next(),
            mode,
            closed: AtomicBool::new(false),
            first_doorbell: Arc::clone(shared_tables.first_doorbell()),
            slots: Arc::clone(shared_tables.slots()),
            shared_tables,
            qps: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            host: parts.host,
            ending: parts.ending,
            deferred: parts.deferred,
            quiet: Signal::new()?,
            regions: parts.regions,
            mpa: parts.mpa,
        });
        let rnic: Weak<Self> = Arc::downgrade(&control);
        open_rnics::add(rnic);
        Ok(control)
    }

    /// Identity of the RNIC.
    pub(crate) fn id(&self) -> RnicId {
        self.id
    }

    /// The table where slots of work queues are freed.
    #[inline]
    pub(crate) fn slots(&self) -> &Arc<SlotTable> {
        &self.slots
    }

    /// Close RNIC. Fails in a handler of the RNIC.
    pub(crate) fn close(&self) -> Result<(), RnicUnavailable> {
        self.check_no_handler()?;
        self.shut_down()?;
        self.host.close();
        Ok(())
    }

    /// Refuses calls from a handler that would wait for the host or for the engine.
    pub(crate) fn check_no_handler(&self) -> Result<(), RnicUnavailable> {
        if is_in_handler(self.id) {
            return Err(RnicUnavailable::InHandler);
        }
        Ok(())
    }

    /// Ends the engines, and with them all their objects. Later calls fail.
    fn shut_down(&self) -> Result<(), RnicUnavailable> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(RnicUnavailable::Closed);
        }
        let from_handler = is_in_handler(self.id);
        self.mode.close(from_handler);
        if !from_handler {
            self.shared_tables.drop_handlers();
        }
        self.quiet.raise();
        Ok(())
    }

    /// Whether the RNIC was closed.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses a verb that calls no engine once the RNIC was closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), RnicUnavailable> {
        if self.is_closed() {
            return Err(RnicUnavailable::Closed);
        }
        Ok(())
    }

    /// Why no more events, requests or bytes will arrive. `None` while some may.
    pub(crate) fn ended(&self) -> Option<RnicEnded> {
        if let Some(reason) = self.ending.failure() {
            return Some(RnicEnded::Failed(reason.to_owned()));
        }
        let closed = RnicEnded::Unavailable(RnicUnavailable::Closed);
        self.has_ended().then_some(closed)
    }

    /// Returns what `take` takes. `signal` announces it. If there is nothing, and nothing can
    /// arrive later, the signal stays raised.
    pub(crate) fn take_or_ended<T>(
        &self,
        signal: &Signal,
        mut take: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, RnicEnded> {
        if let Some(value) = take() {
            self.keep_raised(signal);
            return Ok(Some(value));
        }
        let Some(ended) = self.ended() else {
            return Ok(None);
        };
        // A value may have arrived just before the end.
        let value = take();
        signal.raise();
        value.map(Some).ok_or(ended)
    }

    /// Raises `signal` again if the RNIC has ended. Call it after taking a value of `signal`, as
    /// taking the last value clears the signal.
    pub(crate) fn keep_raised(&self, signal: &Signal) {
        if self.has_ended() {
            signal.raise();
        }
    }

    /// Whether the RNIC has ended: only flushed work requests complete from then on.
    fn has_ended(&self) -> bool {
        self.is_closed() || self.ending.is_over() || self.ending.failure().is_some()
    }

    /// A signal that is raised when the RNIC ends.
    pub(crate) fn signal(&self) -> io::Result<Arc<Signal>> {
        let signal = Arc::new(Signal::new()?);
        self.ending.watch(&signal);
        Ok(signal)
    }

    /// An inbox whose signal is raised when the RNIC ends.
    pub(crate) fn inbox<T>(&self) -> io::Result<Arc<Inbox<T>>> {
        let inbox = Arc::new(Inbox::new()?);
        self.ending.watch(inbox.signal());
        Ok(inbox)
    }

    /// A completion channel whose signal is raised when the RNIC ends.
    pub(crate) fn notices(&self) -> io::Result<Arc<CompletionNotices>> {
        let notices = Arc::new(CompletionNotices::new()?);
        self.ending.watch(notices.signal());
        Ok(notices)
    }

    pub(crate) fn events(&self) -> &EventQueue {
        self.shared_tables.events()
    }

    /// The tables that all engines share.
    pub(crate) fn shared_tables(&self) -> &Arc<SharedTables> {
        &self.shared_tables
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Opens a port of the host for a connection to `remote`, whose frames come to this engine if
    /// possible. If no file descriptor is left, the engines first close those of ended connections.
    pub(crate) fn open_port(
        &self,
        address: IpAddr,
        remote: SocketAddr,
        engine: usize,
    ) -> Result<LocalPort, HostError> {
        self.with_descriptors(|| self.host.open_port_towards(address, remote, engine))
    }

    /// Opens this port of the host for a connection. If the RNIC has the port already, the result
    /// shares it.
    pub(crate) fn open_named_port(
        &self,
        address: IpAddr,
        port: u16,
    ) -> Result<LocalPort, HostError> {
        self.with_descriptors(|| self.host.open_port(address, port))
    }

    /// Claims a port of the host for listening. If the RNIC has the port already, the result shares
    /// it.
    pub(crate) fn claim_port(
        &self,
        address: IpAddr,
        port: u16,
    ) -> Result<(LocalPort, Claim), HostError> {
        self.with_descriptors(|| self.host.claim(address, port))
    }

    /// Further shares of ports that the RNIC has.
    pub(crate) fn share_ports(&self, ports: &[LocalPort]) -> Result<Vec<LocalPort>, HostError> {
        let places = ports.iter().map(LocalPort::local);
        places
            .map(|place| self.host.open_port(place.ip(), place.port()))
            .collect()
    }

    fn with_descriptors<T>(&self, open: impl Fn() -> Result<T, HostError>) -> Result<T, HostError> {
        match open() {
            Err(HostError::Port(PortError::NoDescriptors)) => {
                // A closed RNIC has no ports to release.
                let _ = self.call_each(Engine::release_ports);
                open()
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

    /// The engine for the next queue pair, round robin.
    pub(crate) fn engine_for_qp(&self) -> usize {
        self.qps.fetch_add(1, Ordering::Relaxed) % self.shared_tables.engines()
    }

    /// The engine for the next stream that is connected from here, round robin.
    pub(crate) fn engine_for_stream(&self) -> usize {
        self.streams.fetch_add(1, Ordering::Relaxed) % self.shared_tables.engines()
    }

    /// Runs `work` on the first engine, and waits for the result.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.call_on(FIRST, work)
    }

    /// Runs `work` on this engine, and waits for the result.
    pub(crate) fn call_on<R: Send + 'static>(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.check_no_handler()?;
        let done = self.mode.call(engine, work);
        self.run_deferred();
        done
    }

    /// Runs `work` on all engines, one after the other, and returns the results.
    pub(crate) fn call_each<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, RnicUnavailable> {
        let engines = 0..self.shared_tables.engines();
        engines
            .map(|engine| self.call_on(engine, work.clone()))
            .collect()
    }

    /// Releases an object whose handle is dropped. In a handler, that happens after the handler.
    pub(crate) fn release(&self, work: impl FnOnce(&mut Engine) + Send + 'static) {
        self.release_on(FIRST, work);
    }

    /// Releases an object of this engine. In a handler, that happens after the handler.
    pub(crate) fn release_on(
        &self,
        engine: usize,
        work: impl FnOnce(&mut Engine) + Send + 'static,
    ) {
        if !is_in_handler(self.id) {
            // An engine that has ended has no objects left to release.
            let _ = self.call_on(engine, work);
            return;
        }
        (self.mode).release_from_handler(engine, work, &self.deferred);
    }

    /// Releases an object of all engines. In a handler, that happens after the handler.
    pub(crate) fn release_on_each(&self, work: impl FnOnce(&mut Engine) + Clone + Send + 'static) {
        for engine in 0..self.shared_tables.engines() {
            self.release_on(engine, work.clone());
        }
    }

    /// Changes the completion event handlers. No engine calls a handler meanwhile.
    pub(crate) fn with_handlers<R>(
        &self,
        change: impl FnOnce(&mut Handlers) -> Result<R, HandlerError>,
    ) -> Result<R, HandlerError> {
        self.check_no_handler()?;
        self.check_open()?;
        let changed = change(&mut self.shared_tables.handlers().lock());
        // A handler may have owned objects.
        self.run_deferred();
        changed
    }

    /// Moves a queue pair to this engine if it is Idle and not connecting. Returns false if it
    /// stays on another engine.
    pub(crate) fn move_qp(
        &self,
        id: QpId,
        shared: &QpShared,
        to: usize,
    ) -> Result<bool, RnicUnavailable> {
        let from = shared.engine();
        if from == to {
            return Ok(true);
        }
        let moving = self.call_on(from, move |engine| engine.take_out(id, to))?;
        let moved = moving.map(|moving| self.call_on(to, move |engine| engine.enter(moving)));
        Ok(moved.transpose()?.is_some())
    }

    /// Releases what a handler has dropped in the last step or verb. The handler ran in this
    /// thread.
    #[inline]
    fn run_deferred(&self) {
        if self.deferred.has_any() {
            self.run_all_deferred();
        }
    }

    #[inline(never)]
    fn run_all_deferred(&self) {
        if is_in_handler(self.id) {
            return;
        }
        for (engine, release) in self.deferred.take() {
            // An engine that has ended has no objects left to release.
            let _ = self.call_on(engine, release);
        }
    }

    /// Calls the first engine with work that may fail for reasons besides a closed RNIC.
    pub(crate) fn attempt<R: Send + 'static, E: From<RnicUnavailable> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> Result<R, E> + Send + 'static,
    ) -> Result<R, E> {
        self.call(work)?
    }

    /// Notifies an engine that work was posted to one of its queue pairs.
    #[inline]
    pub(crate) fn notify(&self, qp: QpId, engine: usize) {
        if engine == FIRST {
            self.first_doorbell.notify(qp.slot());
        } else {
            self.notify_other(qp, engine);
        }
    }

    #[inline(never)]
    fn notify_other(&self, qp: QpId, engine: usize) {
        if let Some(doorbell) = self.shared_tables.doorbells().get(engine) {
            doorbell.notify(qp.slot());
        }
    }

    /// Runs one step of an inline or assisted engine, for a caller that polls.
    #[inline]
    pub(crate) fn turn(&self) {
        self.mode.turn(|| self.run_deferred());
    }

    /// Called before the caller sleeps on a descriptor of its own. The thread of an assisted engine
    /// runs the engine meanwhile.
    pub(crate) fn ask_for_progress(&self) {
        self.mode.ask_for_progress();
    }

    /// Runs one step of an inline engine, for an event loop that then waits for [`fd`](Self::fd).
    pub(crate) fn progress(&self) -> Result<(), WaitError> {
        self.check_no_handler()?;
        self.mode.progress()?;
        self.run_deferred();
        Ok(self.check_open()?)
    }

    /// Descriptor that is readable while an inline engine has work, and once the RNIC was closed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.mode.fd().unwrap_or_else(|| self.quiet.as_fd())
    }

    /// Descriptor that is readable while an inline engine has work; `None` if the engine does not
    /// depend on callers.
    #[cfg(feature = "tokio")]
    pub(crate) fn engine_fd(&self) -> Option<BorrowedFd<'_>> {
        self.mode.fd()
    }

    /// Runs one step of each manual engine at the given time. Returns how much work was done.
    pub(crate) fn step_at(&self, now: xwarp_tcp::Instant) -> usize {
        self.mode.step_at(now, self.id, || self.run_deferred())
    }

    /// Waits until `condition` returns a value. `None` at the deadline, or when the RNIC is closed.
    /// Evaluates `condition` whenever `bell` has made its descriptor readable, and after each step
    /// of an inline engine. Does not wait for a manual engine.
    pub(crate) fn wait_until<T>(
        &self,
        bell: &dyn Bell,
        deadline: Option<Instant>,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        self.wait_until_or(bell, &[], deadline, condition)
    }

    /// Waits as [`wait_until`](Self::wait_until) does. Also ends, with `None`, when one of `others`
    /// is readable.
    pub(crate) fn wait_until_or<T>(
        &self,
        bell: &dyn Bell,
        others: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        self.check_no_handler()?;
        let (mut turns, mut others_ready) = (0_u32, false);
        loop {
            // Read before the condition, which then sees the end, too.
            let closed = self.is_closed();
            let value = condition();
            let left = time_left(deadline);
            if value.is_some() || closed || others_ready || left.is_zero() {
                if turns > 0 {
                    self.mode.leave()?;
                }
                return Ok(value);
            }
            let Some(paused) = self.mode.pause(bell, others, left)? else {
                return Ok(None);
            };
            self.run_deferred();
            turns = turns.wrapping_add(1).max(1);
            others_ready = match paused {
                Paused::ForOther => true,
                Paused::Not if turns.is_multiple_of(TURNS_WITHOUT_LOOK) => is_any_readable(others)?,
                Paused::Slept | Paused::Not => false,
            };
        }
    }

    /// Waits until one of these descriptors is readable, up to `timeout`. Returns whether one is.
    pub(crate) fn wait_readable(
        &self,
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<bool, WaitError> {
        let deadline = Instant::now().checked_add(timeout);
        let ready = || is_any_readable(fds);
        if ready()? {
            return Ok(true);
        }
        self.wait_until_or(&self.quiet, fds, deadline, || None::<()>)?;
        if ready()? {
            return Ok(true);
        }
        self.check_open()?;
        Ok(false)
    }

    /// Which threads run the engines.
    pub(crate) fn mode(&self) -> &AnyMode {
        &self.mode
    }

    /// Waits until `take` returns a value, which `signal` announces; `None` after `timeout`.
    pub(crate) fn wait_for<T>(
        &self,
        signal: &Signal,
        timeout: Duration,
        mut take: impl FnMut() -> Result<Option<T>, RnicEnded>,
    ) -> Result<Option<T>, RnicEnded> {
        let deadline = Instant::now().checked_add(timeout);
        match self.wait_until(signal, deadline, || take().transpose()) {
            Ok(taken) => taken.transpose(),
            Err(WaitError::Unavailable(why)) => Err(RnicEnded::Unavailable(why)),
            Err(WaitError::System(error)) => {
                Err(RnicEnded::Failed(format!("no sleep is possible: {error}")))
            }
        }
    }
}

/// Parts of an RNIC that its handles need, besides the engines.
pub(crate) struct Parts {
    pub(crate) shared_tables: Arc<SharedTables>,
    pub(crate) host: Arc<Ports>,
    pub(crate) ending: Arc<Ending>,
    pub(crate) regions: RegionPool,
    pub(crate) mpa: MpaConfig,
    pub(crate) deferred: Arc<DeferredDrops>,
}

impl Drop for Control {
    fn drop(&mut self) {
        // The RNIC may have been closed before.
        let _ = self.shut_down();
    }
}

/// Time until the deadline; without one, the longest possible time.
fn time_left(deadline: Option<Instant>) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    })
}
