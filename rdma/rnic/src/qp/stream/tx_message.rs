//! A message being sent, and the source of its payload.
//!
//! An Atomic Request is executed here, when its response is made, not when it arrives. So it is
//! executed after the Reads in front of it, once, and only if it is answered (RFC 7306 §5.4, §7).
//! The operation is a 64-bit compare-and-exchange in the host's byte order, atomic for every thread
//! and process that uses 64-bit atomics on the same bytes.

use std::ops::Range;

use xwarp_iwarp::rdmap::CapturedHeader;
use xwarp_iwarp::{
    AccessError, InboundAtomic, InboundRead, Message, ReadResponse, Segment, Stag, Terminate,
};

use crate::model::{Access, CompletionStatus, Immediate, Payload, QpIdentity, Sgl};
use crate::qp::fault::{Inconsistency, SendFault};
use crate::qp::payload_pass::PayloadPass;
use crate::stags::StagTable;

/// Source of the next message if both a work request and a response wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::qp) enum TxSource {
    Request,
    Response,
}

/// A request of the peer that waits for its response.
pub(in crate::qp) enum Response {
    Read(InboundRead),
    Atomic(InboundAtomic),
}

impl Response {
    /// True if it answers a Read of no bytes.
    pub(in crate::qp) fn reads_nothing(&self) -> bool {
        matches!(self, Self::Read(read) if read.request.len == 0)
    }
}

/// A message, partly sent.
pub(in crate::qp) enum TxMessage {
    /// Message of a work request.
    Request {
        message: Message,
        payload: Payload,
        /// Immediate Data of the same work request, and whether it requests an event.
        then: Option<(Immediate, bool)>,
    },
    /// Read Response, with memory that the peer reads.
    Read(ReadResponse),
    /// Response to an Atomic Request, with the original value.
    Atomic(Message),
}

impl TxMessage {
    /// A message without payload.
    pub(in crate::qp) fn header_only(message: Message) -> Self {
        Self::Request {
            message,
            payload: Payload::default(),
            then: None,
        }
    }

    fn message(&self) -> &Message {
        match self {
            Self::Request { message, .. } | Self::Atomic(message) => message,
            Self::Read(response) => response.message(),
        }
    }

    /// Length of the next segment's ULPDU in bytes; `None` at the end of the message.
    pub(in crate::qp) fn next_len(&self, mulpdu: usize) -> Option<usize> {
        self.message().next_len(mulpdu)
    }

    pub(in crate::qp) fn is_done(&self) -> bool {
        self.message().is_done()
    }

    /// True if the next segment contains the whole message.
    pub(in crate::qp) fn is_whole_in(&self, mulpdu: usize) -> bool {
        self.message().is_whole_in(mulpdu)
    }

    /// Whether it belongs to a work request or is a response.
    pub(in crate::qp) fn source(&self) -> TxSource {
        match self {
            Self::Request { .. } => TxSource::Request,
            Self::Read(_) | Self::Atomic(_) => TxSource::Response,
        }
    }

    /// Whether this is the header of a work request's message.
    pub(in crate::qp) fn is_request_of(&self, header: &CapturedHeader) -> bool {
        self.source() == TxSource::Request && self.message().is_named_by(header)
    }

    /// Writes the next segment, which is as long as `ulpdu`, by a pass. All memory is checked
    /// again, as a region may have been deregistered since the last segment.
    pub(in crate::qp) fn write_segment(
        &mut self,
        ulpdu: &mut [u8],
        mulpdu: usize,
        memory: (&StagTable, QpIdentity),
        pass: &mut impl PayloadPass,
    ) -> Result<(), SendFault> {
        match self {
            Self::Request {
                message, payload, ..
            } => {
                let Some(segment) = message.next_segment(mulpdu) else {
                    return Err(Inconsistency("a message has fewer segments than it had").into());
                };
                let into = write_header(ulpdu, &segment, pass);
                fill(memory, payload, segment.payload, into, pass)
                    .map_err(|error| SendFault::Request(CompletionStatus::of_access(error)))
            }
            Self::Read(response) => write_response(response, ulpdu, mulpdu, memory, pass)
                .map_err(|error| SendFault::Response(response.aborted(error))),
            Self::Atomic(message) => {
                if let Some(segment) = message.next_segment(mulpdu) {
                    write_header(ulpdu, &segment, pass);
                }
                Ok(())
            }
        }
    }
}

/// Writes the next segment of a Read Response. After an error none of it counts as sent.
fn write_response(
    response: &mut ReadResponse,
    ulpdu: &mut [u8],
    mulpdu: usize,
    (stags, user): (&StagTable, QpIdentity),
    pass: &mut impl PayloadPass,
) -> Result<(), AccessError> {
    let Some(segment) = response.peek_segment(mulpdu) else {
        return Ok(());
    };
    let payload = write_header(ulpdu, &segment, pass);
    // A Read of no bytes accesses no source (RFC 5040 §5.2).
    if let Some(range) = response.next_source(mulpdu) {
        let right = Access::REMOTE_READ;
        let bytes = stags.access(user, range.stag, range.to, range.len, right)?;
        let read = pass.read(bytes, payload);
        read.map_err(|_| AccessError::Bounds)?;
    }
    response.advance(&segment);
    Ok(())
}

