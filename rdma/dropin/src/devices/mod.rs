//! Devices: which there are, news of their links, and which of them leads to an address.
//!
//! | subject | module |
//! |---|---|
//! | devices of the kernel, and its routes | `kernel` |
//! | interfaces of the program's network namespace | `interfaces` |
//! | names of the interfaces that the user means | `names` |
//! | notifications of the kernel about a link | `notifications` |
//! | the device of a software switch | `switched` |
//!
//! No other module asks the kernel for interfaces or routes.

#[cfg(test)]
pub(crate) mod fixed;
mod interfaces;
mod kernel;
mod names;
mod notifications;
mod switched;

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;

use crate::entry::Result;
use crate::environment;
use kernel::Kernel;
use switched::Switched;
use xwarp::config::Attach;

/// Names the socket of a software switch.
const SERVICE: &CStr = c"XWARP_SERVICE";

/// A source of devices. Asking it opens no RNIC.
pub(crate) trait Devices: Send + Sync {
    /// By what an RNIC on a device is connected to the network.
    fn attach(&self) -> Attach;

    /// Whether other programs have RNICs at the addresses of its devices.
    fn shares_addresses(&self) -> bool {
        matches!(self.attach(), Attach::Service(_))
    }

    /// All devices, with their present attributes.
    fn list(&self) -> Result<Vec<Interface>>;

    /// The devices of a program that names no address, at least one. ENODEV if there is none, or
    /// none of several is meant.
    fn defaults(&self) -> Result<Vec<Interface>>;

    /// The present attributes of a device. ENODEV if it is gone.
    fn interface(&self, name: &str) -> Result<Interface>;

    /// Bytes of an IP packet of a device at most.
    fn mtu(&self, name: &str) -> usize;

    /// Speed of a device in Mb/s; `None` if it has none.
    fn speed(&self, name: &str) -> Option<u32>;

    /// Watches the link of a device from now on.
    fn watch(&self, name: &str) -> Result<Box<dyn LinkWatch>>;

    /// The device that has an address, and the address of the device that it stands for. For a
    /// link-local address, the device of its scope. EADDRNOTAVAIL if no device has it.
    fn with_address(&self, address: SocketAddr) -> Result<Local>;

    /// The device on the route to an address, and the source address of connections to it. For an
    /// address of a device, that is the address itself. ENETUNREACH if no device leads there.
    fn towards(&self, remote: SocketAddr) -> Result<Local>;
}

/// A watch on the link of a device. Its descriptor is readable while there is news.
pub(crate) trait LinkWatch: AsFd + Send + Sync {
    /// Takes the waiting news. Returns whether the device is up and has a carrier now; false if it
    /// is gone.
    fn look(&self) -> Result<bool>;
}

/// An interface that an RNIC can be opened on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The number that scopes of link-local addresses name it by.
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    /// It is set up and has a carrier.
    pub(crate) is_active: bool,
    /// IPv4 first, link-local IPv6 last.
    pub(crate) addresses: Vec<IpAddr>,
}

impl Interface {
    /// EUI-64 of the Ethernet address, which identifies the device.
    pub(crate) fn guid(&self) -> [u8; 8] {
        let [first, .., before_last, last] = self.mac;
        let [_, second, third, fourth, ..] = self.mac;
        [
            first ^ 2,
            second,
            third,
            0xff,
            0xfe,
            fourth,
            before_last,
            last,
        ]
    }
}

/// A device, and one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) interface: Interface,
    pub(crate) address: IpAddr,
}

/// The source of this process's devices, which stays the same.
pub(crate) fn present() -> Arc<dyn Devices> {
    static PRESENT: OnceLock<Arc<dyn Devices>> = OnceLock::new();
    let chosen = || match environment::value(SERVICE).filter(|path| !path.is_empty()) {
        Some(socket) => Arc::new(Switched::at(socket.into())) as Arc<dyn Devices>,
        None => Arc::new(Kernel),
    };
    Arc::clone(PRESENT.get_or_init(chosen))
}

/// The first of these interfaces that has an address. EADDRNOTAVAIL if none has it, or none in its
/// scope.
fn holder(interfaces: Vec<Interface>, wanted: SocketAddr) -> Result<Local> {
    let (address, zone) = (wanted.ip(), zone_of(wanted));
    let has_it = |it: &Interface| {
        zone.is_none_or(|zone| zone == it.index) && it.addresses.contains(&address)
    };
    let interface = interfaces.into_iter().find(has_it);
    let interface = interface.ok_or(Errno::EADDRNOTAVAIL)?;
    Ok(Local { interface, address })
}

/// The interface that an address names (RFC 4007 §11).
fn zone_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|&zone| zone != 0),
        SocketAddr::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guid_is_the_eui_64_of_the_ethernet_address() {
        let interface = Interface {
            mac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
            ..Interface::default()
        };
        let guid = [0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55];
        assert_eq!(interface.guid(), guid);
    }

    #[test]
    fn link_local_address_belongs_to_the_interface_of_its_scope() {
        let own: IpAddr = "fe80::1".parse().expect("an address");
        let both = [3, 4].map(|index| Interface {
            index,
            addresses: vec![own],
            ..Interface::default()
        });
        for (text, wanted) in [
            ("[fe80::1]:7", Ok(3)),
            ("[fe80::1%3]:7", Ok(3)),
            ("[fe80::1%4]:7", Ok(4)),
            ("[fe80::1%5]:7", Err(Errno::EADDRNOTAVAIL)),
            ("[fe80::2%3]:7", Err(Errno::EADDRNOTAVAIL)),
            ("10.77.0.1:7", Err(Errno::EADDRNOTAVAIL)),
        ] {
            let found = holder(both.to_vec(), text.parse().expect("an address"));
            assert_eq!(found.map(|it| it.interface.index), wanted, "{text}");
        }
    }
}
