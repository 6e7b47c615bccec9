//! Exclusive memory: buffers that no program code can access while a work request owns them (verbs
//! draft §8.1.3.2, §8.2.4).

mod buffer;
mod posted;
mod queues;
mod request;

pub use buffer::Buffer;
pub use posted::PostedBuffers;
pub use queues::{PostReceives, PostSends};
pub use request::BufferRequest;
