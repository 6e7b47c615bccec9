//! TCP connections over a packet interface.
//!
//! A [`Stack`] owns one [`PacketIo`](xwarp_driver::PacketIo) and every connection on it. It has no thread, no clock and no lock:
//! [`Stack::step`] is called with the time, real or virtual, and everything else follows from the frames. Connections are found by
//! the hash of their 4-tuple, so that no connection pays for another. smoltcp reads and writes headers; the engine behind them is
//! our own.
//!
//! Nothing is copied between a frame and whoever reads or writes it: received bytes are read where the frame has them, and held
//! there while they wait for others; what is written lies in the frame that carries it, which is also what is sent again until it
//! is acknowledged. Each piece that is committed is one segment, also when it is sent again.
//!
//! # Standards
//!
//! RFC 9293 with RFC 7323 (timestamps, window scale, PAWS), RFC 5961 and RFC 1337 (blind attacks), RFC 6528 (sequence numbers),
//! RFC 2018 and RFC 2883 (SACK, D-SACK), RFC 8985 (RACK-TLP), RFC 6298 (RTO, with a floor of [`StackConfig::min_rto`]), RFC 3522
//! and RFC 3708 (needless recoveries are undone), RFC 6937 (PRR), RFC 6582 for peers without SACK, RFC 3168 and RFC 8257 (ECN). TIME-WAIT lasts 10 s; a newer
//! SYN ends it early (RFC 9293 §3.6.1, RFC 6191), and so does a new connection for which there would be no room otherwise.
#![forbid(unsafe_code)]

mod config;
mod congestion;
mod conn;
mod counters;
mod delivery_rate;
mod device;
mod error;
mod event;
mod rtt;
mod slots;
mod stack;
mod time;
mod windowed_max;
mod wire;

pub use config::{Path, StackConfig};
pub use congestion::Algorithm;
pub use conn::{ConnLoad, MAX_SEGMENTS_IN_FLIGHT};
pub use counters::StackCounters;
pub use error::{ConnectError, ListenError};
pub use event::{CloseReason, ConnId, Event, ListenerId};
pub use stack::Stack;
pub use time::Instant;
