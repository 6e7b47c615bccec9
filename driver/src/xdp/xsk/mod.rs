//! AF_XDP as the kernel offers it: a socket, the memory registered with it, and the four rings that
//! it shares with us (decision record driver/0017).
//!
//! The base sets up a socket and its memory. By default that is this driver itself. With feature
//! `xsk-rs` it is the crate of that name, as an oracle, with its own UMEM, rings and way of
//! binding. The use of the rings is the same.

#[cfg(test)]
pub(crate) mod double;
#[cfg(feature = "xsk-rs")]
mod library;
#[cfg(not(feature = "xsk-rs"))]
mod own;
mod ring;
mod socket;

#[cfg(feature = "xsk-rs")]
pub(crate) use library::{BoundSocket, Unbound, register};
#[cfg(not(feature = "xsk-rs"))]
pub(crate) use own::{BoundSocket, Unbound, register};
pub(crate) use ring::Descriptor;
pub(crate) use socket::{
    Bind, CHUNK_BYTES, Calls, Computes, MemoryRequest, Queue, RingSet, TxMetadata,
};
