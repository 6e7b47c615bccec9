//! RDMAP: operations and their checks, both directions of one stream (RFC 5040, RFC 7306).
//!
//! [`Receiver`] judges each inbound DDP segment, and returns what to do with it. [`Sender`] numbers
//! outbound messages and cuts them into segments. Questions about regions and buffers go to the
//! caller through [`Resources`].

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

/// Configuration of both sides of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Maximum number of inbound Read and Atomic Requests that wait for their response; 0 refuses
    /// all (R5040-6.1-3, R7306-5.2-1).
    pub ird: u16,
    /// Maximum number of our outstanding Read and Atomic Requests (R5040-6.1-2).
    pub ord: u16,
    /// DDP and RDMAP version that start-up agreed on: [`VERSION_IETF`], or the RDMA Consortium's
    /// (RFC 5041 §4.1, RFC 5040 §4.1).
    pub version: u8,
    /// RFC 7306: enables Immediate Data and Atomic Operations. Never with the RDMA Consortium's
    /// version (R7306-4.1-2). Start-up does not negotiate whether the peer supports them (§1.1):
    /// decision record iwarp/0004.
    pub extensions: bool,
    /// Responder in the peer-to-peer model: a zero-length Send as first message is the RTR
    /// (R6581-9.2-11).
    pub await_rtr: bool,
    /// Whether Sends may carry four bytes of immediate data. Both ends must know it of each other,
    /// as no RFC has it: the opcodes are unassigned (RFC 5040 §4.1).
    pub send_immediates: bool,
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
            send_immediates: false,
        }
    }
}
