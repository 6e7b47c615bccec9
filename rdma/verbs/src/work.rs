//! Work requests: what an application posts (verbs draft §8.1, §9.3.1).

use arrayvec::ArrayVec;
use xwarp_iwarp::Stag;

/// Elements that a scatter/gather list may have.
pub const MAX_SGE: usize = 4;

/// An application's name for a work request; comes back in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WrId(pub u64);

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The region.
    pub stag: Stag,
    /// Tagged Offset of the first octet.
    pub to: u64,
    /// Octets. With 0 the `STag` is not looked at.
    pub len: u32,
}

/// A scatter/gather list: pieces that follow each other in the message.
pub type Sgl = ArrayVec<Sge, MAX_SGE>;

impl From<Sge> for Sgl {
    fn from(sge: Sge) -> Self {
        Self::from_iter([sge])
    }
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The peer's region.
    pub stag: Stag,
    /// Tagged Offset of the first octet.
    pub to: u64,
}

/// What a work request of the send queue does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sends a message that the peer receives into a buffer which it posted (RFC 5040 §5.3).
    Send {
        /// The message's octets.
        sgl: Sgl,
        /// Asks for an event at the peer when the message is received.
        solicited: bool,
        /// A region of the peer that it shall invalidate when it receives the message.
        invalidate: Option<Stag>,
    },
    /// Writes into the peer's memory (RFC 5040 §5.1).
    Write {
        /// What to write.
        sgl: Sgl,
        /// Where to.
        remote: RemoteAddress,
    },
    /// Reads from the peer's memory (RFC 5040 §5.2).
    Read {
        /// Where to; the region needs [`Access::REMOTE_WRITE`](crate::Access::REMOTE_WRITE), as the peer writes it.
        sink: Sge,
        /// What to read.
        remote: RemoteAddress,
    },
}

impl Operation {
    /// Octets of the message; `None` when they are more than 2^32 - 1 (RFC 5041 §5.2).
    pub(crate) fn len(&self) -> Option<u32> {
        match self {
            Self::Send { sgl, .. } | Self::Write { sgl, .. } => total(sgl),
            Self::Read { sink, .. } => Some(sink.len),
        }
    }
}

/// Octets of all elements.
pub(crate) fn total(sgl: &[Sge]) -> Option<u32> {
    sgl.iter()
        .try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

/// A work request for the send queue. Signaled and without a fence unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's name for it.
    pub wr_id: WrId,
    /// What to do.
    pub operation: Operation,
    /// Whether success is reported by a completion; failure always is.
    pub signaled: bool,
    /// Waits until all earlier Reads of this queue pair have completed (verbs draft §8.2.2.1).
    pub read_fence: bool,
}

impl SendRequest {
    /// Any operation.
    pub fn new(wr_id: WrId, operation: Operation) -> Self {
        Self {
            wr_id,
            operation,
            signaled: true,
            read_fence: false,
        }
    }

    /// A Send.
    pub fn send(wr_id: WrId, sgl: impl Into<Sgl>) -> Self {
        let operation = Operation::Send {
            sgl: sgl.into(),
            solicited: false,
            invalidate: None,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Write.
    pub fn write(wr_id: WrId, sgl: impl Into<Sgl>, remote: RemoteAddress) -> Self {
        let operation = Operation::Write {
            sgl: sgl.into(),
            remote,
        };
        Self::new(wr_id, operation)
    }

    /// An RDMA Read.
    pub fn read(wr_id: WrId, sink: Sge, remote: RemoteAddress) -> Self {
        Self::new(wr_id, Operation::Read { sink, remote })
    }

    /// The same, reporting only failure.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.signaled = false;
        self
    }

    /// The same, waiting for earlier Reads.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.read_fence = true;
        self
    }
}

/// A work request for the receive queue: a buffer for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecvRequest {
    /// The application's name for it.
    pub wr_id: WrId,
    /// Where the message goes.
    pub sgl: Sgl,
}

impl RecvRequest {
    /// A buffer.
    pub fn new(wr_id: WrId, sgl: impl Into<Sgl>) -> Self {
        Self {
            wr_id,
            sgl: sgl.into(),
        }
    }
}
