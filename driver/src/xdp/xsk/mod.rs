//! AF_XDP as the kernel offers it: a socket, the memory registered with it, and the four rings that
//! it shares with us (decision record driver/0017).

#[cfg(test)]
pub(crate) mod double;
mod ring;
mod socket;

pub(crate) use ring::Descriptor;
pub(crate) use socket::{Calls, Computes, Queue, RingSet, Socket, TxMetadata, UmemArea};
