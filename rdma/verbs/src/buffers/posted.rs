//! Where buffers are while work requests have them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;

use super::buffer::Buffer;
use super::queues::sealed::Queue;
use super::queues::{Keeper, PostReceives, PostSends};
use super::request::{BufferRequest, Work};
use crate::error::{PostListError, Refused};
use xwarp_rnic::model::{PostError, WorkCompletion, WrId};

/// Names of work requests that have buffers begin here, and are never used twice in a process.
const FIRST_NAME: u64 = 1 << 63;

fn new_name() -> WrId {
    static NEXT: AtomicU64 = AtomicU64::new(FIRST_NAME);
    WrId(NEXT.fetch_add(1, Ordering::Relaxed)) // 2^63 will not be posted
}

struct Posted {
    buffer: Buffer,
    keeper: Keeper,
}

/// Keeps [`Buffer`]s while work requests have them: nobody can read or write them then, by type. Any number of queues, of any RNIC, can be posted to with
/// one of these, and it costs nothing where it is not used.
///
/// ```no_run
/// use std::time::Duration;
/// use xwarp::{BufferRequest, PostedBuffers};
///
/// # fn echo(pd: xwarp::ProtectionDomain, mut qp: xwarp::QueuePair, mut cq: xwarp::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
/// let mut posted = PostedBuffers::default();
/// let mut buffers = pd.allocate_buffers(16, 4096)?;
/// posted.post_recv_list(&mut qp, &mut buffers)?;
/// while let Some(completion) = cq.wait(Duration::from_secs(60))? {
///     let Some(mut buffer) = posted.redeem(&completion) else {
///         continue; // some other work request's
///     };
///     if completion.is_success() && completion.opcode == xwarp::Opcode::Receive {
///         buffer.write(0, b"got it")?;
///         posted.post_send(&mut qp, BufferRequest::send(buffer, 6))?;
///     } else {
///         posted.post_recv(&mut qp, buffer)?;
///     }
/// }
/// # Ok(()) }
/// ```
///
/// A posted buffer has moved, so that it cannot be touched, nor posted a second time:
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, buffer: xwarp::Buffer) {
/// let mut posted = xwarp::PostedBuffers::default();
/// let name = posted.post_recv(&mut qp, buffer);
/// buffer.to_vec();
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, mut buffer: xwarp::Buffer) {
/// let mut posted = xwarp::PostedBuffers::default();
/// let name = posted.post_send(&mut qp, xwarp::BufferRequest::send(buffer, 8));
/// buffer.write(0, b"too late");
/// # }
/// ```
///
/// ```compile_fail,E0382
/// # fn post(mut qp: xwarp::QueuePair, buffer: xwarp::Buffer) {
/// let mut posted = xwarp::PostedBuffers::default();
/// let send = posted.post_send(&mut qp, xwarp::BufferRequest::send(buffer, 8));
/// let recv = posted.post_recv(&mut qp, buffer);
/// # }
/// ```
///
/// Its names for work requests are 2^63 and above, each used once; work requests that an application posts itself should have smaller ones, if the same
/// completion queue is used. So no completion but a buffer's own gives it back: not a former one of the same buffer, and not that of other work.
///
/// # What becomes of a buffer
///
/// - A post that is refused gives it back at once.
/// - Its completion gives it back, whether the work was done, has failed or was flushed.
/// - Work that will have no completion, because its queue pair or shared receive queue is gone, or the RNIC is closed, or its
///   completion queue was dropped or has lost it: [`reclaim`](Self::reclaim) gives the buffer back when the queue that it was posted to is gone. A shared
///   receive queue is gone when it and all queue pairs that take from it are.
/// - This is dropped: so are the buffers. When nothing is left of their region, that is deregistered, and work that comes upon it later fails.
///   Until then whatever is still placed goes where nobody looks.
#[derive(Default)]
pub struct PostedBuffers {
    posted: FxHashMap<WrId, Posted>,
}

/// Posts one, and tells its name.
fn push<W: Work>(queue: &mut impl Queue<W::Request>, work: &W) -> Result<WrId, PostError> {
    if !queue.is_of_rnic_of(work.buffer()) {
        return Err(PostError::OtherRnic);
    }
    let name = new_name();
    queue.push(work.request(name)?)?;
    Ok(name)
}

impl PostedBuffers {
    /// Posts a buffer for one message of the peer; returns the work request's name.
    pub fn post_recv(
        &mut self,
        queue: &mut impl PostReceives,
        buffer: Buffer,
    ) -> Result<WrId, Refused<Buffer, PostError>> {
        self.post(queue, buffer)
    }

    /// Posts a list of buffers, in its order, and tells how many that were. Those are taken out of the list; the first one that is refused and
    /// those behind it stay in it.
    pub fn post_recv_list(
        &mut self,
        queue: &mut impl PostReceives,
        buffers: &mut Vec<Buffer>,
    ) -> Result<usize, PostListError> {
        self.post_list(queue, buffers)
    }

    /// Posts to the send queue; returns the work request's name.
    pub fn post_send(
        &mut self,
        queue: &mut impl PostSends,
        request: BufferRequest,
    ) -> Result<WrId, Refused<Buffer, PostError>> {
        self.post(queue, request)
    }

    /// Posts a list to the send queue, as [`post_recv_list`](Self::post_recv_list) does.
    pub fn post_send_list(
        &mut self,
        queue: &mut impl PostSends,
        requests: &mut Vec<BufferRequest>,
    ) -> Result<usize, PostListError> {
        self.post_list(queue, requests)
    }

    /// Gives back the buffer of the work request that has completed; `None` if that had none of these, or it was given back already.
    pub fn redeem(&mut self, completion: &WorkCompletion) -> Option<Buffer> {
        let posted = self.posted.remove(&completion.wr_id)?;
        Some(posted.buffer)
    }

    /// Gives back all buffers whose queue pair or shared receive queue is gone, in no particular order.
    pub fn reclaim(&mut self) -> Vec<Buffer> {
        let mut gone = HashMap::new();
        let mut is_gone = |posted: &Posted| {
            let (control, keeper) = (posted.buffer.control(), posted.keeper);
            let key = (Arc::as_ptr(control), keeper);
            // Nothing is left of a closed RNIC.
            let ask = || control.call(move |engine| keeper.is_gone(engine));
            *gone.entry(key).or_insert_with(|| ask().unwrap_or(true))
        };
        let reclaimed = self.posted.extract_if(|_, posted| is_gone(posted));
        reclaimed.map(|(_, posted)| posted.buffer).collect()
    }

    /// Buffers that are posted.
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    /// True if none is.
    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    fn post<W: Work>(
        &mut self,
        queue: &mut impl Queue<W::Request>,
        work: W,
    ) -> Result<WrId, Refused<Buffer, PostError>> {
        let pushed = push(queue, &work);
        queue.ring();
        match pushed {
            Ok(name) => {
                self.keep(name, queue.keeper(), work);
                Ok(name)
            }
            Err(error) => Err(Refused::new(work.into_buffer(), error)),
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
            self.keep(name, queue.keeper(), work);
        }
        outcome
    }

    fn keep(&mut self, name: WrId, keeper: Keeper, work: impl Work) {
        let buffer = work.into_buffer();
        self.posted.insert(name, Posted { buffer, keeper });
    }
}

impl fmt::Debug for PostedBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostedBuffers({} posted)", self.len())
    }
}
