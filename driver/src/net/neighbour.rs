//! The Ethernet address of a host on a link: the kernel knows it, or is made to find out.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{Parseable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage,
    NeighbourMessageBuffer, NeighbourState,
};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};

use super::link::{MacAddr, link_name};
use super::netlink::{Message, Netlink, NetlinkError, readable_attributes};
use super::{family_of, socket_addr};

/// The discard service (RFC 863): nobody minds an empty datagram there.
const DISCARD_PORT: u16 = 9;
/// How often a wait asks whether it is still wanted.
const GLANCE: Duration = Duration::from_millis(50);
/// Longer than any kernel asks, and short enough to be added to a point in time.
const LONGEST_PATIENCE: Duration = Duration::from_hours(1);

/// Why the Ethernet address of a host is not known.
#[derive(Debug, thiserror::Error)]
pub enum NeighbourError {
    /// Nobody answered.
    #[error(
        "no host answers at {next_hop} on {link} ({}) within {} s; check the address and that the host is up",
        protocol(*next_hop), seconds(*waited)
    )]
    NoAnswer {
        /// Whom we asked for.
        next_hop: IpAddr,
        /// On which interface.
        link: String,
        /// How long we, or the kernel, waited.
        waited: Duration,
    },
    /// Whoever asked does not want the answer any more.
    #[error("the search for {next_hop} on {link} was given up")]
    GivenUp {
        /// Whom we asked for.
        next_hop: IpAddr,
        /// On which interface.
        link: String,
    },
    /// The link has other addresses, or none.
    #[error("{next_hop} on {link} has no Ethernet address; use an Ethernet interface")]
    NotEthernet {
        /// Whom we asked for.
        next_hop: IpAddr,
        /// On which interface.
        link: String,
    },
    /// Nothing can be sent there.
    #[error(
        "cannot send from {local} to {next_hop} on {link}; check that {link} is up and has {local}"
    )]
    CannotAsk {
        /// Our address.
        local: IpAddr,
        /// Whom we asked for.
        next_hop: IpAddr,
        /// On which interface.
        link: String,
        /// What the kernel said.
        #[source]
        reason: io::Error,
    },
    /// The interface is gone.
    #[error("there is no interface number {link_index} any more; see `ip link`")]
    NoLink {
        /// Its number.
        link_index: u32,
    },
    /// The kernel could not be asked.
    #[error("cannot ask the kernel for a neighbour")]
    Netlink(#[from] NetlinkError),
}

/// How the address is asked for.
fn protocol(next_hop: IpAddr) -> &'static str {
    if next_hop.is_ipv4() { "ARP" } else { "NDP" }
}

/// `3`, `0.3`: with a tenth only where there is one.
fn seconds(waited: Duration) -> String {
    let text = format!("{:.1}", waited.as_secs_f32());
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// The Ethernet address of `next_hop` on interface `link_index`.
///
/// If the kernel does not know it, it is made to ask, by an empty datagram from `source`; that takes at most
/// `patience`, or as long as the kernel keeps asking (3 s unless set otherwise).
pub fn resolve_neighbour(
    link_index: u32,
    source: IpAddr,
    next_hop: IpAddr,
    patience: Duration,
) -> Result<MacAddr, NeighbourError> {
    resolve_neighbour_while(link_index, source, next_hop, patience, &|| true)
}

/// The same, as long as `wanted` holds, which is asked every 50 ms.
pub fn resolve_neighbour_while(
    link_index: u32,
    source: IpAddr,
    next_hop: IpAddr,
    patience: Duration,
    wanted: &dyn Fn() -> bool,
) -> Result<MacAddr, NeighbourError> {
    let neighbour = Neighbour::new(link_index, next_hop)?;
    match neighbour.look_up()? {
        Entry::Fresh(address) => neighbour.mac(&address),
        Entry::Stale(address) => {
            // Good enough to use; the kernel confirms it meanwhile, and if it cannot ask it keeps it.
            if let Err(error) = neighbour.poke(source) {
                log::debug!(
                    "{next_hop} on {} stays unconfirmed: {error}",
                    neighbour.link
                );
            }
            neighbour.mac(&address)
        }
        Entry::Absent | Entry::Pending | Entry::Failed => {
            neighbour.wait_for_answer(source, patience, wanted)
        }
    }
}

/// What the kernel's table says of a neighbour.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    /// An address that holds.
    Fresh(Vec<u8>),
    /// An address that held once.
    Stale(Vec<u8>),
    /// The kernel has nothing, and asks for nothing.
    Absent,
    /// Nothing yet.
    Pending,
    /// The kernel asked and gave up.
    Failed,
}

