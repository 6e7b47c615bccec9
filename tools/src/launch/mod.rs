//! `xwarp run`: starts an unmodified RDMA program over xwarp's libibverbs and librdmacm.
//!
//! The program replaces this process, so it receives the signals and sets the exit code.

mod bundled;
mod elf;
mod found;
mod library;
mod local;
mod obstacle;
mod transport;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;

use anyhow::{Context, bail};
use clap::Args;
use xwarp_driver::net;

use crate::device::{self, Devices, Switch};
use crate::guard;
use crate::output::{FailedWith, complain};
use bundled::Bundles;
use found::{Device, Namespace, View};
use transport::Transport;

/// Environment variable with the interfaces, for the library.
const DEVICES: &str = "XWARP_DEV";
/// Environment variable with the socket of a software switch, for the library.
const SERVICE: &str = "XWARP_SERVICE";
/// Environment variable that makes the library print the RNIC's counters when it is closed, and
/// leaked objects at exit.
const STATS: &str = "XWARP_STATS";
/// Environment variable that requests the NIC's timestamps in completions.
const TIMESTAMPS: &str = "XWARP_TIMESTAMPS";
/// Environment variable with the transport that devices report to the program.
const TRANSPORT: &str = "XWARP_TRANSPORT";
/// Environment variable with the transports that UCX may use, and those that do without datagram
/// queue pairs. Shared memory, which would carry messages within a host instead, is none of them.
const UCX_TRANSPORTS: &str = "UCX_TLS";
const UCX_WITHOUT_DATAGRAMS: &str = "rc_verbs,tcp,self";
/// Environment variable with the folders that the loader searches first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Exit codes of a program that could not be started, as in shells, env(1) and timeout(1).
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Exit codes and environment, for `--help`.
const AFTER_HELP: &str = "\
Exit code: that of the program; 127 if it is not there, 126 if it cannot be executed, 1 if it was not tried.

Environment:
  XWARP_DEV  names the interfaces, where --dev does not
  XWARP_LIB  names the folder of the library that `tools/dropin` has built, where it is not beside xwarp or in PREFIX/lib
  XWARP_LOG  makes the library log to standard error: error, warn, info, debug or trace";

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// The network interface that is the program's RDMA device; several are separated by commas.
    /// Without it the environment (`XWARP_DEV`) or /etc/xwarp/devices names them; otherwise all
    /// interfaces that are up are devices, and the program chooses
    #[arg(long)]
    dev: Option<String>,
    /// Run a software switch for the program and its children: RDMA among them, without root and
    /// without a NIC. It ends with the program
    #[arg(long, conflicts_with_all = ["dev", "fix_offloads", "service"])]
    local: bool,
    /// The socket of a software switch (`xwarp serve`), whose device the program finds
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["dev", "fix_offloads"])]
    service: Option<PathBuf>,
    #[command(flatten)]
    find: FindArgs,
    /// Switch off offloads of the named interfaces that leave frames unfinished, until the program
    /// ends, even if it is killed
    #[arg(long)]
    fix_offloads: bool,
    #[command(flatten)]
    print: PrintArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// How the program finds its devices, and what they report.
#[derive(Args)]
struct FindArgs {
    /// The transport that devices report to the program. Some programs work over
    /// InfiniBand only. `XWARP_TRANSPORT` in the environment is kept, unless this names one
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Leave `/sys/class` and `/dev` as they are. Otherwise the program has a mount namespace of
    /// its own, in which its devices are in `/sys/class/infiniband` and `/dev/infiniband`; with a
    /// switch and without the right to mount also a user namespace, in which no program gains
    /// rights, as sudo does
    #[arg(long)]
    no_sysfs: bool,
    /// Another name under which the program loads libibverbs or librdmacm, as
    /// libibverbs-1de1263b.so.1: wheels bundle them so. Those of the program's Python packages are
    /// found
    #[arg(long, value_name = "NAME", value_parser = alias, conflicts_with = "no_sysfs")]
    alias: Vec<OsString>,
    /// Report in extended completions when the NIC received them (`ibv_wc_read_completion_ts`), if
    /// its driver reports that
    #[arg(long)]
    timestamps: bool,
}

