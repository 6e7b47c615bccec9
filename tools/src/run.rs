//! An RNIC for one run of a command, from its opening to the end of its capture.

use xwarp::{Rnic, RnicConfig};

use crate::output;
use crate::signals::Interrupted;

/// Opens the RNIC, does `work` with it, and closes it. If the work has succeeded but its capture is not complete, the run has failed.
pub(crate) fn with_rnic(
    device: &str,
    config: &RnicConfig,
    interrupted: &Interrupted,
    work: impl FnOnce(&Rnic) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Registering memory takes seconds per gigabyte. Nothing is steered yet, and the program goes with the process.
    let rnic = interrupted.at_once_during(|| Rnic::open(device, config))??;
    let outcome = work(&rnic);
    let captured = close(rnic);
    match (outcome, captured) {
        (Ok(()), captured) => captured,
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(lost)) => {
            output::complain(format_args!("{lost}"));
            Err(error)
        }
    }
}

/// Closes the RNIC, and the file of its capture behind the last frame.
fn close(rnic: Rnic) -> anyhow::Result<()> {
    let capture = rnic.capture().cloned();
    drop(rnic);
    if let Some(capture) = capture {
        capture.finish()?;
    }
    Ok(())
}
