//! The list of devices, and which of them an address leads to. Listing them opens nothing.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex};

use super::device::Device;
use crate::abi::verbs::ibv_device;
use crate::backend::{EventTarget, Happening};
use crate::devices::{self, Devices, Interface, Local};
use crate::ending;
use crate::entry::{Result, always, lock};
use crate::fork;
use crate::lists::Lists;
use crate::object::Object;

/// The devices of a source, as programs know them.
pub(crate) struct Listed {
    source: Arc<dyn Devices>,
    /// Those that programs have listed, by name.
    known: Mutex<Vec<Arc<Object<Device>>>>,
}

/// A device, and one of its addresses.
pub(crate) struct Located {
    pub(crate) device: Arc<Object<Device>>,
    pub(crate) address: IpAddr,
}

/// The devices of this process.
static LISTED: LazyLock<Listed> = LazyLock::new(|| {
    close_at_exit();
    Listed::of(devices::present())
});

/// The devices of this process.
pub(crate) fn listed() -> &'static Listed {
    &LISTED
}

impl Listed {
    pub(crate) fn of(source: Arc<dyn Devices>) -> Self {
        Self {
            source,
            known: Mutex::default(),
        }
    }

    /// All devices, which are the same objects on each call.
    pub(crate) fn all(&self) -> Result<Vec<Arc<Object<Device>>>> {
        Ok(self.devices(&self.source.list()?))
    }

    /// The devices of a program that names no address, at least one.
    pub(crate) fn defaults(&self) -> Result<Vec<Arc<Object<Device>>>> {
        Ok(self.devices(&self.source.defaults()?))
    }

    /// The device that has an address, and the address of the device that it stands for.
    pub(crate) fn with_address(&self, address: SocketAddr) -> Result<Located> {
        Ok(self.located(&self.source.with_address(address)?))
    }

    /// The device on the route to an address, and the source address of connections to it.
    pub(crate) fn towards(&self, remote: SocketAddr) -> Result<Located> {
        Ok(self.located(&self.source.towards(remote)?))
    }

    fn located(&self, local: &Local) -> Located {
        Located {
            device: self.device(&local.interface),
            address: local.address,
        }
    }

    fn devices(&self, interfaces: &[Interface]) -> Vec<Arc<Object<Device>>> {
        interfaces.iter().map(|it| self.device(it)).collect()
    }

    /// The device of an interface.
    fn device(&self, interface: &Interface) -> Arc<Object<Device>> {
        let mut known = lock(&self.known);
        let found = known.iter().find(|it| it.body().name() == interface.name);
        found.cloned().unwrap_or_else(|| {
            let device = Device::of(&self.source, interface);
            Arc::clone(&device).publish();
            device.keep();
            known.push(Arc::clone(&device));
            device
        })
    }
}

/// Reports to the contexts of all devices that these have failed.
pub(super) fn report_failure() {
    for device in lock(&listed().known).iter() {
        device.body().targets().notify(Happening::DeviceFatal);
    }
}

fn close_all() {
    let devices = lock(&listed().known).clone();
    for device in devices {
        device.body().close();
    }
}

/// Closes all open RNICs when the process exits, so that peers see the connections end.
fn close_at_exit() {
    extern "C" fn at_exit() {
        always((), || {
            if !ending::close_all_by(close_all) {
                log::warn!(
                    "an RNIC was not closed in time, and the kernel closes it: call exit elsewhere than in a signal handler, which may have interrupted a call of the library"
                );
                fork::end_library();
            }
            Ok(())
        });
    }
    // SAFETY: the function may be called at any time, by any thread.
    let failed = unsafe { libc::atexit(at_exit) };
    if failed != 0 {
        log::warn!("connections will not be closed when this process exits: atexit has failed");
    }
}

static LISTS: Lists<ibv_device> = Lists::new();

/// `ibv_get_device_list(3)`: sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_device_list(number: Option<&mut c_int>) -> *mut *mut ibv_device {
    LISTS.publish(number, || {
        Ok(listed().all()?.iter().map(Object::handle).collect())
    })
}

/// `ibv_free_device_list(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    LISTS.take_back(list);
}
