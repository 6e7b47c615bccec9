//! State of a switch and of its clients, as a client is shown it.

use std::num::NonZero;

use crate::counters::Counters;

/// State of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchState {
    /// The switch's generation, which no other switch of this name has.
    pub generation: u64,
    /// What became of all frames.
    pub counters: Counters,
    /// Whether the client that asks may have a way of its own to clients that it trusts.
    pub may_pair: bool,
    /// Number of clients, without the one that asks.
    pub count: u32,
    /// The clients, without the one that asks, and those of its user first. The message carries the
    /// first [`LIST_MAX`](crate::LIST_MAX).
    pub clients: Vec<ClientState>,
}

/// State of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// The user.
    pub uid: u32,
    /// The process, in the switch's namespace. `None`: it is another user's than that of the client
    /// that asks, or the switch cannot see it.
    pub process: Option<NonZero<u32>>,
    /// Number of TCP ports that it has.
    pub ports: u32,
    /// Number of clients that it has a way of its own to.
    pub peers: u32,
    /// Whether the client that asks may have a way of its own to it.
    pub may_pair: bool,
}
