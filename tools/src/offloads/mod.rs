//! `--fix-offloads`: offloads that leave frames unfinished are off as long as the process runs, however it ends.
//!
//! A guard changes them and puts them back: a process of its own, which waits for the end of the one that it guards.

mod guard;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::output::complain;

pub(crate) use guard::{GuardArgs, guard};

/// The hidden command of the guard.
pub(crate) const GUARD: &str = "guard-offloads";
/// What a guard says first when all is done, and what if not.
const DONE: &str = "off:";
const FAILED: &str = "failed:";

/// Has a guard switch the offloads of an interface off until this process has ended.
pub(crate) fn fix(dev: &str) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("cannot find out where xwarp is")?;
    let mut starter = Command::new(own)
        .args([GUARD, &std::process::id().to_string(), dev])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the guard of the offloads")?;
    let mut said = String::new();
    if let Some(output) = starter.stdout.take() {
        BufReader::new(output).read_line(&mut said)?;
    }
    let ended = starter.wait()?;
    if let Some(why) = said.strip_prefix(FAILED) {
        bail!("cannot fix the offloads of {dev}: {}", why.trim());
    }
    let off = said.strip_prefix(DONE);
    ensure!(
        ended.success() && off.is_some(),
        "the guard of the offloads of {dev} has ended: {ended}"
    );
    let off = off.unwrap_or_default().trim();
    if !off.is_empty() {
        complain(format_args!("{dev}: off until this process ends: {off}"));
    }
    Ok(())
}
