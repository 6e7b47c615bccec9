//! An open interface, as it really is.

use std::fmt;

use super::queues::ServedQueues;
use super::tx_checksum::TxChecksum;
use crate::attach::XdpMode;
use crate::net::MacAddr;
use crate::xdp::Polling;

/// What was opened, as it really is.
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
    /// The XDP mode in force.
    pub mode: XdpMode,
    /// Whether frames are the driver's own buffers, or are copied once.
    pub zero_copy: bool,
    /// The receive queues that are served.
    pub queues: ServedQueues,
    /// Engines that share these.
    pub engines: usize,
    /// True if the program was there before us and stays when we go.
    pub program_found: bool,
    /// True if the program asks the driver for each frame's hash and time of arrival, for the
    /// capture.
    pub rx_metadata: bool,
    /// How engines learn that frames have arrived.
    pub polling: Polling,
    /// How checksums of what is sent can be left to the NIC; [`TxChecksum::Off`] if they cannot.
    /// Each connection finds out whether the NIC computes them.
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
