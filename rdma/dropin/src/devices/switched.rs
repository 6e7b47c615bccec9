//! The device of a software switch (`xwarp serve`), which the environment names by `XWARP_SERVICE`.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use xwarp::attr::SwitchDevice;
use xwarp::config::Attach;

use super::{Devices, Interface, LinkWatch, Local, holder};
use crate::entry::Result;
use crate::logging::say_once;

/// The switch at a socket. It is asked when a device is first looked for, and its device stays the
/// same.
pub(super) struct Switched {
    socket: PathBuf,
    device: OnceLock<Known>,
}

/// What is known of the device.
struct Known {
    interface: Interface,
    mtu: usize,
}

impl Switched {
    pub(super) fn at(socket: PathBuf) -> Self {
        Self {
            socket,
            device: OnceLock::new(),
        }
    }

    /// ENODEV if no switch answers.
    fn device(&self) -> Result<&Known> {
        if let Some(device) = self.device.get() {
            return Ok(device);
        }
        let asked = SwitchDevice::at(&self.socket).map_err(|error| {
            say_once(format_args!("there is no RDMA device: {error}"));
            Errno::ENODEV
        })?;
        let known = || Known {
            interface: Interface {
                name: asked.name,
                // No interface of the kernel's.
                index: 0,
                mac: asked.mac,
                is_active: true,
                addresses: asked.addresses,
            },
            mtu: asked.mtu,
        };
        Ok(self.device.get_or_init(known))
    }

    fn present(&self) -> Result<Interface> {
        Ok(self.device()?.interface.clone())
    }
}

impl Devices for Switched {
    fn attach(&self) -> Attach {
        Attach::Service(self.socket.clone())
    }

    fn list(&self) -> Result<Vec<Interface>> {
        // As without an interface: the list is empty.
        Ok(self.present().into_iter().collect())
    }

    fn defaults(&self) -> Result<Vec<Interface>> {
        Ok(vec![self.present()?])
    }

    fn interface(&self, name: &str) -> Result<Interface> {
        let device = self.present()?;
        if device.name == name {
            Ok(device)
        } else {
            Err(Errno::ENODEV)
        }
    }

    fn mtu(&self, _name: &str) -> usize {
        self.device().map_or(0, |device| device.mtu)
    }

    fn speed(&self, _name: &str) -> Option<u32> {
        None
    }

    /// The link stays up. The end of the switch is the end of the RNIC.
    fn watch(&self, _name: &str) -> Result<Box<dyn LinkWatch>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Box::new(AlwaysUp(EventFd::from_flags(flags)?)))
    }

    fn with_address(&self, address: SocketAddr) -> Result<Local> {
        holder(vec![self.present()?], without_zone(address))
    }

    /// All peers are at the device's own addresses.
    fn towards(&self, remote: SocketAddr) -> Result<Local> {
        let interface = self.present()?;
        let address = meant(&interface, remote.ip());
        if !interface.addresses.contains(&address) {
            return Err(Errno::ENETUNREACH);
        }
        Ok(Local { interface, address })
    }
}

/// The address that a destination stands for: an unspecified one, and a loopback address that the
/// device has not, for the host itself, as they do on an interface.
fn meant(interface: &Interface, address: IpAddr) -> IpAddr {
    let is_this_host = address.is_unspecified() || address.is_loopback();
    if !is_this_host || interface.addresses.contains(&address) {
        return address;
    }
    let same = |it: &&IpAddr| it.is_ipv4() == address.is_ipv4();
    let own = interface.addresses.iter().find(same);
    own.copied().unwrap_or(address)
}

/// A scope names an interface of the kernel's.
fn without_zone(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip();
    SocketAddr::new(ip, address.port())
}

/// A link without news.
struct AlwaysUp(EventFd);

impl LinkWatch for AlwaysUp {
    fn look(&self) -> Result<bool> {
        Ok(true)
    }
}

impl AsFd for AlwaysUp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A switch that was asked before.
    fn switched(addresses: &[&str]) -> Switched {
        let switched = Switched::at(PathBuf::from("/nowhere"));
        let device = Known {
            interface: Interface {
                name: "xw0".to_owned(),
                is_active: true,
                addresses: addresses.iter().map(|it| address(it)).collect(),
                ..Interface::default()
            },
            mtu: 65_535,
        };
        assert!(switched.device.set(device).is_ok());
        switched
    }

    #[test]
    fn only_own_addresses_are_reached_and_each_from_itself() {
        let switched = switched(&["10.0.0.1", "127.0.0.1", "fd00::1"]);
        for (to, from) in [
            ("10.0.0.1:7", Ok("10.0.0.1")),
            ("127.0.0.1:7", Ok("127.0.0.1")),
            ("[fd00::1]:7", Ok("fd00::1")),
            ("0.0.0.0:7", Ok("10.0.0.1")),
            ("127.0.0.2:7", Ok("10.0.0.1")),
            ("[::1]:7", Ok("fd00::1")),
            ("10.0.0.2:7", Err(Errno::ENETUNREACH)),
            ("[fd00::2]:7", Err(Errno::ENETUNREACH)),
        ] {
            let found = switched.towards(to.parse().expect("an address"));
            let found = found.map(|it| it.address);
            assert_eq!(found, from.map(address), "{to}");
        }
        let bound = |to: &str| switched.with_address(to.parse().expect("an address"));
        assert_eq!(
            bound("127.0.0.1:7").map(|it| it.interface.name),
            Ok("xw0".to_owned())
        );
        assert_eq!(bound("127.0.0.2:7").err(), Some(Errno::EADDRNOTAVAIL));
    }

    #[test]
    fn without_a_switch_there_is_no_device() {
        let nowhere = Switched::at(PathBuf::from("/nowhere"));
        assert_eq!(nowhere.list(), Ok(Vec::new()));
        assert_eq!(nowhere.defaults().err(), Some(Errno::ENODEV));
        let to = "127.0.0.1:7".parse().expect("an address");
        assert_eq!(nowhere.towards(to).err(), Some(Errno::ENODEV));
    }
}
