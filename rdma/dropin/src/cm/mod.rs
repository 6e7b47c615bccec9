//! The connection manager: what `rdma/rdma_cma.h` has.

pub mod pending;
