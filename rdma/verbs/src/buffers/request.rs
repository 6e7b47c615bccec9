//! Work requests that carry exclusive buffers.

use xwarp_driver::OutOfBounds;
use xwarp_iwarp::Stag;

use super::buffer::Buffer;
use xwarp_rnic::model::{
    Immediate, Operation, Payload, RecvRequest, RemoteAddress, SendRequest, Sge, WrId,
};

/// A work request for the send queue whose bytes are those of a [`Buffer`]. It is always signaled,
/// as its completion returns the buffer.
#[derive(Debug)]
pub struct BufferRequest {
    buffer: Buffer,
    /// Length of the message: the buffer's first `len` bytes.
    len: u32,
    /// The request with the application's ID and an empty scatter/gather list.
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

    /// Requests a Solicited Event at the peer, as [`SendRequest::solicited`] does.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        self.request = self.request.solicited();
        self
    }

    /// Makes the request wait for earlier Reads and Atomic Operations.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.request = self.request.fenced();
        self
    }

    /// Makes the peer invalidate this `STag` when it receives the message. Ignored for a Write.
    #[must_use]
    pub fn invalidating(mut self, stag: Stag) -> Self {
        if let Operation::Send { invalidate, .. } = &mut self.request.operation {
            *invalidate = Some(stag);
        }
        self
    }
}

/// Sets the operation's scatter/gather list to `piece`.
fn set_list(operation: &mut Operation, piece: Sge) {
    if let Operation::Send { payload, .. }
    | Operation::Write { payload, .. }
    | Operation::WriteImmediate { payload, .. } = operation
    {
        *payload = piece.into();
    }
}

/// A request that owns a buffer and can be posted to one kind of queue.
pub(super) trait Work {
    type Request;

    fn buffer(&self) -> &Buffer;

    /// The application's ID of the work.
    fn wr_id(&self) -> WrId;

    /// The request to post, with the ID `name`.
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
