//! Throughput of a link without RDMA, for `tools/bench --link` to compare with: raw AF_XDP through
//! xwarp's own driver, and the kernel's TCP. Also the hostile side of `tools/bench --flood`. Every
//! command runs in the network namespace of one of two hosts.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

mod copy;
mod driver;
mod flood;
mod frame;
mod impair;
mod latency;
mod raw;
mod tcp;

/// The measuring programs of `tools/bench --link`, `--loss` and `--flood`
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Count the frames that arrive until none has come for a while, and tell the source of them
    RawSink {
        #[command(flatten)]
        raw: Raw,
        /// Frames that the source may send beyond the last credit
        #[arg(long, default_value_t = 64)]
        window: u64,
    },
    /// Send frames as fast as they leave, and no more than the window beyond the sink's last credit
    RawSource {
        #[command(flatten)]
        raw: Raw,
        /// Frames sent beyond the sink's last credit; 0 for no limit
        #[arg(long, default_value_t = 64)]
        window: u64,
        #[arg(long, default_value = "2000")]
        milliseconds: u64,
    },
    /// Take frames by the driver alone until none has come for a while
    Driver {
        #[command(flatten)]
        raw: Raw,
        /// What is done with them
        #[arg(value_enum)]
        work: driver::Work,
        /// Microseconds of sleep after a turn without frames
        #[arg(long, default_value_t = 0)]
        pause: u64,
    },
    /// Send back every frame, until none has come for a while
    RawPong(Raw),
    /// Have frames sent back, one at a time
    RawPing {
        #[command(flatten)]
        raw: Raw,
        #[arg(long, default_value_t = 20_000)]
        count: usize,
    },
    /// Lose TCP segments that come in, until standard input ends; print how many passed and how
    /// many did not
    Impair(Impair),
    /// Send SYNs, and ACKs that answer nothing, until standard input ends; print how many of either
    Flood(Flood),
    /// Send back what comes over one TCP connection of the kernel's
    TcpPong {
        at: SocketAddrV4,
        bytes: usize,
        /// Sleep until something has come, in place of spinning
        #[arg(long)]
        blocking: bool,
    },
    /// Have messages sent back over TCP
    TcpPing {
        to: SocketAddrV4,
        bytes: usize,
        #[arg(long, default_value_t = 20_000)]
        count: usize,
        /// Sleep until something has come, in place of spinning
        #[arg(long)]
        blocking: bool,
    },
    /// Copy 64 KiB at a time for a second, from and to 4 MiB each; print the Gb/s
    Copy,
}

/// What is lost.
#[derive(Args)]
struct Impair {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// The part of the segments that is lost, from 0 to 1
    #[arg(long)]
    loss: f64,
    /// What chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A flood.
#[derive(Args)]
struct Flood {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// The server's address and port
    #[arg(long)]
    target: SocketAddrV4,
    /// Its Ethernet address
    #[arg(long)]
    mac: String,
    /// SYNs per second
    #[arg(long, default_value_t = 0)]
    syns: u32,
    /// ACKs per second
    #[arg(long, default_value_t = 0)]
    acks: u32,
    /// What ports and numbers come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One side of a raw measurement.
#[derive(Args)]
struct Raw {
    /// The network interface
    #[arg(long)]
    dev: String,
    /// This side's address
    #[arg(long)]
    local: Ipv4Addr,
    /// The other side's address
    #[arg(long)]
    remote: Ipv4Addr,
    /// The other side's Ethernet address
    #[arg(long)]
    mac: String,
    /// Bytes of a frame, its Ethernet header included
    #[arg(long, default_value_t = 1514)]
    bytes: usize,
    /// `native` or `generic`
    #[arg(long, default_value = "native")]
    mode: String,
    /// Whether the kernel copies frames; only where it must unless given
    #[arg(long, value_enum)]
    copies: Option<raw::Copies>,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::RawSink { raw, window } => raw::sink(&raw, window),
        Command::RawSource {
            raw,
            window,
            milliseconds,
        } => raw::source(&raw, Duration::from_millis(milliseconds), window),
        Command::Driver { raw, work, pause } => {
            driver::run(&raw, work, Duration::from_micros(pause))
        }
        Command::RawPong(raw) => raw::pong(&raw),
        Command::RawPing { raw, count } => raw::ping(&raw, count),
        Command::Impair(impair) => impair::run(&impair),
        Command::Flood(flood) => flood::run(&flood),
        Command::TcpPong {
            at,
            bytes,
            blocking,
        } => tcp::pong(at, bytes, blocking),
        Command::TcpPing {
            to,
            bytes,
            count,
            blocking,
        } => tcp::ping(to, bytes, count, blocking),
        Command::Copy => {
            copy::run();
            Ok(())
        }
    }
}
