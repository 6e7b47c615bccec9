//! Devices: interfaces that an RNIC can be opened on.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;

use crate::abi::Zeroed;
use crate::abi::numbers::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP};
use crate::abi::verbs::ibv_device;
use crate::backend::{self, Backend, EventTarget, Happening};
use crate::devices::{Devices, Interface};
use crate::entry::{Result, always, lock, sets};
use crate::environment;
use crate::fork;
use crate::logging::{self, say_once};
use crate::object::{Kind, Object};
use crate::rendezvous::Rendezvous;
use crate::verbs::sysfs::Paths;

/// The transport that a device reports to programs: `iwarp`, which it is, or `ib`.
const TRANSPORT: &CStr = c"XWARP_TRANSPORT";

/// A device, which lives as long as the process: programs may read it while a context is open.
pub(crate) struct Device {
    source: Arc<dyn Devices>,
    name: String,
    index: c_int,
    guid: [u8; 8],
    opened: Mutex<Opened>,
    targets: Arc<Targets>,
}

/// The RNIC of a device, which its contexts share.
#[derive(Default)]
struct Opened {
    contexts: usize,
    backend: Option<Arc<Backend>>,
    /// The meeting point of queue pairs that are brought up by hand on this RNIC.
    rendezvous: Option<Arc<Rendezvous>>,
}

/// Targets of a device's events: its contexts, and identifiers that are bound to it.
#[derive(Default)]
pub(crate) struct Targets(Mutex<Vec<Weak<dyn EventTarget>>>);

impl Targets {
    /// Adds a target. Dropped targets are removed before the list grows.
    pub(crate) fn add(&self, target: Weak<dyn EventTarget>) {
        let mut targets = lock(&self.0);
        if targets.len() == targets.capacity() {
            targets.retain(|target| target.strong_count() > 0);
        }
        targets.push(target);
    }
}

impl EventTarget for Targets {
    fn notify(&self, happening: Happening) {
        let living: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        for target in living {
            target.notify(happening);
        }
    }
}

impl Kind for Device {
    type Abi = ibv_device;
    type C = ibv_device;
    const NAME: &'static str = "ibv_device";
    const TAG: u32 = 0x6465_7631;
}

/// Copies a text into an array of C, which has room for it and a zero.
fn text(into: &mut [u8], from: &str) {
    let room = into.len().saturating_sub(1);
    let pairs = into.iter_mut().take(room).zip(from.as_bytes());
    pairs.for_each(|(into, from)| *into = *from);
}

/// Whether devices report to programs that they are InfiniBand's.
pub(crate) fn are_taken_for_infiniband() -> bool {
    let Some(transport) = environment::value(TRANSPORT).filter(|it| !it.is_empty()) else {
        return false;
    };
    if transport != "ib" && transport != "iwarp" {
        say_once(format_args!(
            "XWARP_TRANSPORT is {}, which is no transport: devices are of iWARP; set it to ib or iwarp",
            transport.display()
        ));
    }
    transport == "ib"
}

fn abi_of(interface: &Interface) -> ibv_device {
    let mut device = ibv_device::zeroed();
    (device.node_type, device.transport_type) = if are_taken_for_infiniband() {
        (IBV_NODE_CA, IBV_TRANSPORT_IB)
    } else {
        (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP)
    };
    let paths = Paths::of(&interface.name);
    text(&mut device.name, &interface.name);
    text(&mut device.dev_name, &paths.node);
    text(&mut device.dev_path, &paths.verbs);
    text(&mut device.ibdev_path, &paths.device);
    device
}

