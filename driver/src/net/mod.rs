//! Interfaces, routes, neighbours and ports, as the kernel knows them.
//!
//! Every function queries the kernel each time, in the network namespace of the calling thread.

mod changes;
mod ethtool;
mod generic;
mod hardware;
pub(crate) mod icmp;
mod interface;
mod neighbour;
mod neighbour_entry;
mod netlink;
mod network;
mod paths;
mod port;
mod route;
mod state;
// They need network namespaces, of which Miri has none.
#[cfg(all(test, not(miri)))]
mod route_metrics;
#[cfg(all(test, not(miri)))]
mod several_ways;
#[cfg(all(test, not(miri)))]
mod testbed;
#[cfg(all(test, not(miri)))]
mod tests;
mod toeplitz;
mod watch;
#[cfg(all(test, not(miri)))]
mod watching;

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use netlink_packet_route::AddressFamily;

pub use ethtool::{
    Channels, DriverRings, Rss, Setting, rss, strips_vlan_tags, switch_offloads_off,
    switch_offloads_on,
};
pub use hardware::{Hardware, Interrupt, XdpFeature, XdpFeatures};
pub(crate) use hardware::{
    directory, memory_node, names_tx_checksum, queues_of_one_napi, reports_arrivals,
    zero_copy_rings,
};
pub use interface::{
    Interface, InterfaceError, LinkLayer, MacAddr, addresses_of, interface_by_name,
    interface_with_address, interfaces,
};
pub use neighbour::{
    NeighbourError, NeighbourSearch, Resolution, present_neighbour, resolve_neighbour,
};
pub use netlink::NetlinkError;
pub use network::Network;
pub use port::{PortError, PortReservation};
pub use route::{Route, RouteError, route_from_interface, route_to};
pub use state::{InterfaceEnd, InterfaceMonitor, InterfaceNews, InterfaceReporter, InterfaceState};
pub use watch::{InterfaceWatch, InterfaceWatching};
pub(crate) use watch::{Notifications, Watched};

/// The netlink family of `addr`.
fn family_of(addr: IpAddr) -> AddressFamily {
    match addr {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Whether `addr` means something only together with an interface (RFC 4291 §2.5.6).
fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// A socket address; `interface_index` is used for the addresses that need it.
fn socket_addr(addr: IpAddr, port: u16, interface_index: u32) -> SocketAddr {
    match addr {
        IpAddr::V4(v4) => SocketAddrV4::new(v4, port).into(),
        IpAddr::V6(v6) => {
            let scope = if is_link_local(addr) {
                interface_index
            } else {
                0
            };
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
    }
}
