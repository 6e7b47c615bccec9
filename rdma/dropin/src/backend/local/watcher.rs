//! Watcher: a thread that takes connection requests, outcomes of attempts and ends of connections,
//! and reports them to the connection manager (decision record dropin/0005).
//!
//! It sleeps on the descriptors of listeners and attempts, and on the link's. The engine's event
//! handler may call no verb, so it only records ends of connections here. The watcher then brings
//! such a queue pair into Error, which flushes its receives, and reports the end.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use rustc_hash::FxHashMap;
use xwarp::Listener;
use xwarp::attr::QpId;
use xwarp::cm::{Connecting, ConnectionRequest, PrivateData};
use xwarp::error::ConnectError;

use super::attempts::{Attempt, PAUSE};
use super::connected::{Connected, Ended};
use super::connection_event::{ConnectionEvent, EventCallback, Failure, Request};
use super::keyed::{Key, Keyed};
use super::link::Link;
use super::owned::Objects;
use super::queue_pair::Qp;
use super::registry::Registry;
use super::requests::{self, outcome};
use crate::backend::{EventTarget, Happening};
use crate::ending;
use crate::entry::{Result, lock};

/// The name of the descriptor that wakes the thread.
const WAKE: u64 = u64::MAX;
/// The name of the link's descriptor.
const LINK: u64 = WAKE - 1;
/// Descriptors that are handled in one round.
const ROUND: usize = 32;

/// Longest time that the end of a connection is held back while completions are not polled. A
/// hardware RNIC reports the end through the kernel, long after the last completion. Programs
/// depend on that: libfabric's RDM endpoints destroy a queue pair at its end, which discards its
/// completions, and would wait for the last message for ever.
pub(crate) const POLL_TIME: Duration = Duration::from_millis(100);
/// How often the thread checks whether the completions are polled.
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// A call that the thread makes at a given time.
type Call = Box<dyn FnOnce() + Send>;

/// The name of a timer, unlike any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timer(u64);

impl Timer {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The watcher of an RNIC.
pub(super) struct Watcher {
    connected: Arc<Connected>,
    /// `None` once the thread has ended: the descriptors are closed then.
    shared: Mutex<Option<Arc<Shared>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    epoll: Epoll,
    wake: EventFd,
    sources: Mutex<Keyed<Source>>,
    /// Attempts that are to be repeated, and when.
    later: Mutex<Vec<(Instant, Attempt)>>,
    /// Calls that are to be made, and when, by the names of their timers.
    timers: Mutex<FxHashMap<Timer, (Instant, Call)>>,
    /// Ends that are held back until the completions before them are polled, and for how long.
    held: Mutex<Vec<(Instant, Ended)>>,
    connected: Arc<Connected>,
    /// The RNIC has failed, and that is not reported yet.
    has_failed: AtomicBool,
    over: Mutex<bool>,
    registry: Arc<Registry>,
    objects: Arc<Objects>,
    link: Option<Link>,
    device: Arc<dyn EventTarget>,
}

/// The source that a descriptor belongs to.
enum Source {
    Listener(Listener, EventCallback),
    Attempt(Attempt, Connecting),
}

/// Result of taking from a source.
struct Taken {
    callback: EventCallback,
    event: Option<ConnectionEvent>,
    /// The connection, if an attempt has made it.
    made: Option<Key>,
    /// The source has nothing more.
    over: bool,
}

/// Records ends of connections, for a handler of the engine.
#[derive(Clone)]
pub(super) struct Ends(Weak<Shared>);

impl Ends {
    /// Records that the connection of a queue pair has ended.
    pub(super) fn note(&self, qp: QpId, orderly: bool) {
        if let Some(shared) = self.0.upgrade()
            && shared.connected.note_end(qp, orderly)
        {
            Shared::wake_or_report_aside(shared);
        }
    }

    /// Records that the RNIC has failed.
    pub(super) fn note_failure(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.has_failed.store(true, Ordering::Release);
            Shared::wake_or_report_aside(shared);
        }
    }
}

