//! Streaming mode: TCP connections before they carry iWARP (verbs draft §6.2.1.2, §6.6.1).

pub use crate::streaming::{ConnectingStream, LlpStream, StreamListener};
pub use xwarp_rnic::model::{Framing, StreamId, StreamState};
