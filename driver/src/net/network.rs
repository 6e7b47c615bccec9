//! Networks of an interface, by its addresses.

use std::net::{IpAddr, Ipv4Addr};

/// An address of the host, with its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The host's address.
    pub address: IpAddr,
    /// Length of the network prefix in bits.
    pub prefix: u8,
}

impl Network {
    /// True for an address that no other host of the network has: the host's own, and the broadcast
    /// address (RFC 1122 §3.2.1.3).
    pub fn excludes(&self, other: IpAddr) -> bool {
        other == self.address || self.broadcast() == Some(other)
    }

    /// The address that names all hosts; IPv6 has none, and a network of two hosts or one neither
    /// (RFC 3021 §2.1).
    fn broadcast(&self) -> Option<IpAddr> {
        let IpAddr::V4(address) = self.address else {
            return None;
        };
        let hosts = u32::MAX
            .checked_shr(self.prefix.into())
            .filter(|hosts| *hosts > 1)?;
        Some(Ipv4Addr::from_bits(address.to_bits() | hosts).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excludes(address: &str, prefix: u8, other: &str) -> bool {
        let address = address.parse().unwrap();
        Network { address, prefix }.excludes(other.parse().unwrap())
    }

    #[test]
    fn network_excludes_the_hosts_own_address_and_the_broadcast() {
        for (prefix, broadcast) in [
            (0, "255.255.255.255"),
            (8, "10.255.255.255"),
            (24, "10.88.0.255"),
            (30, "10.88.0.3"),
        ] {
            assert!(excludes("10.88.0.2", prefix, "10.88.0.2"), "/{prefix}");
            assert!(excludes("10.88.0.2", prefix, broadcast), "/{prefix}");
            assert!(!excludes("10.88.0.2", prefix, "10.88.0.1"), "/{prefix}");
            assert!(!excludes("10.88.0.2", prefix, "10.99.0.255"), "/{prefix}");
        }
    }

    #[test]
    fn small_networks_and_ipv6_have_no_broadcast() {
        for prefix in [31, 32, 33, 255] {
            assert!(!excludes("10.88.0.2", prefix, "10.88.0.3"), "/{prefix}");
        }
        assert!(excludes("fd88::2", 64, "fd88::2"));
        assert!(!excludes("fd88::2", 64, "fd88::ffff:ffff:ffff:ffff"));
        assert!(!excludes("fd88::2", 64, "10.88.0.255"));
    }
}
