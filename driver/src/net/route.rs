//! Route to another host, as the kernel would choose it.
//!
//! Addresses, routes and neighbours are the kernel's: a routing table or ARP of xwarp's own would
//! need configuration, and could contradict the kernel's. Two queries determine a path, as in the
//! kernel's own connect. The first has protocol, remote address and remote port, and returns the
//! local address. Then a port is reserved. The second has the whole flow and returns the next hop,
//! so it follows the rules of `ip rule` and the kernel's hash over several next hops.
//!
//! If the route leads over another interface than the RNIC's, the kernel is queried as for a socket
//! that is bound to the RNIC's. That answer counts only if a table has such a route.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_packet_core::{DefaultNla, Parseable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteMessage,
    RouteMessageBuffer, RouteMetric, RouteType, RouteVia,
};
use nix::errno::Errno;

use super::interface::{InterfaceError, interface_with_address, ipv6_mtu};
use super::netlink::{Netlink, NetlinkError, readable_attributes};
use super::{family_of, is_link_local};

/// The IP protocol number of TCP.
const TCP: u8 = 6;
/// The attributes of a flow (linux/rtnetlink.h): protocol, source port and destination port.
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;

/// The kernel's route to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Index of the outgoing interface.
    pub interface_index: u32,
    /// Local source address.
    pub source: IpAddr,
    /// The next hop of the packet: a gateway, or the host itself.
    pub next_hop: IpAddr,
    /// MTU of the route, in bytes of an IP packet, if it has one. It includes a path MTU that the
    /// kernel has learnt, and IPv6's own MTU of the interface. The interface's MTU is a further
    /// bound.
    pub mtu: Option<u32>,
    /// The MSS that the route offers (`advmss`), in bytes, if it has one.
    pub advmss: Option<u32>,
}

