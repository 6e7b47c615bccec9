//! What two connected RNICs owe their applications, whatever the link between them does.

mod close;
mod hostile;
mod local_errors;
mod lossy;
mod mpa;
mod protection;
mod queues;
mod startup;
mod transfer;