/// Output beside the program's own.
#[derive(Args)]
struct PrintArgs {
    /// Print the RNIC's counters when the program closes it; at exit whether RDMA carried anything,
    /// and the objects that were never destroyed
    #[arg(long)]
    stats: bool,
    /// Do not print which devices the program finds
    #[arg(long)]
    quiet: bool,
}

/// Returns only if the program could not be started, or has ended with its switch.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let (program, arguments) = args.command.split_first().context("no program is named")?;
    let library = library::folder()?;
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(LIBRARY_PATH, path_with(slice::from_ref(&library))?);
    let named = args.dev.clone().or_else(|| env::var(DEVICES).ok());
    if let Some(named) = &named {
        command.env(DEVICES, named);
    }
    let asked = [
        (args.print.stats, STATS),
        (args.find.timestamps, TIMESTAMPS),
    ];
    for (_, variable) in asked.into_iter().filter(|(asked, _)| *asked) {
        command.env(variable, "1");
    }
    let file = found_in_path(program);
    let bundles = Bundles::of(file.as_deref());
    let transport = transport_of(args, program, arguments, &bundles);
    let is_infiniband = transport.as_ref().is_some_and(|it| it == "ib");
    if let Some(transport) = &transport {
        command.env(TRANSPORT, transport);
    }
    if is_infiniband && bundles.have_ucx() && env::var_os(UCX_TRANSPORTS).is_none() {
        command.env(UCX_TRANSPORTS, UCX_WITHOUT_DATAGRAMS);
        if !args.print.quiet {
            complain(format_args!(
                "{UCX_TRANSPORTS}={UCX_WITHOUT_DATAGRAMS} for UCX, whose default needs datagram queue pairs"
            ));
        }
    }
    let (mut switch, mut namespace) = (None, Namespace::OfUsers);
    let devices = if args.local {
        let begun = switch.insert(local::LocalSwitch::begin()?);
        command.env(SERVICE, begun.socket());
        vec![begun.device()]
    } else {
        match Devices::asked(args.service.as_deref())? {
            Devices::OfSwitch(Switch { socket, device }) => {
                device::check_name(args.dev.as_deref(), &device.name)?;
                command.env(SERVICE, socket);
                vec![Device::of_switch(&device.name, &device.addresses)]
            }
            Devices::OfKernel => {
                namespace = Namespace::OfMounts;
                devices(named.as_deref())?
            }
        }
    };
    if !args.print.quiet {
        let is_choice = namespace == Namespace::OfMounts && named.is_none();
        complain(format_args!("{}", described(&devices, is_choice)));
    }
    if let Some(obstacle) = file.as_deref().and_then(obstacle::of) {
        complain(format_args!("{obstacle}"));
    }
    if args.fix_offloads {
        fix_offloads(named.as_deref())?;
    }
    let mut aliases = bundles.names();
    aliases.extend(args.find.alias.iter().cloned());
    let view = View {
        devices: &devices,
        is_infiniband,
        aliases: &aliases,
        library: &library.join(library::FILE),
    };
    if shows(args, &view, namespace) {
        let folders = [PathBuf::from(found::ALIASES), library];
        command.env(LIBRARY_PATH, path_with(&folders)?);
    }
    let error = match switch {
        Some(switch) => switch.run(command)?,
        None => command.exec(),
    };
    Err(why_not_started(program, &error).into())
}

/// The value of `XWARP_TRANSPORT` for the program; `None` if it has none.
fn transport_of(
    args: &RunArgs,
    program: &OsStr,
    arguments: &[OsString],
    bundles: &Bundles,
) -> Option<OsString> {
    let asked = args.find.transport;
    let set = env::var_os(TRANSPORT).filter(|_| asked == Transport::Auto);
    let chosen = || asked.of(program, arguments, || bundles.have_ucx());
    set.or_else(|| chosen().map(OsString::from))
}

/// The devices as the user is shown them. `is_choice`: the user has named none.
fn described(devices: &[Device], is_choice: bool) -> String {
    if is_choice {
        let names: Vec<&str> = devices.iter().map(|it| it.name.as_str()).collect();
        return format!(
            "no device is named, and the program may choose among: {}",
            names.join(", ")
        );
    }
    let each = devices.iter().map(|device| {
        let addresses: Vec<String> = device.addresses.iter().map(IpAddr::to_string).collect();
        format!("{} ({})", device.name, addresses.join(", "))
    });
    format!("RDMA device {}", each.collect::<Vec<_>>().join(", "))
}

