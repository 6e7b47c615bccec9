//! Interfaces, with their addresses and receive queues.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{
    DecodeError, DefaultNla, NlaBuffer, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeader, AddressMessage, AddressMessageBuffer,
};
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkInfo, LinkLayerType, LinkMessage,
    LinkMessageBuffer, LinkXdp,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::errno::Errno;
use nix::libc;

use super::ethtool;
use super::netlink::{Netlink, NetlinkError, readable_attributes};
use super::network::Network;

/// The largest possible IP packet in bytes, whatever the interface supports.
const IP_PACKET_MAX: u32 = 65_535;

/// The attributes that [`Interface::set`] takes. The parser warns of others that a newer kernel has
/// made longer, and interfaces are asked for twice a second.
const TAKEN: [u16; 6] = [
    libc::IFLA_ADDRESS,
    libc::IFLA_IFNAME,
    libc::IFLA_MTU,
    libc::IFLA_LINKINFO,
    libc::IFLA_NUM_RX_QUEUES,
    libc::IFLA_XDP,
];

/// The attribute of an alternative name (`linux/if_link.h`).
const IFLA_ALT_IFNAME: u16 = 53;
/// Attributes of IPv6 within `IFLA_AF_SPEC` (`linux/if_link.h`): IPv6, its settings.
const AF_INET6: u16 = 10;
const IFLA_INET6_CONF: u16 = 2;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0;
        write!(f, "{first:02x}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
    }
}

/// Link layer of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Ethernet frames.
    Ethernet,
    /// Packets of this host to itself.
    Loopback,
    /// Other packets, such as those of tunnels.
    Other,
}

impl LinkLayer {
    fn of(header: &LinkHeader) -> Self {
        if header.flags.contains(LinkFlags::Loopback) {
            return Self::Loopback;
        }
        match header.link_layer_type {
            LinkLayerType::Ether => Self::Ethernet,
            _ => Self::Other,
        }
    }
}

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index in this network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Kind of virtual interface, `veth` for instance; `None` for a device.
    pub kind: Option<String>,
    /// Its Ethernet address; zeros if it has none, as loopback and tunnels.
    pub mac: MacAddr,
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is set up (`IFF_UP`), with or without a carrier.
    pub up: bool,
    /// Whether it has a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Its link layer.
    pub layer: LinkLayer,
    /// Ids of the XDP programs that are attached to it.
    pub programs: Vec<u32>,
    /// Usable addresses. Addresses in duplicate address detection, or whose detection failed, are
    /// left out.
    pub addresses: Vec<IpAddr>,
    /// The networks of these addresses, in the same order.
    pub networks: Vec<Network>,
    /// Receive queues in use now, at least 1.
    pub rx_queues: u32,
}

impl Interface {
    /// Whether it leads only to this host.
    pub fn is_loopback(&self) -> bool {
        self.layer == LinkLayer::Loopback
    }

    fn add(&mut self, network: Network) {
        self.addresses.push(network.address);
        self.networks.push(network);
    }

    /// The largest IP packet in bytes, even if the MTU is larger.
    pub fn ip_mtu(&self) -> usize {
        self.mtu.min(IP_PACKET_MAX) as usize
    }
}

/// Why an interface could not be queried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// There is no interface of this name.
    #[error("no interface is named {name:?} here; choose one of: {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Names of the existing interfaces.
        known: Vec<String>,
    },
    /// There is no interface with this index.
    #[error("interface number {0} no longer exists; see `ip link`")]
    Gone(u32),
    /// The kernel could not be queried.
    #[error("cannot list the network interfaces")]
    Netlink(#[from] NetlinkError),
}

