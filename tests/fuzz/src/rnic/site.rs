//! Addresses of the RNIC and of its peer, and the parameters of their TCP stacks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use xwarp_tcp::StackConfig;

/// Either end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    Rnic,
    Peer,
}

impl Site {
    pub(super) fn address(self, ipv6: bool) -> IpAddr {
        let host = 1 + self as u8;
        if ipv6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, host).into()
        }
    }

    pub(super) fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0, 1 + self as u8]
    }
}

/// Bytes of a TCP buffer: the largest FPDU has room, and making one thousands of times a second is bearable.
const TCP_BUFFER: usize = 72 * 1024;

pub(super) fn stack_config(site: Site) -> StackConfig {
    StackConfig {
        mac: site.mac(),
        seed: Some(7 + site as u64),
        buffer: Some(TCP_BUFFER),
        max_connections: 64,
        ..StackConfig::default()
    }
}
