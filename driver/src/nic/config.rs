//! How an interface is to be opened.

use std::path::PathBuf;

use super::queues::Queues;
use super::tx_checksum::TxChecksum;
use crate::attach::XdpMode;
use crate::setters;
use crate::xdp::{Polling, ZeroCopy};

/// How an interface is to be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NicConfig {
    /// The XDP mode that is demanded; `None` takes what is attached, or native before generic.
    pub mode: Option<XdpMode>,
    /// Whether frames are the driver's own buffers, or are copied once.
    pub zero_copy: ZeroCopy,
    /// Receive queues that are served.
    pub queues: Queues,
    /// Engines that share these queues, at most. `None`, the default, is one for each queue, as far
    /// as there are processors.
    pub engines: Option<usize>,
    /// Entries of each ring at least, a power of two. A driver with zero copy and larger rings gets
    /// more.
    pub ring: u32,
    /// Frames of each engine at least; half of them receive. Each further queue has as many to
    /// receive into. A driver with zero copy and larger rings gets more.
    pub frames: u32,
    /// Bytes of the region area, rounded up to whole pages.
    pub region_bytes: usize,
    /// A pcapng file to write every frame to.
    pub capture: Option<PathBuf>,
    /// Whether completions have the time at which the NIC received what raised them
    /// (`WorkCompletion::timestamp`).
    pub timestamps: bool,
    /// How engines learn that frames have arrived. Busy polling changes two settings of the device
    /// until the interface is closed. If the process is killed they stay, unless another process
    /// restores them, as the command `xwarp` does.
    pub polling: Polling,
    /// Whether checksums of what is sent are left to the NIC.
    pub tx_checksum: TxChecksum,
}

setters!(NicConfig {
    /// Sets the XDP mode that is demanded. `None` takes the attached program's, or native before
    /// generic.
    mode: Option<XdpMode>,
    /// Sets whether frames are the driver's own buffers.
    zero_copy: ZeroCopy,
    /// Sets which receive queues are served.
    queues: Queues,
    /// Sets how many engines share the queues at most. `None` is one for each queue, as far as
    /// there are processors.
    engines: Option<usize>,
    /// Sets how many descriptors each ring has at least.
    ring: u32,
    /// Sets how many frames there are at least.
    frames: u32,
    /// Sets the size of the region area, in bytes.
    region_bytes: usize,
    /// Sets the file that every frame is written to.
    capture: Option<PathBuf>,
    /// Sets whether completions have the time at which the NIC received the packet behind them.
    timestamps: bool,
    /// Sets how engines learn that frames have arrived.
    polling: Polling,
    /// Sets whether checksums of sent segments are left to the NIC.
    tx_checksum: TxChecksum,
});

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            mode: None,
            zero_copy: ZeroCopy::Try,
            queues: Queues::All,
            engines: None,
            ring: 2048,
            frames: 4096,
            region_bytes: 64 << 20,
            capture: None,
            timestamps: false,
            polling: Polling::Interrupts,
            tx_checksum: TxChecksum::Auto,
        }
    }
}
