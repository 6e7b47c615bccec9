//! Software switch: it carries Ethernet frames between the RNICs of several processes on one host
//! (decision record driver/0037).
//!
//! Each process keeps its own engine, TCP and verbs. What the processes share is this switch, which
//! knows clients, their TCP ports and their frames, and nothing of TCP's state. It has no I/O, no
//! clock and no thread: [`Switch::attach`], [`Switch::handle`], [`Switch::turn`] and
//! [`Switch::detach`] are called by a program that has all of them, or by a test.
//!
//! # Trust
//!
//! Every byte that a client has written is hostile. The switch copies a frame's headers first,
//! judges the copy, and then delivers the copy. So a client that changes its frame meanwhile
//! changes nothing that was judged. A frame leaves a client only with a source address and port
//! that the client has reserved. A client that breaks the rules of the rings is detached. No other
//! client notices.
#![forbid(unsafe_code)]

mod budget;
mod counters;
mod memory;
mod message;
mod ports;
mod request;
mod resets;
mod segment;
mod state;
mod station;
mod switch;

pub use counters::Counters;
pub use memory::{ClientMemory, Delivery, HEAD, Head, Hostile};
pub use message::{
    Before, Event, Hello, LIST_MAX, MESSAGE_MAX, Malformed, NAME_MAX, ToClient, ToSwitch, VERSION,
    Welcome,
};
pub use ports::LINGER;
pub use request::{Refusal, Reply, Request};
pub use state::{ClientState, SwitchState};
pub use station::{MacAddress, SWITCH};
pub use switch::{ClientId, Config, Identity, Switch};