/// The neighbour that is looked for.
struct Neighbour {
    link_index: u32,
    link: String,
    next_hop: IpAddr,
}

impl Neighbour {
    fn new(link_index: u32, next_hop: IpAddr) -> Result<Self, NeighbourError> {
        let name = link_name(link_index)?;
        Ok(Self {
            link_index,
            link: name.ok_or(NeighbourError::NoLink { link_index })?,
            next_hop,
        })
    }

    fn mac(&self, address: &[u8]) -> Result<MacAddr, NeighbourError> {
        let bytes = address
            .try_into()
            .map_err(|_| NeighbourError::NotEthernet {
                next_hop: self.next_hop,
                link: self.link.clone(),
            })?;
        Ok(MacAddr(bytes))
    }

    /// Makes the kernel ask, and waits for what it learns. A kernel that loses the carrier forgets whom it was asking for, and is made to
    /// ask again.
    fn wait_for_answer(
        &self,
        source: IpAddr,
        patience: Duration,
        wanted: &dyn Fn() -> bool,
    ) -> Result<MacAddr, NeighbourError> {
        let started = Instant::now();
        let deadline = started + patience.min(LONGEST_PATIENCE);
        // Listening comes before poking and looking up, so that no answer falls in between.
        let notifications = Netlink::listen(&[libc::RTNLGRP_NEIGH])?;
        let mut entry = Entry::Absent;
        loop {
            if entry == Entry::Absent {
                entry = self.ask(source)?;
            }
            match entry {
                Entry::Fresh(address) | Entry::Stale(address) => return self.mac(&address),
                Entry::Failed => return Err(self.no_answer(started.elapsed())),
                Entry::Absent | Entry::Pending => {}
            }
            if !wanted() {
                return Err(self.given_up());
            }
            let until = deadline.min(Instant::now() + GLANCE);
            match self.news(&notifications, until)? {
                Some(news) => entry = news,
                None if Instant::now() < deadline => {}
                None => return Err(self.no_answer(deadline - started)),
            }
        }
    }

