//! Byte vectors and behaviour of the whole receive and transmit path. The bytes are those of
//! `rdma/iwarp/protocol/vectors.md`: computed by a separate encoder, checked by a separate decoder
//! and by Wireshark.

mod conformance;
mod enhanced;
mod extensions;
mod fpdu;
mod input;
mod markers;
mod messages;
mod prediction;
mod properties;
mod rtr;
mod segmentation;
mod startup;
mod support;
mod terminates;
