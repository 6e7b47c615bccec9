//! Posting handles of a queue pair's work queues.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rtrb::Producer;

use crate::error::PostListError;
use crate::runtime::control::Control;
use xwarp_rnic::model::{
    Operation, OutOfMemory, PayloadLimits, PostError, QpConfig, QpId, QpState, RecvRequest,
    SendRequest,
};
use xwarp_rnic::queues::{NewRings, QpShared, WorkQueue};

/// Posting handle of a queue pair, for a Non-Privileged Consumer (verbs draft §8.2.1, §9.1): it can
/// post work and nothing else.
///
/// [`QueuePair::take_data_path`](crate::QueuePair::take_data_path) hands it out, for example to
/// another thread, or to code that must not change the queue pair. The owner of the queue pair is
/// the Privileged Consumer. After [`split`](Self::split) two threads can post without a lock.
///
/// Every work request of a send queue can be posted. Among them are Bind and Invalidate, which
/// grant and revoke access to memory that the Privileged Consumer has registered (RFC 5042 §2.3.2).
/// None of them registers memory: a Fast-Register and `STag` 0 need a privileged queue pair, which
/// does not hand out its data path. On any other queue pair they complete with an error, and the
/// queue pair ends.
pub struct DataPath {
    sends: SendQueue,
    /// `None` if the queue pair has a shared receive queue.
    recvs: Option<ReceiveQueue>,
}

/// The send queue of a queue pair: half of a [`DataPath`].
pub struct SendQueue {
    end: PostingEnd,
    ring: WorkQueue<SendRequest>,
    extensions: bool,
}

/// The receive queue of a queue pair: half of a [`DataPath`].
pub struct ReceiveQueue {
    end: PostingEnd,
    ring: WorkQueue<RecvRequest>,
}

/// The ring that requests are posted to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Sends,
    Receives,
}

/// State that both halves share.
#[derive(Clone)]
pub(crate) struct PostingEnd {
    pub(crate) id: QpId,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) limits: PayloadLimits,
    /// Whether the queue pair has a shared receive queue.
    pub(crate) shares_receives: bool,
    /// Whether late posts are flushed instead of refused.
    flushes_late: bool,
    pub(crate) control: Arc<Control>,
}

/// The new rings of work queues that are resized.
#[derive(Default)]
pub(crate) struct NewPosts {
    sends: Option<Producer<SendRequest>>,
    recvs: Option<Producer<RecvRequest>>,
}

impl PostingEnd {
    /// The posting end of a queue pair that the engine has created.
    pub(crate) fn new(
        id: QpId,
        config: &QpConfig,
        shared: &Arc<QpShared>,
        shares_receives: bool,
        control: &Arc<Control>,
    ) -> Self {
        Self {
            id,
            shared: Arc::clone(shared),
            limits: config.payload_limits(),
            shares_receives,
            flushes_late: config.flush_late_posts,
            control: Arc::clone(control),
        }
    }

    #[inline]
    fn check_postable(&self, half: Half) -> Result<(), PostError> {
        match self.shared.state() {
            QpState::Idle | QpState::Rts => Ok(()),
            state => self.check_late(state, half),
        }
    }

    #[cold]
    fn check_late(&self, state: QpState, half: Half) -> Result<(), PostError> {
        // Closing the RNIC leaves all queue pairs in Error, so a closed RNIC is checked for only
        // here.
        self.control.check_open()?;
        if self.shared.is_destroyed() {
            return Err(PostError::Destroyed);
        }
        let is_accepted = match (state, half) {
            // It waits for the next connection.
            (QpState::Closing, _) if self.shared.ends_quietly() => true,
            (QpState::Closing, Half::Sends) => false,
            (_, Half::Sends | Half::Receives) => self.flushes_late,
        };
        if is_accepted {
            return Ok(());
        }
        Err(PostError::InvalidState(state))
    }

    /// Whether the engine flushes posted work instead of executing it.
    #[inline]
    fn is_late(&self) -> bool {
        !matches!(self.shared.state(), QpState::Idle | QpState::Rts)
    }

