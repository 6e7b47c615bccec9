//! Guard process: changes the offloads of an interface, and restores all settings when the guarded
//! process has ended.

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

/// Time limit for the guard of an ended process to restore everything.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);
const HANDOVER_PAUSE: Duration = Duration::from_millis(5);
/// Offloads that join packets before an XDP program in generic mode sees them.
const JOINING: [&str; 3] = ["rx-gro", "rx-gro-hw", "rx-lro"];
/// Offload by which this kernel's TCP leaves checksums to the device; on a virtual link they stay
/// uncomputed.
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

/// Starts the guard, or runs it. The guard is no child of the guarded process, which may wait for
/// all of its children.
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
    // No signal of the terminal is meant for it.
    setsid()?;
    match Guarded::begin(args) {
        Ok(guarded) => {
            close_piped_stderr()?;
            print_line!("{DONE} {}", guarded.off.join(" "))?;
            guarded.wait()
        }
        Err(error) => Ok(print_line!("{FAILED} {error:#}")?),
    }
}

/// Closes a standard error that is a pipe: its reader waits for the end of the guarded process, not
/// of the guard.
fn close_piped_stderr() -> io::Result<()> {
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let kind = stderr.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        let null = File::options().write(true).open("/dev/null")?;
        dup2_stderr(null)?;
    }
    Ok(())
}

/// The changes, and the process that requested them.
struct Guarded {
    interface: Interface,
    /// Offloads that the guard has switched off.
    off: Vec<String>,
    /// Former deferral of interrupts. The process itself changes it once it knows that polling
    /// works.
    deferral: Option<InterruptDeferral>,
    end: OwnedFd,
    /// Excludes other guards of the interface.
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

    /// Waits for the end of the process, and restores all settings.
    fn wait(self) -> anyhow::Result<()> {
        while !sleep_on([], &[self.end.as_fd()], None)? {}
        // Failures are logged.
        drop(self.deferral);
        let Interface { index, name, .. } = &self.interface;
        net::switch_offloads_on(*index, &self.off).with_context(|| {
            let off = self.off.join(" ");
            format!("{off} stay off on {name}; restore them with `ethtool -K`")
        })
    }
}

/// Switches off offloads that leave frames unfinished, and returns their names.
fn switch_off(interface: &Interface) -> anyhow::Result<Vec<String>> {
    let mut names = JOINING.to_vec();
    if interface.kind.as_deref() == Some("veth") {
        names.push(UNFINISHED);
    }
    Ok(net::switch_offloads_off(interface.index, &names)?)
}

/// The right to change an interface: an address of its network namespace that one process has at a
/// time.
fn only_guard(interface: &Interface) -> anyhow::Result<UnixDatagram> {
    let name = format!("xwarp-guard-{}", interface.index);
    let address = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + HANDOVER_TIMEOUT;
    loop {
        match UnixDatagram::bind_addr(&address) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => {
                bail!(
                    "another process has changed them: end it, or do without {FIX_OFFLOADS} and {BUSY_POLL}"
                )
            }
            Err(_) => thread::sleep(HANDOVER_PAUSE),
            Ok(only) => return Ok(only),
        }
    }
}
