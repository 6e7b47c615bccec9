//! Queues of an interface to open, each with its memory.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::attach::XdpMode;
use crate::memory::RegionPool;
use crate::net::Interface;
use crate::packet_io::{PacketIo, QueueGroup};
use crate::xdp::umem::{self, QueueMemory, UmemError, UmemSpec};
use crate::xdp::{
    BusyPollError, InterruptDeferral, OpenQueueError, Polling, Target, XdpIo, ZeroCopy,
};

/// Bytes of an Ethernet header with two VLAN tags.
pub(crate) const LINK_HEADER_MAX: usize = 22;

/// Receive queues of an interface to serve. Frames on other queues go to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// All queues in use.
    #[default]
    All,
    /// Some queues, if the NIC steers the RNIC's flows to them (`ethtool -X`), or nothing to
    /// others.
    Some {
        /// First queue.
        first: u32,
        /// Number of queues.
        count: u32,
    },
}

/// The served receive queues, and the number of all queues in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedQueues {
    /// The served queues.
    pub served: Range<u32>,
    /// Number of queues in use.
    pub all: u32,
}

/// The requested receive queues do not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub struct NoSuchQueues {
    /// The interface.
    pub name: String,
    /// The requested receive queues.
    pub wanted: Range<u32>,
    /// Number of receive queues of the interface.
    pub queues: u32,
}

impl NoSuchQueues {
    fn text(&self) -> String {
        let Self {
            name,
            wanted,
            queues,
        } = self;
        if wanted.is_empty() {
            return format!(
                "no queue of {name} is wanted: choose some of the {queues} that it has"
            );
        }
        format!(
            "queues {} to {} of {name} are wanted, but it has {queues} (0 to {}): choose among these, or set more up with `ethtool -L {name}`",
            wanted.start,
            wanted.end - 1,
            queues - 1
        )
    }
}

impl Queues {
    /// Those of an interface.
    pub(crate) fn of(self, interface: &Interface) -> Result<ServedQueues, NoSuchQueues> {
        let all = interface.rx_queues;
        let served = match self {
            Self::All => 0..all,
            Self::Some { first, count } => first..first.saturating_add(count),
        };
        if served.is_empty() || served.end > all {
            return Err(NoSuchQueues {
                name: interface.name.clone(),
                wanted: served,
                queues: all,
            });
        }
        Ok(ServedQueues { served, all })
    }
}

impl ServedQueues {
    /// The share of each engine, of `engines` at most: neighbouring queues, at least one for each.
    pub(crate) fn shares(&self, engines: usize) -> Vec<Range<u32>> {
        let queues = self.served.len();
        let engines = engines.clamp(1, queues.max(1));
        let bound = |engine: usize| {
            let before = u32::try_from(engine * queues / engines).unwrap_or(u32::MAX);
            self.served.start.saturating_add(before)
        };
        (0..engines)
            .map(|engine| bound(engine)..bound(engine + 1))
            .collect()
    }

    /// Whether frames may arrive at a queue that is not served.
    pub fn is_part(&self) -> bool {
        self.served.len() < self.all as usize
    }
}

impl fmt::Display for ServedQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, all) = (self.served.len(), self.all);
        match (self.is_part(), count) {
            (false, 1) => write!(f, "1 queue"),
            (false, _) => write!(f, "{count} queues"),
            (true, 1) => write!(f, "queue {} of {all}", self.served.start),
            (true, _) => write!(
                f,
                "queues {} to {} of {all}",
                self.served.start,
                self.served.end - 1
            ),
        }
    }
}

/// Memory for the queues that are served.
pub(crate) struct Memory {
    frame_bytes: usize,
    /// Queues of each engine with theirs. The first of each sends.
    engines: Vec<Vec<(u32, QueueMemory)>>,
}

impl Memory {
    /// Maps it for `engines` engines at most, and the region area. The first queue of an engine
    /// sends, so the others only receive.
    pub(crate) fn create(
        wanted: &UmemSpec,
        queues: &ServedQueues,
        engines: usize,
    ) -> Result<(Self, RegionPool), UmemError> {
        let (mut regions, mut shares) = (None, Vec::new());
        for share in queues.shares(engines) {
            let mut its = Vec::new();
            for queue in share.clone() {
                let is_sender = queue == share.start;
                let wanted = UmemSpec {
                    transmit: if is_sender { wanted.transmit } else { 0 },
                    region_bytes: if regions.is_none() {
                        wanted.region_bytes
                    } else {
                        0
                    },
                    ..*wanted
                };
                let (memory, area) = umem::create(&wanted)?;
                regions.get_or_insert(area);
                its.push((queue, memory));
            }
            shares.push(its);
        }
        let memory = Self {
            frame_bytes: wanted.frame_bytes,
            engines: shares,
        };
        let no_queue = UmemError::Size(0, "no queue is served");
        Ok((memory, regions.ok_or(no_queue)?))
    }
}

/// Open queues.
pub(crate) struct OpenQueues {
    /// Those of each engine, with their numbers. The first of each sends.
    engines: Vec<Vec<(u32, XdpIo)>>,
    polling: Polling,
}

impl OpenQueues {
    /// Binds the queues, beneath a program that is attached in this mode.
    pub(crate) fn open(
        interface: &Interface,
        mode: XdpMode,
        wanted: ZeroCopy,
        memory: Memory,
    ) -> Result<Self, OpenQueueError> {
        let zero_copy = zero_copy(wanted, interface, mode)?;
        let open = |(place, (queue, its))| {
            let target = Target {
                zero_copy,
                interface: &interface.name,
                index: interface.index,
                queue,
                frames: interface.frames(),
                receives_icmp: place == 0,
            };
            Ok((queue, XdpIo::open(&target, memory.frame_bytes, its)?))
        };
        let engine = |its: Vec<_>| its.into_iter().enumerate().map(open).collect();
        let engines = memory.engines.into_iter().map(engine);
        Ok(Self {
            engines: engines.collect::<Result<_, OpenQueueError>>()?,
            polling: Polling::Interrupts,
        })
    }

