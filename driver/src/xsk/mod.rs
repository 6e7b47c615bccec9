//! AF_XDP as the kernel offers it: a socket, the memory registered with it, and the four rings that it shares with us.

mod ring;
mod socket;

pub(crate) use ring::Descriptor;
pub(crate) use socket::{Computes, Queue, RingSet, Socket, TxMetadata, UmemArea};
