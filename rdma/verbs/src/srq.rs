//! Shared receive queues as an application holds them (verbs draft §6.3).

use std::fmt;
use std::sync::Arc;

use crate::error::{ModifySrqError, PostListError, RefusedError};
use crate::pd::ProtectionDomain;
use crate::runtime::control::Control;
use xwarp_rnic::model::{
    CapabilityError, CreateError, DestroyError, MAX_DEPTH, MAX_SGE, PdId, PostError, RecvRequest,
    ResizeError, RnicUnavailable, SrqId, check_buffers, check_capability,
};
use xwarp_rnic::queues::WorkQueue;

/// A shared receive queue's size and limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqConfig {
    /// Work requests that it holds.
    pub depth: usize,
    /// Number of unused buffers below which
    /// [`SrqLimitReached`](crate::event::AsyncEventKind::SrqLimitReached) is reported, once; 0 for
    /// never. It cannot exceed the depth.
    pub limit: usize,
    /// Elements that the list of a receive buffer may have, [`MAX_SGE`] at most.
    pub sge: usize,
}

xwarp_driver::setters!(SrqConfig {
    /// Sets how many work requests the queue holds.
    depth: usize,
    /// Sets below how many unused buffers the limit event is reported. 0 is never.
    limit: usize,
    /// Sets how many elements the list of a receive buffer may have.
    sge: usize,
});

impl Default for SrqConfig {
    fn default() -> Self {
        Self {
            depth: 128,
            limit: 0,
            sge: MAX_SGE,
        }
    }
}

/// Attributes of a shared receive queue, as Query S-RQ returns them (verbs draft §9.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqInfo {
    /// Protection domain of the queue.
    pub pd: PdId,
    /// Work requests that it holds.
    pub depth: usize,
    /// Elements that the list of a receive buffer may have.
    pub sge: usize,
    /// The limit that was set last.
    pub limit: usize,
    /// Whether the limit is armed: fewer buffers than the limit will be reported.
    pub armed: bool,
}

/// Receive buffers for several queue pairs. A message for any of the queue pairs takes the oldest
/// buffer, and completes on the completion queue of its queue pair. One queue pair may use all
/// buffers.
///
/// The buffers' pieces are regions of this queue's protection domain, which need not be that of the
/// queue pairs. A buffer that a message has taken belongs to the queue pair, and is flushed if the
/// queue pair ends. Untaken buffers stay. A message that finds no buffer ends its connection.
///
/// Dropping the handle is always allowed. Its queue pairs then use up the posted buffers.
pub struct SharedReceiveQueue {
    id: SrqId,
    pd: PdId,
    posts: WorkQueue<RecvRequest>,
    limit: usize,
    sge: usize,
    /// Set once the queue was destroyed: dropping the handle then releases nothing.
    destroyed: bool,
    control: Arc<Control>,
}

fn check_depth(depth: usize) -> Result<(), CapabilityError> {
    CapabilityError::check("a shared receive queue of depth", depth, 1, MAX_DEPTH)
}