    fn is_of(&self, shared: &Arc<QpShared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Notifies the engine that work was posted.
    #[inline]
    fn notify(&self) {
        self.control.notify(self.id, self.shared.engine());
    }
}

/// Refuses requests that a send queue does not accept.
#[inline]
fn check_operation(
    end: &PostingEnd,
    extensions: bool,
    operation: &Operation,
) -> Result<(), PostError> {
    end.limits.check_send(operation)?;
    match operation {
        // Most requests are Sends, Writes and Reads.
        Operation::Send { .. } | Operation::Write { .. } | Operation::Read { .. } => Ok(()),
        _ => check_kind(end, extensions, operation),
    }
}

#[inline(never)]
fn check_kind(end: &PostingEnd, extensions: bool, operation: &Operation) -> Result<(), PostError> {
    if operation.works_on_stag_zero() {
        return Err(PostError::StagZero);
    }
    if operation.is_extension() && !extensions {
        return Err(PostError::ExtensionsDisabled);
    }
    let is_send_immediate = matches!(operation, Operation::SendImmediate { .. });
    if is_send_immediate && !end.shared.has_send_immediates() {
        return Err(PostError::SendImmediatesDisabled);
    }
    Ok(())
}

impl SendQueue {
    /// The queue pair's identity in completions.
    pub fn qp(&self) -> QpId {
        self.end.id
    }

    /// Snapshot of the queue pair's state. Returns `Error` after the queue pair is destroyed.
    pub fn state(&self) -> QpState {
        self.end.shared.state()
    }

    /// `PostSQ` (verbs draft §9.3.1.1): posts a work request. In Idle it waits for the connection.
    ///
    /// # Errors
    ///
    /// - [`PostError::InvalidState`]: the queue pair is in Closing, Terminate or Error (verbs draft
    ///   §6.2), and [`QpConfig::flush_late_posts`](crate::QpConfig::flush_late_posts) does not
    ///   accept it.
    /// - [`PostError::Unavailable`], [`PostError::Destroyed`]: the RNIC was closed, or the queue
    ///   pair is destroyed.
    /// - [`PostError::TooManyWorkRequests`]: the queue is full.
    /// - [`PostError::TooManyElements`], [`PostError::TooManyInlineBytes`]: list or inline data are
    ///   longer than the queue pair was created for (verbs draft §9.5.1).
    /// - [`PostError::TooLong`]: the message has 4 GiB or more (RFC 5041 §5.2).
    /// - [`PostError::StagZero`]: the request binds, registers or invalidates `STag` index 0 (verbs
    ///   draft §7.2.1).
    /// - [`PostError::ExtensionsDisabled`]: the operation is one of RFC 7306, and
    ///   [`QpConfig::rfc7306`](crate::QpConfig::rfc7306) is not set.
    /// - [`PostError::SendImmediatesDisabled`]: a Send with immediate data, and
    ///   [`QpConfig::send_immediates`](crate::QpConfig::send_immediates) is not set.
    pub fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.push(request)?;
        self.ring_doorbell();
        Ok(())
    }

    /// Posts a list in order (verbs draft §8.2.1). Returns the number of posted requests. The first
    /// refused request ends the list; requests before it stay posted.
    ///
    /// # Errors
    ///
    /// The error of [`post`](Self::post) for the first refused request, and the number of requests
    /// posted before it.
    pub fn post_list(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<usize, PostListError> {
        let postable = self.end.check_postable(Half::Sends);
        let (end, extensions) = (&self.end, self.extensions);
        let check = |request: &SendRequest| {
            postable?;
            check_operation(end, extensions, &request.operation)
        };
        let posted = PostListError::post_runs(requests, &mut self.ring, check);
        self.ring_doorbell();
        posted
    }

    /// Posts a whole list or nothing. Unlike [`post_list`](Self::post_list), a list that fails
    /// leaves no request posted.
    ///
    /// # Errors
    ///
    /// The error of [`post`](Self::post) for any of the requests.
    /// [`PostError::TooManyWorkRequests`] if there is no room for all.
    pub fn post_all(&mut self, requests: Vec<SendRequest>) -> Result<(), PostError> {
        self.end.check_postable(Half::Sends)?;
        let (end, extensions) = (&self.end, self.extensions);
        for request in &requests {
            check_operation(end, extensions, &request.operation)?;
        }
        let wanted = requests.len();
        if self.ring.room_for(wanted) < wanted {
            return Err(PostError::TooManyWorkRequests(self.ring.depth()));
        }
        self.ring.push_run(wanted, requests.into_iter());
        self.ring_doorbell();
        Ok(())
    }

    /// Posts without notifying the engine.
    pub(crate) fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.end.check_postable(Half::Sends)?;
        check_operation(&self.end, self.extensions, &request.operation)?;
        self.ring.push(request)
    }

