//! Host on the command line: an IP address, with the interface where it needs one (`fe80::1%eth1`),
//! and with a port as a server prints it.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use xwarp_driver::net;

use crate::device::{Device, Devices};
use crate::size::parse_port;

/// Another host's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    address: IpAddr,
    /// The interface behind the `%`, by name or number (RFC 4007 §11).
    zone: Option<String>,
    /// The port behind the address.
    port: Option<u16>,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = with_port(text)?;
        let (address, zone) = match host.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (host, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            format!("{text:?} is no IP address; write for example 10.0.0.2 or fe80::1%eth1")
        })?;
        match zone {
            Some("") => Err("the interface's name is missing behind the %".to_owned()),
            Some(_) if !is_link_local(address) => Err(format!(
                "{address} is no link-local IPv6 address, and only those have an interface; leave out the % and what follows"
            )),
            zone => Ok(Self {
                address,
                zone: zone.map(str::to_owned),
                port,
            }),
        }
    }
}

/// Splits `10.0.0.2:7174` and `[fe80::1%eth1]:7174`.
fn with_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let number = |port: &str| parse_port(port).map(Some);
    if let Some(bracketed) = text.strip_prefix('[') {
        let wrong = || format!("{text:?} is no address; write for example [fe80::1%eth1]:7174");
        let (host, rest) = bracketed.split_once(']').ok_or_else(wrong)?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, number(port)?)),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(wrong()),
        };
    }
    match text.split_once(':') {
        // More colons are part of an IPv6 address.
        Some((host, port)) if !port.contains(':') => Ok((host, number(port)?)),
        _ => Ok((text, None)),
    }
}

/// An address as people write it: the interface of a link-local one by its name.
pub(crate) fn named(address: SocketAddr) -> String {
    let SocketAddr::V6(v6) = address else {
        return address.to_string();
    };
    let interfaces = net::interfaces().unwrap_or_default();
    let zone = interfaces.iter().find(|it| it.index == v6.scope_id());
    match zone {
        Some(zone) => format!("[{}%{}]:{}", v6.ip(), zone.name, v6.port()),
        None => address.to_string(),
    }
}

impl Host {
    /// Port of the server: the one behind the address, or that of `--port`, which is `default`
    /// unless given.
    pub(crate) fn port_or(&self, option: u16, default: u16) -> anyhow::Result<u16> {
        match self.port {
            Some(port) if option != default && option != port => {
                bail!("--port {option} and {self}:{port} name two ports; name one")
            }
            port => Ok(port.unwrap_or(option)),
        }
    }

    /// Device to open for a port of the host: that of the switch, `dev`, the one behind the %, or
    /// that of the route.
    pub(crate) fn device(
        &self,
        devices: Devices,
        dev: Option<&str>,
        port: u16,
    ) -> anyhow::Result<Device> {
        match devices {
            Devices::OfSwitch(switch) => Device::of_switch(switch, dev),
            Devices::OfKernel => self.interface(dev, port).map(Device::Interface),
        }
    }

    fn interface(&self, dev: Option<&str>, port: u16) -> anyhow::Result<String> {
        match (dev, self.zone()?) {
            (Some(dev), Some(zone)) if dev != zone => {
                bail!("--dev {dev} and {self} name two interfaces; name one")
            }
            (Some(dev), _) => Ok(dev.to_owned()),
            (None, Some(zone)) => Ok(zone),
            (None, None) => self.interface_by_route(port),
        }
    }

    /// Name of the interface behind the %.
    fn zone(&self) -> anyhow::Result<Option<String>> {
        let Some(zone) = &self.zone else {
            return Ok(None);
        };
        let Ok(number) = zone.parse::<u32>() else {
            return Ok(Some(zone.clone()));
        };
        let interface = net::interfaces()?
            .into_iter()
            .find(|interface| interface.index == number);
        let interface = interface
            .with_context(|| format!("there is no interface number {number}; see `ip link`"))?;
        Ok(Some(interface.name))
    }

