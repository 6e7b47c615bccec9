//! Addresses of the RNIC and of its peer, and the parameters of their TCP stacks.

use std::net::IpAddr;

use xwarp_tcp::StackConfig;
use xwarp_test_kit::Side;

pub(super) const RNIC: Side = Side::A;
pub(super) const PEER: Side = Side::B;

pub(super) fn address_of(ipv6: bool) -> fn(Side) -> IpAddr {
    if ipv6 {
        Side::address_v6
    } else {
        Side::address
    }
}

pub(super) fn address(side: Side, ipv6: bool) -> IpAddr {
    address_of(ipv6)(side)
}

/// Bytes of a TCP buffer: the largest FPDU has room, and making one thousands of times a second is
/// bearable.
const TCP_BUFFER: usize = 72 * 1024;

pub(super) fn stack_config(side: Side) -> StackConfig {
    StackConfig {
        mac: side.mac(),
        seed: Some(7 + side as u64),
        buffer: Some(TCP_BUFFER),
        max_connections: 64,
        ..StackConfig::default()
    }
}