impl Device {
    /// The device of an interface, which is one of `source`.
    pub(super) fn of(source: &Arc<dyn Devices>, interface: &Interface) -> Arc<Object<Self>> {
        let body = Self {
            source: Arc::clone(source),
            name: interface.name.clone(),
            index: c_int::try_from(interface.index).unwrap_or(-1),
            guid: interface.guid(),
            opened: Mutex::default(),
            targets: Arc::default(),
        };
        Object::new(abi_of(interface), body)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The interface's present attributes.
    pub(crate) fn interface(&self) -> Result<Interface> {
        self.source.interface(&self.name)
    }

    /// Bytes of an IP packet at most.
    pub(super) fn mtu(&self) -> usize {
        self.source.mtu(&self.name)
    }

    /// Mb/s; `None` for an interface without a speed.
    pub(super) fn speed(&self) -> Option<u32> {
        self.source.speed(&self.name)
    }

    pub(crate) fn guid(&self) -> [u8; 8] {
        self.guid
    }

    pub(crate) fn targets(&self) -> &Arc<Targets> {
        &self.targets
    }

    /// Counts one more context.
    pub(crate) fn enter(&self) {
        lock(&self.opened).contexts += 1;
    }

    /// Counts one context less. The RNIC is closed with the last one.
    pub(crate) fn leave(&self) {
        let mut opened = lock(&self.opened);
        opened.contexts = opened.contexts.saturating_sub(1);
        let last = (opened.contexts == 0).then(|| opened.take());
        if let Some(Some(backend)) = last {
            backend.close();
        }
    }

    /// The RNIC, which is opened when its first object is created (decision record dropin/0004).
    pub(crate) fn backend(&self) -> Result<Arc<Backend>> {
        let mut opened = lock(&self.opened);
        if let Some(backend) = &opened.backend {
            return Ok(Arc::clone(backend));
        }
        fork::children_are_dead();
        logging::begin();
        let targets: Arc<dyn EventTarget> = Arc::<Targets>::clone(&self.targets);
        let backend = backend::open(&*self.source, &self.name, targets)?;
        opened.rendezvous = Some(Rendezvous::new(&backend, self.source.shares_addresses())?);
        opened.backend = Some(Arc::clone(&backend));
        Ok(backend)
    }

    /// The meeting point of queue pairs that are brought up by hand. EIO if the RNIC is closed.
    pub(super) fn rendezvous(&self) -> Result<Arc<Rendezvous>> {
        lock(&self.opened).rendezvous.clone().ok_or(Errno::EIO)
    }

    /// Closes the RNIC, whatever its contexts are doing.
    pub(super) fn close(&self) {
        let backend = lock(&self.opened).take();
        if let Some(backend) = backend {
            backend.close();
        }
    }
}

impl Opened {
    /// Takes the RNIC, to close it.
    fn take(&mut self) -> Option<Arc<Backend>> {
        self.rendezvous = None;
        self.backend.take()
    }
}

#[cfg(any(test, feature = "testbed"))]
impl Device {
    /// A device for tests, whose RNIC is open.
    pub(crate) fn for_test(targets: &Arc<Targets>, backend: &Arc<Backend>) -> Arc<Object<Self>> {
        Self::one_of(crate::devices::present(), "lo", targets, backend)
    }

    /// The device of this name of `source`, whose RNIC is open.
    pub(crate) fn one_of(
        source: Arc<dyn Devices>,
        name: &str,
        targets: &Arc<Targets>,
        backend: &Arc<Backend>,
    ) -> Arc<Object<Self>> {
        let opened = Opened {
            contexts: 0,
            rendezvous: Some(Rendezvous::new(backend, false).expect("an RNIC")),
            backend: Some(Arc::clone(backend)),
        };
        let device = Self {
            source,
            name: name.to_owned(),
            index: 1,
            guid: [0; 8],
            opened: Mutex::new(opened),
            targets: Arc::clone(targets),
        };
        let device = Object::new(ibv_device::zeroed(), device);
        Arc::clone(&device).publish();
        device
    }

    /// Gives the device an RNIC, which is open.
    #[cfg(test)]
    pub(crate) fn set_backend(&self, backend: &Arc<Backend>) {
        lock(&self.opened).backend = Some(Arc::clone(backend));
    }
}

/// The name of a device as C has it.
fn name_of(device: &Object<Device>) -> *const c_char {
    // SAFETY: the object lives, and so does the struct in it.
    let name = unsafe { &raw const (*device.abi()).name };
    name.cast()
}

/// `ibv_get_device_name(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    sets(|| Ok(name_of(&*Object::<Device>::find(device)?)))
}

/// `ibv_get_device_guid(3)`: in network byte order; 0 if it is no device.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    always(0, || {
        let device = Object::<Device>::find(device)?;
        Ok(u64::from_ne_bytes(device.body().guid()))
    })
}

/// `ibv_get_device_index(3)`: the interface's index; -1 if it is no device.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    always(-1, || Ok(Object::<Device>::find(device)?.body().index))
}