/// Why there is no usable route to a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// There is no route.
    #[error("there is no route to {remote}; check the address and `ip route`")]
    NoRoute {
        /// The remote address.
        remote: IpAddr,
    },
    /// The address is one of this host.
    #[error(
        "{remote} is an address of this host itself, and its packets never reach a NIC; use another host's address"
    )]
    ThisHost {
        /// The address.
        remote: IpAddr,
    },
    /// The address is a multicast address.
    #[error(
        "{remote} is a multicast address, and a connection needs one host; use a host's address"
    )]
    Multicast {
        /// The address.
        remote: IpAddr,
    },
    /// The address is a broadcast address.
    #[error(
        "{remote} is a broadcast address, and a connection needs one host; use a host's address"
    )]
    Broadcast {
        /// The address.
        remote: IpAddr,
    },
    /// The address is unspecified.
    #[error("{remote} is no host's address; use a host's address")]
    Unspecified {
        /// The address.
        remote: IpAddr,
    },
    /// It is an IPv4 address in the form for IPv6 sockets (RFC 4291 §2.5.5.2), which no packet has.
    #[error("{remote} stands for the IPv4 address {v4} inside a host; use {v4}")]
    Mapped {
        /// The address.
        remote: IpAddr,
        /// The IPv4 address.
        v4: Ipv4Addr,
    },
    /// This host does not have the source address.
    #[error(
        "{from} is not an address of this host, so nothing can be sent from it; see `ip address`"
    )]
    SourceNotLocal {
        /// The address.
        from: IpAddr,
    },
    /// One address is IPv4, the other IPv6.
    #[error(
        "{remote} cannot be reached from {from}: one is IPv4 and the other IPv6; use two of a kind"
    )]
    FamilyMismatch {
        /// The remote address.
        remote: IpAddr,
        /// The source address.
        from: IpAddr,
    },
    /// This host has no source address for the route.
    #[error(
        "this host has no address from which to reach {remote}; give its interface one with `ip address add`"
    )]
    NoSource {
        /// The remote address.
        remote: IpAddr,
    },
    /// The route encapsulates packets.
    #[error(
        "the route to {remote} wraps packets in another protocol, which only the kernel can; add a plain route"
    )]
    Encapsulated {
        /// The remote address.
        remote: IpAddr,
    },
    /// The kernel's interfaces could not be queried.
    #[error("cannot find the interface of the source address")]
    Interface(#[from] InterfaceError),
    /// The kernel could not be queried.
    #[error("cannot ask the kernel for a route")]
    Netlink(#[from] NetlinkError),
}

/// The kernel's route to `remote` by TCP, from the local address `from` if one is given.
///
/// Without `from`, the interface of a link-local IPv6 address is the one of its scope, or else the
/// kernel's choice.
///
/// # Errors
///
/// - [`RouteError::NoRoute`], [`RouteError::ThisHost`]: no route leads there, or it is this host.
/// - [`RouteError::Multicast`], [`RouteError::Broadcast`], [`RouteError::Unspecified`],
///   [`RouteError::Mapped`]: it is no single host.
/// - [`RouteError::Encapsulated`]: the route leads through a tunnel.
/// - [`RouteError::Netlink`]: the kernel could not be queried.
/// - [`RouteError::SourceNotLocal`], [`RouteError::FamilyMismatch`], [`RouteError::Interface`]:
///   `from` does not match this host or `remote`.
pub fn route_to(remote: SocketAddr, from: Option<IpAddr>) -> Result<Route, RouteError> {
    check_remote(remote.ip())?;
    if let Some(from) = from {
        check_source(remote.ip(), from)?;
    }
    let link = match zone_of(remote) {
        None => required_link(remote.ip(), from)?,
        zone => zone,
    };
    let question = Question {
        source: from,
        interface: link,
        ..Question::about(remote)
    };
    question.find()
}

/// The kernel's route to `remote` by TCP for a socket that uses interface `interface_index`, and
/// sends from `local` if that is known already. There may be several next hops. The one that is
/// taken may depend on the whole flow, and so may the rules that apply.
///
/// A link-local address belongs to that link, or to the one in its scope (RFC 4007 §5). The route
/// to any other address is the kernel's choice for the whole host. If that leads over another
/// interface, it is the kernel's choice for a socket that is bound to this one. If there is none
/// either, the route over the other interface is returned.
///
/// # Errors
///
/// - [`RouteError::NoRoute`], [`RouteError::ThisHost`]: no route leads there, or it is this host.
/// - [`RouteError::Multicast`], [`RouteError::Broadcast`], [`RouteError::Unspecified`],
///   [`RouteError::Mapped`]: it is no single host.
/// - [`RouteError::Encapsulated`]: the route leads through a tunnel.
/// - [`RouteError::Netlink`]: the kernel could not be queried.
pub fn route_from_interface(
    local: Option<SocketAddr>,
    remote: SocketAddr,
    interface_index: u32,
) -> Result<Route, RouteError> {
    check_remote(remote.ip())?;
    let free = Question {
        source: local.map(|local| local.ip()),
        source_port: local.map(|local| local.port()),
        ..Question::about(remote)
    };
    let bound = |interface| Question {
        interface: Some(interface),
        ..free
    };
    if is_link_local(remote.ip()) {
        return bound(zone_of(remote).unwrap_or(interface_index)).find();
    }
    match free.find() {
        Ok(route) if route.interface_index == interface_index => Ok(route),
        answer @ (Ok(_) | Err(RouteError::NoRoute { .. })) => {
            bound(interface_index).find_in_tables().or(answer)
        }
        Err(error) => Err(error),
    }
}

/// The interface that a scoped address names (RFC 4007 §11).
fn zone_of(address: SocketAddr) -> Option<u32> {
    match address {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|&zone| zone != 0),
        SocketAddr::V4(_) => None,
    }
}

