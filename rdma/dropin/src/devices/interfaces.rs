//! Interfaces of the program's network namespace.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use super::Interface;
use crate::entry::Result;

/// An interface, which need not be a device.
pub(super) struct Found {
    pub(super) interface: Interface,
    flags: InterfaceFlags,
}

impl Found {
    /// Whether it is a device though the user has named none.
    pub(super) fn is_usable(&self) -> bool {
        self.flags.contains(InterfaceFlags::IFF_UP)
            && !self.flags.contains(InterfaceFlags::IFF_LOOPBACK)
            && !self.interface.addresses.is_empty()
    }
}

/// The interface with that name or alternative name.
pub(super) fn with_name<'a>(all: &'a [Found], name: &str) -> Option<&'a Interface> {
    let find = |wanted: &str| all.iter().find(|it| it.interface.name == wanted);
    let found = find(name).or_else(|| find(&xwarp::interface_name(name)?));
    found.map(|it| &it.interface)
}

/// Whether an interface is set up and has a carrier. False if it does not exist.
pub(super) fn is_active(name: &str) -> Result<bool> {
    let is_meant = |it: &Found| it.interface.name == name && it.interface.is_active;
    Ok(interfaces()?.iter().any(is_meant))
}

/// All interfaces.
pub(super) fn interfaces() -> Result<Vec<Found>> {
    let active = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOWER_UP;
    let mut found: Vec<Found> = Vec::new();
    for address in getifaddrs()? {
        let (name, flags) = (address.interface_name, address.flags);
        let known = found.iter().position(|it| it.interface.name == name);
        let at = known.unwrap_or_else(|| {
            let interface = Interface {
                name,
                is_active: flags.contains(active),
                ..Interface::default()
            };
            found.push(Found { interface, flags });
            found.len() - 1
        });
        if let (Some(found), Some(address)) = (found.get_mut(at), address.address) {
            add(&mut found.interface, &address);
        }
    }
    for found in &mut found {
        found.interface.addresses.sort_by_key(place_in_table);
    }
    Ok(found)
}

/// IPv4 first, link-local IPv6 last.
fn place_in_table(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
        IpAddr::V6(_) => 1,
    }
}

/// Adds an address of any kind to an interface.
fn add(interface: &mut Interface, address: &SockaddrStorage) {
    if let Some(link) = address.as_link_addr() {
        interface.index = u32::try_from(link.ifindex()).unwrap_or(0);
        interface.mac = link.addr().unwrap_or_default();
    } else if let Some(v4) = address.as_sockaddr_in() {
        interface.addresses.push(IpAddr::V4(v4.ip()));
    } else if let Some(v6) = address.as_sockaddr_in6() {
        interface.addresses.push(IpAddr::V6(v6.ip()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_is_not_usable() {
        let is_loopback = |it: &&Found| it.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let all = interfaces().expect("the kernel answers");
        let loopback = all.iter().find(is_loopback).expect("there is one");
        assert!(!loopback.is_usable());
    }
}
