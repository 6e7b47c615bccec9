//! Device of a command: an interface, or that of a software switch. This module alone decides which.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use xwarp::config::Attach;
use xwarp_driver::net;
use xwarp_driver::switch::{SwitchDevice, SwitchError, SwitchObserver};

use crate::output::FailedWith;

/// Socket of the switch that a command is to use: the one of `--service`, or that of
/// `XWARP_SERVICE`. `None`: it is to use interfaces.
fn service(option: Option<&Path>) -> Option<PathBuf> {
    option.map_or_else(|| Attach::Auto.service(), |socket| Some(socket.to_owned()))
}

/// A switch that has answered, and its only device.
pub(crate) struct Switch {
    pub(crate) socket: PathBuf,
    pub(crate) device: SwitchDevice,
}

impl Switch {
    /// Asks the switch at a socket.
    pub(crate) fn at(socket: PathBuf) -> anyhow::Result<Self> {
        let device = SwitchDevice::at(&socket)?;
        Ok(Self { socket, device })
    }
}

/// Fails unless `dev` is the name of a switch's device, or is not given.
pub(crate) fn check_name(dev: Option<&str>, device: &str) -> anyhow::Result<()> {
    match dev {
        Some(dev) if dev != device => bail!(
            "the switch has the device {device}, and not {dev}: leave {dev} out, or do without --service and XWARP_SERVICE"
        ),
        _ => Ok(()),
    }
}

/// The device that a command shows, on the command line.
#[derive(Args)]
pub(crate) struct ShownArgs {
    /// The network interface; or nothing, if a switch is named
    dev: Option<String>,
    /// Show the software switch (`xwarp serve`) with this socket; by default that of
    /// `XWARP_SERVICE`, if it is set
    #[arg(long, value_name = "SOCKET")]
    service: Option<PathBuf>,
}

/// What a command shows.
pub(crate) enum Shown<'a> {
    /// An interface, by its name.
    Interface(&'a str),
    Switch(ShownSwitch<'a>),
}

/// A switch that was not asked yet.
pub(crate) struct ShownSwitch<'a> {
    pub(crate) socket: PathBuf,
    /// The name that its device must have, if any.
    dev: Option<&'a str>,
}

impl ShownArgs {
    /// The interface or switch that is named. Fails if none is.
    pub(crate) fn shown(&self) -> anyhow::Result<Shown<'_>> {
        let dev = self.dev.as_deref();
        match (service(self.service.as_deref()), dev) {
            (Some(socket), dev) => Ok(Shown::Switch(ShownSwitch { socket, dev })),
            (None, Some(dev)) => Ok(Shown::Interface(dev)),
            (None, None) => Err(FailedWith {
                code: 2,
                text: "name a network interface, or a software switch with --service".to_owned(),
            }
            .into()),
        }
    }
}

impl ShownSwitch<'_> {
    /// Attaches to the switch, to ask for its state.
    pub(crate) fn observe(&self) -> anyhow::Result<SwitchObserver> {
        let observer = self.attach()?;
        check_name(self.dev, &observer.device().name)?;
        Ok(observer)
    }

    /// Attaches to the switch, whatever the name of its device.
    pub(crate) fn attach(&self) -> Result<SwitchObserver, SwitchError> {
        SwitchObserver::attach(&self.socket)
    }

    /// Fails unless the device has the name that was given, if any.
    pub(crate) fn check_name(&self, device: &str) -> anyhow::Result<()> {
        check_name(self.dev, device)
    }
}

/// Where a command's device is.
pub(crate) enum Devices {
    OfKernel,
    OfSwitch(Switch),
}

impl Devices {
    /// Asks the switch, if one is to be used. `option`: its socket, as given by `--service`.
    pub(crate) fn asked(option: Option<&Path>) -> anyhow::Result<Self> {
        match service(option) {
            Some(socket) => Switch::at(socket).map(Self::OfSwitch),
            None => Ok(Self::OfKernel),
        }
    }

