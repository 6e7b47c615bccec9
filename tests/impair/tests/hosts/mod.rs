//! Two hosts on a bridge, with a detour. The namespaces have no names: they go with their threads, however the test ends.

use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use xwarp_impair::{Detour, Fates, Impairment, Rule};

type Work = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
pub(crate) struct Host {
    thread: i32,
    work: Sender<Work>,
}

impl Host {
    fn new() -> Self {
        let (work, inbox) = mpsc::channel::<Work>();
        let (started, thread) = mpsc::channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("root may");
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
    pub(crate) fn begin<T: Send + 'static>(
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
    pub(crate) fn call<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin(work).recv().expect("a result")
    }

    fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.call(move || ip(&arguments));
    }

    /// A counter of the host's TCP by its name in /proc/net/netstat.
    pub(crate) fn tcp_counter(&self, name: &'static str) -> u64 {
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

fn ip(arguments: &str) {
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

fn index_of(device: &str) -> u32 {
    nix::net::if_::if_nametoindex(device).expect("an interface")
}

/// The hosts and the network between them.
pub(crate) struct Lab {
    pub(crate) a: Host,
    pub(crate) b: Host,
    network: Host,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self {
            a: Host::new(),
            b: Host::new(),
            network: Host::new(),
        };
        lab.network.ip("link add bridge type bridge");
        lab.network.ip("link set bridge up");
        for (host, port, address) in [
            (&lab.a, "port-a", "10.79.0.1/24"),
            (&lab.b, "port-b", "10.79.0.2/24"),
        ] {
            let thread = host.thread;
            lab.network.ip(&format!(
                "link add {port} type veth peer name eth0 netns {thread}"
            ));
            lab.network.ip(&format!("link set {port} master bridge up"));
            host.ip(&format!("address add {address} dev eth0"));
            host.ip("link set eth0 up");
            // Otherwise a "frame" is many segments with one unfinished checksum.
            host.call(|| command("ethtool", "-K eth0 tx off tso off gso off gro off"));
        }
        lab.network.ip("link add detour type veth peer name turn");
        lab.network.ip("link set detour master bridge up");
        lab.network.ip("link set turn up");
        lab.network.call(|| {
            // Only what the program sends there shall take the detour.
            command(
                "bridge",
                "link set dev detour learning off flood off mcast_flood off bcast_flood off",
            );
        });
        lab
    }

    /// Impairs what host `a` sends.
    pub(crate) fn impair(&self, rule: Rule) -> Impaired<'_> {
        let (made, parts) = mpsc::channel();
        let (end, ended) = mpsc::channel::<Sender<Fates>>();
        let outcome = self.network.begin(move || {
            let detour = Detour::start("turn", &rule).expect("root");
            let (port, begin) = (index_of("port-a"), index_of("detour"));
            let impairment = Impairment::attach(&rule, port, begin).expect("root");
            made.send(()).expect("the test waits");
            for asker in ended {
                let fates = impairment.fates().expect("counters");
                asker.send(fates).expect("the test waits");
            }
            drop(impairment);
            detour.finish().expect("no error of the detour");
        });
        parts.recv().expect("an impairment");
        Impaired {
            asks: Some(end),
            outcome,
            _lab: self,
        }
    }
}

/// An impairment at work, until it is dropped.
pub(crate) struct Impaired<'a> {
    asks: Option<Sender<Sender<Fates>>>,
    outcome: Receiver<()>,
    _lab: &'a Lab,
}

impl Impaired<'_> {
    pub(crate) fn fates(&self) -> Fates {
        let (asker, answer) = mpsc::channel();
        let asks = self.asks.as_ref().expect("at work");
        asks.send(asker).expect("at work");
        answer.recv().expect("counters")
    }
}

impl Drop for Impaired<'_> {
    fn drop(&mut self) {
        self.asks = None;
        if !thread::panicking() {
            self.outcome.recv().expect("an end in order");
        }
    }
}
