//! Attributes of an open interface.

use std::fmt;

use super::queues::ServedQueues;
use super::tx_checksum::TxChecksum;
use crate::attach::XdpMode;
use crate::net::MacAddr;
use crate::xdp::Polling;

/// Actual attributes of an open interface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NicInfo {
    /// Interface name.
    pub name: String,
    /// Interface index.
    pub index: u32,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
    /// XDP mode in use.
    pub mode: XdpMode,
    /// Whether frames are in the driver's own buffers, or are copied once.
    pub zero_copy: bool,
    /// The served receive queues.
    pub queues: ServedQueues,
    /// Number of engines that share the queues.
    pub engines: usize,
    /// True if the program was attached before, and stays attached afterwards.
    pub program_found: bool,
    /// True if the program asks the driver for each frame's hash and receive timestamp, for the
    /// capture.
    pub rx_metadata: bool,
    /// How engines are notified of received frames.
    pub polling: Polling,
    /// How checksums of sent frames can be left to the NIC; [`TxChecksum::Off`] if they cannot.
    /// Each connection checks whether the NIC computes them.
    pub tx_checksum: TxChecksum,
}

impl NicInfo {
    /// The engine that serves a receive queue.
    pub fn engine_of(&self, queue: u32) -> Option<usize> {
        let shares = self.queues.shares(self.engines);
        shares.iter().position(|share| share.contains(&queue))
    }
}

impl fmt::Display for NicInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.program_found {
            "found attached"
        } else {
            "attached by us"
        };
        let copying = if self.zero_copy { "zero copy" } else { "copy" };
        write!(
            f,
            "{}  XDP {} ({origin})  AF_XDP {copying}  {}",
            self.name, self.mode, self.queues
        )?;
        if self.queues.served.len() > 1 {
            let plural = if self.engines == 1 { "" } else { "s" };
            write!(f, ", {} engine{plural}", self.engines)?;
        }
        write!(f, "  MTU {}", self.mtu)?;
        if self.rx_metadata {
            f.write_str("  RX metadata")?;
        }
        if self.tx_checksum != TxChecksum::Off {
            f.write_str("  TX checksum tried")?;
        }
        if self.polling == Polling::Busy {
            write!(f, "  {}", self.polling)?;
        }
        Ok(())
    }
}
