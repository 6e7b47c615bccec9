//! Sides of a link: the two hosts that it joins, and their addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One of the two hosts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first: `10.0.0.1` and `2001:db8::1`.
    A,
    /// The second: `10.0.0.2` and `2001:db8::2`.
    B,
}

impl Side {
    /// A, then B.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The host at the link's other side.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The host's number in its networks, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }

    /// Its Ethernet address.
    #[must_use]
    pub const fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, self.number()]
    }

    /// Its IPv4 address.
    #[must_use]
    pub const fn ipv4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, self.number())
    }

    /// The same, of either family.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        IpAddr::V4(self.ipv4())
    }

    /// Its IPv6 address (RFC 3849).
    #[must_use]
    pub const fn address_v6(self) -> IpAddr {
        let number = self.number() as u16;
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number))
    }
}
