//! Queues of an interface, as they are opened: which ones, each with its memory.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use crate::attach::XdpMode;
use crate::net::Interface;
use crate::packet_io::PacketIo;
use crate::queue_group::QueueGroup;
use crate::region::RegionPool;
use crate::umem::{self, QueueMemory, UmemError, Wanted};
use crate::xdp::{OpenQueueError, Target, XdpIo, ZeroCopy};

/// Bytes of an Ethernet header with two VLAN tags.
pub(crate) const LINK_HEADER_MAX: usize = 22;

/// Receive queues of an interface that are served. What arrives at others passes to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queues {
    /// All that are in use.
    #[default]
    All,
    /// Some, where the NIC steers the RNIC's flows to these (`ethtool -X`), or nothing to others.
    Some {
        /// The first one.
        first: u32,
        /// How many, from that one on.
        count: u32,
    },
}

/// The receive queues that are served, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedQueues {
    /// Those that are served.
    pub served: Range<u32>,
    /// All that are in use.
    pub all: u32,
}

/// An interface has other receive queues than are to be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
#[non_exhaustive]
pub struct NoSuchQueues {
    /// The interface.
    pub name: String,
    /// The receive queues that are wanted.
    pub wanted: Range<u32>,
    /// How many it has.
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
    first: QueueMemory,
    others: Vec<QueueMemory>,
}

impl Memory {
    /// Maps it, and the region area. The first queue sends, so the others only receive.
    pub(crate) fn create(
        first: &Wanted,
        queues: &ServedQueues,
    ) -> Result<(Self, RegionPool), UmemError> {
        let (sender, regions) = umem::create(first)?;
        let receiver = Wanted {
            transmit: 0,
            region_bytes: 0,
            ..*first
        };
        let others = 1..queues.served.len();
        let memory = Self {
            frame_bytes: first.frame_bytes,
            first: sender,
            others: others
                .map(|_| Ok(umem::create(&receiver)?.0))
                .collect::<Result<_, UmemError>>()?,
        };
        Ok((memory, regions))
    }
}

/// Open queues.
pub(crate) struct OpenQueues {
    /// The queue that sends, with its number.
    first: (u32, XdpIo),
    others: Vec<(u32, XdpIo)>,
}

impl OpenQueues {
    /// Binds the queues, beneath a program that is attached in this mode.
    pub(crate) fn open(
        interface: &Interface,
        mode: XdpMode,
        wanted: ZeroCopy,
        queues: &ServedQueues,
        memory: Memory,
    ) -> Result<Self, OpenQueueError> {
        let zero_copy = zero_copy(wanted, interface, mode)?;
        let open = |queue, its, hears_icmp| {
            let target = Target {
                zero_copy,
                interface: &interface.name,
                index: interface.index,
                queue,
                frames: interface.frames(),
                hears_icmp,
            };
            Ok((queue, XdpIo::open(&target, memory.frame_bytes, its)?))
        };
        let begin = queues.served.start;
        let first = open(begin, memory.first, true)?;
        let others = (begin + 1..).zip(memory.others);
        let others = others.map(|(queue, its)| open(queue, its, false));
        Ok(Self {
            first,
            others: others.collect::<Result<_, OpenQueueError>>()?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &(u32, XdpIo)> {
        [&self.first].into_iter().chain(&self.others)
    }

    /// Whether frames are the driver's own buffers, at all of them.
    pub(crate) fn have_zero_copy(&self) -> bool {
        self.all().all(|(_, queue)| queue.has_zero_copy())
    }

    /// The sockets, with the numbers of their queues.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.all().map(|(number, queue)| (*number, queue.as_fd()))
    }

    /// All as one.
    pub(crate) fn into_io(self) -> io::Result<Box<dyn PacketIo>> {
        let boxed = |(_, queue)| Box::new(queue) as Box<dyn PacketIo>;
        let first = boxed(self.first);
        if self.others.is_empty() {
            return Ok(first);
        }
        let others = self.others.into_iter().map(boxed).collect();
        Ok(Box::new(QueueGroup::new(first, others)?))
    }
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
    fn queues_that_are_not_there_are_refused() {
        let some = |first, count| Queues::Some { first, count };
        let says = "queues 2 to 4 of eth0 are wanted, but it has 4 (0 to 3): choose among these, or set more up with `ethtool -L eth0`";
        assert_eq!(shown(some(2, 3), 4), says);
        assert!(shown(some(0, 0), 4).contains("no queue"));
        assert!(shown(some(3, u32::MAX), 4).contains("it has 4"));
    }
}
