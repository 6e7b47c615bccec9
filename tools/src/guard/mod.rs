//! Changes of an interface that end with the process, even after SIGKILL: `--fix-offloads` and
//! `--busy-poll`.
//!
//! A guard makes or watches them, and restores the former settings. It is a process of its own,
//! which waits for the end of the guarded one (decision record tools/0003).

mod process;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::output::complain;

pub(crate) use process::{GuardArgs, guard};

/// Hidden command of the guard.
pub(crate) const GUARD: &str = "guard-interface";
/// First word of a guard's report of success, and of failure.
const DONE: &str = "off:";
const FAILED: &str = "failed:";
const FIX_OFFLOADS: &str = "--fix-offloads";
const BUSY_POLL: &str = "--busy-poll";

/// Changes to make.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Change {
    /// Switch offloads off that leave frames unfinished, until the process ends, however it does
    #[arg(long)]
    pub(crate) fix_offloads: bool,
    /// Poll the NIC's driver and have it defer interrupts, until the process ends, however it does;
    /// needs zero copy
    #[arg(long)]
    pub(crate) busy_poll: bool,
}

impl Change {
    /// The command-line options of these changes.
    pub(crate) fn options(self) -> impl Iterator<Item = &'static str> {
        let each = [
            (self.fix_offloads, FIX_OFFLOADS),
            (self.busy_poll, BUSY_POLL),
        ];
        each.into_iter()
            .filter_map(|(set, option)| set.then_some(option))
    }
}

/// Starts a guard for a change of an interface until this process ends.
pub(crate) fn begin(dev: &str, change: Change) -> anyhow::Result<()> {
    if change.options().next().is_none() {
        return Ok(());
    }
    let own = std::env::current_exe().context("cannot find out where xwarp is")?;
    let mut starter = Command::new(own)
        .args([GUARD, &std::process::id().to_string(), dev])
        .args(change.options())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the guard of the interface")?;
    let mut said = String::new();
    if let Some(output) = starter.stdout.take() {
        BufReader::new(output).read_line(&mut said)?;
    }
    let ended = starter.wait()?;
    if let Some(why) = said.strip_prefix(FAILED) {
        bail!("cannot change the settings of {dev}: {}", why.trim());
    }
    let off = said.strip_prefix(DONE);
    ensure!(
        ended.success() && off.is_some(),
        "the guard of {dev} has ended: {ended}"
    );
    let off = off.unwrap_or_default().trim();
    if !off.is_empty() {
        complain(format_args!("{dev}: off until this process ends: {off}"));
    }
    Ok(())
}
