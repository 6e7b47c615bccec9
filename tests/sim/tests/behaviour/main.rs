//! What two connected RNICs owe their applications, whatever the link between them does.

mod close;
mod hostile;
mod local_errors;
mod lossy;
mod protection;
mod queues;
mod segments;
mod startup;
mod transfer;