/// The interface `name`. That may be an alternative name of it
/// (`ip link property add ... altname`).
///
/// # Errors
///
/// - [`InterfaceError::Unknown`]: no interface has this name; the error lists the existing ones.
/// - [`InterfaceError::Netlink`]: the kernel's interfaces could not be read.
pub fn interface_by_name(name: &str) -> Result<Interface, InterfaceError> {
    let mut list = list()?;
    let mut found = list.iter().position(|interface| interface.name == name);
    if found.is_none() {
        let index = index_by_alternative_name(name)?;
        found = list.iter().position(|it| Some(it.index) == index);
    }
    match found {
        Some(position) => Ok(with_queues_in_use(list.swap_remove(position))),
        None => Err(InterfaceError::Unknown {
            name: name.to_owned(),
            known: list.into_iter().map(|interface| interface.name).collect(),
        }),
    }
}

/// The interface that has an alternative name, if any has it. A kernel that knows of no such names
/// refuses the question, as do all if the name is longer than any can be.
fn index_by_alternative_name(name: &str) -> Result<Option<u32>, NetlinkError> {
    let mut question = interface_question();
    let bytes = name.bytes().chain([0]).collect();
    let wanted = LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, bytes));
    question.attributes.push(wanted);
    match Netlink::open()?.get(RouteNetlinkMessage::GetLink(question)) {
        Ok(answer) => Ok(parse_interface(&answer.payload).map(|interface| interface.index)),
        Err(error) if error.refusal().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The addresses that interface `index` has now, whatever its name is by now.
///
/// # Errors
///
/// - [`InterfaceError::Gone`]: the interface no longer exists.
/// - [`InterfaceError::Netlink`]: the kernel's interfaces could not be read.
pub fn addresses_of(index: u32) -> Result<Vec<IpAddr>, InterfaceError> {
    let interface = interface_now(index)?.ok_or(InterfaceError::Gone(index))?;
    Ok(interface.addresses)
}

/// Interface `index`, with the receive queues that it allocated; `None` if there is none of this
/// number.
pub(super) fn interface_now(index: u32) -> Result<Option<Interface>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let mut question = interface_question();
    question.header.index = index;
    let answer = match netlink.get(RouteNetlinkMessage::GetLink(question)) {
        Ok(answer) => answer,
        Err(error) if error.refusal() == Some(Errno::ENODEV) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut interface = parse_interface(&answer.payload).ok_or(NetlinkError::Malformed)?;
    for (owner, network) in networks(&mut netlink)? {
        if owner == index {
            interface.add(network);
        }
    }
    Ok(Some(interface))
}

/// All interfaces.
///
/// # Errors
///
/// [`InterfaceError::Netlink`]: the kernel's interfaces could not be read.
pub fn interfaces() -> Result<Vec<Interface>, InterfaceError> {
    Ok(list()?.into_iter().map(with_queues_in_use).collect())
}

/// The interface that has `addr`, if any has it.
///
/// # Errors
///
/// [`InterfaceError::Netlink`]: the kernel's interfaces could not be read.
pub fn interface_with_address(addr: IpAddr) -> Result<Option<Interface>, InterfaceError> {
    let owner = list()?
        .into_iter()
        .find(|interface| interface.addresses.contains(&addr));
    Ok(owner.map(with_queues_in_use))
}

/// The name of interface `index`, if there is one.
pub(super) fn interface_name(index: u32) -> Result<Option<String>, NetlinkError> {
    Ok(interface_now(index)?.map(|interface| interface.name))
}

/// IPv6's own MTU of interface `index`, in bytes: what routers advertise (RFC 4861 §4.6.4), or an
/// administrator sets. `None` without IPv6.
pub(super) fn ipv6_mtu(index: u32) -> Result<Option<u32>, NetlinkError> {
    let mut question = interface_question();
    question.header.index = index;
    let answer = Netlink::open()?.get(RouteNetlinkMessage::GetLink(question))?;
    Ok(ipv6_mtu_in(&answer.payload))
}

/// The attributes are taken apart by hand: each kernel has more of IPv6's settings than the parser
/// knows, which it warns of.
fn ipv6_mtu_in(payload: &[u8]) -> Option<u32> {
    const PLACE: usize = 2 * size_of::<u32>(); // DEVCONF_MTU6
    let buffer = LinkMessageBuffer::new_checked(payload).ok()?;
    let of_families = find(buffer.attributes(), libc::IFLA_AF_SPEC)?;
    let of_ipv6 = find(NlasIterator::new(of_families.as_slice()), AF_INET6)?;
    let settings = find(NlasIterator::new(of_ipv6.as_slice()), IFLA_INET6_CONF)?;
    let mtu = settings.get(PLACE..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*mtu)).filter(|&mtu| mtu > 0)
}

