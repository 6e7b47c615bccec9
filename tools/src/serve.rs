//! `xwarp serve`: a software switch, by which programs of this host have RDMA among themselves. It
//! needs no right, no interface and no kernel module.

use std::fs::{self, DirBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::geteuid;
use xwarp_driver::net;
use xwarp_driver::switch::{Server, ServerConfig};

use crate::output::print_line;
use crate::signals::Interrupted;

/// Names that a device may have, as an interface: so that programs take it for one.
const NAME_MAX: usize = 15;

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Name of the switch's device, which programs see; no interface is used
    #[arg(long, value_name = "NAME", value_parser = device_name, required = true)]
    local: String,
    /// An address of the device; those of loopback and all of this host's, unless named
    #[arg(long, value_parser = device_address)]
    address: Vec<IpAddr>,
    /// Where programs attach; NAME.sock in the folder xwarp of `XDG_RUNTIME_DIR`, unless named
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Permissions of the socket, in octal digits: all who may write to it may attach
    #[arg(long, default_value = "600", value_parser = parse_mode)]
    mode: u32,
    /// All frames go by the switch, also between programs that may trace each other
    #[arg(long)]
    no_pairs: bool,
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("{text:?} are no permissions; write for example 660"))
}

fn device_name(text: &str) -> Result<String, String> {
    let fits = (1..=NAME_MAX).contains(&text.len());
    let plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    if fits && text.chars().all(plain) && !text.starts_with('.') {
        return Ok(text.to_owned());
    }
    Err(format!(
        "a device's name has 1 to {NAME_MAX} letters, digits, hyphens, dots and underscores"
    ))
}

/// An address that programs can bind and connect to.
fn device_address(text: &str) -> Result<IpAddr, String> {
    let wrong = || format!("{text:?} is no IP address; write for example 127.0.0.1 or fd00::1");
    let address: IpAddr = text.parse().map_err(|_| wrong())?;
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(format!(
            "{address} is the address of no single host; name a unicast one"
        ));
    }
    Ok(address)
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let interrupted = Interrupted::watch()?;
    let socket = match &args.socket {
        Some(socket) => socket.clone(),
        None => folder()?.join(format!("{}.sock", args.local)),
    };
    let addresses = if args.address.is_empty() {
        own_addresses()?
    } else {
        args.address.clone()
    };
    raise_limit()?;
    let config = ServerConfig::new(&args.local, addresses.clone());
    let config = config.mode(args.mode).pairs(!args.no_pairs);
    let mut server = begin(&socket, config)?;
    let listed: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    print_line!("RDMA device {} ({})", args.local, listed.join(", "))?;
    print_line!(
        "programs find it by XWARP_SERVICE={}, until Ctrl-C",
        socket.display()
    )?;
    server.run(interrupted.as_fd())?;
    interrupted.check()?;
    Ok(())
}

/// A switch that listens.
pub(crate) fn begin(socket: &Path, config: ServerConfig) -> anyhow::Result<Server> {
    Ok(Server::bind(socket, config)?)
}

/// Each program that attaches takes descriptors of this process, which may have as many as it can.
fn raise_limit() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(())
}

/// The addresses by which programs of this host know it.
pub(crate) fn own_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let mut addresses = vec![
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    for interface in net::interfaces()? {
        let usable = interface.addresses.into_iter().filter(|_| interface.up);
        addresses.extend(usable.filter(|it| !it.is_loopback()));
    }
    Ok(addresses)
}

/// The user's own folder of sockets.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty());
    let uid = geteuid();
    let folder = match own {
        Some(own) => PathBuf::from(own).join("xwarp"),
        None => std::env::temp_dir().join(format!("xwarp-{uid}")),
    };
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    made.with_context(|| {
        format!(
            "cannot make {}; name a path with --socket",
            folder.display()
        )
    })?;
    // In a folder that all may write to, another user could have made it.
    let found = fs::symlink_metadata(&folder)?;
    ensure!(
        found.is_dir() && found.uid() == uid.as_raw() && found.mode() & 0o022 == 0,
        "{} is another user's, or others may write to it; name a path with --socket",
        folder.display()
    );
    Ok(folder)
}
