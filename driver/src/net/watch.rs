//! Watching an open interface: the kernel's notifications trigger a query, which returns the state.
//!
//! So missed notifications between two queries do not matter. Only the interface's removal is taken
//! from the notification itself: an interface that was removed and created again may have the same
//! number, but its `AF_XDP` sockets are dead.
//!
//! A thread for each RNIC sleeps on the notifications; an engine reads one flag each turn. The
//! kernel sends no notification when a program that a `bpf_link` attached is detached or replaced,
//! so an RNIC with such a program polls twice a second. What each event means is in
//! `driver/DESIGN.md`.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink_packet_core::{Parseable, ParseableParametrized};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressHeader, AddressMessageBuffer};
use netlink_packet_route::link::{LinkAttribute, LinkHeader, LinkMessageBuffer};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::ethtool::{self, Channels, DriverRings};
use super::interface::{Interface, interface_now};
use super::netlink::{Message, Netlink, NetlinkError, readable_attributes};
use super::paths::Paths;
use super::state::{
    InterfaceEnd, InterfaceMonitor, InterfaceNews, InterfaceReporter, InterfaceState,
};
use crate::memory::take_only_faults;
use crate::wake::{Doorbell, join_sleeper};

/// Groups of notifications: interfaces and their addresses, neighbours, routes and rules.
const GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_NEXTHOP,
];
/// Interval of polling the kernel where it sends no notification: when a program that a `bpf_link`
/// attached is detached or replaced. Half of the second within which an RNIC shall notice. Also the
/// pause after a failed query, and between two checks for paths alone, as a router may announce
/// changes without end.
const RECHECK: Duration = Duration::from_millis(500);

/// Pending notifications, from before the first look at the interface.
pub(crate) struct Notifications {
    interfaces: Netlink,
    /// Notifications of queues and rings, if the kernel has them.
    settings: Option<Netlink>,
}

impl Notifications {
    pub(crate) fn begin() -> Result<Self, NetlinkError> {
        Ok(Self {
            interfaces: Netlink::listen(&GROUPS)?,
            settings: ethtool::listen()?,
        })
    }

    /// The waiting notifications of an interface, and of changed paths from it.
    fn receive(&self, index: u32, paths: &mut Paths) -> Result<Notified, NetlinkError> {
        let (mut notified, now) = (Notified::Nothing, Instant::now());
        self.interfaces.receive_all(|message| {
            paths.notice(message, now);
            notified = notified.and(Notified::of(message, index));
        })?;
        if let Some(settings) = &self.settings {
            settings.receive_all(|message| {
                notified = notified.and(Notified::of_settings(message, index));
            })?;
        }
        Ok(notified)
    }
}

/// The interface that is watched, and the program on it.
pub(crate) struct Watched {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The id of the XDP program that steers to us.
    pub(crate) program: u32,
    /// It is attached by a `bpf_link`.
    pub(crate) by_link: bool,
}

impl Watched {
    /// The state of the interface, or why it can no longer be used.
    fn judge(&self, found: Option<Found>, paths: u64) -> InterfaceNews {
        let name = || self.name.clone();
        let Some(Found {
            interface,
            settings,
        }) = found
        else {
            return InterfaceNews::Ended(InterfaceEnd::Deleted(name()));
        };
        if interface.programs.contains(&self.program) {
            return InterfaceNews::State(InterfaceState {
                up: interface.up && interface.carrier,
                mac: interface.mac,
                mtu: interface.ip_mtu(),
                networks: interface.networks,
                channels: settings.0,
                rings: settings.1,
                paths,
            });
        }
        InterfaceNews::Ended(match interface.programs.first() {
            None => InterfaceEnd::Detached(name()),
            Some(&id) => InterfaceEnd::Replaced {
                interface: name(),
                program: (xwarp_bpf::program_name(id).ok().flatten())
                    .unwrap_or_else(|| "another program".to_owned()),
                id,
            },
        })
    }
}

/// Result of querying an interface.
struct Found {
    interface: Interface,
    settings: (Option<Channels>, Option<DriverRings>),
}

impl Found {
    /// Interface `index` as it is now; `None` if there is none of this number.
    fn now(index: u32) -> Result<Option<Self>, NetlinkError> {
        let Some(interface) = interface_now(index)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            interface,
            settings: ethtool::settings(index)?,
        }))
    }
}

/// An interface about to be watched.
pub struct InterfaceWatch {
    notifications: Notifications,
    watched: Watched,
}

impl InterfaceWatch {
    pub(crate) fn new(notifications: Notifications, watched: Watched) -> Self {
        Self {
            notifications,
            watched,
        }
    }