    /// Whether a work request that passes `check` may be [`put`](Self::put) now.
    #[inline]
    pub(crate) fn check_put(
        &mut self,
        check: impl FnOnce(&PayloadLimits) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.end.check_postable(Half::Sends)?;
        check(&self.end.limits)?;
        self.ring.check_room()
    }

    /// Posts a checked request without notifying the engine. A request that the argument expression
    /// constructs is constructed in its slot.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "else the request is moved")]
    pub(crate) fn put(&mut self, request: SendRequest) {
        self.ring.put(request);
    }

    /// Notifies the engine that work was posted.
    #[inline]
    pub(crate) fn ring_doorbell(&self) {
        self.end.notify();
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.end.control
    }
}

impl ReceiveQueue {
    /// The queue pair's identity in completions.
    pub fn qp(&self) -> QpId {
        self.end.id
    }

    /// Snapshot of the queue pair's state. Returns `Error` after the queue pair is destroyed.
    pub fn state(&self) -> QpState {
        self.end.shared.state()
    }

    /// `PostRQ` (verbs draft §9.3.1.2): posts a buffer for one message from the peer. In Idle it
    /// waits for the connection.
    ///
    /// # Errors
    ///
    /// - [`PostError::InvalidState`]: the queue pair is in Closing, Terminate or Error (verbs draft
    ///   §6.2), and [`QpConfig::flush_late_posts`](crate::QpConfig::flush_late_posts) does not
    ///   accept it.
    /// - [`PostError::Unavailable`], [`PostError::Destroyed`]: the RNIC was closed, or the queue
    ///   pair is destroyed.
    /// - [`PostError::TooManyWorkRequests`]: the queue is full.
    /// - [`PostError::TooManyElements`]: the list is longer than the queue was created for (verbs
    ///   draft §9.5.1).
    /// - [`PostError::TooLong`]: the list has 4 GiB or more (RFC 5041 §5.2).
    pub fn post(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.push(request)?;
        self.recheck_state();
        Ok(())
    }

    /// Posts a list of buffers, as [`SendQueue::post_list`] does.
    ///
    /// # Errors
    ///
    /// The error of [`post`](Self::post) for the first refused request, and the number of requests
    /// posted before it.
    pub fn post_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        let postable = self.end.check_postable(Half::Receives);
        let limits = &self.end.limits;
        let check = |request: &RecvRequest| {
            postable?;
            limits.check_recv(&request.sgl)
        };
        let posted = PostListError::post_runs(requests, &mut self.ring, check);
        self.recheck_state();
        posted
    }

    /// Posts without checking for a late post.
    pub(crate) fn push(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.end.check_postable(Half::Receives)?;
        self.end.limits.check_recv(&request.sgl)?;
        self.ring.push(request)
    }

    /// Whether a buffer that passes `check` may be [`put`](Self::put) now.
    #[inline]
    pub(crate) fn check_put(
        &mut self,
        check: impl FnOnce(&PayloadLimits) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        self.end.check_postable(Half::Receives)?;
        check(&self.end.limits)?;
        self.ring.check_room()
    }

    /// Posts a checked buffer, as [`SendQueue::put`] does.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "else the request is moved")]
    pub(crate) fn put(&mut self, request: RecvRequest) {
        self.ring.put(request);
    }

    /// Notifies the engine if the state has changed since the post. The engine changes the state
    /// before it flushes: either it finds the posted requests, or the new state is visible here.
    #[inline]
    pub(crate) fn recheck_state(&self) {
        fence(Ordering::SeqCst);
        if self.end.is_late() {
            self.end.notify();
        }
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.end.control
    }
}

impl DataPath {
    /// The posting handle of a queue pair that the engine has created.
    pub(crate) fn new(
        end: &PostingEnd,
        sends: Producer<SendRequest>,
        recvs: Option<Producer<RecvRequest>>,
        extensions: bool,
    ) -> Self {
        let slots = end.control.slots();
        let [send_slots, recv_slots] = slots.pair(end.id);
        Self {
            sends: SendQueue {
                end: end.clone(),
                ring: WorkQueue::new(sends, slots, send_slots),
                extensions,
            },
            recvs: recvs.map(|ring| ReceiveQueue {
                end: end.clone(),
                ring: WorkQueue::new(ring, slots, recv_slots),
            }),
        }
    }

