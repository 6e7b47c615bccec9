//! Device of a command: an interface, or the device of the software switch that `XWARP_SERVICE`
//! names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use anyhow::{bail, ensure};
use xwarp::config::Attach;
use xwarp_driver::net;
use xwarp_driver::switch::SwitchDevice;

/// The device of the switch, if the environment names one. The switch is asked once.
pub(crate) fn of_switch() -> anyhow::Result<Option<&'static SwitchDevice>> {
    static ASKED: OnceLock<SwitchDevice> = OnceLock::new();
    let Some(path) = Attach::Auto.service() else {
        return Ok(None);
    };
    if ASKED.get().is_none() {
        let _the_same = ASKED.set(SwitchDevice::at(&path)?);
    }
    Ok(ASKED.get())
}

/// The name of the switch's device, which `dev` must be if it is given.
pub(crate) fn named_of_switch(dev: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(device) = of_switch()? else {
        return Ok(None);
    };
    let name = &device.name;
    if let Some(dev) = dev {
        ensure!(
            dev == name,
            "the switch has the device {name}, and not {dev}: leave out --dev, or unset XWARP_SERVICE"
        );
    }
    Ok(Some(name.clone()))
}

/// `dev`, or the only interface that could serve.
pub(crate) fn serving(dev: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = named_of_switch(dev)? {
        return Ok(name);
    }
    if let Some(dev) = dev {
        return Ok(dev.to_owned());
    }
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

/// Fails if the interface has no carrier: a client would wait for an answer in vain.
pub(crate) fn check_carrier(device: &str) -> anyhow::Result<()> {
    if of_switch()?.is_some() {
        return Ok(());
    }
    let interface = net::interface_by_name(device)?;
    ensure!(
        interface.carrier || !interface.up,
        "{device} has no carrier: connect its cable, or set its peer up"
    );
    Ok(())
}

/// Addresses of the host on loopback that other hosts may use, such as those that BGP announces.
/// Packets to them arrive on another interface, and no RNIC serves them.
pub(crate) fn addresses_on_loopback() -> anyhow::Result<Vec<IpAddr>> {
    if of_switch()?.is_some() {
        return Ok(Vec::new());
    }
    let loopback = (net::interfaces()?.into_iter()).filter(net::Interface::is_loopback);
    let addresses = loopback.flat_map(|it| it.addresses);
    Ok(addresses.filter(|address| !address.is_loopback()).collect())
}

/// The unspecified addresses of the IP versions that the interface has addresses of.
pub(crate) fn any_addresses(device: &str) -> anyhow::Result<Vec<IpAddr>> {
    let addresses = match of_switch()? {
        Some(device) => device.addresses.clone(),
        None => net::interface_by_name(device)?.addresses,
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
        "{device} has no IP address; give it one with `ip addr add`"
    );
    Ok(any)
}
