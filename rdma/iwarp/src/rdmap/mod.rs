//! RDMAP: operations and their checks, both directions of one stream (RFC 5040, RFC 7306).
//!
//! [`Receiver`] judges each inbound DDP segment and says what to do with it; [`Sender`] numbers outbound messages and
//! cuts them into segments. Region and buffer knowledge is asked of the caller through [`Resources`].

mod atomic;
mod header;
mod message;
mod mpa_terminate;
mod opcode;
mod received;
mod receiver;
mod resources;
mod response;
mod term_code;
mod terminate;
mod violation;

pub use atomic::{
    ATOMIC_OPERAND_BYTES, ATOMIC_REQUEST_BYTES, ATOMIC_RESPONSE_BYTES, AtomicOperation,
    AtomicRequest, AtomicRequestHeader, AtomicResponseHeader, InboundAtomic,
};
pub use header::{
    IMMEDIATE_BYTES, READ_REQUEST_BYTES, ReadRequest, ReadRequestHeader, TERMINATE_CONTROL_BYTES,
    TerminateControl,
};
pub use message::{MAX_SEGMENT_HEADER, Message, READ_REQUEST_ULPDU, Segment, Sender};
pub use opcode::{Opcode, SendKind};
pub use received::{CapturedHeader, ReceivedTerminate, TerminateFault};
pub use receiver::{
    FastReadSegment, FastSegment, Inbound, InboundRead, Placement, Prediction, Receiver,
    predict_unverified,
};
pub use resources::{AccessError, AccessKind, InvalidateError, Resources};
pub use response::{ReadResponse, SourceRange};
pub use term_code::TermCode;
pub use terminate::{MAX_TERMINATE, Terminate};
pub use violation::{Violation, ViolationCause};

use crate::ddp::VERSION_IETF;

/// What both sides of one stream are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Inbound Read and Atomic Requests that may wait for their response; 0 refuses them all (R5040-6.1-3, R7306-5.2-1).
    pub ird: u16,
    /// Read and Atomic Requests of ours that may be outstanding (R5040-6.1-2).
    pub ord: u16,
    /// DDP and RDMAP version, as start-up settled it: [`VERSION_IETF`], or the RDMA Consortium's (RFC 5041 §4.1, RFC 5040 §4.1).
    pub version: u8,
    /// RFC 7306: Immediate Data and Atomic Operations are known. Never so with the RDMA Consortium's version (R7306-4.1-2).
    pub extensions: bool,
    /// The responder's side of the peer-to-peer model: a zero-length Send as first message is the RTR (R6581-9.2-11).
    pub await_rtr: bool,
}

impl StreamConfig {
    /// An IETF stream with these read depths, without RFC 7306, in the client-server model.
    pub const fn new(ird: u16, ord: u16) -> Self {
        Self {
            ird,
            ord,
            version: VERSION_IETF,
            extensions: false,
            await_rtr: false,
        }
    }
}
