//! Paths: changes of routes, and of the neighbours on an interface, by the kernel's notifications.
//!
//! A change of a route, a rule or a neighbour makes each engine ask its host for the next hop of
//! each connection again, one connection per millisecond. Checks for paths alone are half a second
//! apart. A connection with its third timeout in a row, or its third unanswered probe, puts its
//! path in doubt (R1 of RFC 9293 §3.8.3, RFC 1122 §3.3.1.4). The kernel then probes the neighbour
//! (`NUD_PROBE`); permanent entries stay. Addresses are not learnt from the peer's frames:
//! otherwise any host on the link could take a connection over.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::Parseable;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteFlags, RouteHeader, RouteMessageBuffer, RouteType};
use nix::libc;

use super::neighbour_entry::NeighbourEntry;
use super::netlink::{Message, Netlink, NetlinkError};

/// Maximum number of remembered neighbours: more than the kernel keeps by default (`gc_thresh3`).
/// Changes of further ones are found by the peer's silence.
const MOST: usize = 4096;

/// How long after a change notifications of unknown neighbours count: the kernel solicits for 3 s
/// by default.
const RESTLESS: Duration = Duration::from_secs(10);

/// An object that routes name as their next hop (linux/rtnetlink.h).
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// Detects changes that may affect the paths of connections.
pub(super) struct Paths {
    /// The interface.
    index: u32,
    /// The last reported Ethernet addresses of the neighbours, empty for those that the kernel has
    /// lost. The kernel notifies of each state of an entry, and few change the address.
    neighbours: HashMap<IpAddr, Vec<u8>>,
    /// Number of changes.
    changes: u64,
    /// Time of the last change of a route or of a known neighbour. The kernel may solicit other
    /// neighbours then.
    changed: Option<Instant>,
}

impl Paths {
    /// Those of interface `index`, of which nothing is known.
    pub(super) fn of(index: u32) -> Self {
        Self {
            index,
            neighbours: HashMap::new(),
            changes: 0,
            changed: None,
        }
    }

    /// Number of changes.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts a change because notifications were lost.
    pub(super) fn doubt(&mut self) {
        self.changes += 1;
    }

    /// Reads the kernel's current neighbours.
    pub(super) fn learn(&mut self) -> Result<(), NetlinkError> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        for message in Netlink::open()?.dump(&question)? {
            self.renew(&message);
        }
        Ok(())
    }

    /// Handles a notification.
    pub(super) fn notice(&mut self, message: &Message, now: Instant) {
        let change = match message.kind {
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => is_way(message),
            libc::RTM_NEWRULE | libc::RTM_DELRULE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                Some(PathChange::Other)
            }
            _ => self.renew(message),
        };
        let restless = self.changed.is_some_and(|changed| now < changed + RESTLESS);
        match change {
            Some(PathChange::Other) => self.changed = Some(now),
            Some(PathChange::New) if restless => {}
            Some(PathChange::New | PathChange::Same) | None => return,
        }
        self.changes += 1;
    }

    /// Takes what a message says of a neighbour.
    fn renew(&mut self, message: &Message) -> Option<PathChange> {
        let entry = NeighbourEntry::of(message)?;
        if entry.interface_index != self.index {
            return None;
        }
        let unknown = [
            NeighbourState::Failed,
            NeighbourState::Incomplete,
            NeighbourState::None,
        ];
        let address = if message.kind == libc::RTM_DELNEIGH || unknown.contains(&entry.state) {
            Vec::new()
        } else {
            entry.address
        };
        if let Some(known) = self.neighbours.get_mut(&entry.neighbour) {
            let former = std::mem::replace(known, address);
            let same = former == *known;
            return Some(if same {
                PathChange::Same
            } else {
                PathChange::Other
            });
        }
        if address.is_empty() {
            return None;
        }
        if self.neighbours.len() < MOST {
            self.neighbours.insert(entry.neighbour, address);
        }
        Some(PathChange::New)
    }
}

/// Meaning of a notification of a route or a neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathChange {
    /// Nothing new.
    Same,
    /// A neighbour that was unknown: no connection has a wrong address of it.
    New,
    /// Another address than before, or none.
    Other,
}

