//! Device of a switch, as a program sees it before it opens an RNIC there, and the state of the
//! switch.

use std::net::IpAddr;
use std::path::Path;

use xwarp_switchd::{Reply, Request, SWITCH, SwitchState};

use super::client::{Attached, SwitchClient};
use super::control::SwitchError;
use crate::wake::aside;

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

/// A client without a port, which asks for the state of its switch. A switch that takes the place of
/// this one is asked from then on.
pub struct SwitchObserver {
    client: SwitchClient,
    device: SwitchDevice,
}

impl SwitchObserver {
    /// Attaches to the switch that listens at a path. A thread of the library does so, as the
    /// caller's stack may be small, and signals may interrupt its calls.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]: there is none, it refuses, or it does not answer.
    pub fn attach(path: &Path) -> Result<Self, SwitchError> {
        aside("xwarp-attach", || Self::attach_here(path))?
    }

    fn attach_here(path: &Path) -> Result<Self, SwitchError> {
        let Attached {
            client, name, mtu, ..
        } = SwitchClient::attach(path, None)?;
        let Reply::Addresses(addresses) = client.ask(Request::Addresses)? else {
            return Err(SwitchError::unasked());
        };
        let device = SwitchDevice {
            name,
            mac: SWITCH,
            mtu,
            addresses,
        };
        Ok(Self { client, device })
    }

    /// The switch's device.
    pub fn device(&self) -> &SwitchDevice {
        &self.device
    }

    /// Process of the switch. `None` if it is in a namespace that this process does not see.
    pub fn process(&self) -> Option<u32> {
        self.client.process()
    }

    /// State of the switch, and of all its clients but this one.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]: the switch does not answer, or none is left.
    pub fn state(&self) -> Result<SwitchState, SwitchError> {
        match self.client.ask(Request::Clients)? {
            Reply::Clients(state) => Ok(state),
            _ => Err(SwitchError::unasked()),
        }
    }
}
