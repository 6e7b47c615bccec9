//! Queues that are opened briefly for a check.

use super::error::NicError;
use crate::net::Interface;
use crate::xdp::umem::{self, UmemSpec};
use crate::xdp::{FRAME_CAPACITY, OpenQueueError, Target, XdpIo, ZeroCopy};

/// Entries of a ring without traffic, and its number of frames.
const PROBE_RING: u32 = 64;

/// Opens all queues of an interface, which fails if a process uses one: every user of the program
/// has at least one queue.
pub(super) fn claim(interface: &Interface) -> Result<Vec<XdpIo>, NicError> {
    let mut claimed = Vec::new();
    for queue in 0..interface.rx_queues {
        match open_probe(&probe(interface, queue, ZeroCopy::Never)) {
            Ok(open) => claimed.push(open),
            Err(NicError::Queue(OpenQueueError::Busy { .. })) => {
                return Err(NicError::InUse(interface.name.clone()));
            }
            Err(error) => log::debug!(
                "cannot find out whether queue {queue} of {} is in use: {error}",
                interface.name
            ),
        }
    }
    Ok(claimed)
}

/// A queue that is opened to find something out.
fn probe(interface: &Interface, queue: u32, zero_copy: ZeroCopy) -> Target<'_> {
    Target {
        zero_copy,
        interface: &interface.name,
        index: interface.index,
        queue,
        frames: interface.frames(),
        receives_icmp: false,
    }
}

/// Whether the driver supports zero copy for frames of `interface`, checked by binding a queue
/// briefly.
///
/// # Errors
///
/// - [`NicError::Umem`]: the kernel refuses the memory.
/// - [`NicError::Queue`]: a process uses the queue, this one lacks privileges, or the kernel
///   refuses for another reason.
pub fn try_zero_copy(interface: &Interface) -> Result<bool, NicError> {
    match open_probe(&probe(interface, 0, ZeroCopy::Demand)) {
        Ok(_) => Ok(true),
        Err(NicError::Queue(OpenQueueError::NoZeroCopy { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A queue that nothing goes through.
fn open_probe(target: &Target<'_>) -> Result<XdpIo, NicError> {
    let (memory, _) = umem::create(&UmemSpec {
        receive: PROBE_RING / 2,
        transmit: PROBE_RING / 2,
        frame_bytes: FRAME_CAPACITY,
        ring: PROBE_RING,
        posted: 0,
        region_bytes: 0,
        node: None,
        metadata: None,
    })?;
    Ok(XdpIo::open(target, FRAME_CAPACITY, memory)?)
}
