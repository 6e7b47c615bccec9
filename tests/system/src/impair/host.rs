//! Hosts: threads in network namespaces of their own. The namespaces have no names: they go with
//! their threads, however a test ends.
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

/// The interface of a host.
pub const DEV: &str = "eth0";

type Work = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
pub struct HostThread {
    pub(crate) thread: i32,
    work: Sender<Work>,
}

impl HostThread {
    pub(crate) fn new() -> Self {
        Self::after(|| unshare(CloneFlags::CLONE_NEWNET).expect("root may"))
    }

    /// A second thread in this host's namespace: it works while the first one is busy.
    #[must_use]
    pub fn beside(&self) -> Self {
        // A thread is born into the namespace of the one that starts it.
        self.call(|| Self::after(|| {}))
    }

    /// A thread that does `first` before anything else.
    fn after(first: impl FnOnce() + Send + 'static) -> Self {
        let (work, inbox) = mpsc::channel::<Work>();
        let (started, thread) = mpsc::channel();
        thread::spawn(move || {
            first();
            started.send(gettid().as_raw()).expect("the test waits");
            for work in inbox {
                work();
            }
        });
        Self {
            thread: thread.recv().expect("a namespace"),
            work,
        }
    }

    /// Begins `work` on the host; where its result comes. The host does one thing after the other.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Receiver<T> {
        let (result, receiver) = mpsc::channel();
        let work: Work = Box::new(move || {
            // A test that has failed no longer waits.
            let _ = result.send(work());
        });
        self.work.send(work).expect("the host lives");
        receiver
    }

    /// Does `work` on the host.
    pub fn call<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin(work).recv().expect("a result")
    }

    pub(crate) fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.call(move || ip(&arguments));
    }

    /// A counter of the host's TCP by its name in /proc/net/netstat.
    pub fn tcp_counter(&self, name: &'static str) -> u64 {
        self.call(move || {
            let text = std::fs::read_to_string("/proc/thread-self/net/netstat").expect("netstat");
            let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
            let (names, values) = (lines.next(), lines.next());
            let names = names.unwrap_or_default().split_whitespace();
            let values = values.unwrap_or_default().split_whitespace();
            let mut pairs = names.zip(values);
            let (_, value) = pairs.find(|(key, _)| *key == name).expect("the counter");
            value.parse().expect("a number")
        })
    }
}

/// Runs `ip` in the calling thread's network namespace.
pub(crate) fn ip(arguments: &str) {
    command("ip", arguments);
}

fn command(program: &str, arguments: &str) {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments}: {complaint}"
    );
}

impl HostThread {
    /// Has the kernel compute all checksums and cut all segments of its TCP itself. Otherwise a
    /// "frame" of a virtual link is many segments with one unfinished checksum.
    pub(crate) fn switch_offloads_off(&self) {
        self.call(|| {
            let features = "tx off tso off gso off gro off";
            command("ethtool", &format!("-K {DEV} {features}"));
        });
    }
}

/// The Ethernet address of a host in `network` by its number there.
pub(crate) fn mac(network: u8, number: u8) -> [u8; 6] {
    [2, 0, 0, 0, network, number]
}

/// As `ip` wants it.
pub(crate) fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
