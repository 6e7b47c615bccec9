//! RDMA verbs on any Linux network interface that can run XDP: the library that an application links to.
//!
//! The objects are those of the verbs draft (draft-hilland-rddp-verbs-00): an [`Rnic`] is opened on an interface; a
//! [`ProtectionDomain`] groups [`MemoryRegion`]s and [`QueuePair`]s; work requests are posted to a queue pair and their results
//! polled from a [`CompletionQueue`]. Connections are made as rdma_cm makes them: [`QueuePair::connect`] on one host,
//! [`Rnic::listen`] on the other.
//!
//! A region is open to the peers of all queue pairs of its domain that know its `STag`, as far as its rights go. What one peer shall use for a
//! while, and a part of a region only, is given by a [`MemoryWindow`], and taken by an invalidation, which are work requests.
//!
//! Memory is of two kinds. A [`MemoryRegion`] is shared: its bytes may change at any time that its rights allow, and are copied in and out. A [`Buffer`]
//! is exclusive: no peer reaches it, and it cannot be touched from when it is posted until its completion gives it back ([`PostedBuffers`]).
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
//! assert!(completion.is_success());
//! # Ok(()) }
//! ```
//!
//! The other host listens, and posts a buffer before it accepts, as the message may come at once:
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
//! let request = listener.accept(Duration::from_secs(60))?.ok_or("nobody has come")?;
//! let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq)?;
//! qp.post_recv(RecvRequest::new(WrId(1), region.local(0, 4096)))?;
//! request.accept(&mut qp, b"")?;
//! let completion = cq.wait(Duration::from_secs(5))?.ok_or("nothing has come")?;
//! let mut message = vec![0; usize::try_from(completion.byte_len)?];
//! region.bytes().read(0, &mut message)?;
//! assert_eq!(message, b"hello");
//! # Ok(()) }
//! ```
//!
//! Three whole programs, each of which is its own server and client, are in `rdma/verbs/examples/`:
//!
//! | `cargo run -p xwarp --example` | shows |
//! |---|---|
//! | `ping_pong` | Sends and Receives there and back, timed, out of exclusive buffers, with an engine that the waiting thread turns itself |
//! | `key_value` | a table that is looked up by RDMA Read alone, and how a Read of an entry that is being renewed is noticed |
//! | `event_server` | one thread for many clients: it sleeps on the descriptors of an inline engine, a listener, a completion channel and asynchronous events |
#![forbid(unsafe_code)]

mod async_events;
mod buffers;
mod channel;
mod cm;
mod connecting;
mod control;
mod cq;
mod data_path;
#[cfg(doctest)]
mod does_not_compile;
mod error;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod host;
mod in_handler;
mod inline;
mod memory;
mod pd;
mod qp;
mod qp_change;
mod rnic;
mod runner;
mod srq;
mod state_changes;
mod streaming;

pub use async_events::AsyncEvents;
pub use buffers::{Buffer, BufferRequest, PostReceives, PostSends, PostedBuffers};
pub use channel::CompletionChannel;
pub use cm::{ConnectionRequest, Listener};
pub use connecting::Connecting;
pub use cq::{CompletionPoller, CompletionQueue, CqInfo};
pub use data_path::{DataPath, ReceiveQueue, SendQueue};
pub use error::{
    DataPathError, ModifySrqError, OpenError, PostListError, Refused, ReregisterError, RnicEnded,
    WaitError,
};
pub use host::FixedHost;
pub use memory::{MemoryRegion, MemoryWindow, RegionStag};
pub use pd::ProtectionDomain;
pub use qp::QueuePair;
pub use qp_change::QpChange;
pub use rnic::Rnic;
pub use srq::{SharedReceiveQueue, SrqConfig, SrqInfo};
pub use state_changes::StateChanges;
pub use streaming::{LlpStream, StreamListener};

pub use xwarp_rnic::model::{
    AcceptError, Access, Addressing, AsyncEvent, AsyncEventKind, Bind, Capability,
    CompletionStatus, ConnectError, ConnectionInfo, CqId, CreateError, DeallocateError, Depths,
    DequeuingModel, DestroyError, EngineCounters, EntrySizes, EventContext, EventResource,
    FastRegister, Framing, HandlerError, HandlerId, Host, HostError, Immediate, InboundError,
    InlineData, ListMode, ListenError, LocalPort, MAX_INLINE, MAX_LIST_ENTRIES, MAX_SGE,
    MemoryWork, ModifyError, MpaConfig, Opcode, Operation, OutOfMemory, Payload, PdId, PeerToPeer,
    PhysicalList, PostError, Progress, ProtectionError, QpConfig, QpId, QpInfo, QpState,
    QueryError, RecvRequest, RegionInfo, RegionMemory, RegionSpec, RegisterError, RemoteAddress,
    ResizeError, RnicAttributes, RnicConfig, RnicCounters, RnicUnavailable, RqLimit, SendRequest,
    Sge, Sgl, SpecError, SrqId, StreamError, StreamId, StreamState, TerminateInfo, TerminateOrigin,
    Waiting, WindowInfo, WorkCompletion, WrId,
};
pub use xwarp_rnic::queues::Arm;

pub use xwarp_driver::attach::XdpMode;
pub use xwarp_driver::{
    Capture, CaptureError, CopyError, NicConfig, NicInfo, OutOfBounds, RawPartsError,
    RegionAreaFull, RegionPool, SharedBytes,
};
pub use xwarp_iwarp::mpa::{Depth, EnhancedData, Revision, Rtr, RtrTypes, StartupError};
pub use xwarp_iwarp::{AtomicOperation, Stag, TermCode};
pub use xwarp_tcp::{Algorithm as CongestionControl, ConnLoad, Instant};