    /// Splits the data path into halves that two threads can use without a lock. A queue pair with
    /// a shared receive queue has no receive half.
    pub fn split(self) -> (SendQueue, Option<ReceiveQueue>) {
        (self.sends, self.recvs)
    }

    /// Joins the halves of one queue pair again, so that they can be returned to the queue pair.
    /// Halves of two queue pairs, and a send queue without its receive queue, are refused and
    /// returned.
    ///
    /// # Errors
    ///
    /// The halves, if they do not belong together.
    pub fn join(
        sends: SendQueue,
        recvs: Option<ReceiveQueue>,
    ) -> Result<Self, Box<(SendQueue, Option<ReceiveQueue>)>> {
        let fits = match &recvs {
            Some(recvs) => recvs.end.is_of(&sends.end.shared),
            None => sends.end.shares_receives,
        };
        if fits {
            Ok(Self { sends, recvs })
        } else {
            Err(Box::new((sends, recvs)))
        }
    }

    /// The queue pair's identity in completions.
    pub fn id(&self) -> QpId {
        self.sends.qp()
    }

    /// Snapshot of the queue pair's state. Returns `Error` after the queue pair is destroyed.
    pub fn state(&self) -> QpState {
        self.sends.state()
    }

    /// Posts to the send queue. In Idle the work waits for the connection.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post`].
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.sends.post(request)
    }

    /// Posts a list to the send queue, as [`SendQueue::post_list`] does.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::post_list`].
    pub fn post_send_list(
        &mut self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<usize, PostListError> {
        self.sends.post_list(requests)
    }

    /// Posts a buffer for one message from the peer. In Idle it waits for the connection.
    ///
    /// # Errors
    ///
    /// As [`ReceiveQueue::post`], and [`PostError::SharedReceiveQueue`] if the queue pair takes its
    /// buffers from a shared one.
    pub fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.receives()?.post(request)
    }

    /// Posts a list of buffers, as [`SendQueue::post_list`] does.
    ///
    /// # Errors
    ///
    /// The error of [`post_recv`](Self::post_recv) for the first refused request, and the number of
    /// requests posted before it.
    pub fn post_recv_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        match self.receives() {
            Ok(receives) => receives.post_list(requests),
            Err(error) => PostListError::post(requests, |_| Err(error)),
        }
    }

    pub(crate) fn sends(&mut self) -> &mut SendQueue {
        &mut self.sends
    }

    #[inline]
    pub(crate) fn receives(&mut self) -> Result<&mut ReceiveQueue, PostError> {
        self.recvs.as_mut().ok_or(PostError::SharedReceiveQueue)
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        self.sends.control()
    }

    pub(crate) fn is_of(&self, shared: &Arc<QpShared>) -> bool {
        self.sends.end.is_of(shared)
    }

    /// Rings of the new depths for the queues that `change` resizes. A shared receive queue is not
    /// resized here.
    pub(crate) fn other_rings(
        &mut self,
        send_depth: Option<usize>,
        recv_depth: Option<usize>,
    ) -> Result<(NewPosts, NewRings), OutOfMemory> {
        let sends = send_depth.map(|depth| self.sends.ring.other_ring(depth));
        let recvs = self.recvs.as_mut().zip(recv_depth);
        let recvs = recvs.map(|(recvs, depth)| recvs.ring.other_ring(depth));
        let (sends, sq) = sends.transpose()?.unzip();
        let (recvs, rq) = recvs.transpose()?.unzip();
        Ok((NewPosts { sends, recvs }, NewRings { sq, rq }))
    }

    /// Posts to the new rings from now on.
    pub(crate) fn resize(&mut self, ends: NewPosts) {
        if let Some(sends) = ends.sends {
            self.sends.ring.resize(sends);
        }
        if let (Some(recvs), Some(ring)) = (&mut self.recvs, ends.recvs) {
            recvs.ring.resize(ring);
        }
    }
}

impl fmt::Debug for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataPath({}, {:?})", self.id(), self.state())
    }
}

impl fmt::Debug for SendQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendQueue({}, {:?})", self.qp(), self.state())
    }
}

impl fmt::Debug for ReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveQueue({}, {:?})", self.qp(), self.state())
    }
}
