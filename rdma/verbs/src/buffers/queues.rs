//! Queues to which exclusive buffers can be posted.

use super::buffer::Buffer;
use crate::qp::QueuePair;
use crate::qp::data_path::{DataPath, ReceiveQueue, SendQueue};
use crate::srq::SharedReceiveQueue;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{PostError, QpId, RecvRequest, SendRequest, SrqId};

/// Queue that a work request with a buffer was posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostedTo {
    QueuePair(QpId),
    SharedReceiveQueue(SrqId),
}

impl PostedTo {
    /// Whether the queue no longer exists, so that no request posted to it can still have an
    /// effect.
    pub(super) fn is_gone(self, engine: &mut Engine) -> bool {
        match self {
            Self::QueuePair(id) => !engine.stags().has_user(id),
            Self::SharedReceiveQueue(id) => !engine.srqs().contains(id),
        }
    }
}

pub(super) mod sealed {
    use super::{Buffer, PostedTo};
    use xwarp_rnic::model::PostError;

    /// A queue that takes requests of type `R`. The caller calls `ring` after the last request of a
    /// list.
    pub trait Queue<R> {
        fn posted_to(&self) -> PostedTo;
        fn is_of_rnic_of(&self, buffer: &Buffer) -> bool;
        fn push(&mut self, request: R) -> Result<(), PostError>;
        fn ring(&mut self);
    }
}

use sealed::Queue;

/// Queues that take Receives: a [`QueuePair`], its [`DataPath`] or [`ReceiveQueue`], or a
/// [`SharedReceiveQueue`].
pub trait PostReceives: Queue<RecvRequest> {}

/// Queues that take Sends: a [`QueuePair`], its [`DataPath`] or [`SendQueue`].
pub trait PostSends: Queue<SendRequest> {}

impl Queue<RecvRequest> for ReceiveQueue {
    fn posted_to(&self) -> PostedTo {
        PostedTo::QueuePair(self.qp())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.push(request)
    }

    fn ring(&mut self) {
        self.recheck_state();
    }
}

impl Queue<SendRequest> for SendQueue {
    fn posted_to(&self) -> PostedTo {
        PostedTo::QueuePair(self.qp())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.push(request)
    }

    fn ring(&mut self) {
        self.ring_doorbell();
    }
}

impl Queue<RecvRequest> for DataPath {
    fn posted_to(&self) -> PostedTo {
        PostedTo::QueuePair(self.id())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.receives()?.push(request)
    }

    fn ring(&mut self) {
        // Without a receive queue nothing was posted.
        if let Ok(receives) = self.receives() {
            receives.recheck_state();
        }
    }
}

impl Queue<SendRequest> for DataPath {
    fn posted_to(&self) -> PostedTo {
        PostedTo::QueuePair(self.id())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.sends().push(request)
    }

    fn ring(&mut self) {
        self.sends().ring_doorbell();
    }
}

impl<R> Queue<R> for QueuePair
where
    DataPath: Queue<R>,
{
    fn posted_to(&self) -> PostedTo {
        PostedTo::QueuePair(self.id())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: R) -> Result<(), PostError> {
        self.data_path()?.push(request)
    }

    fn ring(&mut self) {
        // While another handle has the data path, nothing was posted here.
        if let Ok(path) = self.data_path() {
            path.ring();
        }
    }
}

impl Queue<RecvRequest> for SharedReceiveQueue {
    fn posted_to(&self) -> PostedTo {
        PostedTo::SharedReceiveQueue(self.id())
    }

    fn is_of_rnic_of(&self, buffer: &Buffer) -> bool {
        buffer.is_of(self.control())
    }

    fn push(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.post_recv(request)
    }

    fn ring(&mut self) {}
}

impl PostReceives for DataPath {}
impl PostReceives for ReceiveQueue {}
impl PostReceives for QueuePair {}
impl PostReceives for SharedReceiveQueue {}
impl PostSends for DataPath {}
impl PostSends for SendQueue {}
impl PostSends for QueuePair {}
