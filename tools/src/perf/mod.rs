//! `xwarp perf`: bandwidth and latency between two hosts.
//!
//! Without HOST it is the server, which serves one client and ends. With HOST it is the client,
//! which measures and prints. The client's request travels in the private data of each connection,
//! and the server's buffers return in that of the answer.

mod bandwidth;
mod client;
mod data;
mod hello;
mod latency;
mod peer;
mod report;
mod server;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use xwarp::RnicConfig;
use xwarp::cm::MpaConfig;
use xwarp::config::{CongestionControl, Progress, WaitMode};

use crate::host::Host;
use crate::nic_args::NicArgs;
use crate::run::with_rnic;
use crate::signals::Interrupted;
use crate::size::{parse_bytes, parse_count, parse_duration, parse_port};
use hello::{Count, DEPTH_LIMIT, Hello, Kind, Places, QPS_LIMIT, Style, Verb};

/// Default port of a server, as in perftest.
const DEFAULT_PORT: u16 = 18515;
/// Keep-alive interval: a test ends soon after this if the other host has died.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// User timeout: a test ends after this if the other host is unreachable.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that messages in flight may take at the end of --duration.
const GRACE: Duration = Duration::from_secs(5);
/// Time that the other side may take to compare its buffers.
const COMPARE_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of memory that the buffers of a test may take on each side.
const MEMORY_LIMIT: u64 = 1 << 30;
/// Bytes of buffer that the messages of a bandwidth test cycle through, if none is larger:
/// perftest's `cycle_buffer`. So the test measures the network, not memory.
const CYCLE: u64 = 4096;

#[derive(Subcommand)]
pub(crate) enum Test {
    /// RDMA Write bandwidth
    WriteBw(PerfArgs),
    /// RDMA Read bandwidth
    ReadBw(PerfArgs),
    /// Send bandwidth
    SendBw(PerfArgs),
    /// RDMA Write latency: half of a ping-pong of Writes, seen in memory
    WriteLat(PerfArgs),
    /// RDMA Read latency: a whole round trip
    ReadLat(PerfArgs),
    /// Send latency: half of a ping-pong of Sends
    SendLat(PerfArgs),
}

#[derive(Args)]
pub(crate) struct PerfArgs {
    /// Address of the server, with or without its port, link-local ones with the interface
    /// (`fe80::1%eth1`). Without it, run as the server
    host: Option<Host>,
    /// The network interface; by default a client uses that of the route to HOST, and a server the
    /// only one that is up
    #[arg(long)]
    dev: Option<String>,
    /// TCP port of the server; 0 selects a free one, which the server prints
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port, allow_negative_numbers = true)]
    port: u16,
    /// Bytes per message, for example 64, 64K or 1M [default: 64K for bandwidth, 64 for latency]
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    size: Option<u64>,
    /// Messages to send on each connection [default: 10000]; a server follows its client
    #[arg(long, value_parser = parse_count::<u64>, allow_hyphen_values = true, conflicts_with = "duration")]
    iterations: Option<u64>,
    /// Time to send for, for example 5s (or 5), instead of a number of messages. Messages in flight
    /// may then take 5 s more. A server follows its client
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// Messages outstanding at once on each connection [default: 64] (bandwidth)
    #[arg(long, value_parser = parse_count::<u32>, allow_hyphen_values = true)]
    depth: Option<u32>,
    /// Connections, which share a completion queue (bandwidth)
    #[arg(long, default_value_t = 1, value_parser = parse_count::<u32>, allow_hyphen_values = true)]
    qps: u32,
    /// Use a buffer for each outstanding message, and check at the end that they hold exactly the
    /// data sent. A server follows its client
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    nic: NicArgs,
    /// What to do while waiting
    #[arg(long, default_value = "adaptive")]
    wait: WaitArg,
    /// Who runs the protocol engine
    #[arg(long, default_value = "inline")]
    engine: EngineArg,
    /// Minimum of the retransmission timeout beyond the round trip, for example 1s [default: 5ms]
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    min_rto: Option<Duration>,
    /// Congestion control of this side
    #[arg(long, default_value = "cubic")]
    congestion: CongestionArg,
    /// Negotiate ECN with cubic and newreno, for networks that mark; dctcp always does
    #[arg(long)]
    ecn: bool,
    #[command(flatten)]
    mpa: MpaArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// MPA options of this side.
