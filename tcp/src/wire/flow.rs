//! Flow: the 4-tuple that identifies a connection on the wire, and the addresses that a host can
//! have.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, IpAddress, IpEndpoint, TCP_HEADER_LEN};

/// The 4-tuple, from the local side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) local: IpEndpoint,
    pub(crate) remote: IpEndpoint,
}

impl Flow {
    /// Length in bytes of the IP header.
    pub(crate) fn ip_header_len(&self) -> usize {
        match self.local.addr {
            IpAddress::Ipv4(_) => IPV4_HEADER_LEN,
            IpAddress::Ipv6(_) => IPV6_HEADER_LEN,
        }
    }

    /// TCP payload in bytes of an IP packet of `mtu` bytes, without options.
    pub(crate) fn payload_of(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.ip_header_len() + TCP_HEADER_LEN)
    }

    /// Smallest MSS to offer, however small the route's MTU is.
    pub(crate) fn least_advmss(&self) -> usize {
        match self.local.addr {
            IpAddress::Ipv4(_) => LEAST_ADVMSS.0,
            IpAddress::Ipv6(_) => LEAST_ADVMSS.1,
        }
    }
}

/// Smallest MSS that the kernel offers because of a route's MTU, by IPv4 (`ip_rt_min_advmss`) and
/// IPv6 (`min_adv_mss`). The peer's segments take the way back, whose MTU may be larger.
const LEAST_ADVMSS: (usize, usize) = (256, 1220);

/// True for a unicast address.
pub(crate) fn is_unicast(addr: IpAddr) -> bool {
    let broadcast = matches!(addr, IpAddr::V4(addr) if addr.is_broadcast());
    !addr.is_unspecified() && !addr.is_multicast() && !broadcast
}

/// True for an address that a host on a network can have. Excluded are addresses of networks and of
/// the own host (RFC 1122 §3.2.1.3; RFC 4291 §2.5.2, §2.5.3 and §2.7) and reserved ranges (RFC 1112
/// §4: 240/4). So are IPv6 addresses that represent an IPv4 address inside a host (RFC 4291
/// §2.5.5.2).
pub(crate) fn is_hosts(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => matches!(addr.octets()[0], 1..=126 | 128..=223),
        IpAddr::V6(addr) => {
            let special = addr.is_unspecified() || addr.is_loopback() || addr.is_multicast();
            !special && addr.to_ipv4_mapped().is_none()
        }
    }
}

/// `addr` as smoltcp's type, if it is a unicast address with a port.
pub(crate) fn endpoint(addr: SocketAddr) -> Option<IpEndpoint> {
    (is_unicast(addr.ip()) && addr.port() != 0).then(|| IpEndpoint::from(addr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_addresses_no_host_on_a_network_has() {
        for good in [
            "1.0.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.254.1.1",
            "223.255.255.255",
            "fe80::1",
            "fd00::1",
            "2001:db8::1",
            "::1:0:0:1",
        ] {
            assert!(is_hosts(good.parse().unwrap()), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_hosts(bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn only_one_hosts_addresses_with_a_port_are_endpoints() {
        for good in ["10.0.0.1:1", "[fd00::1]:65535", "127.0.0.1:80"] {
            assert!(endpoint(good.parse().unwrap()).is_some(), "{good}");
        }
        for bad in [
            "10.0.0.1:0",
            "0.0.0.0:1",
            "255.255.255.255:1",
            "224.0.0.1:1",
            "[::]:1",
            "[ff02::1]:1",
        ] {
            assert!(endpoint(bad.parse().unwrap()).is_none(), "{bad}");
        }
    }
}