/// The value of the attribute `kind`.
fn find<'a>(
    attributes: impl IntoIterator<Item = Result<NlaBuffer<&'a [u8]>, DecodeError>>,
    kind: u16,
) -> Option<Vec<u8>> {
    let mut readable = attributes.into_iter().map_while(Result::ok);
    let found = readable.find(|attribute| attribute.kind() == kind)?;
    Some(found.value().to_vec())
}

/// Statistics are left out: they are of no use here, and the larger part of an answer.
fn interface_question() -> LinkMessage {
    let mut question = LinkMessage::default();
    question.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    question
}

/// All interfaces, with the receive queues that they allocated.
fn list() -> Result<Vec<Interface>, NetlinkError> {
    let mut netlink = Netlink::open()?;
    let mut interfaces: Vec<Interface> = netlink
        .dump(&RouteNetlinkMessage::GetLink(interface_question()))?
        .iter()
        .filter_map(|message| parse_interface(&message.payload))
        .collect();
    for (index, network) in networks(&mut netlink)? {
        if let Some(interface) = interfaces
            .iter_mut()
            .find(|interface| interface.index == index)
        {
            interface.add(network);
        }
    }
    Ok(interfaces)
}

/// All usable addresses, each with its network and the number of its interface.
fn networks(netlink: &mut Netlink) -> Result<impl Iterator<Item = (u32, Network)>, NetlinkError> {
    let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let table = netlink.dump(&question)?;
    Ok(table
        .into_iter()
        .filter_map(|message| parse_address(&message.payload)))
}

/// Replaces the receive queues that were allocated by those in use.
///
/// A driver that does not report them (loopback, ifb) has no way to change them either. So it uses
/// all that it allocated, unless it chose fewer itself. Then opening an unused queue fails and says
/// so; a number that is too small would leave queues to the kernel without a word. A tap that no
/// process has open uses 0: at least 1 is returned.
fn with_queues_in_use(mut interface: Interface) -> Interface {
    if let Ok(Some(in_use)) = ethtool::rx_queues(interface.index) {
        interface.rx_queues = in_use;
    }
    interface.rx_queues = interface.rx_queues.max(1);
    interface
}

pub(super) fn parse_interface(payload: &[u8]) -> Option<Interface> {
    let buffer = LinkMessageBuffer::new_checked(payload).ok()?;
    let header = LinkHeader::parse(&buffer).ok()?;
    let mut interface = Interface {
        index: header.index,
        name: String::new(),
        kind: None,
        mac: MacAddr::default(),
        mtu: 0,
        up: header.flags.contains(LinkFlags::Up),
        carrier: header.flags.contains(LinkFlags::LowerUp),
        layer: LinkLayer::of(&header),
        programs: Vec::new(),
        addresses: Vec::new(),
        networks: Vec::new(),
        rx_queues: 1,
    };
    let taken = buffer.attributes().filter(|attribute| {
        let kind = attribute.as_ref().map(NlaBuffer::kind);
        kind.map_or(true, |kind| TAKEN.contains(&kind))
    });
    let attributes = readable_attributes(taken, |attribute| {
        LinkAttribute::parse_with_param(attribute, AddressFamily::Unspec)
    });
    attributes.for_each(|attribute| interface.set(attribute));
    (!interface.name.is_empty()).then_some(interface)
}

