//! TCP connections over a packet interface.
//!
//! A [`Stack`] owns one [`PacketIo`](xwarp_driver::PacketIo) and every connection on it. It has no
//! thread, no clock and no lock. The caller passes the time, real or virtual, to [`Stack::step`],
//! and everything else follows from the frames. Connections are found by the hash of their 4-tuple,
//! so that no connection pays for another. smoltcp reads and writes headers; the engine behind them
//! is xwarp's own.
//!
//! No byte is copied between a frame and the application that reads or writes it. Received bytes
//! are read in their frame, and stay there while they wait for others. Written bytes lie in the
//! frame that carries them, and the same frame is retransmitted until it is acknowledged. Each
//! committed piece is one segment, also when it is retransmitted (decision record tcp/0001).
//!
//! # Standards
//!
//! - TCP: RFC 9293, with timestamps, window scale and PAWS of RFC 7323, and initial sequence
//!   numbers of RFC 6528.
//! - Blind attacks: RFC 5961, RFC 1337.
//! - Loss: RFC 2018 and RFC 2883 (SACK, D-SACK), RFC 8985 (RACK-TLP), RFC 6937 (PRR), RFC 6582 for
//!   peers without SACK.
//! - Timeouts: RFC 6298, with a floor of [`StackConfig::min_rto`]. RFC 3522 and RFC 3708 undo
//!   needless recoveries.
//! - ECN: RFC 3168, RFC 8257.
//! - TIME-WAIT lasts 10 s. A newer SYN ends it early (RFC 9293 §3.6.1, RFC 6191), and so does a new
//!   connection that needs the room.
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod config;
mod congestion;
mod conn;
mod counters;
mod delivery_rate;
mod device;
mod error;
mod event;
mod handle_map;
mod rtt;
mod stack;
mod time;
mod windowed_max;
mod wire;

pub use config::{Path, RouteMetrics, StackConfig};
pub use congestion::CongestionControl;
pub use conn::{Conn, ConnLoad, MAX_ACK_DELAY, MAX_RTO, MAX_SEGMENTS_IN_FLIGHT};
pub use counters::StackCounters;
pub use error::{ConnectError, ListenError};
pub use event::{CloseReason, ConnId, Event, ListenerId};
pub use stack::{ConnMut, Stack, StrayAnswers};
pub use time::Instant;
