//! Connections of an engine: listeners, incoming connections that wait for their answer, streams,
//! and ports of connections that have ended.

mod lingering;
mod listen;
mod listeners;
mod streaming;
mod streams;

pub use listeners::{Clients, IncomingRequest};
pub use streams::StreamOrder;

pub(super) use lingering::Lingering;
pub(super) use listen::Incoming;
pub(super) use listeners::Listeners;
pub(super) use streams::Streams;
