//! A Linux of its own: a process of User-Mode Linux.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::Signal;
use xwarp_system_tests::{Running, TIMEOUT};

use crate::siw::image::{Image, guest_file};
use crate::siw::lab::{GUESTS, Lab};
use crate::siw::serial::{GuestEnd, SerialLine};

/// Commands that a guest can run at once, and one line more, by which they are killed.
const COMMANDS: usize = 7;
/// Held while a guest's process starts.
static STARTING: Mutex<()> = Mutex::new(());

/// What a guest is like.
#[derive(Clone, Copy, Debug)]
pub struct GuestConfig {
    /// Whether its interface has an RDMA device, `siw0`.
    pub siw: bool,
    /// Its memory, in MiB.
    pub memory: u32,
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self {
            siw: true,
            memory: 512,
        }
    }
}

/// A running guest. It ends with the value; if that is because a test fails, its console is shown.
pub struct Guest<'a> {
    lab: &'a Lab,
    number: u8,
    peer: PathBuf,
    process: Mutex<Running>,
    /// Those that no command uses.
    lines: Mutex<Vec<SerialLine>>,
    killer: Mutex<SerialLine>,
}

impl<'a> Guest<'a> {
    /// Boots guest 1 or 2 of a lab, with siw.
    pub fn boot(lab: &'a Lab, image: &Image, number: u8) -> Self {
        Self::boot_as(lab, image, number, GuestConfig::default())
    }

    /// Boots guest 1 or 2 of a lab, and returns when it takes commands.
    pub fn boot_as(lab: &'a Lab, image: &Image, number: u8, config: GuestConfig) -> Self {
        assert!((1..=GUESTS).contains(&number), "guest {number}");
        let (mut lines, guest_ends): (Vec<SerialLine>, Vec<GuestEnd>) =
            (0..=COMMANDS).map(|_| SerialLine::new()).unzip();
        let process = start(lab, image, number, config, guest_ends);
        for line in &mut lines {
            let said = line.hear(TIMEOUT);
            assert!(
                said.as_deref() == Ok("ready"),
                "guest {number} says {said:?}\n{}",
                process.printed()
            );
        }
        Self {
            lab,
            number,
            peer: image.peer.clone(),
            process: Mutex::new(process),
            killer: Mutex::new(lines.remove(0)),
            lines: Mutex::new(lines),
        }
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 78, 0, self.number))
    }

    /// Its address of IPv6.
    pub fn address_6(&self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, self.number.into()))
    }

    /// Its address with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address(), port)
    }

    /// The peer program's file.
    pub(crate) fn peer_file(&self) -> &Path {
        &self.peer
    }

    /// A directory of this machine's that the guest has at `/mnt` and can write.
    pub fn share(&self) -> PathBuf {
        share(self.lab, self.number)
    }

    /// All that its kernel has said.
    pub fn console(&self) -> String {
        let said = self.process().printed();
        format!("console of guest {}:\n{said}", self.number)
    }

    /// Stops it where it is, as a host is that has lost its power: nothing of it moves until
    /// [`Guest::go_on`].
    pub fn stand_still(&self) {
        self.process().signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.process().signal(Signal::SIGCONT);
    }

    fn process(&self) -> MutexGuard<'_, Running> {
        // Asked for by a test that fails, too.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for one more command.
    pub(crate) fn take_line(&self) -> SerialLine {
        let line = self.lines.lock().expect("no panic").pop();
        line.unwrap_or_else(|| panic!("a guest runs {COMMANDS} commands at once"))
    }

    pub(crate) fn give_back(&self, line: SerialLine) {
        self.lines.lock().expect("no panic").push(line);
    }

    /// Kills a process group.
    pub(crate) fn kill(&self, group: &str) {
        // Also by a test that fails.
        if let Ok(mut line) = self.killer.lock() {
            line.say(&format!("kill -9 -{group}"));
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.console());
        }
    }
}

fn share(lab: &Lab, number: u8) -> PathBuf {
    lab.work.file(&format!("guest{number}"))
}

/// A guest's process, which alone has the far ends of the lines.
fn start(
    lab: &Lab,
    image: &Image,
    number: u8,
    config: GuestConfig,
    ends: Vec<GuestEnd>,
) -> Running {
    // A guest that is started meanwhile would inherit them, too, and keep them open.
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    let descriptors: Vec<RawFd> = ends.iter().map(GuestEnd::bequeath).collect();
    let command = command_line(lab, image, number, config, &descriptors);
    let process = Running::start_reading(command, lab.network_card(number));
    drop(ends);
    process
}

/// The command that boots a guest: what guest/init is to know is in the environment, which is the
/// kernel's command line.
fn command_line(
    lab: &Lab,
    image: &Image,
    number: u8,
    config: GuestConfig,
    lines: &[RawFd],
) -> Command {
    let share = share(lab, number);
    std::fs::create_dir(&share).expect("our own directory");
    let work = share.parent().expect("the lab's directory");
    let mut words = format!(
        "umid=uml{number} uml_dir={work} mem={memory}M quiet \
         root=/dev/root rootfstype=hostfs rootflags=/ ro init={init} \
         con=null con0=null,fd:1 ssl=null vec0:transport=fd,fd=0,gro=0,mtu={mtu},mac=52:54:00:78:00:0{number} \
         GUEST_ADDRESSES=10.78.0.{number}/24,fd78::{number}/64 GUEST_MTU={mtu} GUEST_SIW={siw} \
         GUEST_LINES={count} GUEST_SHARE={share}",
        work = work.display(),
        memory = config.memory,
        init = guest_file("init").display(),
        mtu = lab.mtus().guests,
        siw = if config.siw { "yes" } else { "no" },
        count = lines.len(),
        share = share.display(),
    );
    for (line, descriptor) in lines.iter().enumerate() {
        write!(words, " ssl{line}=fd:{descriptor}").expect("memory");
    }
    let mut command = lab.switch().command(&image.kernel);
    command.args(words.split(' ').filter(|word| !word.is_empty()));
    command
}
