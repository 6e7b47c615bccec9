//! One run of `xwarp perf` on both hosts, and what must be true of it whatever it measured.

use std::fmt;

use serde_json::Value;

use crate::eventually;
use crate::hosts::Hosts;
use crate::process::{Finished, Running};
use crate::program::{Mode, Program};

/// Nothing of a single connection is lost between these hosts, so nothing may be sent again.
/// Otherwise a segment is taken for lost after 5 ms. On a busy machine a process may wait longer
/// than that for a processor.
const MIN_RTO: &str = "--min-rto 1s";

/// More frames than a host receives before the first message of a test.
const START_UP_FRAMES: u64 = 64;

/// Who attaches the XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `ip link set dev eth1 xdp obj FILE sec xdp`, or `sec xdp.frags` where the MTU needs it,
    /// beforehand.
    IpLink,
    /// Each `xwarp` itself, for as long as it runs.
    Itself,
}

/// How the program is attached on both hosts.
pub struct Setup<'a> {
    hosts: &'a Hosts,
    way: Way,
    mode: Mode,
    /// What `ip link` has attached to each host.
    found: [Option<Program>; 2],
}

impl<'a> Setup<'a> {
    /// Attaches, if that is not left to `xwarp`.
    pub fn new(hosts: &'a Hosts, way: Way, mode: Mode) -> Self {
        match way {
            Way::IpLink => Self::by_ip_link(hosts, mode, hosts.section()),
            Way::Itself => Self {
                hosts,
                way,
                mode,
                found: [None, None],
            },
        }
    }

    /// Attaches the program of such a section.
    pub fn by_ip_link(hosts: &'a Hosts, mode: Mode, section: &str) -> Self {
        let object = hosts.object();
        let found = [&hosts.a, &hosts.b]
            .map(|host| Some(host.ip_link_attach_section(&object, mode, section)));
        Self {
            hosts,
            way: Way::IpLink,
            mode,
            found,
        }
    }

    /// Options of `xwarp` for this setup: the mode if `xwarp` attaches the program, none if it
    /// finds one attached.
    fn arguments(&self) -> String {
        match self.way {
            Way::IpLink => String::new(),
            Way::Itself => format!("--mode {}", self.mode),
        }
    }

    /// Fails unless the line says the mode and the origin of the program that this setup has.
    pub fn check_line(&self, line: &str) {
        let origin = match self.way {
            Way::IpLink => "found attached",
            Way::Itself => "attached by us",
        };
        let wanted = format!("XDP {} ({origin})  AF_XDP copy", self.mode);
        assert!(line.contains(&wanted), "{wanted:?} is not in {line:?}");
    }

    /// Fails unless both hosts are as they were before `xwarp` came: what was attached is, what was
    /// not is not, and no flow is steered.
    pub fn check_as_found(&self) {
        for (host, found) in [&self.hosts.a, &self.hosts.b].into_iter().zip(self.found) {
            assert_eq!(
                host.program(),
                found,
                "the program on the interface, and what was there before"
            );
            assert_eq!(found.map_or(0, Program::flows), 0, "flows left in the map");
        }
    }

    /// Runs a test that must succeed; everything that any run must fulfil is checked.
    pub fn measure(&self, case: &Case) -> Measured {
        let mut server = self.hosts.b.serve(&format!(
            "{} {} {}",
            case.on_both(),
            case.server,
            self.arguments()
        ));
        self.check_line(&server.line(case.test));
        let client = self.hosts.a.xwarp(&format!(
            "perf {} {} --json",
            case.on_client(),
            self.arguments()
        ));
        let client = client.succeeded();
        let server = server.finish().succeeded();
        for (who, finished) in [("client", &client), ("server", &server)] {
            assert_eq!(finished.stderr, "", "{case}: the {who} complains");
        }
        self.check_as_found();
        let measured = Measured::new(&client);
        measured.check(case);
        measured.check_setup(self, case);
        measured
    }

    /// Starts a server and a client without JSON, and returns when messages are under way between
    /// them.
    pub fn begin(&self, case: &Case) -> (Running, Running) {
        let server = self.hosts.b.serve(&format!(
            "{} {} {}",
            case.on_both(),
            case.server,
            self.arguments()
        ));
        let before = self.hosts.b.frames_received();
        let mut client =
            self.hosts
                .a
                .start(&format!("perf {} {}", case.on_client(), self.arguments()));
        self.check_line(&client.line(case.test));
        eventually("messages are under way", || {
            self.hosts.b.frames_received() > before + START_UP_FRAMES
        });
        (server, client)
    }
}