    /// `dev`, or the only device that could serve.
    pub(crate) fn serving(self, dev: Option<&str>) -> anyhow::Result<Device> {
        match (self, dev) {
            (Self::OfSwitch(switch), _) => Device::of_switch(switch, dev),
            (Self::OfKernel, Some(dev)) => Ok(Device::Interface(dev.to_owned())),
            (Self::OfKernel, None) => only_interface().map(Device::Interface),
        }
    }
}

/// The only interface that could serve.
fn only_interface() -> anyhow::Result<String> {
    let mut names: Vec<String> = net::interfaces()?
        .into_iter()
        .filter(|interface| {
            interface.up && !interface.is_loopback() && !interface.addresses.is_empty()
        })
        .map(|interface| interface.name)
        .collect();
    match (names.pop(), names.is_empty()) {
        (Some(name), true) => Ok(name),
        (None, _) => {
            bail!("no interface is up and has an address; set one up, or name it with --dev")
        }
        (Some(name), false) => {
            names.push(name);
            bail!(
                "several interfaces are up ({}); name one with --dev",
                names.join(", ")
            )
        }
    }
}

/// Device of a command.
pub(crate) enum Device {
    /// An interface, by its name.
    Interface(String),
    OfSwitch(Switch),
}

impl Device {
    /// The device of a switch, which must have the name `dev` if that is given.
    pub(crate) fn of_switch(switch: Switch, dev: Option<&str>) -> anyhow::Result<Self> {
        check_name(dev, &switch.device.name)?;
        Ok(Self::OfSwitch(switch))
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Interface(name) => name,
            Self::OfSwitch(switch) => &switch.device.name,
        }
    }

    /// What connects an RNIC to it.
    pub(crate) fn attach(&self) -> Attach {
        match self {
            Self::Interface(_) => Attach::Direct,
            Self::OfSwitch(switch) => Attach::Service(switch.socket.clone()),
        }
    }

    /// Number of the interface, as the scope of a link-local address. A switch has no scopes.
    pub(crate) fn scope(&self) -> anyhow::Result<u32> {
        match self {
            Self::Interface(name) => Ok(net::interface_by_name(name)?.index),
            Self::OfSwitch(_) => Ok(0),
        }
    }

    /// Fails if the interface has no carrier: a client would wait for an answer in vain.
    pub(crate) fn check_carrier(&self) -> anyhow::Result<()> {
        let Self::Interface(name) = self else {
            return Ok(());
        };
        let interface = net::interface_by_name(name)?;
        ensure!(
            interface.carrier || !interface.up,
            "{name} has no carrier: connect its cable, or set its peer up"
        );
        Ok(())
    }

    /// Addresses of the host on loopback that other hosts may use, such as those that BGP announces.
    /// Packets to them arrive on another interface, and no RNIC serves them.
    pub(crate) fn addresses_on_loopback(&self) -> anyhow::Result<Vec<IpAddr>> {
        if let Self::OfSwitch(_) = self {
            return Ok(Vec::new());
        }
        let loopback = (net::interfaces()?.into_iter()).filter(net::Interface::is_loopback);
        let addresses = loopback.flat_map(|it| it.addresses);
        Ok(addresses.filter(|address| !address.is_loopback()).collect())
    }

    /// The unspecified addresses of the IP versions that the device has addresses of.
    pub(crate) fn any_addresses(&self) -> anyhow::Result<Vec<IpAddr>> {
        let addresses = match self {
            Self::Interface(name) => net::interface_by_name(name)?.addresses,
            Self::OfSwitch(switch) => switch.device.addresses.clone(),
        };
        let v4 = addresses.iter().any(IpAddr::is_ipv4);
        let v6 = addresses.iter().any(IpAddr::is_ipv6);
        let any: Vec<IpAddr> = [
            v4.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            v6.then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        ]
        .into_iter()
        .flatten()
        .collect();
        ensure!(
            !any.is_empty(),
            "{} has no IP address; give it one with `ip addr add`",
            self.name()
        );
        Ok(any)
    }
}
