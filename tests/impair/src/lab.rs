//! Two hosts on a bridge, with a detour. The namespaces have no names: they go with their threads, however the test ends.
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::{Detour, Fates, Impairment, Rule};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;

type Work = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
pub struct Host {
    thread: i32,
    work: Sender<Work>,
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `10.79.0.1`.
    A,
    /// `10.79.0.2`.
    B,
}

impl Side {
    /// The port of the bridge that it is at.
    fn port(self) -> &'static str {
        match self {
            Self::A => "port-a",
            Self::B => "port-b",
        }
    }

    /// Its address.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, 0, self.number())
    }

    /// Its Ethernet address.
    pub fn mac(self) -> [u8; 6] {
        [2, 0, 0, 0, 0x79, self.number()]
    }

    fn number(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }
}

/// The interface of either host.
pub const DEV: &str = "eth0";

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

    fn ip(&self, arguments: &str) {
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
pub struct Lab {
    /// [`Side::A`].
    pub a: Host,
    /// [`Side::B`].
    pub b: Host,
    network: Host,
}

impl Lab {
    /// Makes them.
    #[expect(clippy::new_without_default, reason = "it makes network namespaces")]
    pub fn new() -> Self {
        let lab = Self {
            a: Host::new(),
            b: Host::new(),
            network: Host::new(),
        };
        lab.network.ip("link add bridge type bridge");
        lab.network.ip("link set bridge up");
        for (host, side) in [(&lab.a, Side::A), (&lab.b, Side::B)] {
            lab.plug_in(host, side);
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

    /// Joins a host to the bridge.
    fn plug_in(&self, host: &Host, side: Side) {
        let (thread, port, address) = (host.thread, side.port(), side.address());
        let mac = side.mac().map(|octet| format!("{octet:02x}")).join(":");
        self.network.ip(&format!(
            "link add {port} type veth peer name {DEV} address {mac} netns {thread}"
        ));
        self.network
            .ip(&format!("link set {port} master bridge up"));
        host.ip(&format!("address add {address}/24 dev {DEV}"));
        host.ip(&format!("link set {DEV} up"));
        // Otherwise a "frame" is many segments with one unfinished checksum.
        host.call(|| {
            command(
                "ethtool",
                &format!("-K {DEV} tx off tso off gso off gro off"),
            );
        });
    }

    /// Impairs what a host sends. One at a time.
    pub fn impair(&self, side: Side, rule: Rule) -> Impaired<'_> {
        let (made, parts) = mpsc::channel();
        let (end, ended) = mpsc::channel::<Sender<Fates>>();
        let outcome = self.network.begin(move || {
            let detour = Detour::start("turn", &rule).expect("root");
            let (port, begin) = (index_of(side.port()), index_of("detour"));
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
pub struct Impaired<'a> {
    asks: Option<Sender<Sender<Fates>>>,
    outcome: Receiver<()>,
    _lab: &'a Lab,
}

impl Impaired<'_> {
    /// What became of the segments so far.
    pub fn fates(&self) -> Fates {
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