    fn interface_by_route(&self, port: u16) -> anyhow::Result<String> {
        let interfaces = net::interfaces()?;
        if is_link_local(self.address) {
            let able = interfaces
                .iter()
                .filter(|interface| interface.up && !interface.is_loopback());
            let able: Vec<&str> = able.map(|interface| interface.name.as_str()).collect();
            ensure!(
                able.len() < 2,
                "{self} may be on any of several interfaces ({}); write for example {self}%{}",
                able.join(", "),
                able[0]
            );
        }
        let route = net::route_to(SocketAddr::new(self.address, port), None)?;
        let interface = interfaces
            .into_iter()
            .find(|interface| interface.index == route.interface_index);
        let interface =
            interface.with_context(|| format!("the interface that leads to {self} has gone"))?;
        Ok(interface.name)
    }

    /// A port of the host, as seen from a device.
    pub(crate) fn port(&self, port: u16, device: &Device) -> anyhow::Result<SocketAddr> {
        ensure!(
            port != 0,
            "--port 0 is no server's port; give the port that the server has printed"
        );
        let IpAddr::V6(v6) = self.address else {
            return Ok(SocketAddr::new(self.address, port));
        };
        let zone = if is_link_local(self.address) {
            device.scope()?
        } else {
            0
        };
        Ok(SocketAddrV6::new(v6, port, 0, zone).into())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.zone {
            Some(zone) => write!(f, "{}%{zone}", self.address),
            None => write!(f, "{}", self.address),
        }
    }
}

/// True if the address has a meaning only together with an interface (RFC 4291 §2.5.6).
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_address_may_name_its_interface() {
        let host: Host = "fe80::1%eth1".parse().unwrap();
        assert_eq!(host.interface(None, 7).unwrap(), "eth1");
        assert_eq!(host.interface(Some("eth1"), 7).unwrap(), "eth1");
        let error = host.interface(Some("eth2"), 7).unwrap_err().to_string();
        assert!(error.contains("--dev eth2 and fe80::1%eth1"), "{error}");
    }

    #[test]
    fn other_addresses_have_no_interface() {
        for (text, words) in [
            ("10.0.0.1%eth1", "10.0.0.1 is no link-local"),
            ("fd00::1%eth1", "fd00::1 is no link-local"),
            ("fe80::1%", "the interface's name is missing"),
            ("%eth1", "is no IP address"),
            ("host.example", "is no IP address"),
        ] {
            let error = text.parse::<Host>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["10.0.0.1", "fd00::1", "fe80::1"] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn address_is_taken_as_a_server_prints_it() {
        for (text, shown, port) in [
            ("10.0.0.1:7174", "10.0.0.1", 7174),
            ("[fe80::1%eth1]:7174", "fe80::1%eth1", 7174),
            ("[fd00::1]:5", "fd00::1", 5),
            ("[fd00::1]", "fd00::1", 18515),
            ("fd00::1", "fd00::1", 18515),
        ] {
            let host: Host = text.parse().unwrap();
            assert_eq!(host.to_string(), shown);
            assert_eq!(host.port_or(18515, 18515).unwrap(), port, "{text}");
        }
        let host: Host = "10.0.0.1:7".parse().unwrap();
        assert_eq!(host.port_or(7, 18515).unwrap(), 7);
        let error = host.port_or(8, 18515).unwrap_err().to_string();
        assert!(
            error.contains("--port 8 and 10.0.0.1:7 name two"),
            "{error}"
        );
        for wrong in ["10.0.0.1:ssh", "10.0.0.1:", "[fd00::1", "[fd00::1]7"] {
            assert!(wrong.parse::<Host>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn address_names_its_interface() {
        let loopback = SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 1);
        assert_eq!(named(loopback.into()), "[fe80::1%lo]:7");
        for text in ["[fd00::1]:7", "10.0.0.1:7", "[fe80::1%999999]:7"] {
            assert_eq!(named(text.parse().unwrap()), text);
        }
    }

    #[test]
    fn port_of_zero_is_no_servers() {
        let host: Host = "10.0.0.1".parse().unwrap();
        let device = Device::Interface("eth1".to_owned());
        assert!(host.port(0, &device).is_err());
        assert_eq!(host.port(7, &device).unwrap().to_string(), "10.0.0.1:7");
    }
}
