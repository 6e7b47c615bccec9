//! Entry of the kernel's table of neighbours, as its messages describe it.

use std::net::IpAddr;

use netlink_packet_core::{Parseable, ParseableParametrized};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessageBuffer, NeighbourState,
};
use nix::libc;

use super::netlink::{Message, readable_attributes};

/// See the module.
pub(super) struct NeighbourEntry {
    pub(super) interface_index: u32,
    pub(super) neighbour: IpAddr,
    pub(super) state: NeighbourState,
    /// The link's address, empty if the message has none.
    pub(super) address: Vec<u8>,
}

impl NeighbourEntry {
    /// The entry that a message describes, if it is about a neighbour.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let kinds = [libc::RTM_NEWNEIGH, libc::RTM_DELNEIGH];
        if !kinds.contains(&message.kind) {
            return None;
        }
        let buffer = NeighbourMessageBuffer::new_checked(&message.payload).ok()?;
        let header = NeighbourHeader::parse(&buffer).ok()?;
        let (mut neighbour, mut address) = (None, Vec::new());
        let attributes = readable_attributes(buffer.attributes(), |attribute| {
            NeighbourAttribute::parse_with_param(attribute, header.family)
        });
        for attribute in attributes {
            match attribute {
                NeighbourAttribute::Destination(addr) => neighbour = ip_of(&addr),
                NeighbourAttribute::LinkLocalAddress(bytes) => address = bytes,
                _ => {}
            }
        }
        Some(Self {
            interface_index: header.ifindex,
            neighbour: neighbour?,
            state: header.state,
            address,
        })
    }
}

fn ip_of(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(v4) => Some((*v4).into()),
        NeighbourAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
