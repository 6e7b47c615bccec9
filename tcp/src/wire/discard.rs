//! Discard reasons: why a received frame is no segment of ours, and the counter of each.

use crate::counters::StackCounters;

/// Why a frame is no segment of ours.
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
    NotTcp,
    BadTcp,
    /// From an address that no peer has.
    BadSource,
}

impl Discard {
    pub(crate) fn count(self, counters: &mut StackCounters) {
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
            Self::NotTcp => &mut counters.drop_not_tcp,
            Self::BadTcp => &mut counters.drop_bad_tcp,
            Self::BadSource => &mut counters.drop_bad_source,
        };
        *counter += 1;
    }
}
