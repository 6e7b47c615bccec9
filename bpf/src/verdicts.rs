//! Verdicts of the XDP program on frames: one counter per receive queue and cause.

use std::fmt;
use std::ops::Range;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::layout::{Layout, MAX_QUEUES, MapError};

const VERDICTS: u32 = 12;
/// The entry of all queues that have none of their own.
const OTHER_QUEUES: u32 = MAX_QUEUES;
const ALL_ROWS: Range<u32> = 0..OTHER_QUEUES + 1;

pub(crate) const LAYOUT: Layout = Layout {
    name: "xwarp_verdicts",
    map_type: MapType::PercpuArray,
    key_size: 4,
    value_size: 8 * VERDICTS,
    max_entries: MAX_QUEUES + 1,
};

/// What the program did with a frame and why. All but the first and the last pass the frame to the
/// kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A segment of ours, handed to the `AF_XDP` socket of its queue.
    Redirected,
    /// A segment of a flow of ours whose process has gone.
    NoSocket,
    /// A TCP segment that is not for xwarp.
    NotOurFlow,
    /// An IP packet of another protocol.
    NotTcp,
    /// Another Ethernet type, or IP behind more than two VLAN tags.
    NotIp,
    /// A fragment of an IP packet.
    Fragment,
    /// The frame ends before one of its headers or before its IP packet.
    Truncated,
    /// A header contradicts itself or the one before it.
    Malformed,
    /// IPv6 extension headers that only the kernel handles. There are more than eight, or a routing
    /// header has segments left, or the kernel must be set up for its type.
    Extensions,
    /// TCP to a broadcast or multicast MAC address.
    GroupMac,
    /// A frame of a VLAN that the interface is not.
    Vlan,
    /// A segment of ours at a queue without a socket, though its process has sockets at others. It
    /// is dropped.
    Unserved,
}

impl Verdict {
    /// Every verdict, in the order of `enum verdict` in steer.bpf.c.
    pub const ALL: [Self; VERDICTS as usize] = [
        Self::Redirected,
        Self::NoSocket,
        Self::NotOurFlow,
        Self::NotTcp,
        Self::NotIp,
        Self::Fragment,
        Self::Truncated,
        Self::Malformed,
        Self::Extensions,
        Self::GroupMac,
        Self::Vlan,
        Self::Unserved,
    ];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redirected => "redirected",
            Self::NoSocket => "pass_no_socket",
            Self::NotOurFlow => "pass_not_our_flow",
            Self::NotTcp => "pass_not_tcp",
            Self::NotIp => "pass_not_ip",
            Self::Fragment => "pass_fragment",
            Self::Truncated => "pass_truncated",
            Self::Malformed => "pass_malformed",
            Self::Extensions => "pass_extensions",
            Self::GroupMac => "pass_group_mac",
            Self::Vlan => "pass_vlan",
            Self::Unserved => "drop_unserved_queue",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How many frames met with each verdict, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([u64; VERDICTS as usize]);

impl Counters {
    /// How many frames met with `verdict`.
    pub fn get(&self, verdict: Verdict) -> u64 {
        self.0[verdict as usize]
    }

    /// Every verdict with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> {
        Verdict::ALL.into_iter().zip(self.0)
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks();
        let mut counters = Self::default();
        for (count, word) in counters.0.iter_mut().zip(words) {
            *count = u64::from_ne_bytes(*word);
        }
        counters
    }

    fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|verdict| {
            self.0[verdict].wrapping_add(other.0[verdict])
        }))
    }

    /// What was added after `earlier` was read.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|verdict| {
            self.0[verdict].wrapping_sub(earlier.0[verdict])
        }))
    }
}

/// The program's counters.
#[derive(Debug)]
pub struct Verdicts {
    map: MapHandle,
}

impl Verdicts {
    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map }
    }

    /// The counters of all queues together. Frames that arrive meanwhile are in some of them and
    /// not in others.
    pub fn counters(&self) -> Result<Counters, MapError> {
        self.sum(ALL_ROWS)
    }

    /// The counters of some queues together; with the last one that can be served, those of all
    /// beyond it.
    pub fn of_queues(&self, queues: Range<u32>) -> Result<Counters, MapError> {
        match queues {
            Range { start, .. } if start >= MAX_QUEUES => {
                Err(MapError::NoSuchQueue { queue: start })
            }
            Range { start, end } if end >= MAX_QUEUES => self.sum(start..ALL_ROWS.end),
            within => self.sum(within),
        }
    }

    fn sum(&self, mut rows: Range<u32>) -> Result<Counters, MapError> {
        rows.try_fold(Counters::default(), |sum, row| {
            Ok(sum.plus(&self.read(row)?))
        })
    }

    fn read(&self, row: u32) -> Result<Counters, MapError> {
        let per_cpu = self.map.lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY);
        let per_cpu = per_cpu.map_err(|error| LAYOUT.refused(error))?;
        let each = per_cpu.unwrap_or_default().into_iter();
        Ok(each.fold(Counters::default(), |sum, bytes| {
            sum.plus(&Counters::of_bytes(&bytes))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lists_the_verdicts_in_order() {
        for (position, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, position, "{verdict}");
        }
    }
}
