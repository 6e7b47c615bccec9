//! Addresses as C has them.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr;

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use nix::errno::Errno;

use crate::entry::Result;

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

/// The peer's address for a connection to `remote` from the address `source` of a device. A loopback
/// address and the unspecified one stand for the device's own address.
pub(super) fn destination(remote: SocketAddr, source: IpAddr) -> SocketAddr {
    let ip = remote.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return SocketAddr::new(source, remote.port());
    }
    remote
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
