//! Batches: several work requests posted with one notification of the engine.

use super::data_path::{ReceiveQueue, SendQueue};
use xwarp_rnic::model::{
    Operation, Payload, PayloadLimits, PostError, RecvRequest, RemoteAddress, SendRequest, Sge,
    WrId,
};

/// Posts to a send queue. The engine is notified once, when the batch is dropped. A refused work
/// request is not posted, and does not end the batch.
pub struct SendBatch<'a>(&'a mut SendQueue);

/// Posts to a receive queue. The engine is notified once, when the batch is dropped.
pub struct ReceiveBatch<'a>(&'a mut ReceiveQueue);

/// A Send, RDMA Write or RDMA Read of one piece of memory, as most work requests are. It is
/// constructed in its slot of the queue, without a copy.
#[derive(Clone, Copy, Debug)]
pub struct PlainRequest<'a> {
    wr_id: WrId,
    verb: Verb<'a>,
    signaled: bool,
    read_fence: bool,
}

#[derive(Clone, Copy, Debug)]
enum Verb<'a> {
    Send(Piece<'a>),
    Write(Piece<'a>, RemoteAddress),
    Read(Sge, RemoteAddress),
}

/// Payload of a message.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Piece<'a> {
    /// Registered memory.
    Memory(Sge),
    /// Bytes that are copied when the request is posted. Up to 64 need no memory besides the
    /// queue's.
    Inline(&'a [u8]),
}

impl Piece<'_> {
    /// Checks the piece against the number of elements that the queue pair allows.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the verb is known where it is called")]
    fn check(self, max: usize, limits: &PayloadLimits) -> Result<(), PostError> {
        match self {
            Self::Memory(_) if max > 0 => Ok(()),
            Self::Memory(_) => Err(PostError::TooManyElements { elements: 1, max }),
            Self::Inline(bytes) if bytes.len() <= limits.inline => Ok(()),
            Self::Inline(bytes) => Err(PostError::TooManyInlineBytes {
                len: bytes.len(),
                max: limits.inline,
            }),
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the verb is known where it is called")]
    fn payload(self) -> Payload {
        match self {
            Self::Memory(sge) => Payload::from(sge),
            Self::Inline(bytes) => Payload::inline(bytes),
        }
    }
}

impl<'a> PlainRequest<'a> {
    /// A Send without a Solicited Event: signaled, without a fence.
    #[inline]
    pub fn send(wr_id: WrId, piece: Piece<'a>) -> Self {
        Self::new(wr_id, Verb::Send(piece))
    }

    /// An RDMA Write: signaled, without a fence.
    #[inline]
    pub fn write(wr_id: WrId, piece: Piece<'a>, remote: RemoteAddress) -> Self {
        Self::new(wr_id, Verb::Write(piece, remote))
    }

    /// An RDMA Read: signaled, without a fence.
    #[inline]
    pub fn read(wr_id: WrId, sink: Sge, remote: RemoteAddress) -> Self {
        Self::new(wr_id, Verb::Read(sink, remote))
    }

    #[inline]
    fn new(wr_id: WrId, verb: Verb<'a>) -> Self {
        Self {
            wr_id,
            verb,
            signaled: true,
            read_fence: false,
        }
    }

    /// Sets whether the request completes when it succeeds.
    #[inline]
    #[must_use]
    pub fn signaled(self, signaled: bool) -> Self {
        Self { signaled, ..self }
    }

    /// Sets the Read Fence (verbs draft §8.2.2.2): a fenced request waits for earlier Reads and
    /// Atomic Operations.
    #[inline]
    #[must_use]
    pub fn fenced(self, read_fence: bool) -> Self {
        Self { read_fence, ..self }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the verb is known where it is called")]
    fn check(&self, limits: &PayloadLimits) -> Result<(), PostError> {
        match self.verb {
            Verb::Send(piece) => piece.check(limits.send, limits),
            Verb::Write(piece, _) => piece.check(limits.write, limits),
            Verb::Read(..) => Ok(()),
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the verb is known where it is called")]
    fn operation(&self) -> Operation {
        match self.verb {
            Verb::Send(piece) => Operation::Send {
                payload: piece.payload(),
                solicited: false,
                invalidate: None,
            },
            Verb::Write(piece, remote) => Operation::Write {
                payload: piece.payload(),
                remote,
            },
            Verb::Read(sink, remote) => Operation::Read {
                sink,
                remote,
                invalidate_sink: false,
            },
        }
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the verb is known where it is called")]
    fn request(&self) -> SendRequest {
        let mut request = SendRequest::new(self.wr_id, self.operation());
        (request.signaled, request.read_fence) = (self.signaled, self.read_fence);
        request
    }
}

impl<'a> SendBatch<'a> {
    /// Starts a batch on this queue.
    #[inline]
    pub fn on(queue: &'a mut SendQueue) -> Self {
        Self(queue)
    }

    /// Posts a work request.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`].
    pub fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.0.push(request)
    }

    /// Posts a work request of one piece.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`].
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "the verb is known where this is called, and the request is made by a few stores"
    )]
    pub fn post_plain(&mut self, request: PlainRequest<'_>) -> Result<(), PostError> {
        self.0.check_put(|limits| request.check(limits))?;
        self.0.put(request.request());
        Ok(())
    }
}

impl Drop for SendBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.ring_doorbell();
    }
}

impl<'a> ReceiveBatch<'a> {
    /// Starts a batch on this queue.
    #[inline]
    pub fn on(queue: &'a mut ReceiveQueue) -> Self {
        Self(queue)
    }

    /// Posts a buffer.
    ///
    /// # Errors
    ///
    /// As [`ReceiveQueue::post`].
    pub fn post(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.0.push(request)
    }

    /// Posts a buffer of one piece. Its work request is constructed in its slot of the queue.
    ///
    /// # Errors
    ///
    /// As [`ReceiveQueue::post`].
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as above")]
    pub fn post_piece(&mut self, wr_id: WrId, piece: Sge) -> Result<(), PostError> {
        let check = |limits: &PayloadLimits| Piece::Memory(piece).check(limits.recv, limits);
        self.0.check_put(check)?;
        self.0.put(RecvRequest::new(wr_id, piece));
        Ok(())
    }
}

impl Drop for ReceiveBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.recheck_state();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xwarp_iwarp::Stag;

    const PLACE: RemoteAddress = RemoteAddress {
        stag: Stag(0x0102_0300),
        to: 16,
    };
    const PIECE: Sge = Sge {
        stag: Stag(0x0405_0600),
        to: 8,
        len: 4,
    };
    const LIMITS: PayloadLimits = PayloadLimits {
        send: 1,
        write: 0,
        recv: 1,
        inline: 3,
    };

    #[test]
    fn plain_request_is_what_the_longer_way_makes() {
        let bytes = b"few";
        let (memory, inline) = (Piece::Memory(PIECE), Piece::Inline(bytes));
        let name = WrId(7);
        let cases = [
            (
                PlainRequest::send(name, memory),
                SendRequest::send(name, PIECE),
            ),
            (
                PlainRequest::send(name, inline),
                SendRequest::send(name, Payload::inline(bytes)),
            ),
            (
                PlainRequest::write(name, memory, PLACE),
                SendRequest::write(name, PIECE, PLACE),
            ),
            (
                PlainRequest::read(name, PIECE, PLACE),
                SendRequest::read(name, PIECE, PLACE),
            ),
        ];
        for (plain, expected) in cases {
            assert_eq!(plain.request(), expected);
            let rarer = plain.signaled(false).fenced(true);
            assert_eq!(rarer.request(), expected.unsignaled().fenced());
        }
    }

    #[test]
    fn plain_request_is_held_to_the_limits_of_its_verb() {
        let (memory, name) = (Piece::Memory(PIECE), WrId(7));
        let refused = PostError::TooManyElements {
            elements: 1,
            max: 0,
        };
        let write = PlainRequest::write(name, memory, PLACE);
        assert_eq!(write.check(&LIMITS), Err(refused));
        let send = PlainRequest::send(name, memory);
        assert_eq!(send.check(&LIMITS), Ok(()));
        let read = PlainRequest::read(name, PIECE, PLACE);
        assert_eq!(read.check(&LIMITS), Ok(()));
        let inline = |bytes| PlainRequest::write(name, Piece::Inline(bytes), PLACE).check(&LIMITS);
        let refused = PostError::TooManyInlineBytes { len: 4, max: 3 };
        assert_eq!((inline(b"few"), inline(b"more")), (Ok(()), Err(refused)));
    }
}
