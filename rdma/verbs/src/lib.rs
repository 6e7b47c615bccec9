//! RDMA verbs on any Linux network interface that can run XDP. Applications link to this library.
//!
//! The objects are those of the verbs draft (draft-hilland-rddp-verbs-00). An [`Rnic`] is opened on
//! an interface. A [`ProtectionDomain`] groups [`MemoryRegion`]s and [`QueuePair`]s. Work requests
//! are posted to a queue pair and their results polled from a [`CompletionQueue`]. Connections are
//! made in the manner of rdma_cm: [`QueuePair::connect`] on one host, [`Rnic::listen`] on the
//! other.
//!
//! The peers of all queue pairs of a domain that know a region's `STag` can access the region,
//! within its access rights. A [`MemoryWindow`] gives one peer access to a part of a region until
//! it is invalidated. Bind and invalidation are work requests.
//!
//! Memory is of two kinds. A [`MemoryRegion`] is shared: peers may change its bytes at any time, so
//! they are copied in and out. A [`Buffer`](buffers::Buffer) is exclusive: no peer can access it,
//! and from posting until its completion the application cannot, either
//! ([`PostedBuffers`](buffers::PostedBuffers)).
//!
//! ```no_run
//! use std::time::Duration;
//! use xwarp::{Access, QpConfig, Rnic, RnicConfig, SendRequest, WrId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rnic = Rnic::open("eth1", &RnicConfig::default())?;
//! let pd = rnic.allocate_pd()?;
//! let mut cq = rnic.create_cq(64)?;
//! let region = pd.allocate(4096, Access::LOCAL_READ)?;
//! region.bytes().write(0, b"hello")?;
//!
//! let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
//! qp.connect("10.0.0.2:7471".parse()?, b"", Duration::from_secs(5))?;
//! qp.post_send(SendRequest::send(WrId(1), region.local(0, 5)))?;
//! let completion = cq.wait(Duration::from_secs(5))?.ok_or("nothing completed")?;
//! if !completion.is_success() {
//!     // "Flushed" says only that the connection ended first.
//!     let why = qp.why_ended().map(|why| format!(", as {why}"));
//!     return Err(format!("{}{}", completion.status, why.unwrap_or_default()).into());
//! }
//! # Ok(()) }
//! ```
//!
//! The other host listens. It posts a receive buffer before it accepts, as the message may arrive
//! at once:
//!
//! ```no_run
//! use std::time::Duration;
//! use xwarp::{Access, QpConfig, RecvRequest, Rnic, RnicConfig, WrId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rnic = Rnic::open("eth1", &RnicConfig::default())?;
//! let pd = rnic.allocate_pd()?;
//! let mut cq = rnic.create_cq(64)?;
//! let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
//!
//! let mut listener = rnic.listen("0.0.0.0:7471".parse()?)?;
//! let request = listener.accept(Duration::from_secs(60))?.ok_or("no peer connected")?;
//! let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
//! qp.post_recv(RecvRequest::new(WrId(1), region.local(0, 4096)))?;
//! request.accept(&mut qp, b"")?;
//! let completion = cq.wait(Duration::from_secs(5))?.ok_or("no message arrived")?;
//! let mut message = vec![0; usize::try_from(completion.byte_len)?];
//! region.bytes().read(0, &mut message)?;
//! assert_eq!(message, b"hello");
//! # Ok(()) }
//! ```
//!
//! Items that every program uses are at the root; the rest is in modules:
//!
//! | module | has |
//! |---|---|
//! | [`work`] | what a work request is made of: operation, payload, inline data; the two queues that requests are posted to |
//! | [`memory`] | registration, buffer lists, binding of windows, bytes that a peer may change |
//! | [`buffers`] | exclusive buffers, and the set that posts them |
//! | [`completion`] | completion channels, arming, the poller |
//! | [`cm`] | connection manager: MPA's settings, requests of peers, connections that are being made |
//! | [`stream`] | TCP connections in streaming mode |
//! | [`event`] | asynchronous events and their handlers, why a connection has ended |
//! | [`attr`] | attributes, identifiers and counters: what queries return and Modify QP takes |
//! | [`config`] | the parts of [`RnicConfig`]: interface, XDP mode, progress, congestion control |
//! | [`error`] | errors of each verb, and Terminate codes |
//! | `tokio`, with the feature of that name | futures of channels, events, listeners, streams and connections |
//! | [`sim`] | seams for simulation: a host of fixed answers, the caller's clock |
//!
//! Five whole programs, each of which is its own server and client, are in `rdma/verbs/examples/`:
//!
//! | `cargo run -p xwarp --example` | shows |
//! |---|---|
//! | `ping_pong` | timed Sends and Receives in both directions, out of exclusive buffers; the waiting thread runs the engine |
//! | `key_value` | a table that clients read by RDMA Read alone, and how a client notices that it read an entry during its update |
//! | `journal` | the halves of a data path in two threads, completions polled in batches, inline data, lists of two elements, a constant registered in place |
//! | `tokio_echo` (`--features tokio`) | a task for each client, and a task that runs the inline engine |
//! | `event_server` | one thread for many clients: it sleeps on the descriptors of an inline engine, a listener, a completion channel and asynchronous events |
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod buffers;
pub mod cm;
mod cq;
pub mod error;
mod host;
pub mod memory;
mod pd;
mod qp;
mod rnic;
mod runtime;
mod srq;
#[cfg(feature = "tokio")]
pub mod tokio;

