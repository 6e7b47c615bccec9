//! Completion notification: channels, arming, and the poller of a queue that is borrowed (verbs draft §8.2.5).

pub use crate::channel::CompletionChannel;
pub use crate::cq::CompletionPoller;
pub use xwarp_rnic::queues::Arm;
