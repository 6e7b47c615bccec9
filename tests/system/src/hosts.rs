//! Two hosts on this machine: network namespaces `xwsys-a` and `xwsys-b`, joined by a veth pair.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::Value;
use xwarp::config::{NicConfig, WaitMode, XdpMode};
use xwarp::{Rnic, RnicConfig};

use crate::process::{Finished, Running, output_of};
use crate::{DEV, Exclusive, PERF_PORT, WorkDir, eventually};

/// Held while hosts exist, or namespaces of another kind that must be alone.
pub const LOCK: &str = "/run/xwarp-system-tests.lock";
/// Bytes of an RNIC's region area.
const REGION_BYTES: usize = 8 << 20;
const NAMES: [&str; 2] = ["xwsys-a", "xwsys-b"];
/// The namespace of the switch between them, and its ports.
const SWITCH: &str = "xwsys-s";
const PORTS: [&str; 2] = ["port-a", "port-b"];

/// What the cable between the hosts is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The largest IP packet.
    pub mtu: u32,
    /// Receive queues of each interface.
    pub queues: u32,
    /// A bridge is between them, which spreads connections over the queues.
    pub switched: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            mtu: 1500,
            queues: 1,
            switched: false,
        }
    }
}

/// The two hosts. They go with the value, and so do the files in `work`.
pub struct Hosts {
    /// `10.77.0.1` and `fd77::1`: the client's.
    pub a: Host,
    /// `10.77.0.2` and `fd77::2`: the server's.
    pub b: Host,
    /// For files.
    pub work: WorkDir,
    mtu: u32,
    switch: Option<Host>,
    _lock: Exclusive,
}

impl Hosts {
    /// Two hosts with an MTU of 1500 and one queue.
    pub fn new() -> Self {
        Self::shaped(Shape::default())
    }

    /// Two hosts with such a cable. Waits until no other test has any, and removes what a killed
    /// one left.
    pub fn shaped(shape: Shape) -> Self {
        assert!(
            Uid::effective().is_root(),
            "these tests make network namespaces and load XDP programs: run them as root"
        );
        let lock = Exclusive::wait_for(LOCK);
        let [a, b] = NAMES.map(Host::new);
        let switch = shape.switched.then(|| Host::new(SWITCH));
        match &switch {
            None => join((&a, DEV), (&b, DEV), shape.queues),
            Some(switch) => {
                switch.ip("link add name bridge type bridge");
                switch.ip("link set bridge up");
                for (host, port) in [&a, &b].into_iter().zip(PORTS) {
                    join((host, DEV), (switch, port), shape.queues);
                    switch.ip(&format!(
                        "link set {port} mtu {} up master bridge",
                        shape.mtu
                    ));
                    if shape.queues > 1 {
                        spread_flows(switch, port);
                    }
                }
            }
        }
        for (host, number) in [(&a, 1), (&b, 2)] {
            host.configure(number, shape.mtu);
        }
        Self {
            a,
            b,
            work: WorkDir::new("xwsys"),
            mtu: shape.mtu,
            switch,
            _lock: lock,
        }
    }

    /// Makes the switch spread frames to the server over the server's first `queues` receive
    /// queues.
    pub fn spread_over(&self, queues: u32) {
        let mut command = self.switch().command("ethtool");
        command.args(["-L", PORTS[1], "tx", &queues.to_string()]);
        output_of(command);
        spread_flows(self.switch(), PORTS[1]);
    }

    /// The switch between them, whose bridge is called `bridge`.
    pub fn switch(&self) -> &Host {
        self.switch.as_ref().expect("a switched cable")
    }

    /// The server's address.
    pub const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

    /// The `xwarp` command, as it was built beside the test program.
    pub fn command_file() -> PathBuf {
        built("xwarp", "cargo build -p xwarp-tools")
    }

    /// An example of the library, as it was built beside the test program.
    pub fn example_file(name: &str) -> PathBuf {
        let file = Path::new("examples").join(name);
        built(file, "cargo build -p xwarp --examples --features tokio")
    }

