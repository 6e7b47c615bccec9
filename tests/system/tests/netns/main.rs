//! Two hosts, real `AF_XDP`, the real command. See the crate's documentation.

mod attaching;
mod doctoring;
mod ending;
mod event_loops;
mod examples;
mod failing;
mod flooding;
mod hostile;
mod interface;
mod interrupting;
mod isolation;
mod killed;
mod library;
mod matrix;
mod metadata;
mod offloads;
mod opened;
mod pinging;
mod printing;
mod queues;
mod refusing;
mod start_up;
mod stat;
mod traffic;
mod vlan;
mod wire;
