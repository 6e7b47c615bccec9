//! What two connected RNICs owe their applications, whatever the link between them does.

mod atomics;
mod clock;
mod close;
mod emitted;
mod hostile;
mod immediate;
mod local_errors;
mod lossy;
mod memory;
mod mpa;
mod order;
mod protection;
mod queues;
mod read_responses;
mod rows;
mod scope;
mod security;
mod segments;
mod startup;
mod states;
mod transfer;
