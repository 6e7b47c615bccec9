//! `xwarp ping`: tests whether RDMA works between two hosts, and delivers the right bytes.
//!
//! It uses the protocol of rdma-core's `rping`, so either side may be an rping. For each ping the
//! client sends the place of its message. The server reads it by RDMA Read and reports that by a
//! Send. The client sends the place of an empty buffer. The server writes the message there by RDMA
//! Write, and reports that. The client compares.

mod client;
mod ends;
mod place;
mod server;
mod text;

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use xwarp::RnicConfig;
use xwarp::config::{Progress, WaitMode};

use crate::host::Host;
use crate::nic_args::NicArgs;
use crate::run::with_rnic;
use crate::signals::Interrupted;
use crate::size::{parse_bytes, parse_count, parse_duration, parse_port};

/// Default port of a server, as in rping.
const DEFAULT_PORT: u16 = 7174;
/// Bytes of the largest message; rping's buffers are no larger.
const LARGEST: u32 = (64 << 10) - 1;
/// Keep-alive interval: a ping ends soon after this if the other host has died.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// User timeout: a ping ends after this if the other host is unreachable.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of memory for both ends' buffers.
const REGION_BYTES: usize = 1 << 20;

#[derive(Args)]
pub(crate) struct PingArgs {
    /// Address of the server, with or without its port, link-local ones with the interface
    /// (`fe80::1%eth1`). Without it, run as the server, which serves one client and ends
    host: Option<Host>,
    /// The network interface; by default a client uses that of the route to HOST, and a server the
    /// only one that is up
    #[arg(long)]
    dev: Option<String>,
    /// TCP port of the server; 0 selects a free one, which the server prints
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port, allow_negative_numbers = true)]
    port: u16,
    /// Bytes per message [default: 64] (client)
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    size: Option<u64>,
    /// Number of pings [default: 10] (client)
    #[arg(long, value_parser = parse_count::<u64>, allow_hyphen_values = true)]
    count: Option<u64>,
    /// Interval between pings, for example 1s [default: none] (client)
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    interval: Option<Duration>,
    /// Print only the last line
    #[arg(long)]
    quiet: bool,
    /// Serve clients one after the other until Ctrl-C; a client that is silent for 3 s gives way to
    /// the next (server)
    #[arg(long, conflicts_with = "host")]
    persistent: bool,
    #[command(flatten)]
    nic: NicArgs,
}

pub(crate) fn run(args: &PingArgs) -> anyhow::Result<()> {
    let interrupted = Interrupted::watch()?;
    let config = args.config();
    let Some(host) = &args.host else {
        args.check_server()?;
        let device = args.nic.devices()?.serving(args.dev.as_deref())?;
        args.nic.prepare(device.name())?;
        return with_rnic(&device, &config, &interrupted, |rnic| {
            server::run(rnic, &device, args, &interrupted)
        });
    };
    args.check()?;
    let port = host.port_or(args.port, DEFAULT_PORT)?;
    let device = host.device(args.nic.devices()?, args.dev.as_deref(), port)?;
    device.check_carrier()?;
    let server = host.port(port, &device)?;
    args.nic.prepare(device.name())?;
    with_rnic(&device, &config, &interrupted, |rnic| {
        client::run(rnic, server, args, &interrupted)
    })
}

impl PingArgs {
    fn size(&self) -> u64 {
        self.size.unwrap_or(64)
    }

    fn count(&self) -> u64 {
        self.count.unwrap_or(10)
    }

    fn check(&self) -> anyhow::Result<()> {
        let smallest = text::SMALLEST;
        let size = self.size();
        ensure!(
            (u64::from(smallest)..=u64::from(LARGEST)).contains(&size),
            "--size {size} is not possible: a message has {smallest} to {LARGEST} bytes"
        );
        ensure!(self.count() > 0, "--count must be at least 1");
        Ok(())
    }

    /// Refuses options that have no meaning for a server.
    fn check_server(&self) -> anyhow::Result<()> {
        for (is_given, option) in [
            (self.size.is_some(), "--size"),
            (self.count.is_some(), "--count"),
            (self.interval.is_some(), "--interval"),
        ] {
            ensure!(
                !is_given,
                "{option} is the client's choice: leave it out here, or name the server to be its client"
            );
        }
        Ok(())
    }

    fn config(&self) -> RnicConfig {
        RnicConfig::default()
            .nic(self.nic.config(REGION_BYTES))
            .progress(Progress::Inline)
            .keepalive(Some(KEEPALIVE))
            .user_timeout(USER_TIMEOUT)
            .wait_mode(WaitMode::Adaptive(Duration::from_micros(50)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PingArgs,
    }

    #[test]
    fn options_of_the_client_are_refused_by_the_server() {
        for option in ["--size", "--count", "--interval"] {
            let line = Line::try_parse_from(["ping", option, "5"]).ok().unwrap();
            let error = line.args.check_server().unwrap_err().to_string();
            let words = format!("{option} is the client's choice");
            assert!(error.starts_with(&words), "{error}");
        }
        let line = Line::try_parse_from(["ping", "--quiet"]).ok().unwrap();
        assert!(line.args.check_server().is_ok());
        assert_eq!((line.args.size(), line.args.count()), (64, 10));
    }

    #[test]
    fn numbers_below_zero_are_refused_for_what_they_are() {
        for (option, value, words) in [
            ("--interval", "-1s", "is not a duration longer than zero"),
            ("--size", "-1", "is not a size"),
            ("--count", "-1", "is not a possible count"),
            ("--port", "-1", "is no port"),
        ] {
            let line = Line::try_parse_from(["ping", option, value]);
            let error = line.err().unwrap().to_string();
            let value = format!("error: invalid value '{value}' for '{option} ");
            assert!(error.starts_with(&value), "{error}");
            assert!(error.contains(words), "{error}");
        }
    }
}