    /// What the kernel's table says once a notification speaks of this neighbour; `None` if none does. The table has the last word: a
    /// notification may be older than our poke, or lost.
    fn news(&self, notifications: &Netlink, until: Instant) -> Result<Option<Entry>, NetlinkError> {
        match notifications.receive(until) {
            Ok(Some(messages)) if !self.is_in(&messages) => Ok(None),
            Ok(Some(_)) | Err(NetlinkError::Overrun) => self.look_up().map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel ask; what its table says then.
    fn ask(&self, source: IpAddr) -> Result<Entry, NeighbourError> {
        self.poke(source)
            .map_err(|reason| NeighbourError::CannotAsk {
                local: source,
                next_hop: self.next_hop,
                link: self.link.clone(),
                reason,
            })?;
        Ok(self.look_up()?)
    }

    fn given_up(&self) -> NeighbourError {
        NeighbourError::GivenUp {
            next_hop: self.next_hop,
            link: self.link.clone(),
        }
    }

    fn no_answer(&self, waited: Duration) -> NeighbourError {
        NeighbourError::NoAnswer {
            next_hop: self.next_hop,
            link: self.link.clone(),
            waited,
        }
    }

    /// What the kernel's table says now.
    fn look_up(&self) -> Result<Entry, NetlinkError> {
        let mut question = NeighbourMessage::default();
        question.header.family = family_of(self.next_hop);
        question.header.ifindex = self.link_index;
        let destination = NeighbourAttribute::Destination(self.next_hop.into());
        question.attributes = vec![destination];
        match Netlink::open()?.get(RouteNetlinkMessage::GetNeighbour(question)) {
            Ok(answer) => Ok(self.parse(&answer).unwrap_or(Entry::Pending)),
            Err(error) if error.refusal() == Some(Errno::ENOENT) => Ok(Entry::Absent),
            Err(error) => Err(error),
        }
    }

    /// Whether `messages` speak of this neighbour.
    fn is_in(&self, messages: &[Message]) -> bool {
        messages.iter().any(|message| self.parse(message).is_some())
    }

    /// What one message says of this neighbour, if it speaks of it.
    fn parse(&self, message: &Message) -> Option<Entry> {
        let kinds = [libc::RTM_NEWNEIGH, libc::RTM_DELNEIGH];
        if !kinds.contains(&message.kind) {
            return None;
        }
        let buffer = NeighbourMessageBuffer::new_checked(&message.payload).ok()?;
        let header = NeighbourHeader::parse(&buffer).ok()?;
        let (mut ours, mut address) = (false, Vec::new());
        let attributes = readable_attributes(buffer.attributes(), |attribute| {
            NeighbourAttribute::parse_with_param(attribute, header.family)
        });
        for attribute in attributes {
            match attribute {
                NeighbourAttribute::Destination(addr) => {
                    ours = addr == NeighbourAddress::from(self.next_hop);
                }
                NeighbourAttribute::LinkLocalAddress(bytes) => address = bytes,
                _ => {}
            }
        }
        (ours && header.ifindex == self.link_index).then(|| entry(header.state, address))
    }

    /// Sends an empty datagram to the neighbour itself, over this link, so that the kernel needs its address.
    fn poke(&self, source: IpAddr) -> io::Result<()> {
        let family = match self.next_hop {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Datagram, flags, None)?;
        setsockopt(&socket, sockopt::BindToDevice, &OsString::from(&self.link))?;
        // Not by a gateway: the neighbour may be one that no subnet of the link covers (an `onlink` route).
        setsockopt(&socket, sockopt::DontRoute, &true)?;
        // An IPv4 route may have an IPv6 gateway: then the kernel chooses the source.
        if source.is_ipv4() == self.next_hop.is_ipv4() {
            let local = socket_addr(source, 0, self.link_index);
            bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
        }
        let neighbour = socket_addr(self.next_hop, DISCARD_PORT, self.link_index);
        UdpSocket::from(socket).send_to(&[], neighbour)?;
        Ok(())
    }
}

/// What a state of the kernel's table means for us.
fn entry(state: NeighbourState, address: Vec<u8>) -> Entry {
    match state {
        NeighbourState::Reachable
        | NeighbourState::Delay
        | NeighbourState::Probe
        | NeighbourState::Permanent
        | NeighbourState::Noarp => Entry::Fresh(address),
        NeighbourState::Stale => Entry::Stale(address),
        NeighbourState::Failed => Entry::Failed,
        _ => Entry::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_says_who_where_and_how_long() {
        let error = |next_hop: &str, millis| {
            let error = NeighbourError::NoAnswer {
                next_hop: next_hop.parse().unwrap(),
                link: "eth1".to_owned(),
                waited: Duration::from_millis(millis),
            };
            error.to_string()
        };
        let ipv4 = error("10.0.0.9", 3_000);
        assert!(
            ipv4.starts_with("no host answers at 10.0.0.9 on eth1 (ARP) within 3 s;"),
            "{ipv4}"
        );
        let ipv6 = error("fd00::9", 250);
        assert!(
            ipv6.contains("fd00::9 on eth1 (NDP) within 0.2 s;"),
            "{ipv6}"
        );
    }
}
