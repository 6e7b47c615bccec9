//! What posts to a queue pair's work queues.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rtrb::Producer;

use crate::control::Control;
use crate::error::PostListError;
use xwarp_rnic::model::{
    OutOfMemory, PayloadLimits, PostError, QpId, QpState, RecvRequest, SendRequest, total,
};
use xwarp_rnic::queues::{NewRings, QpShared, WorkQueue};

/// What a Non-Privileged Consumer has of a queue pair (verbs draft §8.2.1, §9.1): it posts, and can do nothing else with it.
///
/// The [`QueuePair`] has it and gives it away by [`take_data_path`](crate::QueuePair::take_data_path): to another thread, say, or to code that
/// shall not be able to change the queue pair. Whoever has the queue pair itself is the Privileged Consumer.
///
/// Every work request of a send queue can be posted. Among them are Bind and Invalidate, which open and close memory that the Privileged
/// Consumer has registered (RFC 5042 §2.3.2). None of them registers memory: a Fast-Register and `STag` 0 need a privileged queue pair, and
/// that gives no data path away. On any other one they complete with an error, and the queue pair ends.
///
/// [`QueuePair`]: crate::QueuePair
pub struct DataPath {
    pub(crate) id: QpId,
    pub(crate) sends: WorkQueue<SendRequest>,
    /// None where buffers are posted to a shared receive queue.
    pub(crate) recvs: Option<WorkQueue<RecvRequest>>,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) extensions: bool,
    pub(crate) sge: PayloadLimits,
    pub(crate) control: Arc<Control>,
}

/// Where is posted to when work queues have been resized.
#[derive(Default)]
pub(crate) struct NewPosts {
    sends: Option<Producer<SendRequest>>,
    recvs: Option<Producer<RecvRequest>>,
}

impl DataPath {
    /// The queue pair's identity in completions.
    pub fn id(&self) -> QpId {
        self.id
    }

    /// The queue pair's state a moment ago; Error once it is destroyed.
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// Posts to the send queue. In Idle the work waits for the connection.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.queue_send(request)?;
        self.control.notify(self.id);
        Ok(())
    }

    /// Posts a list to the send queue, in its order (verbs draft §8.2.1), and tells how many that were. The first one that is refused ends it:
    /// those before it stay posted.
    pub fn post_send_list(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<usize, PostListError> {
        let posted = PostListError::post(requests, |request| self.queue_send(request));
        self.control.notify(self.id);
        posted
    }

    pub(crate) fn queue_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.check_postable()?;
        self.sge.check_send(&request.operation)?;
        request.operation.byte_len().ok_or(PostError::TooLong)?;
        if request.operation.works_on_stag_zero() {
            return Err(PostError::StagZero);
        }
        if request.operation.is_extension() && !self.extensions {
            return Err(PostError::ExtensionsDisabled);
        }
        self.sends.push(request)
    }

    /// Posts a buffer for one message of the peer. In Idle it waits for the connection.
    pub fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.queue_recv(request)?;
        self.recheck_state();
        Ok(())
    }

    /// Posts a list of buffers, as [`post_send_list`](Self::post_send_list) does.
    pub fn post_recv_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        let posted = PostListError::post(requests, |request| self.queue_recv(request));
        self.recheck_state();
        posted
    }

    pub(crate) fn queue_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.check_postable()?;
        let recvs = self.recvs.as_mut().ok_or(PostError::SharedReceiveQueue)?;
        self.sge.check_recv(&request.sgl)?;
        total(&request.sgl).ok_or(PostError::TooLong)?;
        recvs.push(request)
    }

    /// Rings of other depths for the queues that are to be resized; a shared receive queue is not resized here.
    pub(crate) fn other_rings(
        &mut self,
        send_depth: Option<usize>,
        recv_depth: Option<usize>,
    ) -> Result<(NewPosts, NewRings), OutOfMemory> {
        let sends = send_depth.map(|depth| self.sends.other_ring(depth));
        let recvs =
            (self.recvs.as_mut().zip(recv_depth)).map(|(recvs, depth)| recvs.other_ring(depth));
        let (sends, sq) = sends.transpose()?.unzip();
        let (recvs, rq) = recvs.transpose()?.unzip();
        Ok((NewPosts { sends, recvs }, NewRings { sq, rq }))
    }

    /// Posts to them from now on.
    pub(crate) fn resize(&mut self, ends: NewPosts) {
        if let Some(sends) = ends.sends {
            self.sends.resize(sends);
        }
        if let (Some(recvs), Some(ring)) = (&mut self.recvs, ends.recvs) {
            recvs.resize(ring);
        }
    }

    fn check_postable(&self) -> Result<(), PostError> {
        match self.state() {
            QpState::Idle | QpState::Rts => Ok(()),
            state @ (QpState::Closing | QpState::Terminate | QpState::Error) => {
                // The engine's end leaves all queue pairs in Error.
                self.control.check_open()?;
                if self.shared.is_destroyed() {
                    return Err(PostError::Destroyed);
                }
                Err(PostError::InvalidState(state))
            }
        }
    }

    /// Either the engine, which changes the state before it flushes, finds what was posted, or the new state is seen here.
    pub(crate) fn recheck_state(&self) {
        fence(Ordering::SeqCst);
        if self.check_postable().is_err() {
            self.control.notify(self.id);
        }
    }
}

impl fmt::Debug for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataPath({}, {:?})", self.id, self.state())
    }
}
