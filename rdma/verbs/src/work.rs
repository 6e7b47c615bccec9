//! Work requests: what they are made of, and the queues that they are posted to (verbs draft §8.1, §8.2).

pub use crate::batch::{Piece, PlainRequest, ReceiveBatch, SendBatch};
pub use crate::data_path::{DataPath, ReceiveQueue, SendQueue};
pub use xwarp_iwarp::AtomicOperation;
pub use xwarp_rnic::model::{Immediate, InlineData, MAX_INLINE, MAX_SGE, Operation, Payload, Sgl};
