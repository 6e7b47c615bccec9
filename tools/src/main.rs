//! `xwarp`: measures RDMA between two hosts, runs unmodified RDMA programs, and attaches the XDP
//! program to an interface.
#![forbid(unsafe_code)]
// `println!` panics on a closed pipe and on a full disk: `output` prints.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod connection;
mod device;
mod doctor;
mod guard;
mod host;
mod interface;
mod interruption;
mod launch;
mod nic_args;
mod output;
mod peer_text;
mod perf;
mod ping;
mod run;
mod serve;
mod signals;
mod size;
mod stat;
mod switch_status;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit codes and environment, for `--help`.
const AFTER_HELP: &str = "\
Exit code: 0 on success, 1 on failure, 2 for wrong arguments, 130 after Ctrl-C and 143 after `kill`. `run`, `status` and `doctor` have others, too.

Environment: RUST_LOG=debug, or info, logs what happens to standard error.";

/// A software RNIC: RDMA (iWARP) on any Linux network interface that can run XDP.
#[derive(Parser)]
#[command(name = "xwarp", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure bandwidth or latency between two hosts, and verify the data
    #[command(subcommand)]
    Perf(perf::Test),
    /// Send messages to another host and back, as rdma-core's rping does, and verify them
    Ping(ping::PingArgs),
    /// Run an unmodified program that uses libibverbs and librdmacm, with an interface as its RDMA
    /// device
    Run(launch::RunArgs),
    /// Run a software switch: RDMA between programs of this host, without root and without a NIC
    Serve(serve::ServeArgs),
    /// Attach the XDP program to an interface, where it stays until it is detached
    Attach(interface::AttachArgs),
    /// Detach our XDP program from an interface
    Detach(interface::DetachArgs),
    /// Show what is attached to an interface or a switch, and its counters
    Status(interface::StatusArgs),
    /// Show the activity of the RNIC on an interface, or of a switch, once a second: rings, frames,
    /// drops
    Stat(stat::StatArgs),
    /// Check whether an interface or a switch can carry an RNIC, and print how to fix or improve
    /// it; changes nothing
    Doctor(doctor::DoctorArgs),
    /// Restore settings of an interface when a process has ended
    #[command(name = guard::GUARD, hide = true)]
    Guard(guard::GuardArgs),
    /// Write the XDP program to a file, for `ip link set DEV xdp obj FILE sec xdp`
    Object(interface::ObjectArgs),
}

/// Log filter unless RUST_LOG is set. The netlink library warns of every attribute that is newer
/// than itself.
const LOG_FILTER: &str = "warn,netlink_packet_route=error";

fn main() -> ExitCode {
    let filter = env_logger::Env::default().default_filter_or(LOG_FILTER);
    let mut builder = env_logger::Builder::from_env(filter);
    builder.format(|line, record| writeln!(line, "{}", output::log_line(record)));
    builder.init();
    match Cli::try_parse() {
        Ok(cli) => output::exit_code(run(&cli.command)),
        Err(said) => output::print_usage(&said),
    }
}

/// Runs the command. Returns the exit code on success.
fn run(command: &Command) -> anyhow::Result<ExitCode> {
    signals::survive_file_limit()?;
    match command {
        Command::Doctor(args) => return doctor::run(args),
        Command::Status(args) => return interface::status(args),
        Command::Perf(test) => perf::run(test),
        Command::Ping(args) => ping::run(args),
        Command::Run(args) => launch::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Attach(args) => interface::attach(args),
        Command::Detach(args) => interface::detach(args),
        Command::Stat(args) => stat::run(args),
        Command::Guard(args) => guard::guard(args),
        Command::Object(args) => interface::object(args),
    }?;
    Ok(ExitCode::SUCCESS)
}
