//! Tests of libibverbs' half through the C interface, on RNICs in memory.

mod handles;
mod memory;
mod messages;
mod one_by_one;
mod testbed;
