//! Read Response, sent segment by segment without a work request (RFC 5040 §5.2.2; wire.md §6.1).

use super::header::append;
use super::{
    ATOMIC_REQUEST_BYTES, AccessError, InboundAtomic, InboundRead, Message, READ_REQUEST_BYTES,
    ReadRequestHeader, Segment, Sender, Terminate, ViolationCause,
};
use crate::Stag;
use crate::ddp::{Control, UNTAGGED_HEADER_BYTES};
use arrayvec::ArrayVec;
use zerocopy::IntoBytes;

/// The answer to one Read Request, cut into segments as there is room.
///
/// For each segment the caller writes [`peek_segment`](Self::peek_segment), checks
/// [`next_source`](Self::next_source) again, copies it, and calls [`advance`](Self::advance). So
/// the header is written before the payload, and a source that fails still stops the response
/// between two segments. [`aborted`](Self::aborted) is then the stream's last message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadResponse {
    read: InboundRead,
    message: Message,
}

/// Range of local memory that the next segment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// Region.
    pub stag: Stag,
    /// Tagged Offset of the first byte.
    pub to: u64,
    /// Length in bytes; never 0.
    pub len: u64,
}

impl Sender {
    /// The answer to a Read Request of the peer, with the request's header for a Terminate.
    pub const fn respond(&mut self, read: InboundRead) -> ReadResponse {
        ReadResponse::new(read, self.read_response(&read.request))
    }
}

impl Terminate {
    /// Terminate for a Read Request whose source is gone after `sent` bytes of its response. The
    /// returned header asks for the rest (R5040-4.8-13).
    pub fn read_aborted(read: &InboundRead, sent: u32, cause: AccessError) -> Self {
        let rest = ReadRequestHeader::from(&read.request.after(sent));
        let mut headers: ArrayVec<u8, { UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES }> =
            ArrayVec::new();
        append(&mut headers, read.header.as_bytes());
        append(&mut headers, rest.as_bytes());
        Self::captured(
            ViolationCause::source_code(cause),
            Control(read.header.control).version(),
            READ_REQUEST_SEGMENT,
            &headers,
            true,
        )
    }

    /// Terminate for an Atomic Request whose target is gone before its turn: its DDP header without
    /// RDMAP's (R7306-8.1-2).
    pub fn atomic_refused(atomic: &InboundAtomic, cause: AccessError) -> Self {
        Self::captured(
            ViolationCause::source_code(cause),
            Control(atomic.header.control).version(),
            ATOMIC_REQUEST_SEGMENT,
            atomic.header.as_bytes(),
            false,
        )
    }
}

impl ReadResponse {
    pub(super) const fn new(read: InboundRead, message: Message) -> Self {
        Self { read, message }
    }

    /// The Read Request to answer.
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

    /// True if the last segment was taken. Once it is handed to TCP, the caller returns the credit
    /// by `Receiver::response_sent`.
    pub const fn is_done(&self) -> bool {
        self.message.is_done()
    }

    /// Source of the next segment, which may have been revoked since the last one. `None` if the
    /// response is done, and for a Read of zero bytes, whose source is not checked (R5040-5.2.1-8).
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

    /// The next segment, as [`Message::next_segment`] would return it, without taking it: its
    /// source may fail.
    pub fn peek_segment(&self, mulpdu: usize) -> Option<Segment> {
        self.message.peek_segment(mulpdu)
    }

    /// Takes the segment that [`peek_segment`](Self::peek_segment) returned, after it was written.
    pub const fn advance(&mut self, segment: &Segment) {
        self.message.advance(segment);
    }

    /// Terminate for a source that can no longer be read, with the unanswered rest of the request
    /// (R5040-4.8-13).
    pub fn aborted(&self, cause: AccessError) -> Terminate {
        Terminate::read_aborted(&self.read, self.sent(), cause)
    }
}

/// `ULPDU_Length` of every valid Read Request: 46 bytes.
#[expect(clippy::cast_possible_truncation, reason = "a constant, 46")]
const READ_REQUEST_SEGMENT: u16 = (UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES) as u16;

/// `ULPDU_Length` of every valid Atomic Request: 70 bytes.
#[expect(clippy::cast_possible_truncation, reason = "a constant, 70")]
const ATOMIC_REQUEST_SEGMENT: u16 = (UNTAGGED_HEADER_BYTES + ATOMIC_REQUEST_BYTES) as u16;
