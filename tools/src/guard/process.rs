//! The guard: changes the offloads of an interface, and puts all settings back when the process that it guards has ended.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, bail};
use clap::Args;
use nix::unistd::{dup2_stderr, setsid};
use xwarp_driver::net::{self, Interface};
use xwarp_driver::{InterruptDeferral, process_end, sleep_on};

use super::{BUSY_POLL, Change, DONE, FAILED, FIX_OFFLOADS, GUARD};
use crate::output::print_line;

/// How long the guard of a process that has ended may take to put everything back.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);
const HANDOVER_PAUSE: Duration = Duration::from_millis(5);
/// Packets are joined before an XDP program in generic mode sees them.
const JOINING: [&str; 3] = ["rx-gro", "rx-gro-hw", "rx-lro"];
/// On a virtual link, nobody computes the checksums that this kernel's TCP leaves to the device.
const UNFINISHED: &str = "tx-checksum-ip-generic";

#[derive(Args)]
pub(crate) struct GuardArgs {
    /// The process that is guarded
    process: u32,
    /// Its network interface
    dev: String,
    #[command(flatten)]
    change: Change,
    /// This is the guard itself, not the process that starts it
    #[arg(long)]
    stays: bool,
}

/// Starts the guard, or is it. The guard is no child of the process that it guards, which may wait for all of its children.
pub(crate) fn guard(args: &GuardArgs) -> anyhow::Result<()> {
    if !args.stays {
        let own = std::env::current_exe()?;
        Command::new(own)
            .args([GUARD, "--stays", &args.process.to_string(), &args.dev])
            .args(args.change.options())
            .stdin(Stdio::null())
            .current_dir("/")
            .spawn()?;
        return Ok(());
    }
    // No signal of the terminal is for it.
    setsid()?;
    match Guarded::begin(args) {
        Ok(guarded) => {
            let_go_of_readers()?;
            print_line!("{DONE} {}", guarded.off.join(" "))?;
            guarded.wait()
        }
        Err(error) => Ok(print_line!("{FAILED} {error:#}")?),
    }
}

/// Lets go of a standard error that somebody reads to its end: that is the end of the process, not of the guard.
fn let_go_of_readers() -> io::Result<()> {
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let kind = stderr.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        let nobody = File::options().write(true).open("/dev/null")?;
        dup2_stderr(nobody)?;
    }
    Ok(())
}

/// What is changed, and the process that wants it.
struct Guarded {
    interface: Interface,
    /// Offloads that are off.
    off: Vec<String>,
    /// How interrupts were deferred before. The process itself changes that, once it knows that it can.
    deferral: Option<InterruptDeferral>,
    end: OwnedFd,
    /// Nobody else changes the interface for a process.
    _only: UnixDatagram,
}

impl Guarded {
    fn begin(args: &GuardArgs) -> anyhow::Result<Self> {
        let interface = net::interface_by_name(&args.dev)?;
        let end = process_end(args.process).context("cannot watch the process")?;
        let only = only_guard(&interface)?;
        let Change {
            fix_offloads,
            busy_poll,
        } = args.change;
        let deferral = busy_poll.then(|| InterruptDeferral::of(&interface));
        let deferral = deferral.transpose()?;
        let off = if fix_offloads {
            switch_off(&interface)?
        } else {
            Vec::new()
        };
        Ok(Self {
            interface,
            off,
            deferral,
            end,
            _only: only,
        })
    }

    /// Waits for the end of the process, and puts everything back.
    fn wait(self) -> anyhow::Result<()> {
        while !sleep_on([], &[self.end.as_fd()], None)? {}
        // Whether it could be is logged.
        drop(self.deferral);
        let Interface { index, name, .. } = &self.interface;
        net::switch_offloads_on(*index, &self.off).with_context(|| {
            let off = self.off.join(" ");
            format!("{off} stay off on {name}; put them back with `ethtool -K`")
        })
    }
}

/// Switches offloads off that leave frames unfinished; which.
fn switch_off(interface: &Interface) -> anyhow::Result<Vec<String>> {
    let mut names = JOINING.to_vec();
    if interface.kind.as_deref() == Some("veth") {
        names.push(UNFINISHED);
    }
    Ok(net::switch_offloads_off(interface.index, &names)?)
}

/// The right to change an interface for a process: an address of its network namespace that one process has at a time.
fn only_guard(interface: &Interface) -> anyhow::Result<UnixDatagram> {
    let name = format!("xwarp-guard-{}", interface.index);
    let address = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + HANDOVER_TIMEOUT;
    loop {
        match UnixDatagram::bind_addr(&address) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => {
                bail!(
                    "another process has them changed: end it, or do without {FIX_OFFLOADS} and {BUSY_POLL}"
                )
            }
            Err(_) => thread::sleep(HANDOVER_PAUSE),
            Ok(only) => return Ok(only),
        }
    }
}
