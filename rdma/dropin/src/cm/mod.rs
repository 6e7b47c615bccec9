//! Functions of `rdma/rdma_cma.h`: the connection manager.

pub mod pending;