/// Checks that need no query to the kernel.
fn check_remote(remote: IpAddr) -> Result<(), RouteError> {
    if remote.is_multicast() {
        return Err(RouteError::Multicast { remote });
    }
    if remote.is_unspecified() {
        return Err(RouteError::Unspecified { remote });
    }
    if let IpAddr::V6(v6) = remote
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        return Err(RouteError::Mapped { remote, v4 });
    }
    Ok(())
}

/// The kernel answers for an IPv6 source that it does not have, and says EINVAL for such an IPv4
/// one.
fn check_source(remote: IpAddr, from: IpAddr) -> Result<(), RouteError> {
    if remote.is_ipv4() != from.is_ipv4() {
        return Err(RouteError::FamilyMismatch { remote, from });
    }
    let itself = Question {
        interface: required_link(from, Some(from))?,
        ..Question::about(SocketAddr::new(from, 0))
    };
    match itself.ask(RouteFlags::empty()) {
        Ok(found) if found.kind == RouteType::Local => Ok(()),
        Ok(_) | Err(RouteError::NoRoute { .. }) => Err(RouteError::SourceNotLocal { from }),
        Err(error) => Err(error),
    }
}

/// A link-local destination is on the link of the source.
fn required_link(remote: IpAddr, from: Option<IpAddr>) -> Result<Option<u32>, RouteError> {
    match from {
        Some(from) if is_link_local(remote) => {
            Ok(interface_with_address(from)?.map(|interface| interface.index))
        }
        _ => Ok(None),
    }
}

impl Route {
    /// A route of IPv6 without an MTU has that of IPv6 on its interface.
    fn with_mtu_of_ipv6(mut self) -> Result<Self, RouteError> {
        if self.source.is_ipv6() && self.mtu.is_none() {
            self.mtu = ipv6_mtu(self.interface_index)?;
        }
        Ok(self)
    }
}

/// A route of the kernel.
struct Found {
    kind: RouteType,
    interface_index: Option<u32>,
    source: Option<IpAddr>,
    gateway: Option<IpAddr>,
    mtu: Option<u32>,
    advmss: Option<u32>,
    encapsulated: bool,
}

impl Found {
    fn into_route(self, remote: IpAddr, from: Option<IpAddr>) -> Result<Route, RouteError> {
        Ok(Route {
            interface_index: self.interface_index.ok_or(NetlinkError::Malformed)?,
            source: from
                .or(self.source)
                .ok_or(RouteError::NoSource { remote })?,
            next_hop: self.gateway.unwrap_or(remote),
            mtu: self.mtu,
            advmss: self.advmss,
        })
    }

    fn take(&mut self, attribute: RouteAttribute) {
        match attribute {
            RouteAttribute::Oif(index) => self.interface_index = Some(index),
            RouteAttribute::PrefSource(addr) => self.source = ip_of(&addr),
            RouteAttribute::Gateway(addr) => self.gateway = ip_of(&addr),
            // An IPv4 route by an IPv6 gateway (RFC 8950).
            RouteAttribute::Via(RouteVia::Inet(addr)) => self.gateway = Some(addr.into()),
            RouteAttribute::Via(RouteVia::Inet6(addr)) => self.gateway = Some(addr.into()),
            RouteAttribute::Metrics(metrics) => self.take_metrics(&metrics),
            RouteAttribute::EncapType(_) => self.encapsulated = true,
            _ => {}
        }
    }

    /// Zero stands for none.
    fn take_metrics(&mut self, metrics: &[RouteMetric]) {
        for metric in metrics {
            match *metric {
                RouteMetric::Mtu(mtu) if mtu > 0 => self.mtu = Some(mtu),
                RouteMetric::Advmss(advmss) if advmss > 0 => self.advmss = Some(advmss),
                _ => {}
            }
        }
    }
}

/// A flow of TCP, as far as it is known, and the interface that it has to go by.
#[derive(Clone, Copy)]
struct Question {
    source: Option<IpAddr>,
    source_port: Option<u16>,
    remote: SocketAddr,
    interface: Option<u32>,
}

