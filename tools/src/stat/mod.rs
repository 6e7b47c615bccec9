//! `stat`: live counters of the RNIC on an interface, in any process, or of a software switch.

mod reading;
mod switch;
mod table;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use xwarp_driver::net;

use self::reading::Reading;
use crate::device::{Shown, ShownArgs};
use crate::output::print_line;

/// Interval between tables.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    device: ShownArgs,
    /// Show the value of every counter once, and end
    #[arg(long)]
    once: bool,
    /// Print JSON, an object for each table
    #[arg(long)]
    json: bool,
}

/// Prints tables until the RNIC or the switch ends. Its end is an error, and so is its absence at
/// the start.
pub(crate) fn run(args: &StatArgs) -> anyhow::Result<()> {
    match args.device.shown()? {
        Shown::Interface(dev) => of_interface(dev, args),
        Shown::Switch(switch) => switch::run(&switch.observe()?, args),
    }
}

fn of_interface(dev: &str, args: &StatArgs) -> anyhow::Result<()> {
    let interface = net::interface_by_name(dev)?;
    let mut earlier: Option<(Instant, Vec<Reading>)> = None;
    let mut tables = 0;
    loop {
        let at = Instant::now();
        let now = reading::of(&interface)?;
        ensure!(
            !now.is_empty(),
            "no RNIC runs on {}: start a program that opens one there, for instance with `xwarp run`",
            interface.name
        );
        if args.json {
            print_line!("{}", table::json(&interface.name, &now))?;
        } else if args.once {
            table::print_all(&now)?;
        } else if let Some((before, earlier)) = &earlier {
            table::print_change(earlier, &now, at - *before, tables)?;
            tables += 1;
        }
        if args.once {
            return Ok(());
        }
        earlier = Some((at, now));
        thread::sleep(INTERVAL);
    }
}
