//! Launch of an unmodified RDMA program over xwarp's libibverbs and librdmacm: `xwarp run`.
//!
//! The program takes this process's place, so signals and the exit code are its own.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use xwarp_driver::net;

use crate::guard;
use crate::output::complain;

/// Names the interfaces to the library.
const DEVICES: &str = "XWARP_DEV";
/// Has the library print what the RNIC has counted, when it is closed, and what is left at the exit.
const STATS: &str = "XWARP_STATS";
/// Asks the library for the NIC's times in completions.
const TIMESTAMPS: &str = "XWARP_TIMESTAMPS";
/// Where the loader looks for libraries first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// The library, and one of the names that programs ask for it by.
const FILES: [&str; 2] = ["libxwarp-rdma.so.1", "librdmacm.so.1"];
/// Where the library may be, as seen from the folder of this command.
const PLACES: [&str; 4] = [".", "dropin", "../dropin", "../lib/xwarp"];

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The network interface that is the program's RDMA device; several are separated by commas. Without it the
    /// environment (`XWARP_DEV`) or /etc/xwarp/devices names some; else all that are up are devices, and the program chooses
    #[arg(long)]
    dev: Option<String>,
    /// Switch offloads of the named interfaces off that leave frames unfinished, until the program ends, however it does
    #[arg(long)]
    fix_offloads: bool,
    /// Print what the RNIC has counted when the program closes it, and at the exit which objects were never destroyed
    #[arg(long)]
    stats: bool,
    /// Have completions of the later kind tell when the NIC received them (`ibv_wc_read_completion_ts`), where its driver tells that
    #[arg(long)]
    timestamps: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Returns only if the program could not be started.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let (program, arguments) = args.command.split_first().context("no program is named")?;
    let library = library()?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(LIBRARY_PATH, path_with(&library)?);
    let named = args.dev.clone().or_else(|| env::var(DEVICES).ok());
    if let Some(named) = &named {
        command.env(DEVICES, named);
    }
    let asked = [(args.stats, STATS), (args.timestamps, TIMESTAMPS)];
    for (_, variable) in asked.into_iter().filter(|(asked, _)| *asked) {
        command.env(variable, "1");
    }
    complain(format_args!("{}", devices(named.as_deref())?));
    if args.fix_offloads {
        fix_offloads(named.as_deref())?;
    }
    Err(why_not_started(program, &command.exec()))
}

/// The program takes this process's place, so that the guards wait for its end.
fn fix_offloads(named: Option<&str>) -> anyhow::Result<()> {
    let named = named.context("--fix-offloads changes named interfaces: name them with --dev")?;
    let change = guard::Change {
        fix_offloads: true,
        ..guard::Change::default()
    };
    names(named).try_for_each(|dev| guard::begin(dev, change))
}

/// The interfaces in a list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let each = list.split(',').map(str::trim);
    each.filter(|name| !name.is_empty())
}

/// The folder of the library.
fn library() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find out where xwarp is")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let folders = PLACES.map(|place| beside.join(place));
    let has_it = |folder: &&PathBuf| FILES.iter().all(|file| folder.join(file).exists());
    match folders.iter().find(has_it) {
        Some(folder) => Ok(folder.canonicalize()?),
        None => bail!(
            "the library for unmodified programs is not built; `tools/dropin` builds it into {}",
            folders[2].display()
        ),
    }
}

/// Where the loader is to look: for the library first.
fn path_with(library: &Path) -> anyhow::Result<OsString> {
    let others = env::var_os(LIBRARY_PATH).unwrap_or_default();
    let others = env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    let all = [library.to_owned()].into_iter().chain(others);
    env::join_paths(all).context("the library's path cannot be in LD_LIBRARY_PATH")
}

/// Which devices the program will find.
fn devices(named: Option<&str>) -> anyhow::Result<String> {
    let Some(named) = named else {
        return Ok(format!(
            "no device is named, and the program may choose among: {}",
            usable()?.join(", ")
        ));
    };
    let mut told = Vec::new();
    for name in names(named) {
        let interface = net::interface_by_name(name)?;
        if !interface.up {
            bail!("{name} is down; set it up with `ip link set {name} up`");
        }
        let addresses: Vec<String> = interface.addresses.iter().map(IpAddr::to_string).collect();
        if addresses.is_empty() {
            bail!("{name} has no IP address; give it one with `ip addr add`");
        }
        told.push(format!("{name} ({})", addresses.join(", ")));
    }
    if told.is_empty() {
        bail!("no device is named; name a network interface with --dev");
    }
    Ok(format!("RDMA device {}", told.join(", ")))
}

/// Interfaces that the library lists where none is named.
fn usable() -> anyhow::Result<Vec<String>> {
    let usable: Vec<String> = net::interfaces()?
        .into_iter()
        .filter(|it| it.up && !it.is_loopback() && !it.addresses.is_empty())
        .map(|it| it.name)
        .collect();
    if usable.is_empty() {
        bail!("no interface is up and has an address; set one up, or name it with --dev");
    }
    Ok(usable)
}

fn why_not_started(program: &OsStr, error: &io::Error) -> anyhow::Error {
    let program = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            anyhow!("no program is named {program:?} here; install it, or give its path")
        }
        io::ErrorKind::PermissionDenied => anyhow!("{program} may not be executed"),
        _ => anyhow!("{program} cannot be started: {error}"),
    }
}
