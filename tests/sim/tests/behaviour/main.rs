//! What two connected RNICs owe their applications, whatever the link between them does.

mod arming;
mod atomics;
mod clock;
mod close;
mod emitted;
mod hostile;
mod immediate;
mod lists;
mod local_errors;
mod lossy;
mod memory;
mod mpa;
mod order;
mod protection;
mod queues;
mod read_responses;
mod resize;
mod rnic;
mod rows;
mod scope;
mod security;
mod segments;
mod slots;
mod srq;
mod startup;
mod transfer;
