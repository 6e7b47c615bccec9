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
/// For each segment: write what [`peek_segment`](Self::peek_segment) says, look at [`next_source`](Self::next_source) and check it anew,
/// copy it, then [`advance`](Self::advance). If the check fails, [`aborted`](Self::aborted) is the stream's last message.
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

impl Sender {
    /// The answer to a Read Request of the peer's, with what is needed to stop it half-way.
    pub const fn respond(&mut self, read: InboundRead) -> ReadResponse {
        ReadResponse::new(read, self.read_response(&read.request))
    }
}

impl Terminate {
    /// A Read Request whose source went away after `sent` bytes of its response: the returned header asks for the
    /// rest (R5040-4.8-13).
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

    /// An Atomic Request whose target went away before its turn: its DDP header without RDMAP's (R7306-8.1-2).
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

    /// The next segment, as [`Message::next_segment`] has it. It is not taken: its source may fail.
    pub fn peek_segment(&self, mulpdu: usize) -> Option<Segment> {
        self.message.peek_segment(mulpdu)
    }

    /// The segment that was looked at last was written, and is taken.
    pub const fn advance(&mut self, segment: &Segment) {
        self.message.advance(segment);
    }

    /// The source can no longer be read: what the peer is told, with the request as far as it is not answered (R5040-4.8-13).
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