/// Attributes: what queries of the objects return, what Modify QP takes, identifiers, and counters
/// (verbs draft §9).
pub mod attr {
    pub use crate::cq::CqInfo;
    pub use crate::qp::change::QpChange;
    pub use crate::rnic::network::SwitchInfo;
    pub use crate::srq::SrqInfo;
    pub use xwarp_driver::net::MacAddr;
    pub use xwarp_driver::switch::SwitchDevice;
    pub use xwarp_driver::{IoCounters, NicInfo};
    pub use xwarp_rnic::model::{
        CqId, DequeuingModel, EngineCounters, PdId, QpId, QpInfo, RnicAttributes, RnicCounters,
        RqLimit, SrqId, TerminateInfo, TerminateOrigin,
    };
    pub use xwarp_tcp::{ConnLoad, StackCounters};
}

/// Completion notification: channels, arming, and the polling handle of a borrowed queue (verbs
/// draft §8.2.5).
pub mod completion {
    pub use crate::cq::CompletionPoller;
    pub use crate::cq::channel::CompletionChannel;
    pub use xwarp_rnic::queues::Arm;
}

/// Configuration of an RNIC: the parts of [`RnicConfig`].
pub mod config {
    pub use crate::runtime::config::{Attach, Progress, WaitMode};
    pub use xwarp_driver::attach::XdpMode;
    pub use xwarp_driver::{
        Capture, NicConfig, Polling, Queues, ServedQueues, TxChecksum, ZeroCopy,
    };
    pub use xwarp_tcp::CongestionControl;
}

/// Asynchronous events: what an RNIC reports besides completions, and how to receive it (verbs
/// draft §8.3, §9.5); why a connection has ended.
pub mod event {
    pub use crate::qp::state_changes::StateChanges;
    pub use crate::rnic::async_events::AsyncEvents;
    pub use xwarp_rnic::model::{
        AsyncEvent, AsyncEventKind, ConnectionEnd, EventContext, EventResource, HandlerId,
    };
}

/// Simulation: seams for tests that run an RNIC without a kernel, with virtual time.
pub mod sim {
    pub use crate::host::{FixedHost, Neighbours};
    pub use xwarp_driver::net::{
        Channels, DriverRings, InterfaceEnd, InterfaceMonitor, InterfaceNews, InterfaceReporter,
        InterfaceState, Network, Setting,
    };
    pub use xwarp_driver::{
        BoardError, Doorbell, Icmp, IoError, LocalHop, MemoryIo, PacketIo, QueueLevels, RegionPool,
        RxFrame, SentFrame, StateBoard, TxFrame, Wire,
    };
    pub use xwarp_rnic::model::{Host, LocalPort, NextHop, NextHopSearch, PresentWay, Way};
    pub use xwarp_tcp::{Instant, RouteMetrics, StackConfig};
}

/// Streaming mode: TCP connections before they carry iWARP (verbs draft §6.2.1.2, §6.6.1).
pub mod stream {
    pub use crate::cm::streaming::{ConnectingStream, LlpStream, StreamListener};
    pub use xwarp_rnic::model::{Framing, StreamId, StreamState};
}

/// Work requests: what they are made of, and the queues that they are posted to (verbs draft §8.1,
/// §8.2).
pub mod work {
    pub use crate::qp::batch::{Piece, PlainRequest, ReceiveBatch, SendBatch};
    pub use crate::qp::data_path::{DataPath, ReceiveQueue, SendQueue};
    pub use xwarp_iwarp::AtomicOperation;
    pub use xwarp_rnic::model::{
        Immediate, InlineData, MAX_INLINE, MAX_SGE, Operation, Payload, Sgl,
    };
}

pub use cm::listener::Listener;
pub use cq::CompletionQueue;
pub use memory::region::MemoryRegion;
pub use memory::window::MemoryWindow;
pub use pd::ProtectionDomain;
pub use qp::QueuePair;
pub use rnic::config::RnicConfig;
pub use rnic::{Rnic, interface_name};
pub use srq::{SharedReceiveQueue, SrqConfig};
pub use xwarp_iwarp::Stag;
pub use xwarp_rnic::model::{
    Access, CompletionStatus, Opcode, QpConfig, QpState, RecvRequest, RemoteAddress, SendRequest,
    Sge, WorkCompletion, WrId,
};
