//! Devices of the kernel: interfaces of the program's network namespace, and its routes. Nothing is
//! opened or attached.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use nix::errno::Errno;
use xwarp::config::Attach;

use super::interfaces::{Found, interfaces, with_name};
use super::names::named;
use super::notifications::Notifications;
use super::{Devices, Interface, LinkWatch, Local, holder};
use crate::entry::Result;
use crate::logging::{say, say_once};

/// MTU in bytes of an interface whose own is not reported.
const DEFAULT_MTU: usize = 1500;
/// Port of a destination whose route is looked up: that of discard (RFC 863). Nothing is sent.
const ANY_PORT: u16 = 9;

/// The kernel.
pub(super) struct Kernel;

impl Devices for Kernel {
    fn attach(&self) -> Attach {
        Attach::Direct
    }

    /// The named interfaces, or all that are up and have an address.
    fn list(&self) -> Result<Vec<Interface>> {
        let all = interfaces()?;
        let Some(names) = named() else {
            let usable = all.into_iter().filter(Found::is_usable);
            return Ok(usable.map(|it| it.interface).collect());
        };
        let find = |name: &String| {
            let found = with_name(&all, name).cloned();
            if found.is_none() {
                say_once(format_args!(
                    "there is no interface {name}, though XWARP_DEV or the configuration file names it; `ip link` lists what there is"
                ));
            }
            found
        };
        Ok(names.iter().filter_map(find).collect())
    }

    /// All that the user has named, or the only one. Of several that the user has not named, none
    /// is chosen.
    fn defaults(&self) -> Result<Vec<Interface>> {
        let devices = self.list()?;
        if devices.len() > 1 && named().is_none() {
            say(format_args!(
                "several interfaces are up; name one by XWARP_DEV or `xwarp run --dev`"
            ));
            return Err(Errno::ENODEV);
        }
        if devices.is_empty() {
            say(format_args!(
                "no interface is up and has an address, or none is named as XWARP_DEV has it"
            ));
            return Err(Errno::ENODEV);
        }
        Ok(devices)
    }

    fn interface(&self, name: &str) -> Result<Interface> {
        with_name(&interfaces()?, name)
            .cloned()
            .ok_or(Errno::ENODEV)
    }

    fn mtu(&self, name: &str) -> usize {
        attribute(name, "mtu").unwrap_or(DEFAULT_MTU)
    }

    fn speed(&self, name: &str) -> Option<u32> {
        attribute(name, "speed")
    }

    fn watch(&self, name: &str) -> Result<Box<dyn LinkWatch>> {
        Ok(Box::new(Notifications::about(name)?))
    }

    /// Loopback addresses stand for the address of their family that the only device has.
    fn with_address(&self, address: SocketAddr) -> Result<Local> {
        if !address.ip().is_loopback() {
            return holder(self.list()?, address);
        }
        let interface = self.defaults()?.into_iter().next();
        let interface = interface.ok_or(Errno::ENODEV)?;
        let family = |it: &&IpAddr| it.is_ipv4() == address.is_ipv4();
        let own = interface.addresses.iter().find(family).copied();
        let address = own.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok(Local { interface, address })
    }

    fn towards(&self, remote: SocketAddr) -> Result<Local> {
        let source = source_towards(remote)?;
        self.with_address(source).map_err(|_no_device| {
            say(format_args!(
                "the way to {} leads over an interface that is no RNIC",
                remote.ip()
            ));
            Errno::ENETUNREACH
        })
    }
}

/// An attribute of an interface; `None` if the kernel does not report it.
fn attribute<T: FromStr>(name: &str, what: &str) -> Option<T> {
    let path = format!("/sys/class/net/{name}/{what}");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The source address of packets to `remote`. Nothing is sent.
fn source_towards(mut remote: SocketAddr) -> Result<SocketAddr> {
    remote.set_port(ANY_PORT);
    let any: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(any)
        .and_then(|socket| {
            socket.connect(remote)?;
            socket.local_addr()
        })
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_no_device_unless_it_is_named() {
        let devices = Kernel.list().expect("the kernel answers");
        let is_loopback = |it: &Interface| it.addresses.iter().any(IpAddr::is_loopback);
        assert!(named().is_some() || !devices.iter().any(is_loopback));
    }
}
