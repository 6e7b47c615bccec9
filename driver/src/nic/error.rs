//! Errors of opening an interface.

use std::io;

use super::queues::NoSuchQueues;
use crate::attach::AttachError;
use crate::net::{InterfaceError, NetlinkError};
use crate::packet_io::TapError;
use crate::xdp::{BusyPollError, OpenQueueError, UmemError};

/// File descriptors for an interface: 11 were counted on Linux 6.18, including those of its engine
/// and of a port. The thread that watches the interface needs 3 more.
pub(super) const DESCRIPTORS: usize = 15;

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NicError {
    /// The process has too few free file descriptors.
    #[error(
        "opening a network interface takes {DESCRIPTORS} file descriptors and some for each further queue, and fewer are left ({0}); raise the limit of open files (`ulimit -n`)"
    )]
    Descriptors(io::Error),
    /// The interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface is down.
    #[error("{0} is down; set it up with `ip link set {0} up`")]
    Down(String),
    /// The interface is the loopback interface, which has no Ethernet frames.
    #[error("{0} is the loopback interface, which has no Ethernet frames; choose another one")]
    Loopback(String),
    /// Its packets have no Ethernet header.
    #[error("{0} carries no Ethernet frames, as tunnels do not; choose another interface")]
    NoEthernet(String),
    /// The requested queues do not exist.
    #[error(transparent)]
    NoSuchQueues(#[from] NoSuchQueues),
    /// The interface could not be watched.
    #[error("cannot watch the interface")]
    Watch(#[from] NetlinkError),
    /// The XDP program could not be attached or found.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A process uses the program that was to be detached.
    #[error(
        "a process uses the XDP program on {0}: end that process first, or add --force, which ends its connections"
    )]
    InUse(String),
    /// Another process serves some of its queues.
    #[error(
        "a process serves queues of {0} already: end it, or have one process serve all that are wanted"
    )]
    Served(String),
    /// The memory for frames could not be allocated.
    #[error(transparent)]
    Umem(#[from] UmemError),
    /// The AF_XDP socket of the queue could not be opened.
    #[error(transparent)]
    Queue(#[from] OpenQueueError),
    /// The NIC does not report receive timestamps, which were required.
    #[error(
        "{0} does not report when frames arrive, so completions would have no times: do without them, or use a NIC and a native mode that have `rx-timestamp` (`xwarp doctor {0}`)"
    )]
    NoTimestamps(String),
    /// The interface cannot be polled, which was required.
    #[error(transparent)]
    BusyPoll(#[from] BusyPollError),
    /// The flows of the XDP program could not be set.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The capture file could not be written.
    #[error(transparent)]
    Capture(#[from] TapError),
}

/// The program's maps could not be changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot set what the XDP program steers")]
#[non_exhaustive]
pub struct SteeringError(#[from] xwarp_bpf::MapError);