    /// Watches from now on, by a thread that sleeps unless something happens. It rings `bell` after
    /// each change.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor or no thread is left.
    pub fn start(self, bell: Option<Doorbell>) -> io::Result<InterfaceWatching> {
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
        let sleeps = Arc::default();
        let (reporter, monitor) = InterfaceReporter::new(bell);
        let mut paths = Paths::of(self.watched.index);
        if let Err(error) = paths.learn() {
            log::debug!("{error}; neighbours are learned as they change");
        }
        let watcher = Watcher {
            paths,
            looked: Instant::now(),
            watch: self,
            stop: Arc::clone(&stop),
            sleeps: Arc::clone(&sleeps),
            reporter,
            reported: None,
            recheck: None,
            missing: false,
        };
        let thread = std::thread::Builder::new()
            .name("xwarp-watch".to_owned())
            .spawn(move || watcher.run())?;
        Ok(InterfaceWatching {
            monitor,
            stop,
            sleeps,
            thread: Some(thread),
        })
    }
}

/// An interface that is watched until this is dropped.
pub struct InterfaceWatching {
    monitor: InterfaceMonitor,
    stop: Arc<EventFd>,
    /// The thread waits for news, and works on none.
    sleeps: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl InterfaceWatching {
    /// The monitor that news of the interface arrive at.
    pub fn monitor(&self) -> InterfaceMonitor {
        self.monitor.clone()
    }
}

impl Drop for InterfaceWatching {
    fn drop(&mut self) {
        let stopped = self.stop.write(1).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| stopped) {
            let sleeps = || self.sleeps.load(Ordering::Relaxed);
            join_sleeper(thread, "the thread that watches the interface", sleeps);
        }
    }
}

/// The thread.
struct Watcher {
    watch: InterfaceWatch,
    stop: Arc<EventFd>,
    sleeps: Arc<AtomicBool>,
    reporter: InterfaceReporter,
    paths: Paths,
    /// When it has looked last.
    looked: Instant,
    /// The state that was reported last.
    reported: Option<InterfaceState>,
    /// After how long to look again without a notification.
    recheck: Option<Duration>,
    /// The last look has found nothing. The notification that says why may be on its way.
    missing: bool,
}

/// The cause of the end of a wait.
enum Woken {
    Stopped,
    Notified,
    Late,
}

impl Watcher {
    fn run(mut self) {
        if let Err(error) = take_only_faults() {
            log::warn!(
                "the thread that watches the interface takes the program's signals: {error}"
            );
        }
        let mut notified = Notified::Change; // since the interface was opened
        loop {
            let goes_on = match notified {
                Notified::Nothing => true,
                Notified::Change => self.look(),
                Notified::Deletion => self.end(InterfaceEnd::Deleted),
                Notified::Move => self.end(InterfaceEnd::Moved),
            };
            notified = match self.wait() {
                _ if !goes_on => return,
                Woken::Stopped => return,
                Woken::Late => Notified::Change,
                Woken::Notified => self.receive(),
            };
        }
    }

    fn receive(&mut self) -> Notified {
        let Watched { index, .. } = self.watch.watched;
        let before = self.paths.changes();
        let notified = self.watch.notifications.receive(index, &mut self.paths);
        match notified {
            Ok(Notified::Nothing) if self.paths.changes() != before => self.paths_changed(),
            Ok(notified) => notified,
            Err(error) => {
                log::debug!("{error}; looking anew"); // what was lost is seen there
                self.paths.doubt();
                Notified::Change
            }
        }
    }

    /// Puts a look off if the last one was a moment ago.
    fn paths_changed(&mut self) -> Notified {
        if self.looked.elapsed() >= RECHECK {
            return Notified::Change;
        }
        self.recheck.get_or_insert(RECHECK);
        Notified::Nothing
    }

    /// Reports what there is if it is news; false if nothing can follow.
    fn look(&mut self) -> bool {
        self.looked = Instant::now();
        let watched = &self.watch.watched;
        let found = match Found::now(watched.index) {
            Ok(found) => found,
            Err(error) => {
                let name = &watched.name;
                log::warn!("{name} cannot be watched at the moment: {error}");
                self.recheck = Some(RECHECK);
                return true;
            }
        };
        let missing = std::mem::replace(&mut self.missing, found.is_none());
        if found.is_none() && !missing {
            self.recheck = Some(RECHECK);
            return true;
        }
        self.recheck = watched.by_link.then_some(RECHECK);
        match watched.judge(found, self.paths.changes()) {
            InterfaceNews::Ended(end) => self.end(|_| end),
            InterfaceNews::State(state) => {
                if self.reported.as_ref() != Some(&state) {
                    self.reported = Some(state.clone());
                    self.reporter.report(InterfaceNews::State(state));
                }
                true
            }
        }
    }

    fn end(&self, end: impl FnOnce(String) -> InterfaceEnd) -> bool {
        let end = end(self.watch.watched.name.clone());
        self.reporter.report(InterfaceNews::Ended(end));
        false
    }

