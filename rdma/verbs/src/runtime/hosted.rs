//! Engine on its host: what the engine wants to know of the host, which it does not ask itself.
//!
//! Whoever runs the engine asks for it. That are ports of addresses that have come back, other ports to connect
//! from, and next hops that connections wait for.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use xwarp_driver::DescriptorSet;
use xwarp_rnic::engine::{Engine, HostQuestion};
use xwarp_rnic::model::ConnectError;
use xwarp_rnic::tables::SearchId;

use super::showing::Showing;

/// What a verb or a turn has panicked with.
type Panic = Box<dyn Any + Send>;

/// An engine, and the host's searches that its connections wait for.
pub(crate) struct HostedEngine {
    engine: Engine,
    /// Of the searches' descriptors, each by the search's name. A search that ends closes its own.
    searches: DescriptorSet,
    /// `None` where nobody could see it.
    showing: Option<Showing>,
}

impl HostedEngine {
    /// It takes a file descriptor.
    pub(crate) fn new(engine: Engine) -> io::Result<Self> {
        Ok(Self {
            showing: Showing::begin(&engine),
            engine,
            searches: DescriptorSet::new()?,
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The time at which a verb is called.
    pub(crate) fn wake_at(&mut self, now: xwarp_tcp::Instant) {
        self.engine.wake_at(now);
    }

    /// What is readable when a search may have found something.
    pub(crate) fn searches(&self) -> BorrowedFd<'_> {
        self.searches.as_fd()
    }

    /// How long a sleep may last; `None`: until something happens.
    pub(crate) fn sleep_timeout(&self, now: xwarp_tcp::Instant) -> Option<Duration> {
        let shown = self.showing.as_ref().and_then(|it| it.sleep_timeout(now));
        [self.engine.sleep_timeout(now), shown]
            .into_iter()
            .flatten()
            .min()
    }

    /// How long a sleep of the engine's own thread may last; `None`: until something happens.
    pub(crate) fn thread_timeout(&self, now: xwarp_tcp::Instant) -> Option<Duration> {
        let shown = self.showing.as_ref().map(|it| it.idle_timeout(now));
        let wanted = [self.engine.sleep_timeout(now), shown];
        wanted.into_iter().flatten().min()
    }

    /// One turn; how much was done.
    pub(crate) fn step(&mut self, now: xwarp_tcp::Instant) -> Result<usize, Panic> {
        let done = self.guarded(|engine, searches| {
            let found = if engine.is_searching() {
                engine.wake_at(now);
                take_next_hops(engine, searches)
            } else {
                0
            };
            found + engine.step(now)
        })?;
        if let Some(showing) = &mut self.showing {
            showing.note_turn(now, done, &self.engine);
        }
        Ok(done)
    }

    /// A verb, and what has happened by it.
    pub(crate) fn call<R>(&mut self, work: impl FnOnce(&mut Engine) -> R) -> Result<R, Panic> {
        self.guarded(|engine, _| work(engine))
    }

    /// A verb or a turn, and what has happened by it. A panic, which is a defect of ours, is the RNIC's catastrophic failure and ends its
    /// connections. With a manual engine, it goes on to whoever tests.
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
}

/// Asks the host for the ports that listeners want at addresses which have come back. Asks it for
/// next hops that are in doubt, too, and for metrics of routes to peers whose SYN has come.
fn ask_host(engine: &mut Engine) {
    let Some(host) = engine.host() else {
        return;
    };
    while let Some(question) = engine.take_question() {
        match question {
            HostQuestion::Port(wanted) => {
                let local = wanted.local();
                let answer = host.open_port(local.ip(), local.port());
                engine.give_port(wanted, answer);
            }
            HostQuestion::OtherPort(wanted) => {
                let (address, remote) = (wanted.local().ip(), wanted.remote());
                let answer = host.open_port_towards(address, remote, engine.index());
                engine.give_other_port(&wanted, answer);
            }
            HostQuestion::Path(path) => {
                let (local, remote) = (path.local(), path.remote());
                let answer = host.present_hop(local, remote, path.is_silent());
                engine.give_path(&path, answer);
            }
            HostQuestion::Metrics(path) => {
                let answer = host.metrics(path.local(), path.remote());
                engine.give_metrics(&path, answer);
            }
        }
    }
}

/// Has whoever sleeps be woken by searches that have begun.
fn watch_begun_searches(engine: &mut Engine, searches: &DescriptorSet) {
    while let Some(id) = engine.take_begun_search() {
        let SearchId(name) = id;
        let watched = engine
            .search(id)
            .map(|it| searches.watch_as(it.as_fd(), name));
        if let Some(Err(error)) = watched {
            let error = ConnectError::Resources(error.to_string());
            engine.give_next_hop(id, Err(error));
        }
    }
}

/// Gives the engine what searches have found; how many have.
fn take_next_hops(engine: &mut Engine, searches: &DescriptorSet) -> usize {
    let ready = match searches.ready() {
        Ok(ready) => ready,
        Err(error) => {
            log::error!("searches for next hops cannot be waited for: {error}");
            return 0;
        }
    };
    let mut found = 0;
    for id in ready.map(SearchId) {
        let answer = engine.search(id).and_then(|it| it.poll().transpose());
        if let Some(answer) = answer {
            engine.give_next_hop(id, answer.map_err(Into::into));
            found += 1;
        }
    }
    found
}
