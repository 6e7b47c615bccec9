//! Tests of libibverbs' half through the C interface, on RNICs in memory.

mod attributes;
mod by_hand;
mod devices;
mod events;
mod failures;
mod handles;
mod limits;
mod memory;
mod messages;
mod one_by_one;
mod options;
mod queues;
mod random;
mod random_regions;
mod registering;
mod shared_receives;
mod testbed;
mod threads;
mod turn;
mod windows;
