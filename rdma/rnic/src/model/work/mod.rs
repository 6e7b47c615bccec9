//! Work requests: what an application posts (verbs draft §8.1, §9.3.1).

mod operation;
mod request;
mod sge_limits;

pub use operation::{Immediate, OPERAND, Operation};
pub use request::{RecvRequest, SendRequest};
pub use sge_limits::{SgeLimits, check_capability, check_list};
