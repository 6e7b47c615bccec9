//! What two connected RNICs owe their applications, whatever the link between them does.

mod atomics;
mod close;
mod hostile;
mod immediate;
mod local_errors;
mod lossy;
mod mpa;
mod protection;
mod queues;
mod read_responses;
mod rows;
mod segments;
mod startup;
mod transfer;
