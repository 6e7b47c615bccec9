//! RNIC of one run of a command, from opening it to the end of its capture.

use xwarp::{Rnic, RnicConfig};

use crate::device::Device;
use crate::output;
use crate::signals::Interrupted;

/// Opens the RNIC, runs `work`, and closes the RNIC. If the work succeeds but the capture is
/// incomplete, the run has failed.
pub(crate) fn with_rnic(
    device: &Device,
    config: &RnicConfig,
    interrupted: &Interrupted,
    work: impl FnOnce(&Rnic) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Registering memory takes seconds per gigabyte. No frames are steered yet, and the program
    // ends with the process.
    let config = config.clone().attach(device.attach());
    let rnic = interrupted.at_once_during(|| Rnic::open(device.name(), &config))??;
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

/// Closes the RNIC, and the file of its capture after the last frame.
fn close(rnic: Rnic) -> anyhow::Result<()> {
    let capture = rnic.capture().cloned();
    drop(rnic);
    if let Some(capture) = capture {
        capture.finish()?;
    }
    Ok(())
}
