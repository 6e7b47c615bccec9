//! Discard reasons: why a received frame is no segment of ours, and the counter of each reason.

use crate::counters::StackCounters;

/// Reason to drop a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discard {
    NotIp,
    NotUnicast,
    OtherStation,
    Vlan,
    BadIp,
    BadIpOption,
    BadExtension,
    SourceRoute,
    Fragment,
    BadChecksum,
    /// The checksum covers the pseudo-header alone: the sender has left it to a device.
    PartialChecksum,
    /// The checksum was left to a device, and the packet is larger than the MTU.
    SuperPacket,
    NotTcp,
    BadTcp,
    /// The source address is impossible.
    BadSource,
}

impl Discard {
    /// The reason for a wrong TCP checksum. `left`: the sender has left it to a device.
    pub(crate) fn of_checksum(left: bool) -> Self {
        if left {
            Self::PartialChecksum
        } else {
            Self::BadChecksum
        }
    }

    /// The reason for a packet of `bytes` bytes on an interface with this MTU.
    pub(crate) fn at(self, bytes: usize, mtu: usize) -> Self {
        match self {
            Self::PartialChecksum if bytes > mtu => Self::SuperPacket,
            other => other,
        }
    }

    /// The change at the sender or here that lets such frames arrive complete.
    pub(crate) fn remedy(self) -> Option<&'static str> {
        match self {
            Self::PartialChecksum => Some(
                "its sender has left the TCP checksum to a device that computes none: `ethtool -K DEV tx off` there, \
                 with the interface that it sends on, has its kernel compute it",
            ),
            Self::SuperPacket => Some(
                "it is larger than the MTU and its TCP checksum is not computed: `ethtool -K DEV tx off tso off` at its \
                 sender has the kernel cut it there, and `ethtool -K DEV gro off` here leaves packets apart",
            ),
            _ => None,
        }
    }

    /// Counts the reason. Returns the count before.
    pub(crate) fn count(self, counters: &mut StackCounters) -> u64 {
        let counter = match self {
            Self::NotIp => &mut counters.drop_not_ip,
            Self::NotUnicast => &mut counters.drop_not_unicast,
            Self::OtherStation => &mut counters.drop_other_station,
            Self::Vlan => &mut counters.drop_vlan,
            Self::BadIp => &mut counters.drop_bad_ip,
            Self::BadIpOption => &mut counters.drop_bad_ip_option,
            Self::BadExtension => &mut counters.drop_bad_extension,
            Self::SourceRoute => &mut counters.drop_source_route,
            Self::Fragment => &mut counters.drop_fragment,
            Self::BadChecksum => &mut counters.drop_bad_checksum,
            Self::PartialChecksum => &mut counters.drop_partial_checksum,
            Self::SuperPacket => &mut counters.drop_super_packet,
            Self::NotTcp => &mut counters.drop_not_tcp,
            Self::BadTcp => &mut counters.drop_bad_tcp,
            Self::BadSource => &mut counters.drop_bad_source,
        };
        *counter += 1;
        *counter - 1
    }
}
