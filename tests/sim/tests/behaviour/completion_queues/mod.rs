//! Completion queues (verbs draft §5.3): as objects, shared by work queues, and with completion
//! events.

mod arming;
mod object;
mod sharing;
