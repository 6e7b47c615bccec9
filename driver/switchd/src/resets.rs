//! RSTs for the connections of a client that has died, read from the frames that it sent.
//!
//! The switch keeps no table of connections. The memory of a dead client outlives it, and the last
//! segment of each connection in it shows the sequence number that the peer expects.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::memory::Head;
use crate::segment::{Reset, Segment};

/// One RST for each connection of which a segment is among the frames, to its peer.
/// `is_the_clients`: whether a source is one of the client's ports.
pub(crate) fn resets_of(
    frames: &[Head],
    is_the_clients: impl Fn(SocketAddr) -> bool,
) -> Vec<Reset> {
    let mut last: HashMap<(SocketAddr, SocketAddr), Reset> = HashMap::new();
    for segment in frames.iter().filter_map(Segment::parse) {
        if !is_the_clients(segment.source) {
            continue;
        }
        let reset = Reset {
            from: segment.source,
            to: segment.destination,
            seq: segment.end(),
            ack: segment.acknowledges(),
        };
        let known = last.entry((reset.from, reset.to)).or_insert(reset);
        known.seq = later(known.seq, reset.seq);
        known.ack = match (known.ack, reset.ack) {
            (Some(known), Some(new)) => Some(later(known, new)),
            (known, new) => known.or(new),
        };
    }
    last.into_values().collect()
}

/// The later of two sequence numbers (RFC 9293 §3.4).
fn later(one: u32, other: u32) -> u32 {
    if other.wrapping_sub(one).cast_signed() > 0 {
        other
    } else {
        one
    }
}
