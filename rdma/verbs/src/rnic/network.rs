//! What an RNIC is opened on.

use std::fmt;
use std::path::PathBuf;

use xwarp_driver::NicInfo;
use xwarp_driver::net::MacAddr;

/// Device of a software switch that an RNIC is open on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwitchInfo {
    /// Name of the device.
    pub name: String,
    /// Socket of the switch.
    pub socket: PathBuf,
    /// Ethernet address of this RNIC. Each RNIC on the device has another.
    pub mac: MacAddr,
    /// Largest IP packet, in bytes.
    pub mtu: usize,
}

impl fmt::Display for SwitchInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, socket, mtu, ..
        } = self;
        write!(
            f,
            "{name}  by the switch at {}  MTU {mtu}",
            socket.display()
        )
    }
}

/// Network of an RNIC.
#[derive(Default)]
pub(super) enum Network {
    Interface(NicInfo),
    Switch(SwitchInfo),
    /// Queues that the application has given.
    #[default]
    Given,
}
