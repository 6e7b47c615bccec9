//! What has become of a work request of the send queue.

use xwarp_iwarp::Stag;

use crate::model::{CompletionStatus, Opcode, SendRequest, Sge, WrId};

/// A work request of the send queue that was begun and has not completed.
pub(crate) struct Begun {
    pub(crate) wr_id: WrId,
    pub(crate) opcode: Opcode,
    pub(crate) signaled: bool,
    pub(crate) byte_len: u32,
    /// It is done when the peer has answered, not when it is sent.
    pub(crate) awaits_response: bool,
    /// What a Read invalidates when it is answered.
    pub(crate) invalidate: Option<Stag>,
    /// Where an Atomic Operation's result goes.
    pub(crate) sink: Option<Sge>,
    /// An Atomic Operation's result.
    pub(crate) original: Option<u64>,
    /// How it has ended, if it has.
    pub(crate) outcome: Option<CompletionStatus>,
}

impl Begun {
    pub(crate) fn new(request: &SendRequest) -> Self {
        let operation = &request.operation;
        Self {
            wr_id: request.wr_id,
            opcode: operation.opcode(),
            signaled: request.signaled,
            byte_len: operation.byte_len().unwrap_or(u32::MAX),
            awaits_response: operation.awaits_response(),
            invalidate: operation.sink_to_invalidate(),
            sink: operation.result_sink(),
            original: None,
            outcome: None,
        }
    }
}