impl Watcher {
    pub(super) fn new(
        registry: &Arc<Registry>,
        objects: &Arc<Objects>,
        link: Option<Link>,
        device: &Arc<dyn EventTarget>,
    ) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_flags(flags)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        if let Some(link) = &link {
            epoll.add(link, EpollEvent::new(EpollFlags::EPOLLIN, LINK))?;
        }
        let connected = Arc::new(Connected::default());
        let shared = Arc::new(Shared {
            epoll,
            wake,
            sources: Mutex::default(),
            later: Mutex::default(),
            timers: Mutex::default(),
            held: Mutex::default(),
            connected: Arc::clone(&connected),
            has_failed: AtomicBool::new(false),
            over: Mutex::new(false),
            registry: Arc::clone(registry),
            objects: Arc::clone(objects),
            link,
            device: Arc::clone(device),
        });
        let its = Arc::clone(&shared);
        let thread = (thread::Builder::new().name("xwarp-cm".to_owned()))
            .spawn(move || its.run())
            .map_err(|_none| Errno::EAGAIN)?;
        Ok(Self {
            connected,
            shared: Mutex::new(Some(shared)),
            thread: Mutex::new(Some(thread)),
        })
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        lock(&self.shared).clone().ok_or(Errno::ENODEV)
    }

    pub(super) fn ends(&self) -> Ends {
        Ends(
            lock(&self.shared)
                .as_ref()
                .map_or_else(Weak::new, Arc::downgrade),
        )
    }

    /// Watches a listener for connection requests, until it is removed.
    pub(super) fn add_listener(&self, listener: Listener, callback: EventCallback) -> Result<Key> {
        self.shared()?.add(Source::Listener(listener, callback))
    }

    /// Watches an attempt. The end of its connection is reported to the same callback.
    pub(super) fn add_attempt(&self, attempt: Attempt, connecting: Connecting) -> Result<()> {
        let connection = attempt.connection;
        let added = self.shared().and_then(|shared| {
            shared.add(Source::Attempt(attempt, connecting))?;
            Ok(shared)
        });
        let shared = added.inspect_err(|_errno| {
            self.connected.remove(connection);
        })?;
        if self.connected.note_watched(connection) {
            Shared::wake_or_report_aside(shared);
        }
        Ok(())
    }

    /// The connections whose ends are reported.
    pub(super) fn connected(&self) -> &Connected {
        &self.connected
    }

    /// Removes a listener, and destroys it.
    pub(super) fn remove_listener(&self, key: Key) {
        // Dropped without the lock, as that waits for the engine.
        drop(self.shared().map(|shared| shared.remove(key)));
    }

    /// Cancels the attempt of a queue pair that is about to be destroyed.
    pub(super) fn cancel_attempt(&self, qp: &Arc<Qp>) {
        let Ok(shared) = self.shared() else {
            return;
        };
        let key = shared.find_attempt(|attempt| attempt.is_of(qp));
        drop(key.and_then(|key| shared.remove(key)));
        drop(shared.take_later(|_, attempt| attempt.is_of(qp)));
    }

    /// Sets a timer: the call is made at this time, without any lock, in place of the one that the
    /// timer was set for before. It is dropped if the thread ends before.
    pub(super) fn call_at(&self, timer: Timer, due: Instant, call: Call) -> Result<()> {
        let shared = self.shared()?;
        let former = lock(&shared.timers).insert(timer, (due, call));
        drop(former);
        shared.wake()
    }

    /// Reports that the connection of a destroyed queue pair has ended, unless that was reported
    /// before or the connection was never made.
    pub(super) fn report_end(&self, qp: QpId) {
        if let Some(callback) = self.connected.remove_present(qp) {
            callback(ConnectionEvent::Disconnected);
        }
    }

    /// Ends the thread, and closes all descriptors.
    pub(super) fn end(&self) {
        let Some(shared) = lock(&self.shared).take() else {
            return;
        };
        *lock(&shared.over) = true;
        // A thread that cannot be woken is not waited for long.
        let _ = shared.wake();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != thread::current().id()) {
            join(thread);
        }
    }
}

