//! Checksum on transmit: whether segments may leave without one, for the NIC to compute (decision
//! record driver/0009).

use crate::net::{self, Interface};
use crate::packet_io::TX_METADATA_BYTES;
use crate::xdp::{Computes, TxMetadata};

/// Whether TCP leaves checksums of sent segments to the NIC. It does so on connections whose peer
/// has shown that the NIC computes them. A frame must fit into one chunk for that, as it does up to
/// an MTU of 3818.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxChecksum {
    /// If the NIC's driver reports the feature (`tx-checksum` of the kernel's netdev family).
    #[default]
    Auto,
    /// Never.
    Off,
    /// Even if the driver does not report the feature.
    Always,
    /// As [`Always`](Self::Always), but the kernel computes it where it copies frames, to test the
    /// path. It saves no time.
    InKernel,
}

impl TxChecksum {
    /// The metadata that frames sent by `interface` may have.
    pub(crate) fn metadata(self, interface: &Interface) -> Option<TxMetadata> {
        let computes = match self {
            Self::Off => return None,
            Self::Auto if !is_named(interface) => return None,
            Self::Auto | Self::Always => Computes::Nic,
            Self::InKernel => Computes::Kernel,
        };
        Some(TxMetadata {
            bytes: TX_METADATA_BYTES,
            computes,
        })
    }
}

fn is_named(interface: &Interface) -> bool {
    net::names_tx_checksum(interface).unwrap_or_else(|error| {
        log::debug!(
            "the kernel does not report what {} can do: {error}",
            interface.name
        );
        false
    })
}
