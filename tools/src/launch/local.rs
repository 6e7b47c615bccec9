//! Switch of one program and its children (`xwarp run --local`).

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xwarp_driver::sleep_on;
use xwarp_driver::switch::{Server, ServerConfig};

use super::found::Device;
use crate::interruption::Interruption;
use crate::serve;
use crate::signals::Interrupted;

/// Name of the device.
const NAME: &str = "xwarp0";
/// How long programs may still have their connections after the first one has ended.
const GRACE: Duration = Duration::from_secs(1);
/// Of the names of sockets, before the number of the process.
const PREFIX: &str = "run-";

/// A switch that listens, and no program yet.
pub(super) struct LocalSwitch {
    server: Server,
    socket: PathBuf,
    addresses: Vec<IpAddr>,
}

impl LocalSwitch {
    pub(super) fn begin() -> anyhow::Result<Self> {
        let folder = serve::folder()?;
        remove_stale(&folder);
        let socket = folder.join(format!("{PREFIX}{}.sock", std::process::id()));
        let addresses = serve::own_addresses()?;
        let server = serve::begin(&socket, ServerConfig::new(NAME, addresses.clone()))?;
        Ok(Self {
            server,
            socket,
            addresses,
        })
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn device(&self) -> Device {
        Device::of_switch(NAME, &self.addresses)
    }

    /// Starts the program, carries frames until it has ended, and ends this process as the program
    /// has. Returns the kernel's error if the program cannot be started.
    pub(super) fn run(mut self, mut command: Command) -> anyhow::Result<io::Error> {
        // The program has the signals of this process, which are not blocked yet.
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(error),
        };
        let interrupted = Interrupted::watch()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let (ended, end) = UnixStream::pair().context("the program cannot be waited for")?;
        let waits = std::thread::spawn(move || {
            let status = child.wait();
            drop(end);
            status
        });
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(&interrupted, &ended, pid));
            self.server.run(ended.as_fd())
        })?;
        drop(ended);
        let status = waits.join().map_err(|_| io::ErrorKind::Other);
        let status = status.map_err(io::Error::from).flatten()?;
        self.server.drain(GRACE)?;
        drop(self);
        std::process::exit(exit_code(status));
    }
}

/// Ends the program by SIGTERM if this process is. A terminal sends SIGINT to both.
fn pass_on(interrupted: &Interrupted, ended: &UnixStream, program: Pid) {
    let asked = sleep_on([ended.as_fd()], &[interrupted.as_fd()], None);
    let by_term =
        matches!(interrupted.check(), Err(asked) if asked.signal == Signal::SIGTERM as i32);
    if !matches!(asked, Ok(true)) || !by_term {
        return;
    }
    if let Err(errno) = kill(program, Signal::SIGTERM) {
        log::debug!("the program has ended: {errno}");
    }
}

/// As shells have it.
fn exit_code(status: ExitStatus) -> i32 {
    let by_signal = status
        .signal()
        .map(|signal| Interruption { signal }.exit_code());
    status.code().or(by_signal.map(i32::from)).unwrap_or(1)
}

/// Removes sockets of runs that were killed.
fn remove_stale(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|it| it.strip_prefix(PREFIX)?.strip_suffix(".sock"));
        let Some(pid) = pid.and_then(|it| it.parse().ok()) else {
            continue;
        };
        if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
            let _gone = fs::remove_file(entry.path());
        }
    }
}
