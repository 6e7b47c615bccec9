//! What two connected RNICs owe their applications, whatever the link between them does.

mod close;
mod emitted;
mod hostile;
mod local_errors;
mod lossy;
mod order;
mod protection;
mod queues;
mod security;
mod startup;
mod transfer;
