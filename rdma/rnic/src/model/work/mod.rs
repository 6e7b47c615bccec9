//! Work requests that an application posts (verbs draft §8.1, §9.3.1).

mod limits;
mod operation;
mod payload;
mod request;

pub use limits::{PayloadLimits, check_buffers, check_capability};
pub use operation::{Immediate, OPERAND, Operation};
pub use payload::{InlineData, MAX_INLINE, Payload};
pub use request::{RecvRequest, SendRequest};
