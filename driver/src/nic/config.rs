//! Configuration of opening an interface.

use std::path::PathBuf;

use super::queues::Queues;
use super::tx_checksum::TxChecksum;
use crate::attach::XdpMode;
use crate::setters;
use crate::xdp::{Polling, ZeroCopy};

/// Configuration of opening an interface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NicConfig {
    /// The required XDP mode; `None` takes the attached program's mode, or native before generic.
    pub mode: Option<XdpMode>,
    /// Whether frames are in the driver's own buffers, or are copied once.
    pub zero_copy: ZeroCopy,
    /// Receive queues to serve.
    pub queues: Queues,
    /// Maximum number of engines that share these queues. `None`, the default, is one for each
    /// queue, but at most the number of processors.
    pub engines: Option<usize>,
    /// Minimum number of entries of each ring, a power of two. A driver with zero copy and larger
    /// rings gets more.
    pub ring: u32,
    /// Minimum number of frames of each engine; half of them receive. Each further queue has the
    /// same number to receive into. A driver with zero copy and larger rings gets more.
    pub frames: u32,
    /// Size of the region area in bytes, rounded up to whole pages.
    pub region_bytes: usize,
    /// A pcapng file for all frames.
    pub capture: Option<PathBuf>,
    /// Whether receive completions have the NIC's receive timestamp (`WorkCompletion::timestamp`).
    pub timestamps: bool,
    /// How engines are notified of received frames. Busy polling changes two settings of the device
    /// until the interface is closed. If the process is killed they stay, unless another process
    /// restores them, as the command `xwarp` does.
    pub polling: Polling,
    /// Whether checksums of sent frames are left to the NIC.
    pub tx_checksum: TxChecksum,
}

setters!(NicConfig {
    /// Sets the required XDP mode. `None` takes the attached program's, or native before generic.
    mode: Option<XdpMode>,
    /// Sets whether frames are in the driver's own buffers.
    zero_copy: ZeroCopy,
    /// Sets which receive queues are served.
    queues: Queues,
    /// Sets the maximum number of engines that share the queues. `None` is one for each queue, but
    /// at most the number of processors.
    engines: Option<usize>,
    /// Sets the minimum number of entries of each ring.
    ring: u32,
    /// Sets the minimum number of frames.
    frames: u32,
    /// Sets the size of the region area, in bytes.
    region_bytes: usize,
    /// Sets the file that every frame is written to.
    capture: Option<PathBuf>,
    /// Sets whether receive completions have the NIC's receive timestamp.
    timestamps: bool,
    /// Sets how engines are notified of received frames.
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