/// Writes a segment's header. Returns the rest of the buffer, for its payload.
fn write_header<'a>(
    ulpdu: &'a mut [u8],
    segment: &Segment,
    pass: &mut impl PayloadPass,
) -> &'a mut [u8] {
    let (header, payload) = ulpdu.split_at_mut(segment.header.len());
    header.copy_from_slice(&segment.header);
    pass.add(header);
    payload
}

/// Executes an Atomic Request when its response is due, and returns the original value. So it is
/// executed once, after all requests before it were answered and before those after it
/// (R7306-5.2.1-7-1, R7306-5.4-8-1).
pub(in crate::qp) fn execute(
    stags: &StagTable,
    user: QpIdentity,
    atomic: &InboundAtomic,
) -> Result<u64, SendFault> {
    stags
        .execute(user, &atomic.request)
        .map_err(|error| SendFault::Response(Terminate::atomic_refused(atomic, error)))
}

/// Copies bytes `range` of a payload to `into`, which has the same length.
fn fill(
    memory: (&StagTable, QpIdentity),
    payload: &Payload,
    range: Range<u32>,
    into: &mut [u8],
    pass: &mut impl PayloadPass,
) -> Result<(), AccessError> {
    match payload {
        Payload::Gather(sgl) => gather(memory, sgl, range, into, pass),
        Payload::Inline(data) => {
            let range = range.start as usize..range.end as usize;
            let bytes = data.as_slice().get(range).ok_or(AccessError::Bounds)?;
            into.copy_from_slice(bytes);
            pass.add(into);
            Ok(())
        }
    }
}

/// Copies bytes `range` of a scatter/gather list's message to `into`, which has the same length.
fn gather(
    (stags, user): (&StagTable, QpIdentity),
    sgl: &Sgl,
    range: Range<u32>,
    into: &mut [u8],
    pass: &mut impl PayloadPass,
) -> Result<(), AccessError> {
    let len = range.end.saturating_sub(range.start) as usize;
    for_each_piece(sgl, range.start, len, |sge_to, stag, span| {
        let len = span.len() as u64;
        let bytes = stags.access(user, stag, sge_to, len, Access::LOCAL_READ)?;
        let piece = into.get_mut(span).ok_or(AccessError::Bounds)?;
        let read = pass.read(bytes, piece);
        read.map_err(|_| AccessError::Bounds)
    })
}

/// Calls `each` for the pieces of a scatter/gather list that contain bytes `start..start+len` of
/// its message. Its arguments are the Tagged Offset in the piece's region, the region, and the
/// range within those `len` bytes.
pub(in crate::qp) fn for_each_piece<E>(
    sgl: &Sgl,
    start: u32,
    len: usize,
    mut each: impl FnMut(u64, Stag, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut skip = start as usize;
    let mut done = 0;
    for sge in sgl.iter() {
        let sge_len = sge.len as usize;
        if skip >= sge_len {
            skip -= sge_len;
            continue;
        }
        let n = (sge_len - skip).min(len - done);
        if n == 0 {
            break;
        }
        // The access check detects a wrap: it adds the length to at most the last byte's offset.
        each(sge.to.saturating_add(skip as u64), sge.stag, done..done + n)?;
        done += n;
        skip = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sge;

    fn pieces(start: u32, len: usize) -> Vec<(u64, u32, Range<usize>)> {
        let sgl: Sgl = [(1, 100, 10), (2, 0, 0), (3, 50, 5), (4, 7, 20)]
            .map(|(stag, to, len)| Sge {
                stag: Stag(stag),
                to,
                len,
            })
            .into_iter()
            .collect();
        let mut found = Vec::new();
        let result: Result<(), ()> = for_each_piece(&sgl, start, len, |to, stag, span| {
            found.push((to, stag.0, span));
            Ok(())
        });
        assert_eq!(result, Ok(()));
        found
    }

    #[test]
    fn span_is_cut_at_the_borders_of_the_list() {
        assert_eq!(
            pieces(0, 35),
            [(100, 1, 0..10), (50, 3, 10..15), (7, 4, 15..35)]
        );
        assert_eq!(pieces(9, 3), [(109, 1, 0..1), (50, 3, 1..3)]);
        assert_eq!(pieces(15, 20), [(7, 4, 0..20)]);
        assert_eq!(pieces(34, 1), [(26, 4, 0..1)]);
        assert_eq!(pieces(5, 0), []);
    }
}
