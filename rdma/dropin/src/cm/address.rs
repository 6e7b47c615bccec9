//! Addresses of C, and the device that an address belongs to. Routes are looked up in the kernel;
//! no RNIC is opened for that.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::ptr;
use std::sync::Arc;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use nix::errno::Errno;

use crate::entry::Result;
use crate::logging::say;
use crate::object::Object;
use crate::verbs::device::{self, Device};

const AF_INET: libc::sa_family_t = 2;
const AF_INET6: libc::sa_family_t = 10;

/// Reads an address, which is not null.
pub(super) fn read(from: *const sockaddr) -> Result<SocketAddr> {
    if from.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by its manual page, the caller gives an address, which begins with its family.
    let family = unsafe { ptr::read_unaligned(from.cast::<libc::sa_family_t>()) };
    match family {
        AF_INET => {
            // SAFETY: an address of that family has that layout.
            let v4 = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: an address of that family has that layout.
            let v6 = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let (port, zone) = (u16::from_be(v6.sin6_port), v6.sin6_scope_id);
            Ok(SocketAddrV6::new(ip, port, 0, zone).into())
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Refuses an address that has fewer bytes than its family's.
pub(super) fn check_length(from: *const sockaddr, len: libc::socklen_t) -> Result<()> {
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: by its manual page, that number of bytes is there, and the family is first.
    let family = unsafe { ptr::read_unaligned(from.cast::<libc::sa_family_t>()) };
    let least = match family {
        AF_INET => size_of::<sockaddr_in>(),
        AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    (len >= least).then_some(()).ok_or(Errno::EINVAL)
}

/// An address as C has it.
pub(super) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: an address of zeros is one without a family.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = (&raw mut storage).cast::<c_void>();
    match address {
        // SAFETY: the storage has room and alignment for every family's address.
        SocketAddr::V4(v4) => unsafe { place.cast::<sockaddr_in>().write(of_v4(v4)) },
        // SAFETY: as above.
        SocketAddr::V6(v6) => unsafe { place.cast::<sockaddr_in6>().write(of_v6(v6)) },
    }
    storage
}

fn of_v4(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: AF_INET,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn of_v6(address: SocketAddrV6) -> sockaddr_in6 {
    sockaddr_in6 {
        sin6_family: AF_INET6,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: address.ip().octets(),
        },
        sin6_scope_id: address.scope_id(),
    }
}

/// The same address with another port.
pub(super) fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A device, and one of the host's addresses.
pub(super) struct Located {
    pub(super) device: Arc<Object<Device>>,
    pub(super) address: IpAddr,
}

/// The devices of a program that names no address: all that the user has named, or the only one. Of
/// several that the user has not named, none is chosen.
pub(super) fn default_devices() -> Result<Vec<Arc<Object<Device>>>> {
    let devices = device::list()?;
    if devices.len() > 1 && !device::are_named() {
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

/// The device that has an address of this host: for a link-local address, the device of its scope.
/// Loopback addresses belong to the only device.
pub(super) fn device_with(wanted: SocketAddr) -> Result<Located> {
    let (address, zone) = (wanted.ip(), zone_of(wanted));
    if address.is_loopback() {
        let devices = default_devices()?;
        let device = Arc::clone(devices.first().ok_or(Errno::ENODEV)?);
        let addresses = device.body().interface()?.addresses;
        let family = |it: &&IpAddr| it.is_ipv4() == address.is_ipv4();
        let own = addresses.iter().find(family).copied();
        let address = own.ok_or(Errno::EADDRNOTAVAIL)?;
        return Ok(Located { device, address });
    }
    for device in device::list()? {
        let interface = device.body().interface()?;
        let is_meant = zone.is_none_or(|zone| zone == interface.index);
        if is_meant && interface.addresses.contains(&address) {
            return Ok(Located { device, address });
        }
    }
    Err(Errno::EADDRNOTAVAIL)
}

/// The interface that an address names (RFC 4007 §11).
fn zone_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|&zone| zone != 0),
        SocketAddr::V4(_) => None,
    }
}

/// A link-local address with its interface, as sockets report it. Any other address as it is.
pub(super) fn scoped(address: SocketAddr, interface: impl FnOnce() -> Option<u32>) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(interface().unwrap_or(v6.scope_id()));
            v6.into()
        }
        _ => address,
    }
}

/// The device on the route to an address, and the source address of connections to it. For an
/// address of this host, that is the address itself.
pub(super) fn device_towards(remote: SocketAddr) -> Result<Located> {
    let source = source_towards(with_port(remote, 9))?;
    let located = device_with(source);
    if located.is_err() {
        say(format_args!(
            "the way to {} leads over an interface that is no RNIC",
            remote.ip()
        ));
        return Err(Errno::ENETUNREACH);
    }
    located
}

/// The peer's address for a connection to `remote`. A loopback address and the unspecified one
/// stand for the device's own address.
pub(super) fn destination(remote: SocketAddr, towards: &Located) -> SocketAddr {
    let ip = remote.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return SocketAddr::new(towards.address, remote.port());
    }
    remote
}

/// The source address of packets to `remote`. Nothing is sent.
fn source_towards(remote: SocketAddr) -> Result<SocketAddr> {
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
    fn addresses_of_both_families_come_back_as_they_were() {
        for text in [
            "10.77.0.2:7471",
            "[fd77::2]:7471",
            "[fe80::1%3]:1",
            "0.0.0.0:0",
        ] {
            let address: SocketAddr = text.parse().expect("an address");
            let storage = storage(address);
            assert_eq!(read((&raw const storage).cast()), Ok(address));
        }
    }

    #[test]
    fn scope_is_that_of_link_local_addresses_only() {
        for (text, wanted) in [
            ("[fe80::1]:7", "[fe80::1%3]:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
            ("[fd77::1]:7", "[fd77::1]:7"),
            ("10.77.0.1:7", "10.77.0.1:7"),
        ] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(scoped(address, || Some(3)).to_string(), wanted);
        }
    }

    #[test]
    fn null_and_other_families_are_refused() {
        assert_eq!(read(ptr::null()), Err(Errno::EINVAL));
        let mut storage = storage(([10, 0, 0, 1], 1).into());
        storage.ss_family = 27; // AF_IB
        let read = read((&raw const storage).cast());
        assert_eq!(read, Err(Errno::EAFNOSUPPORT));
    }
}
