//! The RNIC of this process and its objects. No other module names a type of xwarp (decision
//! record dropin/0002).

mod attempts;
mod connected;
pub(crate) mod connection_event;
mod connections;
mod domain;
mod errors;
mod events;
mod keyed;
mod link;
mod memory;
mod owned;
mod peer;
mod poll;
mod post;
mod queue_pair;
mod registry;
mod requests;
mod srq;
mod stats;
#[cfg(any(test, feature = "testbed"))]
pub(crate) mod testbed;
mod watcher;

use std::ffi::CStr;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use xwarp::attr::RnicAttributes;
use xwarp::config::{NicConfig, Progress};
use xwarp::error::OpenError;
use xwarp::event::HandlerId;
use xwarp::memory::PblMode;
use xwarp::{Rnic, RnicConfig};

use connections::Reusable;
use errors::Numbered;
use events::Events;
use link::Link;
use owned::{Objects, Owned};
use registry::Registry;
#[cfg(test)]
pub(crate) use watcher::POLL_TIME;
use watcher::Watcher;

use super::{EventTarget, Limits};
use crate::devices::Devices;
use crate::entry::Result;
use crate::environment;
use crate::logging::say;

pub(crate) use connections::Port;
pub(crate) use domain::{Mw, Pd};
pub(crate) use memory::Mr;
pub(crate) use peer::PeerRequest;
pub(crate) use poll::Cq;
pub(crate) use post::Srq;
pub(crate) use queue_pair::{Qp, QpRequest};
pub(crate) use stats::say_what_was_carried;
pub(crate) use watcher::Timer;

/// An RNIC. Its objects end with it.
pub(crate) struct Backend {
    this: Weak<Backend>,
    rnic: Rnic,
    /// The handler that reports completion events.
    handler: HandlerId,
    registry: Arc<Registry>,
    objects: Arc<Objects>,
    reusable: Reusable,
    watcher: Watcher,
}

/// A peer that has been silent for this long is probed. A killed program sends nothing, as its TCP
/// ended with it; the kernel of its host answers the probe with an RST.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// Asks for the NIC's times in completions, where the NIC has them.
const TIMESTAMPS: &CStr = c"XWARP_TIMESTAMPS";

/// Capabilities of every device, open or not.
pub(crate) fn limits() -> Limits {
    let rnic = RnicAttributes::new(PblMode::Page, RnicConfig::default().max_events);
    Limits {
        qps: rnic.max_qps,
        depth: rnic.max_work_requests,
        sge: rnic.max_send_sge.min(rnic.max_write_sge),
        inline: rnic.max_inline,
        cqs: rnic.max_cqs,
        cq_entries: rnic.max_cq_entries,
        stags: rnic.max_regions,
        pds: rnic.max_pds,
        srqs: rnic.max_srqs,
        reads: rnic.max_ird.min(rnic.max_ord),
    }
}

/// Whether completions have the NIC's times: `XWARP_TIMESTAMPS` is set.
pub(crate) fn times_are_wanted() -> bool {
    environment::is_on(TIMESTAMPS)
}

/// Opens the RNIC of an interface, which is one of `devices`. Prints why that fails on standard
/// error, as the error number alone does not explain it.
pub(crate) fn open(
    devices: &dyn Devices,
    interface: &str,
    device: Arc<dyn EventTarget>,
) -> Result<Arc<Backend>> {
    let nic = NicConfig::default().timestamps(times_are_wanted());
    let config = RnicConfig::default()
        .attach(devices.attach())
        .nic(nic)
        .progress(Progress::Assisted)
        .keepalive(Some(KEEPALIVE));
    let refused = |error: OpenError| {
        let why = errors::chain(&error);
        say(format_args!("cannot open an RNIC on {interface}: {why}"));
        error.errno()
    };
    let rnic = Rnic::open(interface, &config).map_err(refused)?;
    let link = Link::watch(devices, interface, Arc::clone(&device));
    let backend = link.and_then(|link| Backend::new(rnic, device, Some(link)));
    backend.map_err(|errno| refused(OpenError::System(errno.into())))
}

