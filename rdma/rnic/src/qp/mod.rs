//! Queue pairs: their state, their stream, and what they send and receive. They know no engine.

mod begin;
mod context;
mod device;
mod fault;
mod first_fpdu_retry;
mod in_flight;
mod receive;
mod receive_queue;
mod starting;
mod stream;
mod transmit;
mod tx_message;

pub use context::{NewQp, NewReceives};

pub(crate) use begin::{Next, begin_message};
pub(crate) use context::{Link, QpContext};
pub(crate) use device::Device;
pub(crate) use fault::{Broken, CqOverflow, ReceiveFault, SendFault, Unavailable};
pub(crate) use first_fpdu_retry::Nudge;
pub(crate) use receive::{Tables, receive_one};
pub(crate) use starting::{Outcome, Starting};
pub(crate) use stream::{Close, Gate, Stream, send_raw, send_ulpdu};
pub(crate) use transmit::{Sent, finish_message, send_segment, send_terminate};
