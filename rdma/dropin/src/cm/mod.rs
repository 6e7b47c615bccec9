//! The connection manager: the functions of `rdma/rdma_cma.h`.
//!
//! | subject | module |
//! |---|---|
//! | identifiers, and the channels of their events | `id` |
//! | events that programs take | `events` |
//! | making, moving, destroying; synchronous calls | `life` |
//! | binding and resolving | `resolving`, with `address` |
//! | listening, connecting, accepting, rejecting, disconnecting | `connecting`, with `pending_request` |
//! | queue pairs and shared receive queues of identifiers | `qp` |
//! | endpoints, addresses of names, options | `endpoint`, `addrinfo`, `options` |
//! | contexts that identifiers share | `devices` |

mod address;
pub mod addrinfo;
mod backlog;
pub mod connecting;
pub mod devices;
pub mod endpoint;
pub mod events;
mod id;
pub mod life;
mod numbers;
pub mod options;
mod pending_request;
pub mod qp;
pub mod resolving;
#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;