impl Backend {
    /// Takes an RNIC over. An RNIC in memory has no link that is watched.
    fn new(rnic: Rnic, device: Arc<dyn EventTarget>, link: Option<Link>) -> Result<Arc<Self>> {
        let registry = Arc::new(Registry::default());
        let objects = Arc::new(Objects::default());
        let watcher = Watcher::new(&registry, &objects, link, &device)?;
        let of_handler = Arc::clone(&registry);
        let handler = rnic
            .add_completion_handler(move |id| of_handler.completion(id))
            .map_err(|_none_left| Errno::ENOMEM)?;
        let events = Events {
            registry: Arc::clone(&registry),
            ends: watcher.ends(),
            device,
        };
        rnic.set_event_handler(move |_, event| events.report(event))
            .map_err(|error| error.errno())?;
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            rnic,
            handler,
            registry,
            objects,
            reusable: Reusable::default(),
            watcher,
        }))
    }

    fn reference(&self) -> BackendRef {
        BackendRef(Weak::clone(&self.this))
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Makes a backend object of a value of the RNIC.
    fn own<T: Send + 'static>(&self, value: T) -> Arc<Owned<T>> {
        let object = Arc::new(Owned::new(self.reference(), value));
        self.objects.add(&object);
        object
    }

    /// Closes the RNIC, whatever its objects are doing.
    pub(crate) fn close(&self) {
        self.watcher.end();
        stats::print(&self.rnic);
        if let Err(error) = self.rnic.close() {
            log::debug!("the RNIC was closed already: {error}");
        }
    }

    /// Whether completions have the NIC's times.
    pub(crate) fn has_times(&self) -> bool {
        self.rnic.has_timestamps()
    }

    pub(crate) fn alloc_pd(&self) -> Result<Arc<Pd>> {
        let pd = self.rnic.allocate_pd().map_err(|error| error.errno())?;
        Ok(self.own(pd))
    }

    /// Sets the numbers of queue pairs that are created from now on.
    pub(crate) fn set_qp_numbers(&self, numbers: Range<u32>) -> Result<()> {
        let set = self.rnic.set_qp_numbers(numbers);
        set.map_err(|error| error.errno())
    }

    /// Sets a timer: the call is made at this time by the thread that reports connections, unless
    /// the RNIC is closed or the timer set again before.
    pub(crate) fn call_at(
        &self,
        timer: Timer,
        due: Instant,
        call: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        self.watcher.call_at(timer, due, Box::new(call))
    }

    /// The queue pair with that number of 24 bits.
    pub(crate) fn qp_by_number(&self, number: u32) -> Result<Arc<Qp>> {
        self.registry.qp_by_number(number).ok_or(Errno::EINVAL)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.watcher.end();
        // It was closed before, unless it was never handed out.
        let _ = self.rnic.close();
        self.objects.release_all();
    }
}

/// An RNIC as its objects refer to it. Only the device has a strong reference. So a closed RNIC
/// leaves no descriptor behind, though the memory of destroyed objects is kept, and a program may
/// leave objects undestroyed.
#[derive(Clone)]
pub(crate) struct BackendRef(Weak<Backend>);

impl BackendRef {
    pub(crate) fn new(backend: &Arc<Backend>) -> Self {
        Self(Arc::downgrade(backend))
    }

    /// The RNIC; EIO if it is closed.
    pub(crate) fn get(&self) -> Result<Arc<Backend>> {
        self.0.upgrade().ok_or(Errno::EIO)
    }

    /// Destroys an object by `verb`. An object whose RNIC is closed was destroyed with it.
    fn end(&self, verb: impl FnOnce(&Backend) -> Result<()>) -> Result<()> {
        let ended = self.0.upgrade().map(|backend| verb(&backend));
        match ended {
            // Another thread is closing it.
            None | Some(Err(Errno::EIO)) => Ok(()),
            Some(ended) => ended,
        }
    }

    #[cfg(test)]
    fn closed() -> Self {
        Self(Weak::new())
    }
}
