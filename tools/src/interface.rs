//! `attach`, `detach`, `status` and `object`: the XDP program on an interface. `status` shows a
//! software switch, too.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;
use xwarp::config::XdpMode;
use xwarp_driver::attach::{self, Status};
use xwarp_driver::net;

use crate::device::{Shown, ShownArgs};
use crate::output::{OutputError, print_line};
use crate::switch_status;

/// An XDP mode on the command line.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ModeArg {
    /// In the driver, before the kernel makes a packet of a frame
    Native,
    /// In the kernel's network stack: works with every driver
    Generic,
}

impl From<ModeArg> for XdpMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Native => Self::Native,
            ModeArg::Generic => Self::Generic,
        }
    }
}

#[derive(Args)]
pub(crate) struct DetachArgs {
    /// The network interface
    dev: String,
    /// Detach even while a process uses the program, whose connections then end
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub(crate) struct AttachArgs {
    /// The network interface
    dev: String,
    /// Require this mode; by default native is tried before generic
    #[arg(long)]
    mode: Option<ModeArg>,
}

/// Exit code of `status` if another program is attached, or none although `--attached` requires
/// one.
const NOT_OURS: u8 = 3;

#[derive(Args)]
#[command(
    after_help = "Exit code: 0 if xwarp's program is attached or none is, 3 if another one is, 1 if that cannot be known. With --attached, 3 if none is, too. Of a switch: 0 if it answers, and 1 if not"
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    device: ShownArgs,
    /// Exit with 3 unless xwarp's program is attached
    #[arg(long)]
    attached: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ObjectArgs {
    /// The file to write
    file: PathBuf,
}

pub(crate) fn attach(args: &AttachArgs) -> anyhow::Result<()> {
    let interface = net::interface_by_name(&args.dev)?;
    let mode = xwarp_driver::attach_permanently(&interface, args.mode.map(Into::into))?;
    print_line!("{}: attached, XDP {mode}", interface.name)?;
    Ok(())
}

pub(crate) fn detach(args: &DetachArgs) -> anyhow::Result<()> {
    let interface = net::interface_by_name(&args.dev)?;
    xwarp_driver::detach(&interface, args.force)?;
    print_line!("{}: detached", interface.name)?;
    Ok(())
}

pub(crate) fn object(args: &ObjectArgs) -> anyhow::Result<()> {
    std::fs::write(&args.file, xwarp_bpf::STEER_OBJECT)
        .with_context(|| format!("cannot write {}", args.file.display()))?;
    print_line!(
        "{}: {} bytes",
        args.file.display(),
        xwarp_bpf::STEER_OBJECT.len()
    )?;
    Ok(())
}

/// The exit code says whether another program is attached, or xwarp's is missing.
pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let dev = match args.device.shown()? {
        Shown::Interface(dev) => dev,
        Shown::Switch(switch) => {
            ensure!(
                !args.attached,
                "--attached is for interfaces, and a software switch is named: leave it out"
            );
            switch_status::print(&switch, args.json)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let interface = net::interface_by_name(dev)?;
    let status = attach::status(interface.index)?;
    // A driver without this setting strips no tags.
    let stripped = net::strips_vlan_tags(interface.index).unwrap_or(false);
    let code = match &status {
        Status::Ours { .. } => ExitCode::SUCCESS,
        // As before and after each run of a program that attaches for itself.
        Status::NotAttached if !args.attached => ExitCode::SUCCESS,
        Status::NotAttached | Status::Foreign { .. } => ExitCode::from(NOT_OURS),
    };
    if args.json {
        let mut json = as_json(&interface.name, &status);
        json["vlan_tags_stripped"] = stripped.into();
        print_line!("{json}")?;
        return Ok(code);
    }
    print_status(&interface.name, &status)?;
    if let Status::Ours { asks_for_tags, .. } = status
        && stripped
    {
        print_line!("{}", stripped_note(&interface.name, asks_for_tags))?;
    }
    Ok(code)
}

/// Note on frames that the XDP program does not see, at least with some drivers.
fn stripped_note(dev: &str, asks: bool) -> String {
    let unless = if asks {
        ", unless its driver reports them"
    } else {
        ""
    };
    format!(
        "{dev} strips VLAN tags before XDP{unless}: if its link carries VLANs, run `ethtool -K {dev} rxvlan off`"
    )
}

fn print_status(dev: &str, status: &Status) -> Result<(), OutputError> {
    match status {
        Status::NotAttached => print_line!("{dev}: no XDP program"),
        Status::Foreign {
            program_id,
            name,
            mode,
        } => print_line!("{dev}: XDP {mode}, program {program_id} ({name}), which is not xwarp's"),
        Status::Ours {
            mode,
            program_id,
            counters,
            ..
        } => {
            print_line!("{dev}: XDP {mode}, program {program_id} (xwarp)")?;
            let counted: Vec<_> = (counters.iter())
                .filter(|(_, packets)| *packets > 0)
                .collect();
            if counted.is_empty() {
                print_line!("it has seen no packet yet")?;
            }
            for (verdict, packets) in counted {
                print_line!("{:>24} {packets:>12}", verdict.name())?;
            }
            Ok(())
        }
    }
}

fn as_json(dev: &str, status: &Status) -> serde_json::Value {
    match status {
        Status::NotAttached => json!({ "dev": dev, "attached": false }),
        Status::Foreign {
            program_id,
            name,
            mode,
        } => json!({
            "dev": dev, "attached": true, "ours": false,
            "program_id": program_id, "program": name, "mode": mode.to_string(),
        }),
        Status::Ours {
            mode,
            program_id,
            counters,
            ..
        } => {
            let counters: serde_json::Map<String, serde_json::Value> = counters
                .iter()
                .map(|(verdict, packets)| (verdict.name().to_owned(), json!(packets)))
                .collect();
            json!({
                "dev": dev, "attached": true, "ours": true,
                "program_id": program_id, "mode": mode.to_string(), "counters": counters,
            })
        }
    }
}
