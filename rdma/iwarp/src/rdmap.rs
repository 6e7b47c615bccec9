//! RDMAP: operations and their checks, both directions of one stream (RFC 5040).
//!
//! [`Receiver`] judges each inbound DDP segment and says what to do with it; [`Sender`] numbers outbound messages and
//! cuts them into segments. Region and buffer knowledge is asked of the caller through [`Resources`].

mod header;
mod message;
mod opcode;
mod received;
mod receiver;
mod resources;
mod term_code;
mod terminate;
mod violation;

pub use header::{
    READ_REQUEST_BYTES, ReadRequest, ReadRequestHeader, TERMINATE_CONTROL_BYTES, TerminateControl,
};
pub use message::{MAX_SEGMENT_HEADER, Message, Segment, Sender};
pub use opcode::{Opcode, SendKind};
pub use received::{CapturedHeader, ReceivedTerminate, TerminateFault};
pub use receiver::{Inbound, InboundRead, Receiver};
pub use resources::{Access, AccessError, InvalidateError, Resources};
pub use term_code::TermCode;
pub use terminate::{MAX_TERMINATE, Terminate};
pub use violation::{Violation, ViolationCause};

use crate::ddp::VERSION_IETF;

/// What both sides of one stream are set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Inbound Read Requests that may wait for their response; 0 refuses them all (R5040-6.1-3).
    pub ird: u16,
    /// Read Requests of ours that may be outstanding (R5040-6.1-2).
    pub ord: u16,
    /// DDP and RDMAP version: [`VERSION_IETF`] (RFC 5041 §4.1, RFC 5040 §4.1).
    pub version: u8,
}

impl StreamConfig {
    /// An IETF stream with these read depths.
    pub const fn new(ird: u16, ord: u16) -> Self {
        Self {
            ird,
            ord,
            version: VERSION_IETF,
        }
    }
}