/// The change that a notification of a route reports, if the route leads to other hosts. The
/// kernel's own routes come and go with addresses and flows.
fn is_way(message: &Message) -> Option<PathChange> {
    let buffer = RouteMessageBuffer::new_checked(message.payload.as_slice()).ok()?;
    let header = RouteHeader::parse(&buffer).ok()?;
    let own = [
        RouteType::Local,
        RouteType::Broadcast,
        RouteType::Anycast,
        RouteType::Multicast,
    ];
    let counts = !own.contains(&header.kind) && !header.flags.contains(RouteFlags::Cloned);
    counts.then_some(PathChange::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct ndmsg` of interface 7 in a state, `NDA_DST` 10.0.0.1 and `NDA_LLADDR`
    /// 02:00:00:00:00:`last`.
    #[rustfmt::skip]
    fn neighbour(kind: u16, state: u8, last: u8) -> Message {
        Message::notification(kind, &[
            2, 0, 0, 0, 7, 0, 0, 0, state, 0, 0, 1,
            8, 0, 1, 0, 10, 0, 0, 1,
            10, 0, 2, 0, 2, 0, 0, 0, 0, last, 0, 0,
        ])
    }

    /// Whether a message that comes alone counts as a change.
    fn counts(paths: &mut Paths, message: &Message) -> bool {
        let before = paths.changes();
        paths.changed = None;
        paths.notice(message, Instant::now());
        paths.changes() != before
    }

    const REACHABLE: u8 = 2;
    const STALE: u8 = 4;
    const FAILED: u8 = 0x20;

    #[test]
    fn neighbour_has_changed_when_its_ethernet_address_has() {
        let mut paths = Paths::of(7);
        for (kind, state, last, changed) in [
            (libc::RTM_NEWNEIGH, FAILED, 1, false), // no address was known
            (libc::RTM_NEWNEIGH, REACHABLE, 1, false),
            (libc::RTM_NEWNEIGH, STALE, 1, false),
            (libc::RTM_NEWNEIGH, REACHABLE, 2, true),
            (libc::RTM_NEWNEIGH, FAILED, 2, true),
            (libc::RTM_NEWNEIGH, FAILED, 2, false),
            (libc::RTM_NEWNEIGH, REACHABLE, 2, true),
            (libc::RTM_DELNEIGH, STALE, 2, true),
            (libc::RTM_DELNEIGH, STALE, 2, false),
        ] {
            let message = neighbour(kind, state, last);
            assert_eq!(
                counts(&mut paths, &message),
                changed,
                "{kind} {state} {last}"
            );
        }
    }

    #[test]
    fn neighbours_of_other_interfaces_do_not_matter() {
        let mut paths = Paths::of(8);
        for last in [1, 2] {
            let message = neighbour(libc::RTM_NEWNEIGH, REACHABLE, last);
            assert!(!counts(&mut paths, &message));
        }
    }

    /// A route has been replaced, and the kernel has been made to ask for the new gateway.
    #[test]
    fn neighbour_that_nobody_has_heard_of_counts_for_a_while_after_a_change() {
        let (route, notified) = (
            route(libc::RTM_NEWROUTE, 1, 0),
            neighbour(libc::RTM_NEWNEIGH, REACHABLE, 1),
        );
        for (later, counted) in [(RESTLESS / 2, 2), (RESTLESS, 1)] {
            let mut paths = Paths::of(7);
            let now = Instant::now();
            paths.notice(&route, now);
            paths.notice(&notified, now + later);
            assert_eq!(paths.changes(), counted);
        }
    }

    /// `struct rtmsg` of an IPv4 route of this type, with these flags.
    fn route(kind: u16, of: u8, flags: u32) -> Message {
        let mut payload = vec![2, 24, 0, 0, 254, 3, 0, of];
        payload.extend(flags.to_ne_bytes());
        Message::notification(kind, &payload)
    }

    #[test]
    fn routes_to_other_hosts_count_and_those_of_the_kernel_do_not() {
        let mut paths = Paths::of(7);
        let (unicast, local, unreachable) = (1, 2, 7);
        let cloned = 0x200; // RTM_F_CLONED
        for (of, flags, wanted) in [
            (unicast, 0, true),
            (unreachable, 0, true),
            (local, 0, false),
            (unicast, cloned, false),
        ] {
            for kind in [libc::RTM_NEWROUTE, libc::RTM_DELROUTE] {
                let message = route(kind, of, flags);
                assert_eq!(counts(&mut paths, &message), wanted, "{of}");
            }
        }
        for (kind, wanted) in [(libc::RTM_NEWRULE, true), (libc::RTM_NEWLINK, false)] {
            let message = Message::notification(kind, &[]);
            assert_eq!(counts(&mut paths, &message), wanted, "{kind}");
        }
    }

    #[test]
    fn what_is_cut_off_changes_nothing() {
        let mut paths = Paths::of(7);
        let whole = neighbour(libc::RTM_NEWNEIGH, REACHABLE, 1).payload;
        for len in 0..20 {
            let cut = Message::notification(libc::RTM_NEWNEIGH, &whole[..len]);
            assert!(!counts(&mut paths, &cut), "{len}");
        }
        let whole = route(libc::RTM_NEWROUTE, 1, 0).payload;
        for len in 0..whole.len() {
            let cut = Message::notification(libc::RTM_NEWROUTE, &whole[..len]);
            assert!(!counts(&mut paths, &cut), "{len}");
        }
    }
}
