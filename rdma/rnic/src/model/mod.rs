//! Plain values: arguments and results of verbs. They depend on no queue, table or engine.

mod attributes;
mod completion;
mod counters;
mod end;
mod error;
mod event;
mod host;
mod ids;
mod inbound_error;
mod limits;
mod memory;
mod modify_qp;
mod mpa;
mod qp_config;
mod qp_identity;
mod qp_info;
mod qp_state;
mod sge;
mod shown_state;
mod stream;
mod work;

pub use attributes::{DequeuingModel, RnicAttributes};
pub(crate) use completion::Detail;
pub use completion::{CompletionStatus, Opcode, WorkCompletion};
pub use counters::{EngineCounters, RnicCounters};
pub use end::ConnectionEnd;
pub use error::{
    AcceptError, CapabilityError, ConnectError, CreateError, DeallocateError, DestroyError,
    HandlerError, ListenError, ModifyError, OutOfMemory, PostError, QueryError, RegisterError,
    ResizeError, RnicUnavailable, StreamError,
};
pub use event::{AsyncEvent, AsyncEventKind, EventContext, EventHandler, EventResource};
pub use host::{Host, HostError, LocalPort, NextHop, NextHopSearch, PresentWay, Way};
pub(crate) use ids::{ALL_QP_NUMBERS, QP_NUMBERS, number_of};
pub use ids::{CqId, HandlerId, IncomingId, ListenKey, PdId, QpId, RnicId, SrqId, StreamId, WrId};
pub use inbound_error::{InboundError, ProtectionError};
pub use limits::{
    MAX_CQ_ENTRIES, MAX_CQS, MAX_DEPTH, MAX_HANDLERS, MAX_LIST_ENTRIES, MAX_PDS, MAX_QPS,
    MAX_READS, MAX_SRQS, MAX_STAGS,
};
pub use memory::{
    Access, Addressing, Bind, EntrySizes, FastRegister, MemoryOperation, PblMode, PhysicalList,
    RegionInfo, RegionMemory, RegionSpec, SpecError, WindowInfo,
};
pub use modify_qp::{Depths, Handover, ModifyQp, ReadDepths};
pub use mpa::{ConnectionInfo, MpaConfig, PeerToPeer, StartUpParameters};
pub use qp_config::QpConfig;
pub use qp_identity::{QpAccess, QpIdentity, StagScope};
pub use qp_info::{QpInfo, RqLimit, TerminateInfo, TerminateOrigin};
pub use qp_state::QpState;
pub use sge::{MAX_SGE, RemoteAddress, RemoteAddressError, Sge, Sgl, total};
pub use shown_state::ShownState;
pub use stream::{Framing, StreamState};
pub use work::{
    Immediate, InlineData, MAX_INLINE, OPERAND, Operation, Payload, PayloadLimits, RecvRequest,
    SendRequest, check_buffers, check_capability,
};
