//! TCP connections over a packet interface: smoltcp's state machine behind [`Stack`].
//!
//! A [`Stack`] owns one [`PacketIo`](xwarp_driver::PacketIo) and every connection on it. It has no thread, no clock and no lock:
//! [`Stack::step`] is called with the time, real or virtual, and everything else follows from the frames. Each connection is a
//! smoltcp interface of its own with one socket in it, found by the hash of its 4-tuple, so that no connection pays for another;
//! nothing of smoltcp appears in the interface, so that it can be replaced.
//!
//! # Limits of this stage
//!
//! They are smoltcp's, and go with it:
//!
//! - No congestion control: the sender fills the peer's window. A connection's window is fixed by [`StackConfig::buffer`].
//! - Loss recovery is fast retransmit of one segment at three duplicate ACKs, else a retransmission timeout of at least 1 s after
//!   which everything unacknowledged is sent again (go-back-N). Received SACK blocks are not used.
//! - Each direction copies once, between the frame and the connection's ring.
//! - TIME-WAIT lasts 10 s. A SYN with a higher sequence number ends it early (RFC 9293 §3.6.1), and so does a new connection for
//!   which there would be no room otherwise.
//! - An in-window RST is believed wherever in the window it lies (RFC 9293 §3.10.7.4, without RFC 5961 §3.2).
#![forbid(unsafe_code)]

mod config;
mod conn;
mod counters;
mod egress;
mod error;
mod event;
mod flow;
mod inbound;
mod ingress;
mod life;
mod link;
mod lower;
mod port;
mod probe;
mod reset;
mod slots;
mod stack;
mod time;
mod timers;
mod track;

pub use config::{Path, StackConfig};
pub use counters::StackCounters;
pub use error::{ConnectError, ListenError};
pub use event::{CloseReason, ConnId, Event, ListenerId};
pub use stack::Stack;
pub use time::Instant;
pub use track::MAX_SEGMENTS_IN_FLIGHT;