impl ProtectionDomain {
    /// Creates a shared receive queue (verbs draft §9.2.4.1), whose buffers are regions of this
    /// domain.
    ///
    /// # Errors
    ///
    /// - [`CreateError::Capability`]: depth or elements exceed a limit of
    ///   [`Rnic::query`](crate::Rnic::query), or the RNIC has its maximum number of queues
    ///   (verbs draft §9.5.1).
    /// - [`CreateError::LimitOutOfRange`]: the limit exceeds the depth.
    /// - [`CreateError::Memory`]: the host has no memory for it.
    /// - [`CreateError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn create_srq(&self, config: SrqConfig) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::create(self.control(), self.id(), config)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn create(
        control: &Arc<Control>,
        pd: PdId,
        SrqConfig { depth, limit, sge }: SrqConfig,
    ) -> Result<Self, CreateError> {
        check_depth(depth)?;
        check_capability("a number of elements per shared receive of", sge)?;
        if limit > depth {
            return Err(CreateError::LimitOutOfRange { limit, depth });
        }
        let (posts, posted) = WorkQueue::rings(depth)?;
        let (id, slots) = control.call(move |engine| engine.create_srq(pd, posted, limit))??;
        Ok(Self {
            id,
            pd,
            posts: WorkQueue::new(posts, control.slots(), slots),
            limit,
            sge,
            destroyed: false,
            control: Arc::clone(control),
        })
    }

    /// The shared receive queue's identity in events.
    pub fn id(&self) -> SrqId {
        self.id
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Posts a buffer for one message (verbs draft §9.3.1.2). Its slot is free once its completion
    /// has been polled, on whichever completion queue it arrives.
    ///
    /// # Errors
    ///
    /// - [`PostError::TooManyWorkRequests`]: the queue is full.
    /// - [`PostError::TooManyElements`]: the list is longer than the queue was created for (verbs
    ///   draft §9.5.1).
    /// - [`PostError::TooLong`]: the list has 4 GiB or more (RFC 5041 §5.2).
    /// - [`PostError::Unavailable`]: the RNIC was closed.
    pub fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        self.control.check_open()?;
        check_buffers(&request.sgl, self.sge)?;
        self.posts.push(request)
    }

    /// `PostRQ` of a list (verbs draft §8.2.1): posts buffers in order. Returns the number of
    /// posted buffers. The first refused buffer ends the list; buffers before it stay posted.
    ///
    /// # Errors
    ///
    /// The error of [`post_recv`](Self::post_recv) for the first refused request, and the number of
    /// requests posted before it.
    pub fn post_recv_list(
        &mut self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<usize, PostListError> {
        let (open, sge) = (self.control.check_open(), self.sge);
        let check = |request: &RecvRequest| {
            open?;
            check_buffers(&request.sgl, sge)
        };
        PostListError::post_runs(requests, &mut self.posts, check)
    }

    /// Query S-RQ (verbs draft §9.2.4.2).
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn query(&self) -> Result<SrqInfo, RnicUnavailable> {
        let id = self.id;
        let armed = self.control.call(move |engine| engine.srqs().armed(id))?;
        Ok(SrqInfo {
            pd: self.pd,
            depth: self.posts.depth(),
            sge: self.sge,
            limit: self.limit,
            armed: armed > 0,
        })
    }

    /// Modify S-RQ (verbs draft §9.2.4.3): changes the depth, also under load. Posted buffers stay,
    /// in order. A depth below the outstanding work or below an armed limit is refused.
    ///
    /// # Errors
    ///
    /// - [`ModifySrqError::BelowLimit`]: a limit above `depth` is armed.
    /// - [`ModifySrqError::Resize`]: the outstanding work does not fit, `depth` is beyond what the
    ///   RNIC supports, or the host has no memory.
    /// - [`ModifySrqError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn resize(&mut self, depth: usize) -> Result<(), ModifySrqError> {
        check_depth(depth).map_err(ResizeError::Capability)?;
        let id = self.id;
        let limit = self.control.call(move |engine| engine.srqs().armed(id))?;
        if depth < limit {
            return Err(ModifySrqError::BelowLimit { depth, limit });
        }
        let present = usize::try_from(self.posts.outstanding()).unwrap_or(usize::MAX);
        if depth < present {
            let wanted = depth;
            return Err(ResizeError::TooManyPresent { present, wanted }.into());
        }
        let (posts, posted) = WorkQueue::rings(depth).map_err(ResizeError::from)?;
        let resized = self
            .control
            .call(move |engine| engine.srqs().resize(id, posted))?;
        resized.map_err(ResizeError::from)?;
        self.posts.resize(posts);
        Ok(())
    }

    /// Modify S-RQ (verbs draft §9.2.4.3): sets the limit and arms it, also if it is armed already;
    /// 0 disarms it.
    ///
    /// # Errors
    ///
    /// - [`ModifySrqError::LimitOutOfRange`]: `limit` exceeds the depth.
    /// - [`ModifySrqError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn arm_limit(&mut self, limit: usize) -> Result<(), ModifySrqError> {
        let (id, depth) = (self.id, self.posts.depth());
        if limit > depth {
            return Err(ModifySrqError::LimitOutOfRange { limit, depth });
        }
        self.control
            .call(move |engine| engine.srqs().arm(id, limit))?;
        self.limit = limit;
        Ok(())
    }

    /// Destroy S-RQ (verbs draft §9.2.4.4): refused while queue pairs take from it. Posted buffers
    /// are dropped without a completion.
    ///
    /// # Errors
    ///
    /// - [`DestroyError::InUse`]: a queue pair takes from it.
    /// - [`DestroyError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn destroy(mut self) -> Result<(), RefusedError<Self, DestroyError>> {
        let id = self.id;
        let ended = self.control.attempt(move |engine| engine.destroy_srq(id));
        self.destroyed = ended.is_ok();
        RefusedError::unless(ended, self)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({:?})", self.id)
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        let id = self.id;
        if self.destroyed {
            return;
        }
        self.control.release(move |engine| engine.orphan_srq(id));
    }
}