#[derive(Args)]
struct MpaArgs {
    /// Do without CRCs, if the other side does so, too
    #[arg(long)]
    no_crc: bool,
    /// Request markers from the other side
    #[arg(long)]
    markers: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum WaitArg {
    /// Spin without sleeping
    Busy,
    /// Spin for 50 us, then sleep
    Adaptive,
    /// Sleep at once
    Blocking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CongestionArg {
    /// By losses (RFC 9438)
    Cubic,
    /// By losses, without CUBIC's growth (RFC 5681)
    Newreno,
    /// By marks, where the network marks (RFC 8257)
    Dctcp,
    /// By the delivery rate, where losses are random
    Bbr,
}

impl From<CongestionArg> for CongestionControl {
    fn from(arg: CongestionArg) -> Self {
        match arg {
            CongestionArg::Cubic => Self::Cubic,
            CongestionArg::Newreno => Self::NewReno,
            CongestionArg::Dctcp => Self::Dctcp,
            CongestionArg::Bbr => Self::Bbr,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineArg {
    /// The thread that polls
    Inline,
    /// A thread of its own
    Thread,
    /// The thread that polls, and one of its own while none does
    Assisted,
}

/// Extent of a run.
#[derive(Clone, Copy)]
pub(crate) enum Extent {
    Messages(u64),
    Time(Duration),
}

pub(crate) fn run(test: &Test) -> anyhow::Result<()> {
    use Style::{Bandwidth, Latency};
    let (verb, style, args) = match test {
        Test::WriteBw(args) => (Verb::Write, Bandwidth, args),
        Test::ReadBw(args) => (Verb::Read, Bandwidth, args),
        Test::SendBw(args) => (Verb::Send, Bandwidth, args),
        Test::WriteLat(args) => (Verb::Write, Latency, args),
        Test::ReadLat(args) => (Verb::Read, Latency, args),
        Test::SendLat(args) => (Verb::Send, Latency, args),
    };
    let kind = Kind { verb, style };
    let interrupted = Interrupted::watch()?;
    match &args.host {
        None => run_server(kind, args, &interrupted),
        Some(host) => run_client(kind, host, args, &interrupted),
    }
}

fn run_server(kind: Kind, args: &PerfArgs, interrupted: &Interrupted) -> anyhow::Result<()> {
    let device = args.nic.devices()?.serving(args.dev.as_deref())?;
    // A client with --verify needs the most.
    let largest = args.hello(kind, true)?;
    let config = args.config(largest.region_bytes());
    args.nic.prepare(device.name())?;
    with_rnic(&device, &config, interrupted, |rnic| {
        server::run(rnic, &device, &largest, args, interrupted)
    })
}

fn run_client(
    kind: Kind,
    host: &Host,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let hello = args.hello(kind, args.verify)?;
    let port = host.port_or(args.port, DEFAULT_PORT)?;
    let device = host.device(args.nic.devices()?, args.dev.as_deref(), port)?;
    device.check_carrier()?;
    let server = host.port(port, &device)?;
    let config = args.config(hello.region_bytes());
    args.nic.prepare(device.name())?;
    with_rnic(&device, &config, interrupted, |rnic| {
        client::run(rnic, server, &hello, args, interrupted)
    })
}

impl PerfArgs {
    /// The client's request to the server. With `buffer_each`, each outstanding message has a
    /// buffer, to be compared.
    fn hello(&self, kind: Kind, buffer_each: bool) -> anyhow::Result<Hello> {
        let connections = self.checked_connections(kind)?;
        let size = self.checked_size(kind)?;
        self.check_completions(connections)?;
        let slots = match kind.style {
            Style::Latency => 1,
            Style::Bandwidth => {
                let each = MEMORY_LIMIT / u64::from(self.qps);
                let room = if buffer_each { each } else { CYCLE };
                u64::from(self.depth()).min(room / size.max(1)).max(1)
            }
        };
        Ok(Hello {
            kind,
            connections,
            size: u32::try_from(size)?,
            slots: u32::try_from(slots)?,
            depth: self.depth(),
            verify: self.verify,
            places: Places::NONE,
        })
    }

    /// Bytes per message. Fails if the test is impossible.
    fn checked_size(&self, kind: Kind) -> anyhow::Result<u64> {
        let size = self.size.unwrap_or(match kind.style {
            Style::Bandwidth => 64 << 10,
            Style::Latency => 64,
        });
        ensure!(
            size.saturating_mul(self.qps.into()) <= MEMORY_LIMIT,
            "--size {size} is too large: the buffers of a test may take {MEMORY_LIMIT} bytes"
        );
        self.check_depth(kind)?;
        ensure!(
            self.iterations != Some(0),
            "--iterations must be at least 1"
        );
        ensure!(
            size > 0 || kind.style == Style::Bandwidth || kind.verb != Verb::Write,
            "write-lat needs --size of at least 1: the byte that is waited for"
        );
        Ok(size)
    }

    fn depth(&self) -> u32 {
        self.depth.unwrap_or(64)
    }

    fn check_depth(&self, kind: Kind) -> anyhow::Result<()> {
        let depth = self.depth();
        ensure!(
            self.depth.is_none() || kind.style == Style::Bandwidth,
            "{kind} has one message outstanding: leave --depth {depth} out"
        );
        ensure!(depth > 0, "--depth must be at least 1");
        ensure!(
            depth <= DEPTH_LIMIT,
            "--depth {depth} is too large: at most {DEPTH_LIMIT}"
        );
        Ok(())
    }

    /// Number of connections of a new run. Fails if it is impossible.
    fn checked_connections(&self, kind: Kind) -> anyhow::Result<Count> {
        let qps = self.qps;
        ensure!(
            qps <= 1 || kind.style == Style::Bandwidth,
            "{kind} measures one connection: leave --qps {qps} out"
        );
        Count::new(qps, RandomState::new().build_hasher().finish())
            .with_context(|| format!("--qps must be from 1 to {QPS_LIMIT}"))
    }

    /// Fails if the completions of all connections exceed a queue's capacity.
    fn check_completions(&self, connections: Count) -> anyhow::Result<()> {
        let qps = connections.get();
        let depth = self.depth();
        ensure!(
            qps * hello::cq_entries_each(depth) <= hello::CQ_LIMIT,
            "--qps {qps} with --depth {depth} is too large: one completion queue serves all connections; use a smaller one of them"
        );
        Ok(())
    }

    fn extent(&self) -> Extent {
        match self.duration {
            Some(duration) => Extent::Time(duration),
            None => Extent::Messages(self.iterations.unwrap_or(10_000)),
        }
    }

    fn config(&self, region_bytes: usize) -> RnicConfig {
        let defaults = RnicConfig::default();
        let min_rto = self.min_rto.unwrap_or(defaults.min_rto);
        defaults
            .nic(self.nic.config(region_bytes))
            .progress(match self.engine {
                EngineArg::Inline => Progress::Inline,
                EngineArg::Thread => Progress::Thread,
                EngineArg::Assisted => Progress::Assisted,
            })
            .keepalive(Some(KEEPALIVE))
            .min_rto(min_rto)
            .user_timeout(USER_TIMEOUT)
            .congestion(self.congestion.into())
            .ecn(self.ecn)
            .mpa(
                MpaConfig::default()
                    .crc(!self.mpa.no_crc)
                    .markers(self.mpa.markers),
            )
            .wait_mode(match self.wait {
                WaitArg::Busy => WaitMode::Busy,
                WaitArg::Adaptive => WaitMode::Adaptive(Duration::from_micros(50)),
                WaitArg::Blocking => WaitMode::Blocking,
            })
    }

    /// The part of the first line that only this side knows.
    fn engine_text(&self) -> &'static str {
        match (self.engine, self.wait) {
            (EngineArg::Inline, WaitArg::Busy) => "inline, busy",
            (EngineArg::Inline, WaitArg::Adaptive) => "inline, adaptive",
            (EngineArg::Inline, WaitArg::Blocking) => "inline, blocking",
            (EngineArg::Thread, WaitArg::Busy) => "thread, busy",
            (EngineArg::Thread, WaitArg::Adaptive) => "thread, adaptive",
            (EngineArg::Thread, WaitArg::Blocking) => "thread, blocking",
            (EngineArg::Assisted, WaitArg::Busy) => "assisted, busy",
            (EngineArg::Assisted, WaitArg::Adaptive) => "assisted, adaptive",
            (EngineArg::Assisted, WaitArg::Blocking) => "assisted, blocking",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PerfArgs,
    }

    fn parse(words: &[&str]) -> Result<PerfArgs, clap::Error> {
        let words = [&["perf"], words].concat();
        Line::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn congestion_control_reaches_the_rnic() {
        for (words, wanted) in [
            (&[][..], CongestionControl::Cubic),
            (&["--congestion", "newreno"], CongestionControl::NewReno),
            (&["--congestion", "dctcp"], CongestionControl::Dctcp),
            (&["--congestion", "bbr"], CongestionControl::Bbr),
        ] {
            assert_eq!(parse(words).unwrap().config(0).congestion, wanted);
        }
    }

    #[test]
    fn ecn_is_used_if_asked_for() {
        let ecn = |words| parse(words).unwrap().config(0).ecn;
        assert_eq!((ecn(&[]), ecn(&["--ecn"])), (false, true));
    }

    #[test]
    fn numbers_below_zero_are_refused_for_what_they_are() {
        for (option, value, words) in [
            ("--duration", "-1s", "is not a duration longer than zero"),
            ("--duration", "-5", "is not a duration longer than zero"),
            ("--min-rto", "-1ms", "is not a duration longer than zero"),
            ("--size", "-1", "is not a size"),
            ("--size", "-1K", "is not a size"),
            ("--iterations", "-1", "is not a possible count"),
            ("--depth", "-1", "is not a possible count"),
            ("--qps", "-1", "is not a possible count"),
            ("--port", "-1", "is no port"),
        ] {
            let error = parse(&[option, value]).err().unwrap().to_string();
            let value = format!("error: invalid value '{value}' for '{option} ");
            assert!(error.starts_with(&value), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn connections_that_cannot_be_are_refused_in_words() {
        let bandwidth = Style::Bandwidth;
        for (style, words, said) in [
            (bandwidth, "--qps 0", "--qps must be from 1 to 256"),
            (bandwidth, "--qps 257", "--qps must be from 1 to 256"),
            (bandwidth, "--qps 100000", "--qps must be from 1 to 256"),
            (bandwidth, "--qps 256 --depth 4096", "one completion queue"),
            (bandwidth, "--qps 5 --size 256M", "--size 268435456 is too"),
            (
                Style::Latency,
                "--qps 2",
                "write-lat measures one connection",
            ),
            (
                Style::Latency,
                "--depth 64",
                "write-lat has one message outstanding: leave --depth 64 out",
            ),
        ] {
            let kind = Kind {
                verb: Verb::Write,
                style,
            };
            let args = parse(&words.split(' ').collect::<Vec<_>>()).unwrap();
            let error = args.hello(kind, true).unwrap_err().to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
    }

    #[test]
    fn connections_share_the_memory_of_a_test() {
        let kind = Kind {
            verb: Verb::Write,
            style: Style::Bandwidth,
        };
        let hello = |words: &[&str]| parse(words).unwrap().hello(kind, true).unwrap();
        let size = ["--size", "16M"];
        assert_eq!(hello(&size).slots, 64);
        let several = hello(&[&size[..], &["--qps", "8"]].concat());
        assert_eq!((several.slots, several.connections.get()), (8, 8));
    }

    #[test]
    fn unknown_congestion_control_is_refused_with_those_that_there_are() {
        let error = parse(&["--congestion", "vegas"]).err().unwrap().to_string();
        assert!(error.contains("'vegas'"), "{error}");
        assert!(error.contains("cubic, newreno, dctcp, bbr"), "{error}");
    }
}