impl Interface {
    /// Takes over what an attribute says.
    fn set(&mut self, attribute: LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name = name,
            LinkAttribute::Mtu(mtu) => self.mtu = mtu,
            LinkAttribute::NumRxQueues(allocated) => self.rx_queues = allocated,
            LinkAttribute::LinkInfo(infos) => self.kind = kind(&infos),
            LinkAttribute::Xdp(xdp) => self.programs = programs(&xdp),
            LinkAttribute::Address(mac) => self.mac = MacAddr(mac.try_into().unwrap_or_default()),
            _ => {}
        }
    }
}

fn kind(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

/// The ids of the programs that an interface runs: one is reported once or twice, several once
/// each.
fn programs(xdp: &[LinkXdp]) -> Vec<u32> {
    let mut ids: Vec<u32> = (xdp.iter())
        .filter_map(|attribute| match attribute {
            LinkXdp::ProgId(id)
            | LinkXdp::DrvProgId(id)
            | LinkXdp::SkbProgId(id)
            | LinkXdp::HwProgId(id) => Some(*id),
            _ => None,
        })
        .filter(|id| *id != 0)
        .collect();
    ids.dedup();
    ids
}

/// The interface, and the address with its network, if the address can be used.
fn parse_address(payload: &[u8]) -> Option<(u32, Network)> {
    let buffer = AddressMessageBuffer::new_checked(payload).ok()?;
    let header = AddressHeader::parse(&buffer).ok()?;
    let mut flags = AddressFlags::from_bits_retain(header.flags.bits().into());
    let (mut address, mut local) = (None, None);
    for attribute in readable_attributes(buffer.attributes(), AddressAttribute::parse) {
        match attribute {
            AddressAttribute::Address(addr) => address = Some(addr),
            AddressAttribute::Local(addr) => local = Some(addr),
            AddressAttribute::Flags(all) => flags = all, // the header has room for eight of them only
            _ => {}
        }
    }
    if flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed) {
        return None;
    }
    // On a point-to-point interface IFA_ADDRESS is the other end's.
    let network = Network {
        address: local.or(address)?,
        prefix: header.prefix_len,
    };
    Some((header.index, network))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Warnings of the parser.
    static WARNINGS: AtomicUsize = AtomicUsize::new(0);

    struct Counter;

    impl log::Log for Counter {
        fn enabled(&self, about: &log::Metadata<'_>) -> bool {
            about.target().starts_with("netlink_packet_route")
        }

        fn log(&self, record: &log::Record<'_>) {
            WARNINGS.fetch_add(
                usize::from(self.enabled(record.metadata())),
                Ordering::Relaxed,
            );
        }

        fn flush(&self) {}
    }

    /// A nested attribute.
    fn around(kind: u16, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + content.len()).unwrap();
        let header = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&header, content].concat()
    }

    /// `IFLA_INET6_CONF` has more settings with each kernel.
    #[test]
    fn attribute_that_a_newer_kernel_has_made_longer_is_no_matter() {
        let header = [0, 0, 1, 0, 7, 0, 0, 0, 0x43, 0x10, 1, 0, 0, 0, 0, 0]; // ARPHRD_ETHER, index 7
        let settings = around(2, &[0; 1024]); // IFLA_INET6_CONF
        let of_families = around(libc::IFLA_AF_SPEC, &around(10, &settings)); // AF_INET6
        let name = around(libc::IFLA_IFNAME, b"eth1");
        let message = [&header[..], &of_families, &name].concat();
        log::set_logger(&Counter).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let interface = parse_interface(&message).unwrap();
        assert_eq!((interface.index, &*interface.name), (7, "eth1"));
        assert_eq!(ipv6_mtu_in(&message), None, "no MTU is 0");
        assert_eq!(WARNINGS.load(Ordering::Relaxed), 0);
    }
}