/// Waits until the thread has ended, for [`END_TIMEOUT`] at most: a thread whose descriptors the
/// program has closed is never woken.
fn join(thread: JoinHandle<()>) {
    if !ending::join(thread, "the connection manager's thread") {
        log::error!(
            "the connection manager's thread does not end; the program has closed or replaced its descriptors"
        );
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

/// Blocks signals, which are for the program's threads: tgtd reads its own from a signalfd, and
/// ends if another thread takes one.
fn block_signals() {
    if let Err(errno) = SigSet::all().thread_block() {
        log::warn!("a thread of connections takes the program's signals: {errno}");
    }
}

impl Shared {
    /// Wakes the thread. An error means that the program has closed the descriptor.
    fn wake(&self) -> Result<()> {
        match self.wake.write(1) {
            // A full counter is readable, too.
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Makes the thread report ended connections, or another thread if that one cannot be woken.
    fn wake_or_report_aside(shared: Arc<Self>) {
        if shared.wake().is_ok() {
            return;
        }
        let named = thread::Builder::new().name("xwarp-end".to_owned());
        let spawned = named.spawn(move || {
            block_signals();
            shared.report_ends(Duration::ZERO);
            shared.report_failure();
        });
        if let Err(error) = spawned {
            log::error!("ends of connections are not reported: {error}");
        }
    }

    fn add(&self, source: Source) -> Result<Key> {
        let mut sources = lock(&self.sources);
        let key = sources.next_key();
        let descriptor = match &source {
            Source::Listener(listener, _) => listener.as_fd(),
            Source::Attempt(_, connecting) => connecting.as_fd(),
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, key.0);
        self.epoll.add(descriptor, event)?;
        Ok(sources.insert(source))
    }

    fn remove(&self, key: Key) -> Option<Source> {
        lock(&self.sources).remove(key)
    }

    fn find_attempt(&self, wanted: impl Fn(&Attempt) -> bool) -> Option<Key> {
        let sources = lock(&self.sources);
        let mut all = sources.iter();
        all.find_map(|(key, source)| match source {
            Source::Attempt(attempt, _) if wanted(attempt) => Some(key),
            Source::Attempt(..) | Source::Listener(..) => None,
        })
    }

    /// Runs until the watcher ends.
    fn run(&self) {
        block_signals();
        let mut events = [EpollEvent::empty(); ROUND];
        while !*lock(&self.over) {
            let ready = match self.epoll.wait(&mut events, self.until_later()) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(errno) => {
                    log::error!("events of connections are no longer reported: {errno}");
                    return;
                }
            };
            for event in events.iter().take(ready) {
                self.take_from(event.data());
            }
            self.report_ends(POLL_TIME);
            self.report_failure();
            self.make_again();
            self.make_calls();
        }
    }

    /// How long the thread may sleep.
    fn until_later(&self) -> EpollTimeout {
        let attempt = lock(&self.later).iter().map(|(due, _)| *due).min();
        let call = lock(&self.timers).values().map(|(due, _)| *due).min();
        let is_held = !lock(&self.held).is_empty();
        let check = is_held.then(|| Instant::now() + POLL_PAUSE);
        let Some(due) = attempt.into_iter().chain(call).chain(check).min() else {
            return EpollTimeout::NONE;
        };
        let left = due.saturating_duration_since(Instant::now());
        // Rounded up, so that the thread sleeps through the last millisecond and does not spin.
        EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::NONE)
    }

    fn take_later(&self, wanted: impl Fn(Instant, &Attempt) -> bool) -> Vec<(Instant, Attempt)> {
        let mut later = lock(&self.later);
        later
            .extract_if(.., |(due, attempt)| wanted(*due, attempt))
            .collect()
    }

    /// Repeats attempts that are due.
    fn make_again(&self) {
        let now = Instant::now();
        for (_, attempt) in self.take_later(|due, _| due <= now) {
            let (connection, callback) = (attempt.connection, attempt.callback());
            let qp = attempt.qp.upgrade().ok_or(Errno::EINVAL);
            let begun = qp.and_then(|qp| qp.owned.with(|qp| attempt.begin(qp)));
            let added =
                begun.and_then(|(_, connecting)| self.add(Source::Attempt(attempt, connecting)));
            // If the attempt was cancelled meanwhile, there is nothing to report.
            if let Err(errno) = added
                && self.connected.remove(connection).is_some()
            {
                callback(ConnectionEvent::NotConnected(Failure::Failed(errno)));
            }
        }
    }

    /// Makes the calls that are due.
    fn make_calls(&self) {
        let now = Instant::now();
        let due: Vec<_> = lock(&self.timers)
            .extract_if(|_, (due, _)| *due <= now)
            .collect();
        for (_, (_, call)) in due {
            call();
        }
    }

    fn take_from(&self, name: u64) {
        if name == WAKE {
            // If this fails, the descriptor was not raised.
            let _ = self.wake.read();
        } else if name == LINK {
            self.link.iter().for_each(Link::look);
        } else {
            self.take(Key(name));
        }
    }

    /// Takes the result of a listener or an attempt, and reports it without any lock.
    fn take(&self, key: Key) {
        let mut sources = lock(&self.sources);
        let Some(taken) = self.look(&mut sources, key) else {
            return;
        };
        let gone = taken.over.then(|| sources.remove(key));
        drop(sources);
        if let Some(event) = taken.event {
            (taken.callback)(event);
        }
        if taken.made.is_some_and(|it| !self.connected.note_made(it)) {
            // Its queue pair was destroyed meanwhile; this thread has to report the end.
            (taken.callback)(ConnectionEvent::Disconnected);
        }
        drop(gone);
    }

    fn look(&self, sources: &mut Keyed<Source>, key: Key) -> Option<Taken> {
        let (callback, event, made, over) = match sources.get_mut(key)? {
            Source::Listener(listener, callback) => match listener.try_accept() {
                Ok(request) => {
                    let event = ConnectionEvent::Request(self.keep(request?));
                    (Arc::clone(callback), Some(event), None, false)
                }
                Err(_ended) => (Arc::clone(callback), None, None, true),
            },
            Source::Attempt(attempt, connecting) => match connecting.try_finish()? {
                Err(error) if attempt.is_made_again(&error, &self.connected) => {
                    self.put_off(sources, key);
                    return None;
                }
                ended => {
                    let (event, made) = self.ended(attempt, connecting, ended);
                    (attempt.callback(), Some(event), made, true)
                }
            },
        };
        Some(Taken {
            callback,
            event,
            made,
            over,
        })
    }

    /// Keeps a connection request until the program answers it, or the RNIC is closed.
    fn keep(&self, request: ConnectionRequest) -> Request {
        let request = requests::request(request);
        self.objects.add(&request.peer);
        request
    }

    /// The event of a finished attempt, and its connection if it was made.
    fn ended(
        &self,
        attempt: &Attempt,
        connecting: &Connecting,
        ended: std::result::Result<PrivateData, ConnectError>,
    ) -> (ConnectionEvent, Option<Key>) {
        let depths = attempt.qp.upgrade().and_then(|qp| qp.depths());
        let event = outcome(connecting.local(), ended, depths);
        if matches!(event, ConnectionEvent::NotConnected(_)) {
            self.connected.remove(attempt.connection);
            return (event, None);
        }
        (event, Some(attempt.connection))
    }

    /// Schedules an attempt again. With the lock, so that it can be cancelled at any time.
    fn put_off(&self, sources: &mut Keyed<Source>, key: Key) {
        if let Some(Source::Attempt(attempt, _)) = sources.remove(key) {
            lock(&self.later).push((Instant::now() + PAUSE, attempt));
        }
    }

    /// Reports ended connections. One that was only just made is reported as made first. An end
    /// waits up to `hold` for the program to poll the completions before it.
    fn report_ends(&self, hold: Duration) {
        for Ended { key, qp, orderly } in self.take_ended(hold) {
            if let Some(attempt) = self.find_attempt(|attempt| attempt.connection == key) {
                self.take(attempt);
            }
            let Some(callback) = self.connected.remove(key) else {
                continue;
            };
            if orderly && let Some(qp) = self.registry.qp(qp) {
                qp.flush(&self.connected);
            }
            callback(ConnectionEvent::Disconnected);
        }
    }

    /// Takes the ends that may be reported now.
    fn take_ended(&self, hold: Duration) -> Vec<Ended> {
        let now = Instant::now();
        let mut waiting = lock(&self.held);
        waiting.extend(
            self.connected
                .take_ended()
                .into_iter()
                .map(|it| (now + hold, it)),
        );
        let is_polled = |qp| !self.registry.qp(qp).is_some_and(|it| it.has_successes());
        let due = waiting.extract_if(.., |(latest, ended)| {
            hold.is_zero() || *latest <= now || is_polled(ended.qp)
        });
        due.map(|(_, ended)| ended).collect()
    }

    /// Reports that the device has failed, after the ends of all of its connections, which no other
    /// event may report.
    fn report_failure(&self) {
        if self.has_failed.swap(false, Ordering::AcqRel) {
            self.connected.note_all();
            self.report_ends(Duration::ZERO);
            self.device.notify(Happening::DeviceGone);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Unheard;

    impl EventTarget for Unheard {
        fn notify(&self, _happening: Happening) {}
    }

    #[test]
    fn timer_that_is_set_again_makes_only_the_later_call() {
        let device: Arc<dyn EventTarget> = Arc::new(Unheard);
        let watcher = Watcher::new(&Arc::default(), &Arc::default(), None, &device);
        let watcher = watcher.expect("descriptors");
        let (sender, calls) = mpsc::channel();
        let now = Instant::now();
        let (one, other) = (Timer::new(), Timer::new());
        for (timer, after, name) in [(one, 0, 'a'), (one, 20, 'b'), (other, 60, 'c')] {
            let sender = sender.clone();
            let due = now + Duration::from_millis(100 + after);
            let call = move || sender.send((name, Instant::now())).expect("the test waits");
            watcher
                .call_at(timer, due, Box::new(call))
                .expect("it runs");
        }
        drop(sender);
        let made: Vec<_> = calls.iter().collect();
        let [('b', first), ('c', second)] = made[..] else {
            panic!("{made:?}");
        };
        assert!(first >= now + Duration::from_millis(120) && second > first);
    }
}
