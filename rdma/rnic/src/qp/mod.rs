//! Queue pairs: their state, their stream, sending and receiving. They do not depend on the engine.

mod context;
mod device;
mod fault;
mod first_fpdu_retry;
mod full_operation;
mod new_qp;
mod payload_pass;
mod receive;
mod rights;
mod send;
mod source_port;
mod starting;
mod stream;
mod work_queues;

pub(crate) use new_qp::Receives;
pub use new_qp::{DoneWhen, NewQp, NewReceives, NotReady};
pub(crate) use source_port::SourcePort;
pub(crate) use starting::Outcome;
pub use starting::StartConnect;

pub(crate) use context::QpContext;
pub(crate) use device::{ConnChange, RdmaDevice};
pub(crate) use stream::send_raw;