/// Shows the devices in sysfs, to this process and the program. False if they are not shown.
fn shows(args: &RunArgs, view: &View<'_>, namespace: Namespace) -> bool {
    if args.find.no_sysfs {
        return false;
    }
    let shown = namespace.enter().and_then(|()| view.show());
    if let Err(error) = &shown
        && !args.print.quiet
    {
        complain(format_args!(
            "/sys/class/infiniband cannot be shown to the program: {error}. UCX, NCCL, Mooncake and wheels that bundle libibverbs will not find xwarp; --no-sysfs does without"
        ));
    }
    shown.is_ok()
}

/// A name that is to lead to the library.
fn alias(text: &str) -> Result<OsString, String> {
    let is_name = Path::new(text).file_name() == Some(OsStr::new(text));
    is_name.then(|| text.into()).ok_or_else(|| {
        format!("{text:?} is no file name: give the one that the program asks the loader for, as libibverbs-1de1263b.so.1")
    })
}

/// The program replaces this process, so the guards wait for its end.
fn fix_offloads(named: Option<&str>) -> anyhow::Result<()> {
    let named = named.context("--fix-offloads changes named interfaces: name them with --dev")?;
    let change = guard::Change {
        fix_offloads: true,
        ..guard::Change::default()
    };
    names(named).try_for_each(|dev| guard::begin(dev, change))
}

/// Interfaces in a comma-separated list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    let each = list.split(',').map(str::trim);
    each.filter(|name| !name.is_empty())
}

/// File that is executed for a program's name, as execvp(3) finds it.
fn found_in_path(program: &OsStr) -> Option<PathBuf> {
    let named = Path::new(program);
    if named.components().count() > 1 || named.is_absolute() {
        return Some(named.to_owned());
    }
    let folders = env::var_os("PATH")?;
    let mut files = env::split_paths(&folders).map(|folder| folder.join(named));
    files.find(|file| {
        let metadata = file.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    })
}

/// Search path of the loader, with these folders first.
fn path_with(first: &[PathBuf]) -> anyhow::Result<OsString> {
    let others = env::var_os(LIBRARY_PATH).unwrap_or_default();
    let others = env::split_paths(&others).filter(|path| !path.as_os_str().is_empty());
    let all = first.iter().cloned().chain(others);
    env::join_paths(all).context("the library's path cannot be in LD_LIBRARY_PATH")
}

/// The devices that the program will find.
fn devices(named: Option<&str>) -> anyhow::Result<Vec<Device>> {
    let Some(named) = named else {
        return usable();
    };
    let mut devices = Vec::new();
    for name in names(named) {
        let interface = net::interface_by_name(name)?;
        interface.check_frames()?;
        if !interface.up {
            bail!("{name} is down; set it up with `ip link set {name} up`");
        }
        if interface.addresses.is_empty() {
            bail!("{name} has no IP address; give it one with `ip addr add`");
        }
        devices.push(interface.into());
    }
    if devices.is_empty() {
        bail!("no device is named; name a network interface with --dev");
    }
    Ok(devices)
}

/// Interfaces that the library lists if none is named.
fn usable() -> anyhow::Result<Vec<Device>> {
    let usable: Vec<Device> = net::interfaces()?
        .into_iter()
        .filter(|it| it.up && it.check_frames().is_ok() && !it.addresses.is_empty())
        .map(Device::from)
        .collect();
    if usable.is_empty() {
        bail!("no interface is up and has an address; set one up, or name it with --dev");
    }
    Ok(usable)
}

fn why_not_started(program: &OsStr, error: &io::Error) -> FailedWith {
    let name = program.display();
    let is_there = found_in_path(program).is_some_and(|file| file.exists());
    match error.kind() {
        io::ErrorKind::NotFound if is_there => FailedWith {
            code: NOT_EXECUTED,
            text: format!("{name} cannot be executed: the interpreter that it names is not here"),
        },
        io::ErrorKind::NotFound => FailedWith {
            code: NOT_FOUND,
            text: format!("no program is named {name:?} here; install it, or give its path"),
        },
        io::ErrorKind::PermissionDenied => FailedWith {
            code: NOT_EXECUTED,
            text: format!("{name} may not be executed"),
        },
        _ => FailedWith {
            code: NOT_EXECUTED,
            text: format!("{name} cannot be started: {error}"),
        },
    }
}
