//! Structs and numbers of the C interface, as `infiniband/verbs.h` and `rdma/rdma_cma.h` lay them
//! out on 64 bits.
//!
//! The manual pages describe the fields.
#![allow(missing_docs, non_camel_case_types)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the C interface is laid out for 64 bits only");

pub mod cm;
mod layout;
pub mod numbers;
pub mod requests;
pub mod verbs;

pub use layout::{Layout, Zeroed};
