//! Work requests that take exclusive buffers along.

use xwarp_driver::OutOfBounds;
use xwarp_iwarp::Stag;

use super::buffer::Buffer;
use xwarp_rnic::model::{
    Immediate, Operation, Payload, RecvRequest, RemoteAddress, SendRequest, Sge, WrId,
};

/// A work request for the send queue that takes its bytes from a [`Buffer`]. It is always signaled, as its completion gives the buffer back.
#[derive(Debug)]
pub struct BufferRequest {
    buffer: Buffer,
    /// Of the buffer's bytes, the first.
    len: u32,
    /// Without name and list.
    request: SendRequest,
}

impl BufferRequest {
    fn new(buffer: Buffer, len: u32, request: SendRequest) -> Self {
        Self {
            buffer,
            len,
            request,
        }
    }

    /// A Send of the buffer's first `len` bytes.
    pub fn send(buffer: Buffer, len: u32) -> Self {
        Self::new(
            buffer,
            len,
            SendRequest::send(WrId::default(), Payload::default()),
        )
    }

    /// An RDMA Write of the buffer's first `len` bytes.
    pub fn write(buffer: Buffer, len: u32, remote: RemoteAddress) -> Self {
        let request = SendRequest::write(WrId::default(), Payload::default(), remote);
        Self::new(buffer, len, request)
    }

    /// The same followed by Immediate Data.
    pub fn write_immediate(
        buffer: Buffer,
        len: u32,
        remote: RemoteAddress,
        data: Immediate,
    ) -> Self {
        let request =
            SendRequest::write_immediate(WrId::default(), Payload::default(), remote, data);
        Self::new(buffer, len, request)
    }

    /// The same, asking for an event at the peer, as [`SendRequest::solicited`] does.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.request = self.request.solicited();
        self
    }

    /// The same, waiting for earlier Reads and Atomic Operations.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.request = self.request.fenced();
        self
    }

    /// The same, with a region of the peer that it shall invalidate when it receives the message. Means nothing to a Write.
    #[must_use]
    pub fn invalidating(mut self, stag: Stag) -> Self {
        if let Operation::Send { invalidate, .. } = &mut self.request.operation {
            *invalidate = Some(stag);
        }
        self
    }
}

/// The operation with this list.
fn with_list(mut operation: Operation, piece: Sge) -> Operation {
    if let Operation::Send { payload, .. }
    | Operation::Write { payload, .. }
    | Operation::WriteImmediate { payload, .. } = &mut operation
    {
        *payload = piece.into();
    }
    operation
}

/// What holds a buffer and can be posted to one kind of queue.
pub(super) trait Work {
    type Request;

    fn buffer(&self) -> &Buffer;

    /// What the queue is given.
    fn request(&self, wr_id: WrId) -> Result<Self::Request, OutOfBounds>;

    fn into_buffer(self) -> Buffer;
}

impl Work for Buffer {
    type Request = RecvRequest;

    fn buffer(&self) -> &Buffer {
        self
    }

    fn request(&self, wr_id: WrId) -> Result<RecvRequest, OutOfBounds> {
        Ok(RecvRequest::new(wr_id, self.whole()))
    }

    fn into_buffer(self) -> Buffer {
        self
    }
}

impl Work for BufferRequest {
    type Request = SendRequest;

    fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    fn request(&self, wr_id: WrId) -> Result<SendRequest, OutOfBounds> {
        let piece = self.buffer.first(self.len)?;
        Ok(SendRequest {
            wr_id,
            operation: with_list(self.request.operation.clone(), piece),
            ..self.request
        })
    }

    fn into_buffer(self) -> Buffer {
        self.buffer
    }
}