    /// The section of the program that native mode takes at this MTU: `xdp` goes up to 3506 on a
    /// veth pair.
    pub fn section(&self) -> &'static str {
        if self.mtu <= 3506 { "xdp" } else { "xdp.frags" }
    }

    /// Compiles an XDP program that passes every frame to the kernel. Returns its object file.
    pub fn pass_object(&self) -> PathBuf {
        const SOURCE: &str = "
            struct xdp_md;
            __attribute__((section(\"xdp\"), used)) int pass(struct xdp_md *ctx) { return 2; }
            char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";
        ";
        let (source, object) = (self.work.file("pass.c"), self.work.file("pass.o"));
        std::fs::write(&source, SOURCE).expect("our own directory");
        let mut clang = Command::new("clang");
        clang.args(["-O2", "-target", "bpf", "-c"]).arg(&source);
        output_of({
            clang.arg("-o").arg(&object);
            clang
        });
        object
    }

    /// The XDP programs in a file, for `ip link`.
    pub fn object(&self) -> PathBuf {
        let file = self.work.file("steer.bpf.o");
        std::fs::write(&file, xwarp_bpf::STEER_OBJECT).expect("our own directory");
        file
    }
}

impl Default for Hosts {
    fn default() -> Self {
        Self::new()
    }
}

/// One of them: a network namespace that goes with the value.
pub struct Host {
    name: &'static str,
}

impl Host {
    /// An empty namespace of this name. What a test that was killed left of it goes first.
    pub fn new(name: &'static str) -> Self {
        let host = Self { name };
        host.remove();
        ip(&format!("netns add {name}"));
        host
    }

    fn configure(&self, number: u32, mtu: u32) {
        self.ip("link set lo up");
        self.ip(&format!("link set {DEV} mtu {mtu} up"));
        self.ip(&format!("addr add 10.77.0.{number}/24 dev {DEV}"));
        self.ip(&format!("addr add fd77::{number}/64 dev {DEV} nodad"));
    }

    /// Removes the namespace, and whatever a test that was killed left running in it.
    fn remove(&self) {
        if !Path::new("/run/netns").join(self.name).exists() {
            return;
        }
        for pid in self.pids() {
            // It may have ended by itself meanwhile.
            let _ = kill(pid, Signal::SIGKILL);
        }
        eventually("the namespace is empty", || self.pids().is_empty());
        ip(&format!("netns delete {}", self.name));
    }

    fn pids(&self) -> Vec<Pid> {
        let listed = ip(&format!("netns pids {}", self.name));
        listed
            .lines()
            .filter_map(|line| line.parse().ok().map(Pid::from_raw))
            .collect()
    }

    /// How many processes there are on the host.
    pub fn processes(&self) -> usize {
        self.pids().len()
    }

    /// `ip -n NAMESPACE ARGUMENTS`: what it prints. It must end well.
    pub fn ip(&self, arguments: &str) -> String {
        ip(&format!("-n {} {arguments}", self.name))
    }

    /// Packets and bytes that the host's interface has received.
    pub fn received(&self) -> (u64, u64) {
        let listed = self.ip(&format!("-json -stats link show dev {DEV}"));
        let links: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let count = |what: &str| links[0]["stats64"]["rx"][what].as_u64().expect("a count");
        (count("packets"), count("bytes"))
    }

    /// A command, to be run on this host.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", self.name])
            .arg(program.as_ref());
        command
    }

    /// Runs a shell's commands on this host, which must end well.
    pub fn sh(&self, commands: &str) {
        let mut command = self.command("sh");
        command.args(["-ec", commands]);
        output_of(command);
    }

    /// Starts `xwarp` with these arguments.
    pub fn start(&self, arguments: &str) -> Running {
        let mut command = self.command(Hosts::command_file());
        command.args(arguments.split_whitespace());
        Running::start(command)
    }

    /// `xwarp` with these arguments, to be run on this host by a shell that does something first,
    /// such as `ulimit -n 64`.
    pub fn xwarp_after(&self, first: &str, arguments: &str) -> Command {
        let xwarp = Hosts::command_file();
        let mut command = self.command("sh");
        command.args([
            "-c",
            &format!("{first}; exec {} {arguments}", xwarp.display()),
        ]);
        command
    }

    /// Runs `xwarp` with these arguments.
    pub fn xwarp(&self, arguments: &str) -> Finished {
        self.start(arguments).finish()
    }

    /// Starts a server of `xwarp perf` and waits until it listens.
    pub fn serve(&self, arguments: &str) -> Running {
        let mut server = self.start(&format!("perf {arguments} --dev {DEV}"));
        let line = server.line("waiting for a client at ");
        assert!(
            line.contains(&format!(":{PERF_PORT}")) || arguments.contains("--port"),
            "{line}"
        );
        server
    }

    /// Runs `work` on a thread in the host's namespace. Sockets made there stay there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let result = thread::scope(|scope| {
            let inside = || {
                self.enter();
                work()
            };
            scope.spawn(inside).join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Opens an RNIC in native mode. Its threads sleep when they have nothing to do.
    pub fn open(&self, config: RnicConfig) -> Rnic {
        let nic = NicConfig::default()
            .mode(Some(XdpMode::Native))
            .region_bytes(REGION_BYTES);
        let config = config.nic(nic).wait_mode(WaitMode::Blocking);
        self.run(|| Rnic::open(DEV, &config)).expect("an RNIC")
    }

    /// Moves the calling thread, and those that it starts, into the host's namespace.
    pub fn enter(&self) {
        let namespace = Path::new("/run/netns").join(self.name);
        let namespace = File::open(namespace).expect("our own namespace");
        setns(namespace, CloneFlags::CLONE_NEWNET).expect("root may");
    }

    /// Frames that the host's interface has received so far.
    pub fn frames_received(&self) -> u64 {
        let listed = self.ip(&format!("-json -statistics link show dev {DEV}"));
        let links: Value = serde_json::from_str(&listed).expect("JSON");
        links[0]["stats64"]["rx"]["packets"]
            .as_u64()
            .expect("a number")
    }

    /// The namespace's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Has the kernel compute the checksums of what its own TCP sends: a veth pair leaves that out
    /// otherwise, and `AF_XDP` shows it.
    pub fn compute_checksums(&self) {
        self.switch_off(DEV, &["tx"]);
    }

    /// Queues of the host's interface whose frames an XDP program in native mode has redirected.
    pub fn queues_redirected(&self) -> Vec<u32> {
        let mut command = self.command("ethtool");
        command.args(["-S", DEV]);
        let counted = output_of(command);
        let queues = counted.lines().filter_map(|line| {
            let (name, count) = line.trim().split_once(": ")?;
            let queue = name
                .strip_prefix("rx_queue_")?
                .strip_suffix("_xdp_redirect")?;
            (count != "0").then(|| queue.parse().expect("a number"))
        });
        queues.collect()
    }

    /// The offloads of the host's interface that are on, by ethtool's names.
    pub fn offloads(&self) -> Vec<String> {
        let mut command = self.command("ethtool");
        command.args(["-k", DEV]);
        let listed = output_of(command);
        let each = listed.lines().filter_map(|line| line.split_once(": on"));
        each.map(|(name, _)| name.trim().to_owned()).collect()
    }

    /// Sets how many queues the host's interface has: `rx 2`, for instance.
    pub fn set_channels(&self, channels: &str) {
        let mut command = self.command("ethtool");
        command.args(["-L", DEV]).args(channels.split_whitespace());
        output_of(command);
    }

    /// Switches features of an interface off, by ethtool's names.
    pub fn switch_off(&self, interface: &str, features: &[&str]) {
        let mut command = self.command("ethtool");
        command.args(["-K", interface]);
        command.args(features.iter().flat_map(|feature| [feature, "off"]));
        output_of(command);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            // A second panic would hide the first. What stays is removed by the next run.
            let removal = std::panic::AssertUnwindSafe(|| self.remove());
            let _ = std::panic::catch_unwind(removal);
        } else {
            self.remove();
        }
    }
}

/// Has a switch choose the queue of each flow at a port by a hash of its addresses and ports.
/// Without this, a frame would keep the queue by which its sender let it go.
fn spread_flows(switch: &Host, port: &str) {
    let queues = format!("/sys/class/net/{port}/queues/tx-*/xps_cpus");
    switch.sh(&format!(
        "for cpus in {queues}; do cat /proc/irq/default_smp_affinity >$cpus; done"
    ));
}

/// Joins two hosts' interfaces by a cable. Each interface has `queues` queues.
fn join((near, its): (&Host, &str), (far, whose): (&Host, &str), queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!(
        "link add name {its} netns {} {queues} type veth peer name {whose} netns {} {queues}",
        near.name, far.name
    ));
}

/// A program that was built in the same profile as this test.
fn built(file: impl AsRef<Path>, how: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test program's path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps");
    let program = profile.join(file);
    assert!(
        program.exists(),
        "{} is missing; build it first: {how}",
        program.display()
    );
    program
}

fn ip(arguments: &str) -> String {
    let mut command = Command::new("ip");
    command.args(arguments.split_whitespace());
    output_of(command)
}
