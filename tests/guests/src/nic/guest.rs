//! A guest and its two cards.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use xwarp_system_tests::{Exclusive, Finished, PATIENCE, Running, WorkDir, eventually_within};

use crate::nic::image::{Image, guest_file};

/// One guest at a time: it has all processors.
const LOCK: &str = "/run/xwarp-nic-tests.lock";
/// The longest that a command in a guest may take, which is seconds on an idle machine. On one with
/// much other work it has been a minute.
pub const LIMIT: Duration = Duration::from_mins(15);
/// How much longer programs of tests wait there for what takes milliseconds on an idle machine: 5
/// minutes.
const GUESTS_PATIENCE: u32 = 15;

/// Waits until `condition` holds, which asks a guest, and fails the test if it does not within
/// [`LIMIT`].
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        eventually_within(LIMIT, condition),
        "not within {LIMIT:?}: {what}"
    );
}

/// The kind of both cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// Intel's 82576, by the driver igb.
    Igb,
    /// virtio's, by the driver `virtio_net`.
    Virtio,
}

impl Card {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Igb, Self::Virtio];

    fn name(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::Virtio => "virtio",
        }
    }
}

/// An end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest.
    A,
    /// A network namespace in it.
    B,
}

impl End {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The interface of its card.
    pub fn dev(self) -> &'static str {
        match self {
            Self::A => "eth0",
            Self::B => "eth1",
        }
    }

    /// Its address.
    pub fn address(self) -> &'static str {
        match self {
            Self::A => "10.9.0.1",
            Self::B => "10.9.0.2",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// A running guest. It ends with the value.
pub struct Guest {
    state: WorkDir,
    /// Released last.
    _lock: Exclusive,
}

impl Guest {
    /// Boots a guest with two such cards of `queues` queues each.
    pub fn boot(image: &Image, card: Card, queues: usize) -> Self {
        let guest = Self::boot_on(image, card, "bridge");
        guest.set_queues(queues);
        guest
    }

    /// Boots a guest whose cards have one queue each, and a cable on which frames can be
    /// [held](Self::hold).
    pub fn boot_relayed(image: &Image, card: Card) -> Self {
        let guest = Self::boot_on(image, card, "relay");
        guest.set_queues(1);
        guest
    }

    fn boot_on(image: &Image, card: Card, cable: &str) -> Self {
        let lock = Exclusive::wait_for(LOCK);
        let state = WorkDir::new("nic");
        let guest = Self { state, _lock: lock };
        let mut up = lab("up");
        up.arg(&image.0).arg(card.name());
        up.arg(guest.directory()).arg(cable);
        Running::start(up).limited_to(LIMIT).finish().succeeded();
        guest
    }

    fn directory(&self) -> PathBuf {
        self.state.file("lab")
    }

    /// Gives both cards `queues` queues, and waits until they have a link.
    pub fn set_queues(&self, queues: usize) {
        for end in End::BOTH {
            let dev = end.dev();
            // It complains if there are as many already.
            self.run(end, &format!("ethtool -L {dev} combined {queues} || true"));
        }
        self.await_link();
    }

    /// Waits until both cards have a link. The drivers take theirs down for a second when they
    /// begin anew.
    pub fn await_link(&self) {
        for end in End::BOTH {
            let carrier = format!("cat /sys/class/net/{}/carrier", end.dev());
            eventually("both cards have a link", || {
                let told = self.start(end, &carrier).finish();
                told.succeeds() && told.stdout.trim() == "1"
            });
        }
    }

    /// Runs a shell command at an end, which must succeed; what it printed.
    pub fn run(&self, end: End, command: &str) -> String {
        self.start(end, command).finish().succeeded().stdout
    }

    /// Begins to run a shell command at an end.
    pub fn start(&self, end: End, command: &str) -> Running {
        let mut exec = lab("exec");
        exec.args(["--timeout", &LIMIT.as_secs().to_string()]);
        exec.arg(self.directory()).arg(end.name()).arg(command);
        Running::start(exec).limited_to(LIMIT)
    }

    /// Begins a program that was built with this test.
    pub fn program(&self, end: End, name: &str, arguments: &str) -> Running {
        let program = format!("{} {arguments}", built(name).display());
        self.start(end, &format!("{PATIENCE}={GUESTS_PATIENCE} exec {program}"))
    }

    /// Runs a program that was built with this test to its end.
    pub fn run_program(&self, end: End, name: &str, arguments: &str) -> Finished {
        self.program(end, name, arguments).finish()
    }

    /// Runs tests of the network namespaces' test program in the guest, one at a time.
    pub fn run_netns_tests(&self, tests: &str) -> Finished {
        let program = newest_netns_tests();
        let run = format!("{} {tests} --test-threads=1", program.display());
        let run = format!("{PATIENCE}={GUESTS_PATIENCE} XWARP_ROOT=required exec {run}");
        self.start(End::A, &run).finish()
    }

    /// Pulls the cable at an end, or puts it back.
    pub fn set_link(&self, end: End, up: bool) {
        self.change("link", end, Some(if up { "up" } else { "down" }));
    }

    /// Has the cable take nothing more from an end, whose link stays up.
    pub fn hold(&self, end: End) {
        self.change("hold", end, None);
    }

    /// Has the cable take from an end again what it sends.
    pub fn release(&self, end: End) {
        self.change("release", end, None);
    }

    /// Takes the card of an end out.
    pub fn unplug(&self, end: End) {
        self.change("unplug", end, None);
    }

    fn change(&self, what: &str, end: End, how: Option<&str>) {
        let mut command = lab(what);
        command.arg(self.directory()).arg(end.name()).args(how);
        Running::start(command)
            .limited_to(LIMIT)
            .finish()
            .succeeded();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut down = lab("down");
        down.arg(self.directory());
        let ended = Running::start(down).limited_to(LIMIT).finish();
        if !std::thread::panicking() {
            ended.succeeded();
        }
    }
}

/// A command of the script.
fn lab(command: &str) -> Command {
    let mut lab = Command::new(guest_file("lab"));
    lab.arg(command);
    lab
}

/// Where cargo puts programs of the profile of this test.
fn profile() -> PathBuf {
    let test = std::env::current_exe().expect("the test program's path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps");
    profile.to_path_buf()
}

/// A program that was built in the same profile as this test.
fn built(name: &str) -> PathBuf {
    let program = profile().join(name);
    assert!(program.exists(), "{name} is not built; run tools/nic");
    program
}

/// The newest test program `netns` of `tests/system`: cargo leaves older ones beside it.
fn newest_netns_tests() -> PathBuf {
    let files = std::fs::read_dir(profile().join("deps")).expect("target/PROFILE/deps");
    let programs = files.map(|file| file.expect("a file").path()).filter(|it| {
        let name = it.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("netns-") && it.extension().is_none()
    });
    let built = |it: &PathBuf| it.metadata().and_then(|it| it.modified()).expect("a time");
    let newest = programs.max_by_key(built);
    newest.expect("tests/system is not built; run tools/nic")
}
