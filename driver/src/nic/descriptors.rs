//! File descriptors that opening an interface takes.

use std::num::NonZero;

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

use super::error::{DESCRIPTORS, NicError};
use super::queues::{Queues, ServedQueues};
use crate::net::Interface;

/// File descriptors per further queue: its socket, and one shared by all queues of an engine.
const DESCRIPTORS_OF_A_QUEUE: usize = 2;
/// File descriptors per further engine: its wake-up, its searches for next hops, and its sockets
/// for ICMP.
const DESCRIPTORS_OF_AN_ENGINE: usize = 6;

/// Processors that this process may use.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Maximum number of file descriptors to open.
pub(super) fn descriptors(queues: &ServedQueues, engines: usize) -> usize {
    let further = queues.served.len() - 1;
    let engines = further.min(engines.saturating_sub(1));
    DESCRIPTORS + DESCRIPTORS_OF_A_QUEUE * further + DESCRIPTORS_OF_AN_ENGINE * engines
}

/// File descriptors that opening all queues of an interface takes, of as many engines as there are
/// processors.
///
/// # Errors
///
/// [`NicError::NoSuchQueues`]: the interface has no queue, or more than can be served.
pub fn descriptors_needed(interface: &Interface) -> Result<usize, NicError> {
    Ok(descriptors(&Queues::All.of(interface)?, processors()))
}

/// libbpf reports many different errors if a descriptor is missing, so the descriptors are counted
/// beforehand.
pub(super) fn check_descriptors(wanted: usize) -> Result<(), NicError> {
    let taken: Result<Vec<EventFd>, Errno> = (0..wanted).map(|_| EventFd::new()).collect();
    taken
        .map(drop)
        .map_err(|errno| NicError::Descriptors(errno.into()))
}
