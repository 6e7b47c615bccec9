//! Work requests that take exclusive buffers along.

use xwarp_driver::OutOfBounds;
use xwarp_iwarp::Stag;

use super::buffer::Buffer;
use xwarp_rnic::model::{
    Immediate, Operation, Payload, RecvRequest, RemoteAddress, SendRequest, Sge, WrId,
};

/// A work request for the send queue that takes its bytes from a [`Buffer`]. It is always signaled,
/// as its completion gives the buffer back.
#[derive(Debug)]
pub struct BufferRequest {
    buffer: Buffer,
    /// Of the buffer's bytes, the first.
    len: u32,
    /// With the application's name, without list.
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
    pub fn send(wr_id: WrId, buffer: Buffer, len: u32) -> Self {
        let request = SendRequest::send(wr_id, Payload::default());
        Self::new(buffer, len, request)
    }

    /// An RDMA Write of the buffer's first `len` bytes.
    pub fn write(wr_id: WrId, buffer: Buffer, len: u32, remote: RemoteAddress) -> Self {
        let request = SendRequest::write(wr_id, Payload::default(), remote);
        Self::new(buffer, len, request)
    }

    /// An RDMA Write of the buffer's first `len` bytes, followed by Immediate Data.
    pub fn write_immediate(
        wr_id: WrId,
        buffer: Buffer,
        len: u32,
        remote: RemoteAddress,
        data: Immediate,
    ) -> Self {
        let request = SendRequest::write_immediate(wr_id, Payload::default(), remote, data);
        Self::new(buffer, len, request)
    }

    /// Asks for an event at the peer, as [`SendRequest::solicited`] does.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.request = self.request.solicited();
        self
    }

    /// Lets the request wait for earlier Reads and Atomic Operations.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.request = self.request.fenced();
        self
    }

    /// Names a region of the peer that it shall invalidate when it receives the message. Means
    /// nothing to a Write.
    #[must_use]
    pub fn invalidating(mut self, stag: Stag) -> Self {
        if let Operation::Send { invalidate, .. } = &mut self.request.operation {
            *invalidate = Some(stag);
        }
        self
    }
}

/// Gives the operation this list.
fn set_list(operation: &mut Operation, piece: Sge) {
    if let Operation::Send { payload, .. }
    | Operation::Write { payload, .. }
    | Operation::WriteImmediate { payload, .. } = operation
    {
        *payload = piece.into();
    }
}

/// What holds a buffer and can be posted to one kind of queue.
pub(super) trait Work {
    type Request;

    fn buffer(&self) -> &Buffer;

    /// The application's name for it.
    fn wr_id(&self) -> WrId;

    /// What the queue is given, by another name.
    fn request(&self, name: WrId) -> Result<Self::Request, OutOfBounds>;

    fn into_buffer(self) -> Buffer;
}

impl Work for (WrId, Buffer) {
    type Request = RecvRequest;

    fn buffer(&self) -> &Buffer {
        &self.1
    }

    fn wr_id(&self) -> WrId {
        self.0
    }

    fn request(&self, name: WrId) -> Result<RecvRequest, OutOfBounds> {
        Ok(RecvRequest::new(name, self.1.whole()))
    }

    fn into_buffer(self) -> Buffer {
        self.1
    }
}

impl Work for BufferRequest {
    type Request = SendRequest;

    fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    fn wr_id(&self) -> WrId {
        self.request.wr_id
    }

    fn request(&self, name: WrId) -> Result<SendRequest, OutOfBounds> {
        let piece = self.buffer.first(self.len)?;
        let mut request = self.request.clone();
        request.wr_id = name;
        set_list(&mut request.operation, piece);
        Ok(request)
    }

    fn into_buffer(self) -> Buffer {
        self.buffer
    }
}
