//! Route to another host, as the kernel would choose it.

use std::net::IpAddr;

use netlink_packet_core::{Parseable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteLwEnCapType, RouteMessage, RouteMessageBuffer,
    RouteMetric, RouteType, RouteVia,
};
use nix::errno::Errno;

use super::interface::{InterfaceError, interface_with_address};
use super::netlink::{Netlink, NetlinkError, readable_attributes};
use super::{family_of, is_link_local};

/// How the kernel would reach another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The interface that leads there.
    pub interface_index: u32,
    /// Our address on the way.
    pub source: IpAddr,
    /// Whom to hand the packet to: a gateway, or the host itself.
    pub next_hop: IpAddr,
    /// The largest IP packet on this route, in bytes, where the route says one: the interface's MTU holds too.
    pub mtu: Option<u32>,
}

/// Why a host cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// There is no way.
    #[error("there is no route to {remote}; check the address and `ip route`")]
    NoRoute {
        /// Where to.
        remote: IpAddr,
    },
    /// It is ourselves.
    #[error(
        "{remote} is an address of this host itself, and its packets never reach a NIC; use another host's address"
    )]
    ThisHost {
        /// The address.
        remote: IpAddr,
    },
    /// It is many hosts.
    #[error(
        "{remote} is a multicast address, and a connection needs one host; use a host's address"
    )]
    Multicast {
        /// The address.
        remote: IpAddr,
    },
    /// It is all hosts of a subnet.
    #[error(
        "{remote} is a broadcast address, and a connection needs one host; use a host's address"
    )]
    Broadcast {
        /// The address.
        remote: IpAddr,
    },
    /// It is no host.
    #[error("{remote} is no host's address; use a host's address")]
    Unspecified {
        /// The address.
        remote: IpAddr,
    },
    /// We do not have the address to send from.
    #[error(
        "{from} is not an address of this host, so nothing can be sent from it; see `ip address`"
    )]
    SourceNotLocal {
        /// The address.
        from: IpAddr,
    },
    /// One is IPv4, the other IPv6.
    #[error(
        "{remote} cannot be reached from {from}: one is IPv4 and the other IPv6; use two of a kind"
    )]
    FamilyMismatch {
        /// Where to.
        remote: IpAddr,
        /// Where from.
        from: IpAddr,
    },
    /// We have no address to send from.
    #[error(
        "this host has no address from which to reach {remote}; give its interface one with `ip address add`"
    )]
    NoSource {
        /// Where to.
        remote: IpAddr,
    },
    /// The kernel would wrap our packets.
    #[error(
        "the route to {remote} wraps packets in another protocol, which only the kernel can; add a plain route"
    )]
    Encapsulated {
        /// Where to.
        remote: IpAddr,
    },
    /// The kernel's interfaces could not be read.
    #[error("cannot find the interface of the source address")]
    Interface(#[from] InterfaceError),
    /// The kernel could not be asked.
    #[error("cannot ask the kernel for a route")]
    Netlink(#[from] NetlinkError),
}

/// How the kernel would reach `remote`, from our address `from` if one is given.
///
/// Without `from`, the interface of a link-local IPv6 address is the kernel's choice.
///
/// # Errors
///
/// - [`RouteError::NoRoute`], [`RouteError::ThisHost`]: no way leads there, or it is this host.
/// - [`RouteError::Multicast`], [`RouteError::Broadcast`], [`RouteError::Unspecified`]: it is no single host.
/// - [`RouteError::Encapsulated`]: the way leads through a tunnel.
/// - [`RouteError::Netlink`]: the kernel could not be asked.
/// - [`RouteError::SourceNotLocal`], [`RouteError::FamilyMismatch`], [`RouteError::Interface`]: `from` does not go with this host or with `remote`.
pub fn route_to(remote: IpAddr, from: Option<IpAddr>) -> Result<Route, RouteError> {
    check_remote(remote)?;
    if let Some(from) = from {
        check_source(remote, from)?;
    }
    find(remote, from, required_link(remote, from)?)
}

/// How the kernel would reach `remote` for somebody who uses interface `interface_index`: a link-local address is one of that link
/// (RFC 4007 §5). The way to any other is the kernel's choice, and may lead over another interface.
///
/// # Errors
///
/// - [`RouteError::NoRoute`], [`RouteError::ThisHost`]: no way leads there, or it is this host.
/// - [`RouteError::Multicast`], [`RouteError::Broadcast`], [`RouteError::Unspecified`]: it is no single host.
/// - [`RouteError::Encapsulated`]: the way leads through a tunnel.
/// - [`RouteError::Netlink`]: the kernel could not be asked.
pub fn route_from_interface(remote: IpAddr, interface_index: u32) -> Result<Route, RouteError> {
    check_remote(remote)?;
    find(
        remote,
        None,
        is_link_local(remote).then_some(interface_index),
    )
}

/// Asks for the route and judges it.
fn find(remote: IpAddr, from: Option<IpAddr>, interface: Option<u32>) -> Result<Route, RouteError> {
    let found = ask(remote, from, interface)?;
    if found.encapsulated {
        return Err(RouteError::Encapsulated { remote });
    }
    match found.kind {
        RouteType::Unicast => found.into_route(remote, from),
        RouteType::Local | RouteType::Anycast => Err(RouteError::ThisHost { remote }),
        RouteType::Broadcast => Err(RouteError::Broadcast { remote }),
        RouteType::Multicast => Err(RouteError::Multicast { remote }),
        _ => Err(RouteError::NoRoute { remote }),
    }
}

/// What needs no question to the kernel.
fn check_remote(remote: IpAddr) -> Result<(), RouteError> {
    if remote.is_multicast() {
        return Err(RouteError::Multicast { remote });
    }
    if remote.is_unspecified() {
        return Err(RouteError::Unspecified { remote });
    }
    Ok(())
}

/// The kernel answers for an IPv6 source that it does not have, and says EINVAL for such an IPv4 one.
fn check_source(remote: IpAddr, from: IpAddr) -> Result<(), RouteError> {
    if remote.is_ipv4() != from.is_ipv4() {
        return Err(RouteError::FamilyMismatch { remote, from });
    }
    match ask(from, None, required_link(from, Some(from))?) {
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

/// What the kernel found.
struct Found {
    kind: RouteType,
    interface_index: Option<u32>,
    source: Option<IpAddr>,
    gateway: Option<IpAddr>,
    mtu: Option<u32>,
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
            RouteAttribute::Metrics(metrics) => self.mtu = mtu_of(&metrics),
            RouteAttribute::EncapType(_) => self.encapsulated = true,
            _ => {}
        }
    }
}

/// Asks the kernel for its route to `remote`.
fn ask(remote: IpAddr, from: Option<IpAddr>, interface: Option<u32>) -> Result<Found, RouteError> {
    let question = RouteNetlinkMessage::GetRoute(question(remote, from, interface));
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
            ) => RouteError::NoRoute { remote },
            _ => error.into(),
        }),
    }
}

fn question(remote: IpAddr, from: Option<IpAddr>, interface: Option<u32>) -> RouteMessage {
    let whole = if remote.is_ipv4() { 32 } else { 128 }; // prefix length of one address, in bits
    let mut question = RouteMessage::default();
    question.header.address_family = family_of(remote);
    question.header.destination_prefix_length = whole;
    question
        .attributes
        .push(RouteAttribute::Destination(remote.into()));
    if let Some(from) = from {
        question.header.source_prefix_length = whole;
        question
            .attributes
            .push(RouteAttribute::Source(from.into()));
    }
    question
        .attributes
        .extend(interface.map(RouteAttribute::Oif));
    question
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

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
        _ => None,
    })
}
