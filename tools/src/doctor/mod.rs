//! `doctor`: whether an interface or a software switch can carry an RNIC, and what would improve it.

mod checks;
mod finding;
mod group;
mod host;
mod host_checks;
mod switch;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use xwarp_driver::attach::{self, Status, User};
use xwarp_driver::net::{self, Hardware, Interface};

use self::finding::{Finding, Verdict};
use self::host::Host;
use crate::device::{Shown, ShownArgs};
use crate::output::{OutputError, print_line};

/// Exit code if a check failed. Wrong arguments give 2.
const FAILED: u8 = 1;
/// Exit code if no check failed, but one warned.
const WARNED: u8 = 3;

/// Exit codes, for `--help`.
const EXIT_CODES: &str = "\
Exit code:
  0  an RNIC runs there; notes on passed checks may be useful
  1  no RNIC runs there, as a check failed
  2  the arguments are wrong
  3  an RNIC runs there, but more slowly than it could, or not with every peer";

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    device: ShownArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Facts that the checks examine.
struct Facts {
    host: Host,
    interface: Interface,
    hardware: Hardware,
    /// Program on the interface, or why it cannot be known.
    program: Result<Status, String>,
    /// Other processes that use our program on the interface.
    users: Vec<User>,
    /// File descriptors that opening takes, if the queues can be served.
    descriptors: Option<usize>,
    /// Whether the driver has zero copy at this MTU, or why that cannot be known.
    zero_copy: Result<bool, String>,
}

impl Facts {
    fn of(dev: &str) -> anyhow::Result<Self> {
        let interface = net::interface_by_name(dev)?;
        let program = attach::status(interface.index);
        let users = match &program {
            Ok(Status::Ours { program_id, .. }) => attach::users(interface.index, *program_id),
            _ => Vec::new(),
        };
        Ok(Self {
            host: Host::read()?,
            users,
            descriptors: xwarp_driver::descriptors_needed(&interface).ok(),
            hardware: Hardware::of(&interface)?,
            program: program.map_err(|error| error.to_string()),
            zero_copy: xwarp_driver::try_zero_copy(&interface).map_err(|error| error.to_string()),
            interface,
        })
    }
}

/// Collects facts, changes nothing, and prints the findings. The exit code is that of the worst
/// one.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let (about, findings) = match args.device.shown()? {
        Shown::Interface(dev) => (json!({ "dev": dev }), checks::all(&Facts::of(dev)?)),
        Shown::Switch(switch) => (json!({ "service": switch.socket }), switch::all(&switch)?),
    };
    report(about, &findings, args.json)
}

fn report(
    mut about: serde_json::Value,
    findings: &[Finding],
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let worst = (findings.iter().map(|finding| finding.verdict))
        .max()
        .unwrap_or(Verdict::Pass);
    if as_json {
        let list: Vec<_> = findings.iter().map(Finding::as_json).collect();
        about["verdict"] = worst.name().into();
        about["findings"] = list.into();
        print_line!("{about}")?;
    } else {
        findings.iter().try_for_each(print)?;
    }
    Ok(match worst {
        Verdict::Pass => ExitCode::SUCCESS,
        Verdict::Warn => ExitCode::from(WARNED),
        Verdict::Fail => ExitCode::from(FAILED),
    })
}

/// Width of the subject column.
const ABOUT: usize = 12;

fn print(finding: &Finding) -> Result<(), OutputError> {
    let Finding {
        about,
        verdict,
        says,
        remedy,
    } = finding;
    print_line!("{}  {about:<ABOUT$} {says}", verdict.name())?;
    match remedy {
        Some(command) => print_line!("{:6}{:ABOUT$} -> {command}", "", ""),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