    /// Polls the driver of `interface` instead of taking its interrupts, which it defers until the
    /// queues are dropped.
    pub(crate) fn poll_busily(&mut self, interface: &Interface) -> Result<(), BusyPollError> {
        let refused = |error: &io::Error| BusyPollError::refused(&interface.name, error);
        let deferral = InterruptDeferral::of(interface).map_err(|error| refused(&error))?;
        let deferral = Arc::new(deferral);
        for (_, queue) in self.engines.iter_mut().flatten() {
            queue.poll_busily(&deferral)?;
        }
        deferral.begin().map_err(|error| refused(&error))?;
        self.polling = Polling::Busy;
        Ok(())
    }

    /// How the engines of these queues learn that frames have arrived.
    pub(crate) fn polling(&self) -> Polling {
        self.polling
    }

    fn all(&self) -> impl Iterator<Item = &(u32, XdpIo)> {
        self.engines.iter().flatten()
    }

    /// Whether frames are the driver's own buffers, at all of them.
    pub(crate) fn have_zero_copy(&self) -> bool {
        self.all().all(|(_, queue)| queue.has_zero_copy())
    }

    /// Whether checksums can be left to the NIC, at all queues that send.
    pub(crate) fn offer_checksums(&self) -> bool {
        let mut senders = self.engines.iter().filter_map(|its| its.first());
        senders.all(|(_, queue)| queue.offers_checksums())
    }

    /// The sockets, with the numbers of their queues.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.all().map(|(number, queue)| (*number, queue.as_fd()))
    }

    /// The number of each engine's first queue.
    pub(crate) fn firsts(&self) -> Vec<u32> {
        let firsts = self.engines.iter().filter_map(|its| its.first());
        firsts.map(|(number, _)| *number).collect()
    }

    /// Those of each engine as one.
    pub(crate) fn into_ios(self) -> io::Result<Vec<Box<dyn PacketIo>>> {
        self.engines.into_iter().map(join).collect()
    }
}

/// Queues of one engine as one.
fn join(queues: Vec<(u32, XdpIo)>) -> io::Result<Box<dyn PacketIo>> {
    let mut boxed = queues
        .into_iter()
        .map(|(_, queue)| Box::new(queue) as Box<dyn PacketIo>);
    let first = boxed.next().ok_or(io::ErrorKind::InvalidInput)?;
    let others: Vec<_> = boxed.collect();
    if others.is_empty() {
        return Ok(first);
    }
    Ok(Box::new(QueueGroup::new(first, others)?))
}

/// What may be asked of the driver. Beneath a generic program, some take zero copy and never send.
fn zero_copy(
    wanted: ZeroCopy,
    interface: &Interface,
    mode: XdpMode,
) -> Result<ZeroCopy, OpenQueueError> {
    match (mode, wanted) {
        (XdpMode::Native, wanted) => Ok(wanted),
        (XdpMode::Generic, ZeroCopy::Demand) => Err(OpenQueueError::NoZeroCopy {
            interface: interface.name.clone(),
            reason: "the XDP program runs in generic mode".to_owned(),
        }),
        (XdpMode::Generic, _) => Ok(ZeroCopy::Never),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(rx_queues: u32) -> Interface {
        Interface {
            index: 3,
            name: "eth0".to_owned(),
            kind: None,
            mac: crate::net::MacAddr::default(),
            mtu: 1500,
            up: true,
            carrier: true,
            layer: crate::net::LinkLayer::Ethernet,
            programs: Vec::new(),
            addresses: Vec::new(),
            networks: Vec::new(),
            rx_queues,
        }
    }

    fn shown(queues: Queues, all: u32) -> String {
        match queues.of(&interface(all)) {
            Ok(served) => served.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn served_queues_are_told_as_they_are() {
        let some = |first, count| Queues::Some { first, count };
        assert_eq!(shown(Queues::All, 1), "1 queue");
        assert_eq!(shown(Queues::All, 4), "4 queues");
        assert_eq!(shown(some(0, 4), 4), "4 queues");
        assert_eq!(shown(some(2, 1), 4), "queue 2 of 4");
        assert_eq!(shown(some(1, 3), 4), "queues 1 to 3 of 4");
    }

    #[test]
    fn engines_share_all_queues() {
        let shares = |served, engines| ServedQueues { served, all: 64 }.shares(engines);
        assert_eq!(shares(0..4, 4), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(shares(0..4, 2), [0..2, 2..4]);
        assert_eq!(shares(3..8, 2), [3..5, 5..8]);
        assert_eq!(shares(5..7, 9), [5..6, 6..7], "as many as there are queues");
        assert_eq!(shares(0..4, 0), vec![0..4; 1], "one at least");
    }

    #[test]
    fn queues_that_are_not_there_are_refused() {
        let some = |first, count| Queues::Some { first, count };
        let says = "queues 2 to 4 of eth0 are wanted, but it has 4 (0 to 3): choose among these, or set more up with `ethtool -L eth0`";
        assert_eq!(shown(some(2, 3), 4), says);
        assert!(shown(some(0, 0), 4).contains("no queue"));
        assert!(shown(some(3, u32::MAX), 4).contains("it has 4"));
    }
}
