//! Resolution of a neighbour's Ethernet address by the kernel.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::interface::{MacAddr, interface_name};
use super::neighbour_entry::NeighbourEntry;
use super::netlink::{Message, Netlink, NetlinkError};
use super::{family_of, socket_addr};
use crate::wake::DescriptorSet;

/// The discard service (RFC 863): an empty datagram there does no harm.
const DISCARD_PORT: u16 = 9;
/// How soon a kernel that does not solicit is made to try again: an interface without carrier sends
/// no solicitation.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Longer than any kernel asks, and short enough to be added to a point in time.
const MAX_TIMEOUT: Duration = Duration::from_hours(1);

/// Why the Ethernet address of a host could not be resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NeighbourError {
    /// No host answered.
    #[error(
        "no host answers at {next_hop} on {interface} ({}) within {} s; check the address and that the host is up",
        protocol(*next_hop), seconds(*waited)
    )]
    NoAnswer {
        /// The next hop to resolve.
        next_hop: IpAddr,
        /// Name of the interface.
        interface: String,
        /// How long this process, or the kernel, waited.
        waited: Duration,
    },
    /// The link has no Ethernet addresses.
    #[error("{next_hop} on {interface} has no Ethernet address; use an Ethernet interface")]
    NotEthernet {
        /// The next hop to resolve.
        next_hop: IpAddr,
        /// Name of the interface.
        interface: String,
    },
    /// Packets cannot be sent to the next hop.
    #[error(
        "cannot send from {local} to {next_hop} on {interface}; check that {interface} is up and has {local}"
    )]
    CannotAsk {
        /// Local address.
        local: IpAddr,
        /// The next hop to resolve.
        next_hop: IpAddr,
        /// Name of the interface.
        interface: String,
        /// Error from the kernel.
        #[source]
        reason: io::Error,
    },
    /// The interface does not exist.
    #[error("interface number {interface_index} no longer exists; see `ip link`")]
    NoInterface {
        /// Its index.
        interface_index: u32,
    },
    /// The kernel could not be queried.
    #[error("cannot ask the kernel for a neighbour")]
    Netlink(#[from] NetlinkError),
}

/// The protocol that resolves the address.
fn protocol(next_hop: IpAddr) -> &'static str {
    if next_hop.is_ipv4() { "ARP" } else { "NDP" }
}

