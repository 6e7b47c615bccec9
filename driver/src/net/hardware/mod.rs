//! Driver, queues, rings, offloads, interrupts and memory node of an interface.

mod netdev;
mod sysfs;

use std::path::PathBuf;

use super::Interface;
use super::ethtool::{self, Channels, DriverRings, Ethtool, Rss};
use super::netlink::NetlinkError;

pub use netdev::{XdpFeature, XdpFeatures};
use sysfs::Directory;
pub use sysfs::Interrupt;

/// Hardware of an interface, as the kernel and its driver report it. `None`: not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hardware {
    /// The driver of a device; `None` for virtual interfaces.
    pub driver: Option<String>,
    /// Queues.
    pub channels: Option<Channels>,
    /// Descriptors of the driver's rings.
    pub rings: Option<DriverRings>,
    /// The offloads that are on, by the kernel's names.
    pub offloads: Vec<String>,
    /// How received packets are spread over the queues.
    pub rss: Option<Rss>,
    /// XDP features of the driver.
    pub xdp: Option<XdpFeatures>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Queues that receive and send by one NAPI instance, so that they can be polled.
    pub polled: Vec<u32>,
    /// The memory node of the device, if there are several.
    pub node: Option<u32>,
    /// The interface beneath this one, as for a VLAN. `None` if there is none, or if there are
    /// several.
    pub lower: Option<String>,
    /// The bond that this interface is a member of.
    pub bond: Option<String>,
}

impl Hardware {
    /// Queries the hardware of `interface`, without changes.
    ///
    /// # Errors
    ///
    /// The kernel does not answer, or refuses to.
    pub fn of(interface: &Interface) -> Result<Self, NetlinkError> {
        let directory = Directory::of(interface);
        let mut hardware = Self {
            driver: directory.as_ref().and_then(Directory::driver),
            xdp: netdev::xdp_features(interface.index)?,
            interrupts: sysfs::served(&interrupts(interface.index, directory.as_ref())?),
            polled: netdev::queues_of_one_napi(interface.index)?,
            node: directory.as_ref().and_then(Directory::node),
            lower: directory.as_ref().and_then(Directory::lower),
            bond: directory.as_ref().and_then(Directory::bond),
            ..Self::default()
        };
        if let Some(mut ethtool) = Ethtool::of(interface.index)? {
            hardware.channels = ethtool.channels()?;
            hardware.rings = ethtool.rings()?;
            hardware.offloads = ethtool.features()?;
            hardware.rss = ethtool.rss()?;
        }
        Ok(hardware)
    }

    /// Whether an offload is on, by the kernel's name.
    pub fn offloads(&self, name: &str) -> bool {
        self.offloads.iter().any(|on| on == name)
    }
}

/// Descriptors of the rings of interface `index`, if its driver names zero copy and reports them.
pub(crate) fn zero_copy_rings(index: u32) -> Result<Option<DriverRings>, NetlinkError> {
    match netdev::xdp_features(index)? {
        Some(features) if features.has(XdpFeature::ZeroCopy) => ethtool::driver_rings(index),
        _ => Ok(None),
    }
}

/// Queues of `interface` that both receive and send by one NAPI instance, as far as the kernel
/// reports it.
pub(crate) fn queues_of_one_napi(interface: &Interface) -> Result<Vec<u32>, NetlinkError> {
    netdev::queues_of_one_napi(interface.index)
}

/// Whether the driver of `interface` offers the time of arrival to XDP programs.
pub(crate) fn reports_arrivals(interface: &Interface) -> Result<bool, NetlinkError> {
    let features = netdev::xdp_features(interface.index)?;
    Ok(features.is_some_and(|features| features.has(XdpFeature::RxTimestamp)))
}

/// Whether the driver of `interface` names checksums of what AF_XDP sends.
pub(crate) fn names_tx_checksum(interface: &Interface) -> Result<bool, NetlinkError> {
    let features = netdev::xdp_features(interface.index)?;
    Ok(features.is_some_and(|features| features.has(XdpFeature::TxChecksum)))
}

/// The directory of `interface` in sysfs, if that is mounted for its network namespace.
pub(crate) fn directory(interface: &Interface) -> Option<PathBuf> {
    Directory::of(interface).map(Directory::into_path)
}

/// The memory node that the device of `interface` is at, where there are several.
pub(crate) fn memory_node(interface: &Interface) -> Option<u32> {
    Directory::of(interface)?.node()
}

/// Those of the queues, if the kernel reports them; else all of the device.
fn interrupts(index: u32, directory: Option<&Directory>) -> Result<Vec<u32>, NetlinkError> {
    let of_queues = netdev::interrupts(index)?;
    if of_queues.is_empty() {
        return Ok(directory.map(Directory::interrupts).unwrap_or_default());
    }
    Ok(of_queues)
}
