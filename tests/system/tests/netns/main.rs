//! Two hosts, real `AF_XDP`, the real command. See the crate's documentation.

mod attaching;
mod ending;
mod examples;
mod failing;
mod library;
mod matrix;
mod pinging;
mod refusing;
mod traffic;
mod wire;
