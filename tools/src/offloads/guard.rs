//! The guard: changes the offloads of an interface, and puts them back when the process that it guards has ended.

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
use xwarp_driver::{process_end, sleep_on};

use super::{DONE, FAILED, GUARD};
use crate::output::print_line;

/// How long the guard of a process that has ended may take to put the offloads back.
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

/// Offloads that are off, and the process that wants them off.
struct Guarded {
    interface: Interface,
    off: Vec<String>,
    end: OwnedFd,
    /// Nobody else changes the offloads of the interface for a process.
    _only: UnixDatagram,
}

impl Guarded {
    fn begin(args: &GuardArgs) -> anyhow::Result<Self> {
        let interface = net::interface_by_name(&args.dev)?;
        let end = process_end(args.process).context("cannot watch the process")?;
        let only = only_guard(&interface)?;
        let mut names = JOINING.to_vec();
        if interface.kind.as_deref() == Some("veth") {
            names.push(UNFINISHED);
        }
        let off = net::switch_offloads_off(interface.index, &names)?;
        Ok(Self {
            interface,
            off,
            end,
            _only: only,
        })
    }

    /// Waits for the end of the process, and puts the offloads back.
    fn wait(self) -> anyhow::Result<()> {
        while !sleep_on([], &[self.end.as_fd()], None)? {}
        let Interface { index, name, .. } = &self.interface;
        net::switch_offloads_on(*index, &self.off).with_context(|| {
            let off = self.off.join(" ");
            format!("{off} stay off on {name}; put them back with `ethtool -K`")
        })
    }
}

/// The right to change the offloads of an interface: an address of its network namespace that one process has at a time.
fn only_guard(interface: &Interface) -> anyhow::Result<UnixDatagram> {
    let name = format!("xwarp-offloads-{}", interface.index);
    let address = SocketAddr::from_abstract_name(name)?;
    let deadline = Instant::now() + HANDOVER_TIMEOUT;
    loop {
        match UnixDatagram::bind_addr(&address) {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error.into()),
            Err(_) if Instant::now() >= deadline => {
                bail!("another process has them fixed: end it, or do without --fix-offloads")
            }
            Err(_) => thread::sleep(HANDOVER_PAUSE),
            Ok(only) => return Ok(only),
        }
    }
}