impl Question {
    /// A flow of which only the peer is known.
    fn about(remote: SocketAddr) -> Self {
        Self {
            source: None,
            source_port: None,
            remote,
            interface: None,
        }
    }

    /// Asks for the route and judges it.
    fn find(&self) -> Result<Route, RouteError> {
        let (found, remote) = (self.ask(RouteFlags::empty())?, self.remote.ip());
        if found.encapsulated {
            return Err(RouteError::Encapsulated { remote });
        }
        match found.kind {
            RouteType::Unicast => found.into_route(remote, self.source)?.with_mtu_of_ipv6(),
            RouteType::Local | RouteType::Anycast => Err(RouteError::ThisHost { remote }),
            RouteType::Broadcast => Err(RouteError::Broadcast { remote }),
            RouteType::Multicast => Err(RouteError::Multicast { remote }),
            _ => Err(RouteError::NoRoute { remote }),
        }
    }

    /// The route from a named interface, but only if a table has it. On an interface that is named,
    /// the kernel takes any other IPv4 host for a neighbour.
    fn find_in_tables(&self) -> Result<Route, RouteError> {
        self.ask(RouteFlags::FibMatch)?;
        self.find()
    }

    fn ask(&self, flags: RouteFlags) -> Result<Found, RouteError> {
        let question = RouteNetlinkMessage::GetRoute(self.message(flags));
        match Netlink::open()?.get(question) {
            Ok(answer) => Ok(parse(&answer.payload).ok_or(NetlinkError::Malformed)?),
            Err(error) => Err(match error.refusal() {
                // The last three: prohibit, blackhole and throw routes.
                Some(
                    Errno::ENETUNREACH
                    | Errno::EHOSTUNREACH
                    | Errno::EACCES
                    | Errno::EINVAL
                    | Errno::EAGAIN,
                ) => RouteError::NoRoute {
                    remote: self.remote.ip(),
                },
                _ => error.into(),
            }),
        }
    }

    fn message(&self, flags: RouteFlags) -> RouteMessage {
        let remote = self.remote.ip();
        let whole = if remote.is_ipv4() { 32 } else { 128 }; // prefix length of one address, in bits
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(remote);
        message.header.destination_prefix_length = whole;
        message.header.flags = flags;
        if self.source.is_some() {
            message.header.source_prefix_length = whole;
        }
        let remote_port = Some(self.remote.port()).filter(|&port| port != 0);
        let attributes = [
            Some(RouteAttribute::Destination(remote.into())),
            self.source.map(|from| RouteAttribute::Source(from.into())),
            self.interface.map(RouteAttribute::Oif),
            Some(other(RTA_IP_PROTO, vec![TCP])),
            self.source_port.map(|port| port_of(RTA_SPORT, port)),
            remote_port.map(|port| port_of(RTA_DPORT, port)),
        ];
        message.attributes = attributes.into_iter().flatten().collect();
        message
    }
}

/// An attribute that the message library does not know.
fn other(kind: u16, value: Vec<u8>) -> RouteAttribute {
    RouteAttribute::Other(DefaultNla::new(kind, value))
}

fn port_of(kind: u16, port: u16) -> RouteAttribute {
    other(kind, port.to_be_bytes().to_vec())
}

fn parse(payload: &[u8]) -> Option<Found> {
    let buffer = RouteMessageBuffer::new_checked(payload).ok()?;
    let header = RouteHeader::parse(&buffer).ok()?;
    let mut found = Found {
        kind: header.kind,
        interface_index: None,
        source: None,
        gateway: None,
        mtu: None,
        advmss: None,
        encapsulated: false,
    };
    // How an encapsulation is set up does not matter here, only that there is one.
    let parameters = (header.address_family, header.kind, RouteLwEnCapType::None);
    let attributes = readable_attributes(buffer.attributes(), |attribute| {
        RouteAttribute::parse_with_param(attribute, parameters)
    });
    attributes.for_each(|attribute| found.take(attribute));
    Some(found)
}

fn ip_of(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
