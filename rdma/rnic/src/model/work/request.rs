//! Work requests and their constructors.

use xwarp_iwarp::{AtomicOperation, Stag};

use super::operation::{Immediate, Operation};
use super::payload::Payload;
use crate::model::ids::WrId;
use crate::model::memory::{Bind, FastRegister, MemoryOperation};
use crate::model::sge::{RemoteAddress, Sge, Sgl};

/// A work request for the send queue. Signaled and without a fence by default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendRequest {
    /// The application's ID of the work request.
    pub wr_id: WrId,
    /// Operation, with its payload and the peer's address.
    pub operation: Operation,
    /// Whether success is reported by a completion; failure always is.
    pub signaled: bool,
    /// Waits until all earlier Reads and Atomic Operations of this queue pair have completed (verbs
    /// draft §8.2.2.2). Ignored for Reads, and for work on memory of this side.
    pub read_fence: bool,
}

impl SendRequest {
    /// A request for any operation (verbs draft §8.1.2), signaled and without a fence.
    #[inline]
    pub fn new(wr_id: WrId, operation: Operation) -> Self {
        Self {
            wr_id,
            operation,
            signaled: true,
            read_fence: false,
        }
    }

    /// A Send (RFC 5040 §5.3): the message is placed into the peer's oldest receive buffer.
    #[inline]
    pub fn send(wr_id: WrId, payload: impl Into<Payload>) -> Self {
        let operation = Operation::Send {
            payload: payload.into(),
            solicited: false,
            invalidate: None,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Write (RFC 5040 §5.1) of `payload` to `remote`.
    #[inline]
    pub fn write(wr_id: WrId, payload: impl Into<Payload>, remote: RemoteAddress) -> Self {
        let operation = Operation::Write {
            payload: payload.into(),
            remote,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Read (RFC 5040 §5.2) from `remote`, of the length of `sink`.
    ///
    /// The sink's region needs [`Access::REMOTE_WRITE`](crate::model::Access::REMOTE_WRITE), as the
    /// peer's response names it. If the queue pair has
    /// [`QpConfig::local_read_sinks`](crate::model::QpConfig::local_read_sinks), `LOCAL_WRITE`
    /// suffices. A Read whose sink cannot be written fails before it is sent.
    #[inline]
    pub fn read(wr_id: WrId, sink: Sge, remote: RemoteAddress) -> Self {
        let operation = Operation::Read {
            sink,
            remote,
            invalidate_sink: false,
        };
        Self::new(wr_id, operation)
    }

    /// Binds a memory window (verbs draft §8.1.2.3.1).
    pub fn bind(wr_id: WrId, bind: Bind) -> Self {
        Self::new(wr_id, Operation::Memory(MemoryOperation::Bind(bind)))
    }

    /// Fast-Register: registers memory with an existing `STag` (verbs draft §8.1.2.3.2).
    pub fn fast_register(wr_id: WrId, request: FastRegister) -> Self {
        let work = MemoryOperation::FastRegister(Box::new(request));
        Self::new(wr_id, Operation::Memory(work))
    }

    /// Invalidate Local: invalidates an `STag` of this side, without a Local Fence (verbs draft
    /// §8.1.2.3.3).
    pub fn invalidate(wr_id: WrId, stag: Stag) -> Self {
        let local_fence = false;
        let work = MemoryOperation::Invalidate { stag, local_fence };
        Self::new(wr_id, Operation::Memory(work))
    }

    /// Immediate Data (RFC 7306 §6): 8 bytes for the peer's completion.
    pub fn immediate(wr_id: WrId, data: Immediate) -> Self {
        let solicited = false;
        Self::new(wr_id, Operation::Immediate { data, solicited })
    }

    /// A Send with four bytes for the peer's completion, which no RFC has.
    pub fn send_immediate(wr_id: WrId, payload: impl Into<Payload>, data: [u8; 4]) -> Self {
        let operation = Operation::SendImmediate {
            payload: payload.into(),
            data,
            solicited: false,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Write followed by Immediate Data (RFC 7306 §6).
    pub fn write_immediate(
        wr_id: WrId,
        payload: impl Into<Payload>,
        remote: RemoteAddress,
        data: Immediate,
    ) -> Self {
        let operation = Operation::WriteImmediate {
            payload: payload.into(),
            remote,
            data,
            solicited: false,
        };
        Self::new(wr_id, operation)
    }

    /// An Atomic Operation (RFC 7306 §5): an addition without carries between masked fields, or a
    /// masked comparison and exchange.
    pub fn atomic(wr_id: WrId, operation: AtomicOperation, remote: RemoteAddress) -> Self {
        let operation = Operation::Atomic {
            operation,
            remote,
            sink: None,
        };
        Self::new(wr_id, operation)
    }

    /// `FetchAdd`: an atomic addition of 64 bits, modulo 2^64 (RFC 7306 §5.1.1).
    pub fn fetch_add(wr_id: WrId, add: u64, remote: RemoteAddress) -> Self {
        Self::atomic(wr_id, AtomicOperation::FetchAdd { add, mask: 0 }, remote)
    }

    /// `CmpSwap`: replaces 64 bits by `swap` if they equal `compare`, atomically (RFC 7306 §5.1.2).
    pub fn compare_swap(wr_id: WrId, compare: u64, swap: u64, remote: RemoteAddress) -> Self {
        let operation = AtomicOperation::CompareSwap {
            compare,
            compare_mask: u64::MAX,
            swap,
            swap_mask: u64::MAX,
        };
        Self::atomic(wr_id, operation, remote)
    }

    /// Replaces 64 bits by `swap` unconditionally, atomically: a comparison of no bits.
    pub fn swap(wr_id: WrId, swap: u64, remote: RemoteAddress) -> Self {
        let operation = AtomicOperation::CompareSwap {
            compare: 0,
            compare_mask: 0,
            swap,
            swap_mask: u64::MAX,
        };
        Self::atomic(wr_id, operation, remote)
    }

    /// Stores the original value of an Atomic Operation in `place`, too. Ignored for other
    /// operations.
    #[must_use]
    pub fn result_into(mut self, place: Sge) -> Self {
        if let Operation::Atomic { sink, .. } = &mut self.operation {
            *sink = Some(place);
        }
        self
    }

    /// Solicited Event (RFC 5040 §5.3): requests an event at the peer when it has received the
    /// message. Ignored for operations that the peer's application is not notified of.
    #[must_use]
    pub fn solicited(mut self) -> Self {
        match &mut self.operation {
            Operation::Send { solicited, .. }
            | Operation::SendImmediate { solicited, .. }
            | Operation::Immediate { solicited, .. }
            | Operation::WriteImmediate { solicited, .. } => *solicited = true,
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Atomic { .. }
            | Operation::Memory(_) => {}
        }
        self
    }

    /// Reports only failure by a completion (verbs draft §8.1.3.1).
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// Read Fence (verbs draft §8.2.2.2): the request waits for earlier Reads and Atomic
    /// Operations. Ignored for Reads, and for work on memory of this side.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.read_fence = true;
        self
    }

    /// Local Fence (verbs draft §8.2.2.2): the request waits for all earlier work. Ignored for
    /// operations other than the invalidation of an `STag` of this side.
    #[must_use]
    pub fn locally_fenced(mut self) -> Self {
        if let Operation::Memory(MemoryOperation::Invalidate { local_fence, .. }) =
            &mut self.operation
        {
            *local_fence = true;
        }
        self
    }

    /// Invalidates the sink's `STag` when a Read is complete. Ignored for other operations.
    #[must_use]
    pub fn invalidating_sink(mut self) -> Self {
        if let Operation::Read {
            invalidate_sink, ..
        } = &mut self.operation
        {
            *invalidate_sink = true;
        }
        self
    }
}

/// A work request for the receive queue: a buffer for one message. Memory is checked when bytes are
/// placed. The part of a buffer that no message fills is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecvRequest {
    /// The application's ID of the work request.
    pub wr_id: WrId,
    /// Buffer for the message.
    pub sgl: Sgl,
}

impl RecvRequest {
    /// A request with the buffer `sgl` for one message (verbs draft §8.1.3.2). Its elements are
    /// filled in order.
    #[inline]
    pub fn new(wr_id: WrId, sgl: impl Into<Sgl>) -> Self {
        Self {
            wr_id,
            sgl: sgl.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: RemoteAddress = RemoteAddress {
        stag: Stag(0x0102_0300),
        to: 16,
    };
    const SINK: Sge = Sge {
        stag: Stag(0x0405_0600),
        to: 0,
        len: 8,
    };

    type Modifier = (&'static str, fn(SendRequest) -> SendRequest);
    const MODIFIERS: [Modifier; 4] = [
        ("solicited", SendRequest::solicited),
        ("local fence", SendRequest::locally_fenced),
        ("sink to invalidate", SendRequest::invalidating_sink),
        ("sink", |request| request.result_into(SINK)),
    ];

    #[test]
    fn modifier_means_nothing_to_operations_that_have_none_like_it() {
        let name = WrId(7);
        let bind = Bind {
            window: PLACE.stag,
            region: SINK.stag,
            to: 1,
            len: 1,
            zero_based: false,
            access: crate::model::Access::REMOTE_READ,
        };
        let cases: [(SendRequest, &[&str]); 7] = [
            (SendRequest::send(name, SINK), &["solicited"]),
            (SendRequest::write(name, SINK, PLACE), &[]),
            (
                SendRequest::read(name, SINK, PLACE),
                &["sink to invalidate"],
            ),
            (SendRequest::immediate(name, [1; 8]), &["solicited"]),
            (SendRequest::fetch_add(name, 1, PLACE), &["sink"]),
            (SendRequest::bind(name, bind), &[]),
            (SendRequest::invalidate(name, SINK.stag), &["local fence"]),
        ];
        for (request, own) in cases {
            for (modifier, modify) in MODIFIERS {
                let same = modify(request.clone()) == request;
                assert_eq!(same, !own.contains(&modifier), "{modifier} of {request:?}");
            }
        }
    }
}
