//! Verdicts of the XDP program on frames: one counter per cause.

use std::fmt;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::layout::{Layout, MapError};

const VERDICTS: u32 = 11;

pub(crate) const LAYOUT: Layout = Layout {
    name: "xwarp_verdicts",
    map_type: MapType::PercpuArray,
    key_size: 4,
    value_size: 8,
    max_entries: VERDICTS,
};

/// What the program did with a frame and why. All but the first pass the frame to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A segment of ours, handed to the `AF_XDP` socket of its queue.
    Redirected,
    /// A segment of ours, but its queue has no socket.
    NoSocket,
    /// A TCP segment for somebody else.
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
    /// IPv6 extension headers that only the kernel handles. There are more than eight, or a routing header has segments left, or the kernel
    /// must be set up for its type.
    Extensions,
    /// TCP to a broadcast or multicast MAC address.
    GroupMac,
    /// A frame of a VLAN that the interface is not.
    Vlan,
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
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How many frames met with each verdict, over all CPUs.
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

    /// Reads every counter. Frames that arrive meanwhile are in some of them and not in others.
    pub fn counters(&self) -> Result<Counters, MapError> {
        let mut counters = Counters::default();
        for (key, sum) in (0u32..).zip(&mut counters.0) {
            let per_cpu = self.map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
            let per_cpu = per_cpu
                .map_err(|error| LAYOUT.refused(error))?
                .unwrap_or_default();
            let counts = per_cpu
                .iter()
                .filter_map(|count| count.as_slice().try_into().ok());
            *sum = counts.map(u64::from_ne_bytes).sum();
        }
        Ok(counters)
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
