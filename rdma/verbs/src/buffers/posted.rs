//! Posted buffers: kept here while work requests use them (verbs draft §8.1.3.2).
//!
//! In the rings, work with a buffer has a work request ID (`WrId`) that is made here, from 2^63 on,
//! and is used once in a process. An application's own ID could equal the ID of other work, and
//! that work's completion would return a buffer that the RNIC still uses. `take` restores the
//! application's ID in the completion. Engine and rings know nothing of buffers, and work without
//! buffers costs nothing more.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::buffer::Buffer;
use super::queues::sealed::Queue;
use super::queues::{PostReceives, PostSends, PostedTo};
use super::request::{BufferRequest, Work};
use crate::error::{PostListError, RefusedError};
use xwarp_rnic::model::{PostError, WorkCompletion, WrId};

/// First of the IDs that work requests with buffers have in the queues. No ID is used twice in a
/// process.
const FIRST_NAME: u64 = 1 << 63;

fn new_name() -> WrId {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_NAME);
    WrId(NEXT.fetch_add(1, Ordering::Relaxed)) // a process never posts 2^63 buffers
}

struct Posted {
    /// The application's ID of the work request.
    wr_id: WrId,
    buffer: Buffer,
    queue: PostedTo,
}

/// Owns [`Buffer`]s while work requests use them. Their type then gives the application no access
/// to the bytes. One `PostedBuffers` serves any number of queues, of any RNIC. Programs without
/// buffers pay nothing for it.
///
/// ```no_run
/// use std::time::Duration;
/// use xwarp::WrId;
/// use xwarp::buffers::{BufferRequest, PostedBuffers};
///
/// # fn echo(pd: xwarp::ProtectionDomain, mut qp: xwarp::QueuePair, mut cq: xwarp::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
/// let mut posted = PostedBuffers::default();
/// let buffers = pd.allocate_buffers(16, 4096)?;
/// let mut buffers = (0..).map(WrId).zip(buffers).collect();
/// posted.post_recv_list(&mut qp, &mut buffers)?;
/// while let Some(mut completion) = cq.wait(Duration::from_secs(60))? {
///     let Some(mut buffer) = posted.take(&mut completion) else {
///         continue; // some other work request's
///     };
///     // Now the completion has the name that the work was given here.
///     let wr_id = completion.wr_id;
///     if completion.is_success() && completion.opcode == xwarp::Opcode::Receive {
///         buffer.write(0, b"got it")?;
///         posted.post_send(&mut qp, BufferRequest::send(wr_id, buffer, 6))?;
///     } else {
///         posted.post_recv(&mut qp, wr_id, buffer)?;
///     }
/// }
/// # Ok(()) }
/// ```
///
/// A posted buffer has moved, so that it cannot be touched, nor posted a second time:
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, buffer: xwarp::buffers::Buffer) {
/// let mut posted = xwarp::buffers::PostedBuffers::default();
/// let outcome = posted.post_recv(&mut qp, xwarp::WrId(1), buffer);
/// buffer.to_vec();
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, mut buffer: xwarp::buffers::Buffer) {
/// let mut posted = xwarp::buffers::PostedBuffers::default();
/// let outcome = posted.post_send(&mut qp, xwarp::buffers::BufferRequest::send(xwarp::WrId(1), buffer, 8));
/// buffer.write(0, b"too late");
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, buffer: xwarp::buffers::Buffer) {
/// let mut posted = xwarp::buffers::PostedBuffers::default();
/// let send = posted.post_send(&mut qp, xwarp::buffers::BufferRequest::send(xwarp::WrId(1), buffer, 8));
/// let recv = posted.post_recv(&mut qp, xwarp::WrId(2), buffer);
/// # }
/// ```
///
/// The application chooses the `WrId` of each work request, and several may be equal. In the queues
/// the work has another ID, of 2^63 or more, which is used once. So only the buffer's own
/// completion returns it: not an earlier completion of the same buffer, and not the completion of
/// other work. [`take`](Self::take) puts the application's ID into the completion. Work without
/// buffers on the same completion queue should have IDs below 2^63.
///
/// # What becomes of a buffer
///
/// - A refused post returns it at once.
/// - Its completion returns it, whether the work succeeded, failed or was flushed.
/// - Work may get no completion: its queue pair or shared receive queue is destroyed, the RNIC is
///   closed, or its completion queue was dropped or has overflowed. [`reclaim`](Self::reclaim) then
///   returns the buffer once the queue that it was posted to is destroyed. A shared receive queue
///   is destroyed once it and all queue pairs that take buffers from it are.
/// - Dropping the `PostedBuffers` drops its buffers. When the last buffer of a region is dropped,
///   the region is deregistered, and outstanding work on it fails. Until then the peer's data may
///   still be placed into it, and the application cannot see the bytes.
#[derive(Default)]
pub struct PostedBuffers {
    posted: FxHashMap<WrId, Posted>,
}

/// Posts one buffer. Returns the ID of its work in the queue.
fn push<W: Work>(queue: &mut impl Queue<W::Request>, work: &W) -> Result<WrId, PostError> {
    if !queue.is_of_rnic_of(work.buffer()) {
        return Err(PostError::OtherRnic);
    }
    let name = new_name();
    queue.push(work.request(name)?)?;
    Ok(name)
}

impl PostedBuffers {
    /// Posts a buffer for one message from the peer.
    ///
    /// # Errors
    ///
    /// - [`PostError::OtherRnic`]: the buffer belongs to another RNIC.
    /// - Otherwise the errors of a Receive that is posted to `queue` directly.
    pub fn post_recv(
        &mut self,
        queue: &mut impl PostReceives,
        wr_id: WrId,
        buffer: Buffer,
    ) -> Result<(), RefusedError<Buffer, PostError>> {
        self.post(queue, (wr_id, buffer))
    }

    /// Posts a list of buffers in order. Returns the number of posted buffers. Posted buffers leave
    /// the list; the first refused one and those after it stay in the list.
    ///
    /// # Errors
    ///
    /// The error of [`PostedBuffers::post_recv`] for the first refused request, and the number of
    /// requests posted before it.
    pub fn post_recv_list(
        &mut self,
        queue: &mut impl PostReceives,
        buffers: &mut Vec<(WrId, Buffer)>,
    ) -> Result<usize, PostListError> {
        self.post_list(queue, buffers)
    }

    /// Posts to the send queue.
    ///
    /// # Errors
    ///
    /// - [`PostError::OtherRnic`]: the buffer belongs to another RNIC.
    /// - [`PostError::OutOfBounds`]: the message is longer than its buffer.
    /// - Otherwise the errors of a request that is posted to `queue` directly.
    pub fn post_send(
        &mut self,
        queue: &mut impl PostSends,
        request: BufferRequest,
    ) -> Result<(), RefusedError<Buffer, PostError>> {
        self.post(queue, request)
    }

    /// Posts a list to the send queue, as [`post_recv_list`](Self::post_recv_list) does.
    ///
    /// # Errors
    ///
    /// The error of [`PostedBuffers::post_send`] for the first refused request, and the number of
    /// requests posted before it.
    pub fn post_send_list(
        &mut self,
        queue: &mut impl PostSends,
        requests: &mut Vec<BufferRequest>,
    ) -> Result<usize, PostListError> {
        self.post_list(queue, requests)
    }

    /// Returns the buffer of the completed work request, and puts the application's ID of the work
    /// into the completion. Returns `None` and leaves the completion unchanged if the work has no
    /// buffer of this set, or the buffer was returned before.
    pub fn take(&mut self, completion: &mut WorkCompletion) -> Option<Buffer> {
        let posted = self.posted.remove(&completion.wr_id)?;
        completion.wr_id = posted.wr_id;
        Some(posted.buffer)
    }

    /// Returns all buffers whose queue pair or shared receive queue is destroyed, in no particular
    /// order, each with the application's ID of its work.
    pub fn reclaim(&mut self) -> Vec<(WrId, Buffer)> {
        let mut gone = HashMap::new();
        let mut is_gone = |posted: &Posted| {
            let (control, posted_to) = (posted.buffer.control(), posted.queue);
            let key = (Arc::as_ptr(control), posted_to);
            // A closed RNIC has no queue left.
            let ask = || control.call(move |engine| posted_to.is_gone(engine));
            *gone.entry(key).or_insert_with(|| ask().unwrap_or(true))
        };
        let reclaimed = self.posted.extract_if(|_, posted| is_gone(posted));
        reclaimed
            .map(|(_, posted)| (posted.wr_id, posted.buffer))
            .collect()
    }

    /// Number of posted buffers.
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// Whether no buffer is posted.
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    fn post<W: Work>(
        &mut self,
        queue: &mut impl Queue<W::Request>,
        work: W,
    ) -> Result<(), RefusedError<Buffer, PostError>> {
        let pushed = push(queue, &work);
        queue.ring();
        match pushed {
            Ok(name) => {
                self.keep(name, queue.posted_to(), work);
                Ok(())
            }
            Err(error) => Err(RefusedError::new(work.into_buffer(), error)),
        }
    }

    fn post_list<W: Work>(
        &mut self,
        queue: &mut impl Queue<W::Request>,
        list: &mut Vec<W>,
    ) -> Result<usize, PostListError> {
        let mut names = Vec::with_capacity(list.len());
        let outcome = PostListError::post(list.iter(), |work| {
            names.push(push(queue, work)?);
            Ok(())
        });
        queue.ring();
        let taken = list.drain(..names.len());
        for (name, work) in names.into_iter().zip(taken) {
            self.keep(name, queue.posted_to(), work);
        }
        outcome
    }

    fn keep(&mut self, name: WrId, queue: PostedTo, work: impl Work) {
        let posted = Posted {
            wr_id: work.wr_id(),
            buffer: work.into_buffer(),
            queue,
        };
        self.posted.insert(name, posted);
    }
}

impl fmt::Debug for PostedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostedBuffers({} posted)", self.len())
    }
}