/// A test of `xwarp perf`, with its parameters.
#[derive(Clone, Debug)]
pub struct Case {
    /// As it is called: `write-bw`, `read-lat` and so on.
    pub test: &'static str,
    /// Bytes of a message.
    pub size: u64,
    /// Messages on each connection.
    pub messages: u64,
    /// Messages outstanding at once on each connection, in a bandwidth test.
    pub depth: u64,
    /// Connections.
    pub qps: u64,
    /// The server's address.
    pub address: &'static str,
    /// Further arguments of both sides.
    pub both: String,
    /// Further arguments of the client.
    pub client: String,
    /// Further arguments of the server.
    pub server: String,
}

impl Case {
    /// A short run.
    pub fn new(test: &'static str) -> Self {
        let latency = test.ends_with("-lat");
        Self {
            test,
            size: if latency { 64 } else { 64 << 10 },
            messages: if latency { 200 } else { 40 },
            depth: 16,
            qps: 1,
            address: "10.77.0.2",
            both: String::new(),
            client: String::new(),
            server: String::new(),
        }
    }

    fn is_latency(&self) -> bool {
        self.test.ends_with("-lat")
    }

    fn on_both(&self) -> String {
        let Self {
            test,
            size,
            depth,
            qps,
            both,
            ..
        } = self;
        let min_rto = if self.may_lose() { "" } else { MIN_RTO };
        let extent = if self.is_latency() {
            String::new()
        } else {
            format!("--depth {depth} --qps {qps}")
        };
        format!("{test} --size {size} {extent} --verify {min_rto} {both}")
    }

    /// Whether a receive ring may be too small. The windows of several connections are more than it
    /// takes while the host waits for a processor.
    fn may_lose(&self) -> bool {
        self.qps > 1
    }

    fn on_client(&self) -> String {
        let extent = if self.client.contains("--duration") {
            String::new()
        } else {
            format!("--iterations {}", self.messages)
        };
        format!(
            "{} {extent} {} {}",
            self.on_both(),
            self.client,
            self.address
        )
    }

    /// Bytes that both sides together have to compare: every buffer that a message went to, but for
    /// the byte that `write-lat` counts in.
    fn bytes_to_verify(&self) -> u64 {
        match self.test {
            "write-lat" => 2 * (self.size - 1),
            "send-lat" => 2 * self.size,
            "read-lat" => self.size,
            _ => self.size * self.depth.min(self.messages) * self.qps,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.on_client())
    }
}

/// What a client printed as JSON.
pub struct Measured(Value);

impl Measured {
    fn new(client: &Finished) -> Self {
        let parsed = serde_json::from_str(&client.stdout);
        Self(parsed.unwrap_or_else(|error| panic!("{error} in: {client}")))
    }

    /// The number at this path.
    pub fn number(&self, path: &str) -> u64 {
        let value = self.0.pointer(path).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("{path} is no number in {}", self.0))
    }

    /// Fails unless it says what was really in force.
    fn check_setup(&self, setup: &Setup<'_>, case: &Case) {
        let said = &self.0["setup"];
        let client = |flag| {
            [&case.both, &case.client]
                .iter()
                .any(|it| it.contains(flag))
        };
        let server = |flag| {
            [&case.both, &case.server]
                .iter()
                .any(|it| it.contains(flag))
        };
        let crc = !(client("--no-crc") && server("--no-crc"));
        assert_eq!(said["crc"], crc, "{case}: {said}");
        let mpa = &said["mpa"];
        assert_eq!(mpa["revision"], 2, "{case}: {said}");
        assert_eq!(mpa["markers_sent"], server("--markers"), "{case}: {said}");
        assert_eq!(
            mpa["markers_received"],
            client("--markers"),
            "{case}: {said}"
        );
        let nic = &said["nic"];
        assert_eq!(nic["interface"], crate::DEV, "{said}");
        assert_eq!(nic["xdp_mode"], setup.mode.to_string(), "{said}");
        assert_eq!(nic["program_found"], setup.way == Way::IpLink, "{said}");
        assert_eq!(nic["af_xdp_mode"], "copy", "{said}");
    }

    fn check(&self, case: &Case) {
        let said = &self.0;
        assert_eq!(self.0["test"], case.test, "{said}");
        assert_eq!(self.number("/bytes"), case.size, "{case}: {said}");
        assert_eq!(self.number("/qps"), case.qps, "{case}: {said}");
        assert_eq!(
            self.number("/verified_bytes"),
            case.bytes_to_verify(),
            "{case}: {said}"
        );
        assert_eq!(
            self.number("/result/messages"),
            case.messages * case.qps,
            "{case}: {said}"
        );
        let retransmitted = self.number("/tcp_segments_retransmitted");
        assert!(case.may_lose() || retransmitted == 0, "{case}: {said}");
        if case.is_latency() {
            assert!(self.number("/result/min_nanoseconds") > 0, "{case}: {said}");
        } else {
            assert!(
                said["result"]["seconds"]
                    .as_f64()
                    .is_some_and(|seconds| seconds > 0.0),
                "{said}"
            );
            assert_eq!(self.number("/depth"), case.depth, "{case}: {said}");
        }
    }
}