/// `3`, `0.3`: with a tenth only where there is one.
fn seconds(waited: Duration) -> String {
    let text = format!("{:.1}", waited.as_secs_f32());
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Result of a resolution.
pub enum Resolution {
    /// The kernel knows the address.
    Known(MacAddr),
    /// The kernel was made to solicit the neighbour.
    Searching(NeighbourSearch),
}

/// The Ethernet address of `next_hop` on interface `interface_index`. Does not wait for the
/// neighbour.
///
/// If the kernel does not know the address, an empty datagram from `source` makes it solicit the
/// neighbour. The search takes at most `timeout`, or as long as the kernel keeps soliciting (3 s
/// unless set otherwise).
///
/// # Errors
///
/// - [`NeighbourError::NoInterface`], [`NeighbourError::NotEthernet`]: there is no such interface,
///   or it has no Ethernet addresses.
/// - [`NeighbourError::CannotAsk`]: nothing can be sent from `source`.
/// - [`NeighbourError::NoAnswer`]: the kernel's solicitations have already timed out.
/// - [`NeighbourError::Netlink`]: the kernel's table could not be read.
pub fn resolve_neighbour(
    interface_index: u32,
    source: IpAddr,
    next_hop: IpAddr,
    timeout: Duration,
) -> Result<Resolution, NeighbourError> {
    let mut neighbour = Neighbour::new(interface_index, next_hop)?;
    match neighbour.look_up()? {
        Entry::Fresh(address) | Entry::Settled(address) => {
            Ok(Resolution::Known(neighbour.mac(&address)?))
        }
        Entry::Stale(address) => {
            // Good enough to use; the kernel confirms it meanwhile, and if it cannot ask it keeps
            // it.
            if let Err(error) = neighbour.socket(source).and_then(|it| neighbour.poke(&it)) {
                log::debug!(
                    "{next_hop} on {} stays unconfirmed: {error}",
                    neighbour.interface
                );
            }
            Ok(Resolution::Known(neighbour.mac(&address)?))
        }
        asked @ (Entry::Absent | Entry::Pending | Entry::Failed) => {
            let joins = asked == Entry::Pending;
            NeighbourSearch::begin(neighbour, source, timeout, joins)
        }
    }
}

/// The Ethernet address of `next_hop` on interface `interface_index` as the kernel knows it now.
/// Does not wait for the neighbour.
///
/// If the kernel does not know the address, an empty datagram from `source` makes it solicit the
/// neighbour, and its notification follows when it knows the address. If the neighbour is `silent`,
/// the kernel's entry is not relied on. Then the kernel probes the neighbour, and deletes the entry
/// if no answer arrives.
///
/// # Errors
///
/// As for [`resolve_neighbour`], but it is no error that the kernel's solicitations have timed out.
pub fn present_neighbour(
    interface_index: u32,
    source: IpAddr,
    next_hop: IpAddr,
    silent: bool,
) -> Result<Option<MacAddr>, NeighbourError> {
    let mut neighbour = Neighbour::new(interface_index, next_hop)?;
    let entry = neighbour.look_up()?;
    let asks = match entry {
        Entry::Fresh(_) | Entry::Stale(_) => silent && neighbour.probe().is_err(),
        Entry::Absent | Entry::Failed => true,
        Entry::Settled(_) | Entry::Pending => false,
    };
    if asks {
        let socket = neighbour.socket(source);
        let poked = socket.and_then(|socket| neighbour.poke(&socket));
        poked.map_err(|reason| neighbour.cannot_ask(source, reason))?;
    }
    match entry {
        Entry::Fresh(address) | Entry::Stale(address) | Entry::Settled(address) => {
            neighbour.mac(&address).map(Some)
        }
        Entry::Absent | Entry::Failed | Entry::Pending => Ok(None),
    }
}

/// A search for a neighbour's Ethernet address, which the kernel makes meanwhile. Dropping it gives
/// it up. It stays in the network namespace of the thread that has begun it.
pub struct NeighbourSearch {
    neighbour: Neighbour,
    source: IpAddr,
    /// The socket whose datagrams make the kernel solicit.
    socket: UdpSocket,
    began: Instant,
    deadline: Instant,
    /// Whether the kernel was soliciting already, and may be about to give up. Then it is made to
    /// begin again, once.
    joins: bool,
    /// If the kernel has forgotten its question, it is made to ask again.
    ask_again: Option<Instant>,
    notifications: Netlink,
    timer: TimerFd,
    /// Of the two.
    set: DescriptorSet,
}

impl NeighbourSearch {
    /// Makes the kernel ask.
    fn begin(
        neighbour: Neighbour,
        source: IpAddr,
        timeout: Duration,
        joins: bool,
    ) -> Result<Resolution, NeighbourError> {
        let began = Instant::now();
        let socket = neighbour.socket(source);
        let socket = socket.map_err(|reason| neighbour.cannot_ask(source, reason))?;
        // Listening comes before poking and looking up, so that no answer falls in between.
        let notifications = Netlink::listen(&[libc::RTNLGRP_NEIGH])?;
        let (timer, set) = descriptors(&notifications).map_err(NetlinkError::Open)?;
        let mut search = Self {
            neighbour,
            source,
            socket,
            began,
            deadline: began + timeout.min(MAX_TIMEOUT),
            joins,
            ask_again: None,
            notifications,
            timer,
            set,
        };
        let known = search.judge(Entry::Absent)?;
        search.set_timer()?;
        Ok(known.map_or(Resolution::Searching(search), Resolution::Known))
    }

    /// The address, once the kernel knows it. Never waits. Its descriptor is readable when there
    /// may be something new.
    ///
    /// # Errors
    ///
    /// - [`NeighbourError::NoAnswer`]: no host has answered in time.
    /// - [`NeighbourError::CannotAsk`], [`NeighbourError::NotEthernet`]: as when the search began.
    /// - [`NeighbourError::Netlink`]: the kernel's table could not be read.
    pub fn poll(&mut self) -> Result<Option<MacAddr>, NeighbourError> {
        let now = Instant::now();
        let forgotten = self.ask_again.is_some_and(|again| again <= now);
        let entry = match self.news()? {
            Some(entry) => Some(entry),
            None if forgotten => Some(Entry::Absent),
            None => None,
        };
        if let Some(entry) = entry
            && let Some(address) = self.judge(entry)?
        {
            return Ok(Some(address));
        }
        if now >= self.deadline {
            return Err(self.neighbour.no_answer(self.deadline - self.began));
        }
        self.set_timer()?;
        Ok(None)
    }

    /// The result of an entry of the kernel's table. A kernel that loses the carrier forgets which
    /// neighbours it was soliciting, and is made to solicit again.
    fn judge(&mut self, entry: Entry) -> Result<Option<MacAddr>, NeighbourError> {
        let entry = match entry {
            Entry::Absent => self.ask()?,
            Entry::Failed if std::mem::take(&mut self.joins) => self.ask()?,
            entry => entry,
        };
        self.ask_again = (entry == Entry::Absent).then(|| Instant::now() + ASK_AGAIN);
        match entry {
            Entry::Fresh(address) | Entry::Stale(address) | Entry::Settled(address) => {
                self.neighbour.mac(&address).map(Some)
            }
            Entry::Failed => Err(self.neighbour.no_answer(self.began.elapsed())),
            Entry::Absent | Entry::Pending => Ok(None),
        }
    }

    /// Makes the kernel ask; what its table says then.
    fn ask(&mut self) -> Result<Entry, NeighbourError> {
        let poked = self.neighbour.poke(&self.socket);
        poked.map_err(|reason| self.neighbour.cannot_ask(self.source, reason))?;
        Ok(self.neighbour.look_up()?)
    }

    /// The kernel's entry, if notifications concern this neighbour. The table is authoritative: a
    /// notification may be older than the last datagram of `socket`, or lost.
    fn news(&mut self) -> Result<Option<Entry>, NetlinkError> {
        let mut spoken_of = false;
        loop {
            match self.notifications.receive(self.began) {
                Ok(Some(messages)) => spoken_of |= self.neighbour.is_in(&messages),
                Err(NetlinkError::Overrun) => spoken_of = true,
                Ok(None) if spoken_of => return self.neighbour.look_up().map(Some),
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the descriptor readable when something is to be done without a notification.
    fn set_timer(&self) -> Result<(), NetlinkError> {
        let next = (self.ask_again).map_or(self.deadline, |again| again.min(self.deadline));
        let left = next.saturating_duration_since(Instant::now());
        // 0 would stop the timer.
        let time = TimeSpec::from_duration(left.max(Duration::from_nanos(1)));
        let set = (self.timer).set(Expiration::OneShot(time), TimerSetTimeFlags::empty());
        set.map_err(|errno| NetlinkError::Io(errno.into()))
    }
}

impl AsFd for NeighbourSearch {
    /// Readable when [`poll`](Self::poll) may have something new to say. It is not to be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// A timer, and a set of it and the socket that notifications come on.
fn descriptors(notifications: &Netlink) -> io::Result<(TimerFd, DescriptorSet)> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
    let set = DescriptorSet::new()?;
    set.watch(timer.as_fd())?;
    set.watch(notifications.as_fd())?;
    Ok((timer, set))
}

/// State of a neighbour in the kernel's table.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    /// An address that holds.
    Fresh(Vec<u8>),
    /// An address that holds. No question is needed: it is a permanent entry, or the kernel asks
    /// already.
    Settled(Vec<u8>),
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
    interface_index: u32,
    interface: String,
    next_hop: IpAddr,
    /// The socket that the kernel's table is queried by.
    table: Netlink,
}

impl Neighbour {
    fn new(interface_index: u32, next_hop: IpAddr) -> Result<Self, NeighbourError> {
        let name = interface_name(interface_index)?;
        Ok(Self {
            interface_index,
            interface: name.ok_or(NeighbourError::NoInterface { interface_index })?,
            next_hop,
            table: Netlink::open()?,
        })
    }

    fn mac(&self, address: &[u8]) -> Result<MacAddr, NeighbourError> {
        let bytes = address
            .try_into()
            .map_err(|_| NeighbourError::NotEthernet {
                next_hop: self.next_hop,
                interface: self.interface.clone(),
            })?;
        Ok(MacAddr(bytes))
    }

    fn cannot_ask(&self, local: IpAddr, reason: io::Error) -> NeighbourError {
        NeighbourError::CannotAsk {
            local,
            next_hop: self.next_hop,
            interface: self.interface.clone(),
            reason,
        }
    }

    fn no_answer(&self, waited: Duration) -> NeighbourError {
        NeighbourError::NoAnswer {
            next_hop: self.next_hop,
            interface: self.interface.clone(),
            waited,
        }
    }

    /// A message that names the neighbour.
    fn message(&self) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = family_of(self.next_hop);
        message.header.ifindex = self.interface_index;
        let destination = NeighbourAttribute::Destination(self.next_hop.into());
        message.attributes = vec![destination];
        message
    }

    /// The present entry of the kernel's table.
    fn look_up(&mut self) -> Result<Entry, NetlinkError> {
        let question = RouteNetlinkMessage::GetNeighbour(self.message());
        match self.table.get(question) {
            Ok(answer) => Ok(self.parse(&answer).unwrap_or(Entry::Pending)),
            Err(error) if error.refusal() == Some(Errno::ENOENT) => Ok(Entry::Absent),
            Err(error) => Err(error),
        }
    }

    /// Whether `messages` speak of this neighbour.
    fn is_in(&self, messages: &[Message]) -> bool {
        messages.iter().any(|message| self.parse(message).is_some())
    }

    /// The entry in a message, if that concerns this neighbour.
    fn parse(&self, message: &Message) -> Option<Entry> {
        let update = NeighbourEntry::of(message)?;
        let ours =
            update.neighbour == self.next_hop && update.interface_index == self.interface_index;
        ours.then(|| entry(update.state, update.address))
    }

    /// A socket that sends to the neighbour itself, over this link.
    fn socket(&self, source: IpAddr) -> io::Result<UdpSocket> {
        let family = match self.next_hop {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Datagram, flags, None)?;
        setsockopt(
            &socket,
            sockopt::BindToDevice,
            &OsString::from(&self.interface),
        )?;
        // Not by a gateway: the neighbour may be one that no subnet of the link covers (an `onlink`
        // route).
        setsockopt(&socket, sockopt::DontRoute, &true)?;
        // An IPv4 route may have an IPv6 gateway: then the kernel chooses the source.
        if source.is_ipv4() == self.next_hop.is_ipv4() {
            let local = socket_addr(source, 0, self.interface_index);
            bind(socket.as_raw_fd(), &SockaddrStorage::from(local))?;
        }
        Ok(UdpSocket::from(socket))
    }

    /// Makes the kernel probe the neighbour, at once and whatever its present state. That takes
    /// `CAP_NET_ADMIN`.
    fn probe(&mut self) -> Result<(), NetlinkError> {
        let mut change = self.message();
        change.header.state = NeighbourState::Probe;
        (self.table).replace(RouteNetlinkMessage::NewNeighbour(change))
    }

    /// Sends an empty datagram to the neighbour, so that the kernel needs its address.
    fn poke(&self, socket: &UdpSocket) -> io::Result<()> {
        let neighbour = socket_addr(self.next_hop, DISCARD_PORT, self.interface_index);
        socket.send_to(&[], neighbour)?;
        Ok(())
    }
}

/// The meaning of a state of the kernel's table.
fn entry(state: NeighbourState, address: Vec<u8>) -> Entry {
    match state {
        NeighbourState::Reachable | NeighbourState::Delay => Entry::Fresh(address),
        NeighbourState::Probe | NeighbourState::Permanent | NeighbourState::Noarp => {
            Entry::Settled(address)
        }
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
                interface: "eth1".to_owned(),
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
