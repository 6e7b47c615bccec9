//! Read Response, sent segment by segment without a work request (RFC 5040 §5.2.2; wire.md §6.1).

use super::{AccessError, InboundRead, Message, Segment, Terminate};
use crate::Stag;

/// The answer to one Read Request, cut into segments as there is room.
///
/// For each segment: look at [`next_source`](Self::next_source) and check it anew, then take
/// [`next_segment`](Self::next_segment). If the check fails, [`aborted`](Self::aborted) is the stream's last message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResponse {
    read: InboundRead,
    message: Message,
}

/// Bytes of our memory that the next segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// Region.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Bytes; never 0.
    pub len: u64,
}

impl ReadResponse {
    pub(super) const fn new(read: InboundRead, message: Message) -> Self {
        Self { read, message }
    }

    /// The Read Request that is answered.
    pub const fn read(&self) -> &InboundRead {
        &self.read
    }

    /// The message, for its length and progress.
    pub const fn message(&self) -> &Message {
        &self.message
    }

    /// Payload bytes cut into segments so far.
    pub const fn sent(&self) -> u32 {
        self.message.offset()
    }

    /// The last segment was taken: return the credit with `Receiver::response_sent` once it is handed to TCP.
    pub const fn is_done(&self) -> bool {
        self.message.is_done()
    }

    /// What the next segment reads: it may have been revoked since the last. `None` when done, and for a Read of no bytes,
    /// whose source is not looked at (R5040-5.2.1-8).
    pub fn next_source(&self, mulpdu: usize) -> Option<SourceRange> {
        let len = u64::try_from(self.message.next_payload(mulpdu)).ok()?;
        let to = self
            .read
            .request
            .source_to
            .wrapping_add(u64::from(self.sent())); // checked with the request
        (len > 0).then_some(SourceRange {
            stag: self.read.request.source,
            to,
            len,
        })
    }

    /// Takes the next segment, as [`Message::next_segment`] does.
    pub fn next_segment(&mut self, mulpdu: usize) -> Option<Segment> {
        self.message.next_segment(mulpdu)
    }

    /// The source can no longer be read: what the peer is told, with the request as far as it is not answered (R5040-4.8-13).
    pub fn aborted(&self, cause: AccessError) -> Terminate {
        Terminate::read_aborted(&self.read, self.sent(), cause)
    }
}
