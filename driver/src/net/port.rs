//! Reserved TCP ports.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, getsockname, setsockopt, socket,
    sockopt,
};

use super::socket_addr;

/// Why a port was not reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// Another socket has the port.
    #[error(
        "TCP port {port} of {addr} is in use by another program; choose another port or end it"
    )]
    InUse {
        /// The address.
        addr: IpAddr,
        /// The port.
        port: u16,
    },
    /// Other sockets have all ports.
    #[error(
        "no ephemeral TCP port of {addr} is free; name a port, or widen net.ipv4.ip_local_port_range"
    )]
    NoneFree {
        /// The address.
        addr: IpAddr,
    },
    /// The address is not one of this host.
    #[error("{addr} is not an address of this host, or not usable yet; see `ip address`")]
    AddressNotLocal {
        /// The address.
        addr: IpAddr,
    },
    /// The port is privileged.
    #[error("TCP port {port} needs root or CAP_NET_BIND_SERVICE; choose a port from 1024 up")]
    NotPermitted {
        /// The port.
        port: u16,
    },
    /// The process, or the machine, has no file descriptor left.
    #[error(
        "a TCP port takes a file descriptor, and none is left; raise the limit of open files (`ulimit -n`)"
    )]
    NoDescriptors,
    /// The kernel refused for another reason.
    #[error("the kernel would not reserve TCP port {port} of {addr}")]
    Refused {
        /// The address.
        addr: IpAddr,
        /// The port.
        port: u16,
        /// Error from the kernel.
        #[source]
        reason: io::Error,
    },
}

impl PortError {
    /// Error for an errno of bind(2).
    fn of_bind(errno: Errno, addr: IpAddr, port: u16) -> Self {
        match errno {
            Errno::EADDRINUSE if port == 0 => Self::NoneFree { addr },
            Errno::EADDRINUSE => Self::InUse { addr, port },
            Errno::EADDRNOTAVAIL => Self::AddressNotLocal { addr },
            Errno::EACCES => Self::NotPermitted { port },
            Errno::EMFILE | Errno::ENFILE => Self::NoDescriptors,
            errno => Self::Refused {
                addr,
                port,
                reason: errno.into(),
            },
        }
    }
}

/// A reserved TCP port.
///
/// A socket of the kernel is bound to the port but does not listen, so the kernel neither allocates
/// the port nor serves it. Dropping the reservation frees the port.
#[derive(Debug)]
pub struct PortReservation {
    local: SocketAddr,
    _holder: OwnedFd,
}

impl PortReservation {
    /// Reserves `port` of the local address `addr` on an interface, or any free ephemeral port if
    /// `port` is 0. Several interfaces may have the same link-local address, such as a VLAN and the
    /// interface beneath it: each has its own ports.
    ///
    /// # Errors
    ///
    /// - [`PortError::InUse`], [`PortError::NoneFree`]: another program has the port, or all of
    ///   them.
    /// - [`PortError::AddressNotLocal`]: this host does not have the address.
    /// - [`PortError::NotPermitted`]: a port below 1024 without the capability.
    /// - [`PortError::NoDescriptors`]: no file descriptor is left.
    /// - [`PortError::Refused`]: the kernel refuses for another reason.
    pub fn reserve(addr: IpAddr, port: u16, interface_index: u32) -> Result<Self, PortError> {
        Self::hold(socket_addr(addr, port, interface_index))
            .map_err(|errno| PortError::of_bind(errno, addr, port))
    }

    /// The address and the port, which is never 0.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    fn hold(wanted: SocketAddr) -> Result<Self, Errno> {
        let family = match wanted {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        // Without SO_REUSEADDR: then no other socket can bind the port, not even with it.
        let holder = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        if wanted.is_ipv6() {
            setsockopt(&holder, sockopt::Ipv6V6Only, &true)?;
        }
        bind(holder.as_raw_fd(), &SockaddrStorage::from(wanted))?;
        let bound: SockaddrStorage = getsockname(holder.as_raw_fd())?;
        let local = to_std(&bound).ok_or(Errno::EAFNOSUPPORT)?;
        Ok(Self {
            local,
            _holder: holder,
        })
    }
}

fn to_std(addr: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = addr
        .as_sockaddr_in()
        .map(|v4| SocketAddrV4::from(*v4).into());
    v4.or_else(|| {
        addr.as_sockaddr_in6()
            .map(|v6| SocketAddrV6::from(*v6).into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_bind_says_what_to_do() {
        let said =
            |errno, port| PortError::of_bind(errno, IpAddr::from([10, 0, 0, 1]), port).to_string();
        assert_eq!(
            said(Errno::EADDRINUSE, 7471),
            "TCP port 7471 of 10.0.0.1 is in use by another program; choose another port or end it"
        );
        assert!(
            said(Errno::EADDRINUSE, 0).starts_with("no ephemeral TCP port of 10.0.0.1 is free;")
        );
        assert!(said(Errno::EMFILE, 0).ends_with("raise the limit of open files (`ulimit -n`)"));
        assert!(said(Errno::EACCES, 443).starts_with("TCP port 443 needs root"));
        assert!(said(Errno::ENOBUFS, 7471).contains("would not reserve TCP port 7471"));
    }
}
