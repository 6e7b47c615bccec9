//! Device of a switch, as a program sees it before it opens an RNIC there.

use std::net::IpAddr;
use std::path::Path;

use super::control::SwitchError;
use super::observer::SwitchObserver;

/// What is known of a switch's device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SwitchDevice {
    /// Its name.
    pub name: String,
    /// Its Ethernet address. Each RNIC on it has another.
    pub mac: [u8; 6],
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// Addresses that all programs on it share.
    pub addresses: Vec<IpAddr>,
}

impl SwitchDevice {
    /// Asks the switch that listens at a path.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]: there is none, or it does not answer.
    pub fn at(path: &Path) -> Result<Self, SwitchError> {
        Ok(SwitchObserver::attach(path)?.device().clone())
    }
}