    fn wait(&self) -> Woken {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let Notifications {
            interfaces,
            settings,
        } = &self.watch.notifications;
        let mut watched = vec![watch(self.stop.as_fd()), watch(interfaces.as_fd())];
        watched.extend(settings.as_ref().map(|it| watch(it.as_fd())));
        let timeout = self.recheck.map_or(PollTimeout::NONE, |recheck| {
            PollTimeout::try_from(recheck).unwrap_or(PollTimeout::MAX)
        });
        self.sleeps.store(true, Ordering::Relaxed);
        let polled = poll(&mut watched, timeout);
        self.sleeps.store(false, Ordering::Relaxed);
        let ready = match polled {
            Ok(ready) => ready,
            Err(Errno::EINTR) => return Woken::Late,
            Err(errno) => {
                log::error!("the interface can no longer be watched: {errno}");
                return Woken::Stopped;
            }
        };
        match watched[0].any() {
            Some(false) if ready == 0 => Woken::Late,
            Some(false) => Woken::Notified,
            Some(true) | None => Woken::Stopped,
        }
    }
}

/// Notifications of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Notified {
    Nothing,
    /// Something may be different.
    Change,
    Deletion,
    Move,
}

impl Notified {
    /// The notification in one message, for interface `index`.
    fn of(message: &Message, index: u32) -> Self {
        let notified = match message.kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => Self::of_link(message, index),
            libc::RTM_NEWADDR | libc::RTM_DELADDR => Self::of_address(message, index),
            _ => None,
        };
        notified.unwrap_or(Self::Nothing)
    }

    fn of_settings(message: &Message, index: u32) -> Self {
        if ethtool::is_of(message, index) {
            Self::Change
        } else {
            Self::Nothing
        }
    }

    fn of_link(message: &Message, index: u32) -> Option<Self> {
        let buffer = LinkMessageBuffer::new_checked(message.payload.as_slice()).ok()?;
        let header = LinkHeader::parse(&buffer).ok()?;
        if header.index != index {
            return None;
        }
        // A bridge announces in its own family the ports that leave it, by messages of the same
        // kind.
        if message.kind == libc::RTM_NEWLINK || header.interface_family != AddressFamily::Unspec {
            return Some(Self::Change);
        }
        let mut attributes = readable_attributes(buffer.attributes(), |attribute| {
            LinkAttribute::parse_with_param(attribute, AddressFamily::Unspec)
        });
        let moved = attributes.any(|attribute| {
            matches!(
                attribute,
                LinkAttribute::NewNetnsId(_) | LinkAttribute::NewIfIndex(_)
            )
        });
        Some(if moved { Self::Move } else { Self::Deletion })
    }

    fn of_address(message: &Message, index: u32) -> Option<Self> {
        let buffer = AddressMessageBuffer::new_checked(message.payload.as_slice()).ok()?;
        let header = AddressHeader::parse(&buffer).ok()?;
        (header.index == index).then_some(Self::Change)
    }

    /// Together with the next message: whatever follows a removal, it was one.
    fn and(self, later: Self) -> Self {
        if self >= Self::Deletion {
            self
        } else {
            self.max(later)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct ifinfomsg` of interface 7, up, and its name.
    #[rustfmt::skip]
    const LINK: [u8; 28] = [
        0, 0, 1, 0, 7, 0, 0, 0, 0x43, 0x10, 1, 0, 0, 0, 0, 0, // AF_UNSPEC, ARPHRD_ETHER, index 7, flags, change
        9, 0, 3, 0, b'e', b't', b'h', b'1', 0, 0, 0, 0,       // IFLA_IFNAME
    ];
    /// `struct ifaddrmsg`, and the address.
    #[rustfmt::skip]
    const ADDRESS: [u8; 16] = [
        2, 24, 0x80, 0, 7, 0, 0, 0, // AF_INET, /24, permanent, universe, index 7
        8, 0, 1, 0, 10, 0, 0, 1,    // IFA_ADDRESS
    ];

    fn notified(kind: u16, payload: &[u8], index: u32) -> Notified {
        Notified::of(&Message::notification(kind, payload), index)
    }

    #[test]
    fn news_of_the_interface_and_its_addresses_are_heard() {
        for (kind, payload, wanted) in [
            (libc::RTM_NEWLINK, &LINK[..], Notified::Change),
            (libc::RTM_DELLINK, &LINK, Notified::Deletion),
            (libc::RTM_NEWADDR, &ADDRESS, Notified::Change),
            (libc::RTM_DELADDR, &ADDRESS, Notified::Change),
            (libc::RTM_NEWROUTE, &ADDRESS, Notified::Nothing),
        ] {
            assert_eq!(notified(kind, payload, 7), wanted, "{kind}");
            assert_eq!(
                notified(kind, payload, 8),
                Notified::Nothing,
                "{kind} of another"
            );
        }
    }

    #[test]
    fn removal_to_another_namespace_says_so() {
        for attribute in [
            [8, 0, 45, 0, 0, 0, 0, 0], // IFLA_NEW_NETNSID 0
            [8, 0, 49, 0, 3, 0, 0, 0], // IFLA_NEW_IFINDEX 3
        ] {
            let message = [&LINK[..], &attribute].concat();
            assert_eq!(notified(libc::RTM_DELLINK, &message, 7), Notified::Move);
            assert_eq!(notified(libc::RTM_NEWLINK, &message, 7), Notified::Change);
        }
    }

    #[test]
    fn port_that_leaves_its_bridge_is_not_removed() {
        let mut message = LINK;
        message[0] = 7; // AF_BRIDGE
        assert_eq!(notified(libc::RTM_DELLINK, &message, 7), Notified::Change);
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        for len in 0..16 {
            assert_eq!(
                notified(libc::RTM_DELLINK, &LINK[..len], 7),
                Notified::Nothing
            );
        }
        for len in 0..8 {
            assert_eq!(
                notified(libc::RTM_NEWADDR, &ADDRESS[..len], 7),
                Notified::Nothing
            );
        }
    }

    #[test]
    fn removal_outweighs_what_is_heard_before_and_after_it() {
        let removal = Notified::Nothing
            .and(Notified::Change)
            .and(Notified::Deletion);
        assert_eq!(
            removal.and(Notified::Change).and(Notified::Move),
            Notified::Deletion
        );
    }

    fn watched() -> Watched {
        Watched {
            index: 7,
            name: "eth1".to_owned(),
            program: 121,
            by_link: false,
        }
    }

    /// An answer with an MTU of 1400, an address, and the programs of `xdp`.
    fn interface(flags: u8, xdp: &[u8]) -> Option<Found> {
        let mut message = LINK.to_vec();
        message[8] = flags;
        message.extend([8, 0, 4, 0, 0x78, 5, 0, 0]); // IFLA_MTU
        message.extend([10, 0, 1, 0, 2, 0, 0, 0, 0, 7, 0, 0]); // IFLA_ADDRESS
        message.extend(xdp);
        Some(Found {
            interface: crate::net::interface::parse_interface(&message)?,
            settings: (None, None),
        })
    }

    #[rustfmt::skip]
    const OURS: [u8; 28] = [
        28, 0, 43, 0,            // IFLA_XDP
        5, 0, 2, 0, 1, 0, 0, 0,  // IFLA_XDP_ATTACHED, XDP_ATTACHED_DRV
        8, 0, 4, 0, 121, 0, 0, 0, // IFLA_XDP_PROG_ID
        8, 0, 5, 0, 121, 0, 0, 0, // IFLA_XDP_DRV_PROG_ID
    ];

    #[test]
    fn interface_is_up_when_it_is_set_up_and_has_a_carrier() {
        // Byte 8 of the flags has IFF_UP, byte 10 IFF_LOWER_UP.
        for (flags, up) in [(0x43, true), (0x42, false)] {
            let state = InterfaceState {
                up,
                mac: crate::net::MacAddr([2, 0, 0, 0, 0, 7]),
                mtu: 1400,
                networks: Vec::new(),
                channels: None,
                rings: None,
                paths: 3,
            };
            let judged = watched().judge(interface(flags, &OURS), 3);
            assert_eq!(judged, InterfaceNews::State(state));
        }
        let mut no_carrier = interface(0x43, &OURS).unwrap();
        no_carrier.interface.carrier = false;
        let InterfaceNews::State(state) = watched().judge(Some(no_carrier), 3) else {
            panic!("it is there");
        };
        assert!(!state.up);
    }

    #[test]
    fn interface_without_our_program_is_of_no_use() {
        let gone = watched().judge(None, 0);
        assert_eq!(
            gone,
            InterfaceNews::Ended(InterfaceEnd::Deleted("eth1".to_owned()))
        );
        let none = [12, 0, 43, 0, 5, 0, 2, 0, 0, 0, 0, 0]; // XDP_ATTACHED_NONE
        for xdp in [&none[..], &[]] {
            let detached = InterfaceNews::Ended(InterfaceEnd::Detached("eth1".to_owned()));
            assert_eq!(watched().judge(interface(0x43, xdp), 0), detached);
        }
        let mut foreign = OURS;
        for at in [16, 24] {
            foreign[at..at + 4].copy_from_slice(&i32::MAX.to_ne_bytes()); // no program has that
        }
        let InterfaceNews::Ended(end) = watched().judge(interface(0x43, &foreign), 0) else {
            panic!("it is another program");
        };
        let text = "the XDP program on eth1 was replaced by another program (id 2147483647)";
        assert_eq!(end.to_string(), text);
    }
}
