//! Posting: work requests of C are converted to those of xwarp, one after the other.
//!
//! A request of one piece is a `PlainRequest`, which is built in the queue's ring after all checks.
//! It has no destructor: the compiler would not build a request in place that an early return has
//! to drop. The functions on that path are inlined by force, since a call in between would build
//! the request on the stack and copy it.

use std::sync::Arc;

use nix::errno::Errno;
use xwarp::attr::SrqId;
use xwarp::error::PostError;
use xwarp::memory::{Bind, MemoryOperation};
use xwarp::work::{
    AtomicOperation, MAX_INLINE, Operation, Payload, Piece, PlainRequest, ReceiveBatch,
    ReceiveQueue, SendBatch, SendQueue, Sgl,
};
use xwarp::{RecvRequest, RemoteAddress, SendRequest, Sge, SharedReceiveQueue, Stag, WrId};

use super::BackendRef;
use super::errors::Numbered;
use super::memory::window_access;
use super::owned::Release;
use crate::abi::numbers::{
    IBV_ACCESS_ZERO_BASED, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::abi::requests::{Element, RecvList, RecvWr, SendList, SendWr};
use crate::abi::verbs::{Rdma, ibv_sge};
use crate::backend::single::Single;
use crate::backend::{PostFailure, QpPort, SrqPort};
use crate::entry::Result;
use crate::lock::{Lock, RevocableLock};

/// The posting ends of a queue pair, until it is destroyed.
pub(super) struct Posts {
    sends: RevocableLock<SendQueue>,
    /// `None` if the receive queue is shared.
    recvs: Option<RevocableLock<ReceiveQueue>>,
    /// Flags that every work request of the queue pair has.
    always: u32,
}

/// A shared receive queue, until it is destroyed.
pub(crate) struct Srq {
    pub(super) queue: Lock<Option<SharedReceiveQueue>>,
    pub(super) id: SrqId,
    pub(super) rnic: BackendRef,
}

impl Posts {
    pub(super) fn new(sends: SendQueue, recvs: Option<ReceiveQueue>, all_signaled: bool) -> Self {
        Self {
            sends: RevocableLock::new(sends),
            recvs: recvs.map(RevocableLock::new),
            always: if all_signaled { IBV_SEND_SIGNALED } else { 0 },
        }
    }
}

impl Release for Posts {
    fn release(&self) {
        self.sends.revoke();
        self.recvs.iter().for_each(RevocableLock::revoke);
    }
}

impl Release for Srq {
    fn release(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}

type Posted = std::result::Result<(), PostFailure>;

/// Posts the requests of a list until one is refused.
#[inline]
fn post_each<W>(list: impl Iterator<Item = W>, mut post: impl FnMut(W) -> Result<()>) -> Posted {
    for (posted, request) in list.enumerate() {
        post(request).map_err(|errno| PostFailure { posted, errno })?;
    }
    Ok(())
}

/// The error of posting to a destroyed queue.
const GONE: PostFailure = PostFailure {
    posted: 0,
    errno: Errno::EINVAL,
};

impl QpPort for Arc<Posts> {
    fn post_send(&self, list: SendList<'_>) -> Posted {
        let mut sends = self.sends.lock().ok_or(GONE)?;
        let mut batch = SendBatch::on(&mut sends);
        post_each(list, |request| {
            let flags = request.fields().send_flags | self.always;
            post_one(&mut batch, request, flags)
        })
    }

    fn post_single(&self, request: &Single) -> Result<()> {
        let mut sends = self.sends.lock().ok_or(GONE.errno)?;
        let mut batch = SendBatch::on(&mut sends);
        let flags = request.flags() | self.always;
        let (wr_id, sge) = (WrId(request.wr_id()), element(request.sge()));
        if request.opcode() == IBV_WR_RDMA_WRITE {
            return post_write(&mut batch, wr_id, sge, remote(request.rdma()), flags);
        }
        if request.opcode() == IBV_WR_SEND {
            return post_plain_send(&mut batch, wr_id, sge, flags);
        }
        post_read(&mut batch, wr_id, sge, remote(request.rdma()), flags)
    }

    fn post_all(&self, list: SendList<'_>) -> Result<()> {
        let requests = list.map(|request| {
            let flags = request.fields().send_flags | self.always;
            send(request, flags)
        });
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let mut sends = self.sends.lock().ok_or(GONE.errno)?;
        sends.post_all(requests).map_err(refused)
    }

    fn post_recv(&self, list: RecvList<'_>) -> Posted {
        let recvs = self.recvs.as_ref().ok_or(GONE)?;
        let mut recvs = recvs.lock().ok_or(GONE)?;
        let mut batch = ReceiveBatch::on(&mut recvs);
        post_each(list, |request| receive_one(&mut batch, request))
    }
}

/// Flags of a request that is built in the queue's ring.
const PLAIN: u32 = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
/// All flags with a meaning in iWARP. Checksums of packets are not among them.
const KNOWN: u32 = PLAIN | IBV_SEND_SOLICITED | IBV_SEND_INLINE;

/// Posts a request. A request of one piece, as most are, is built in the queue's ring.
#[inline]
fn post_one(batch: &mut SendBatch<'_>, request: SendWr<'_>, flags: u32) -> Result<()> {
    let (wr_id, opcode) = (WrId(request.fields().wr_id), request.fields().opcode);
    let Some(sge) = request.only_sge().map(|one| element(one.fields())) else {
        return post_any(batch, request, flags);
    };
    match opcode {
        _ if flags & !PLAIN == IBV_SEND_INLINE => post_inline(batch, request, flags),
        _ if flags & !PLAIN != 0 => post_any(batch, request, flags),
        IBV_WR_RDMA_WRITE => post_write(batch, wr_id, sge, remote(request.rdma()), flags),
        IBV_WR_RDMA_READ => post_read(batch, wr_id, sge, remote(request.rdma()), flags),
        IBV_WR_SEND => post_plain_send(batch, wr_id, sge, flags),
        _ => post_any(batch, request, flags),
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "the request is made in its place")]
fn post_write(
    batch: &mut SendBatch<'_>,
    wr_id: WrId,
    sge: Sge,
    to: RemoteAddress,
    flags: u32,
) -> Result<()> {
    let request = PlainRequest::write(wr_id, Piece::Memory(sge), to);
    (batch.post_plain(flagged(request, flags))).map_err(refused)
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn post_read(
    batch: &mut SendBatch<'_>,
    wr_id: WrId,
    sink: Sge,
    from: RemoteAddress,
    flags: u32,
) -> Result<()> {
    let request = PlainRequest::read(wr_id, sink, from);
    (batch.post_plain(flagged(request, flags))).map_err(refused)
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn post_plain_send(batch: &mut SendBatch<'_>, wr_id: WrId, sge: Sge, flags: u32) -> Result<()> {
    let request = PlainRequest::send(wr_id, Piece::Memory(sge));
    (batch.post_plain(flagged(request, flags))).map_err(refused)
}

/// Posts a request with inline data, which usually are a few bytes in one piece.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "many programs post nothing else, and there is one caller"
)]
fn post_inline(batch: &mut SendBatch<'_>, request: SendWr<'_>, flags: u32) -> Result<()> {
    let (wr_id, opcode) = (WrId(request.fields().wr_id), request.fields().opcode);
    let posted = match request.inline_piece(FEW).map(Piece::Inline) {
        Some(few) if opcode == IBV_WR_RDMA_WRITE => {
            let to = remote(request.rdma());
            batch.post_plain(flagged(PlainRequest::write(wr_id, few, to), flags))
        }
        Some(few) if opcode == IBV_WR_SEND => {
            batch.post_plain(flagged(PlainRequest::send(wr_id, few), flags))
        }
        _ => return post_any(batch, request, flags),
    };
    posted.map_err(refused)
}

/// Converts a request, with the flags of C.
#[inline]
fn flagged(request: PlainRequest<'_>, flags: u32) -> PlainRequest<'_> {
    request
        .signaled(flags & IBV_SEND_SIGNALED != 0)
        .fenced(flags & IBV_SEND_FENCE != 0)
}

#[cold]
fn refused(error: PostError) -> Errno {
    error.errno()
}

#[inline(never)]
fn post_any(batch: &mut SendBatch<'_>, request: SendWr<'_>, flags: u32) -> Result<()> {
    let made = send(request, flags)?;
    batch.post(made).map_err(refused)
}

#[inline]
fn receive_one(batch: &mut ReceiveBatch<'_>, request: RecvWr<'_>) -> Result<()> {
    let wr_id = WrId(request.fields().wr_id);
    match request.only_sge() {
        Some(one) => (batch.post_piece(wr_id, element(one.fields()))).map_err(refused),
        None => receive_any(batch, request),
    }
}

#[inline(never)]
fn receive_any(batch: &mut ReceiveBatch<'_>, request: RecvWr<'_>) -> Result<()> {
    batch.post(recv(request)?).map_err(refused)
}

impl SrqPort for Srq {
    fn post_recv(&self, list: RecvList<'_>) -> Posted {
        let mut queue = self.queue.lock();
        let queue = queue.as_mut().ok_or(GONE)?;
        post_each(list, |request| {
            let posted = queue.post_recv(recv(request)?);
            posted.map_err(refused)
        })
    }
}

#[inline]
fn element(sge: ibv_sge) -> Sge {
    Sge {
        stag: Stag(sge.lkey),
        to: sge.addr,
        len: sge.length,
    }
}

#[inline]
fn elements(sges: Option<&[Element]>) -> Result<Sgl> {
    match sges.ok_or(Errno::EINVAL)? {
        [one] => Ok(Sgl::from(element(one.fields()))),
        some => Ok(some.iter().map(|sge| element(sge.fields())).collect()),
    }
}

#[inline]
fn recv(request: RecvWr<'_>) -> Result<RecvRequest> {
    let wr_id = WrId(request.fields().wr_id);
    Ok(RecvRequest::new(wr_id, elements(request.sges())?))
}

#[inline]
fn payload(request: SendWr<'_>) -> Result<Payload> {
    if request.has(IBV_SEND_INLINE) {
        return inline(request);
    }
    Ok(Payload::from(elements(request.sges())?))
}

/// Bytes of inline data that suffice for most programs.
const FEW: usize = 64;

fn inline(request: SendWr<'_>) -> Result<Payload> {
    // For few bytes, fewer have to be zeroed.
    copied::<FEW>(request)
        .or_else(|| copied::<MAX_INLINE>(request))
        .ok_or(Errno::EINVAL)
}

/// The inline data, if they have at most `N` bytes.
#[inline]
fn copied<const N: usize>(request: SendWr<'_>) -> Option<Payload> {
    let mut bytes = [0; N];
    let len = request.copy_inline(&mut bytes)?;
    Some(Payload::inline(bytes.get(..len)?))
}

/// The one piece of memory that a Read or an Atomic Operation places its result into.
fn sink(request: SendWr<'_>) -> Result<Sge> {
    match request.sges() {
        Some([one]) if !request.has(IBV_SEND_INLINE) => Ok(element(one.fields())),
        Some([]) => Ok(Sge {
            stag: Stag::PLACEHOLDER,
            to: 0,
            len: 0,
        }),
        _ => Err(Errno::EINVAL),
    }
}

fn remote(Rdma { remote_addr, rkey }: Rdma) -> RemoteAddress {
    RemoteAddress {
        stag: Stag(rkey),
        to: remote_addr,
    }
}

#[inline]
fn send(request: SendWr<'_>, flags: u32) -> Result<SendRequest> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let mut made = SendRequest::new(WrId(request.fields().wr_id), operation(request)?);
    made.signaled = flags & IBV_SEND_SIGNALED != 0;
    made.read_fence = flags & IBV_SEND_FENCE != 0;
    Ok(made)
}

#[inline]
fn operation(request: SendWr<'_>) -> Result<Operation> {
    match request.fields().opcode {
        IBV_WR_SEND => send_message(request, None),
        IBV_WR_RDMA_WRITE => Ok(Operation::Write {
            payload: payload(request)?,
            remote: remote(request.rdma()),
        }),
        IBV_WR_RDMA_READ => Ok(Operation::Read {
            sink: sink(request)?,
            remote: remote(request.rdma()),
            invalidate_sink: false,
        }),
        _ => rare_operation(request),
    }
}

#[inline]
fn send_message(request: SendWr<'_>, invalidate: Option<Stag>) -> Result<Operation> {
    Ok(Operation::Send {
        payload: payload(request)?,
        solicited: request.has(IBV_SEND_SOLICITED),
        invalidate,
    })
}

fn rare_operation(request: SendWr<'_>) -> Result<Operation> {
    // In requests with these opcodes the field is a key.
    let key = Stag(request.fields().imm_data);
    let has_no_payload = [IBV_WR_LOCAL_INV, IBV_WR_BIND_MW].contains(&request.fields().opcode);
    if has_no_payload && request.has(IBV_SEND_INLINE) {
        return Err(Errno::EINVAL);
    }
    match request.fields().opcode {
        IBV_WR_SEND_WITH_INV => send_message(request, Some(key)),
        IBV_WR_SEND_WITH_IMM => Ok(Operation::SendImmediate {
            payload: payload(request)?,
            data: request.fields().imm_data.to_ne_bytes(),
            solicited: request.has(IBV_SEND_SOLICITED),
        }),
        IBV_WR_RDMA_WRITE_WITH_IMM => Ok(Operation::WriteImmediate {
            payload: payload(request)?,
            remote: remote(request.rdma()),
            data: immediate(request.fields().imm_data),
            solicited: request.has(IBV_SEND_SOLICITED),
        }),
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => atomic(request),
        IBV_WR_LOCAL_INV => Ok(Operation::Memory(MemoryOperation::Invalidate {
            stag: key,
            local_fence: false,
        })),
        IBV_WR_BIND_MW => bind(request),
        // Operations of other devices.
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Immediate Data are 8 bytes (RFC 7306 §6.1): the 4 of verbs come first.
fn immediate(of_verbs: u32) -> [u8; 8] {
    let [a, b, c, d] = of_verbs.to_ne_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

fn atomic(request: SendWr<'_>) -> Result<Operation> {
    let wanted = request.atomic();
    let operation = if request.fields().opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
        AtomicOperation::FetchAdd {
            add: wanted.compare_add,
            mask: 0,
        }
    } else {
        AtomicOperation::CompareSwap {
            compare: wanted.compare_add,
            compare_mask: u64::MAX,
            swap: wanted.swap,
            swap_mask: u64::MAX,
        }
    };
    Ok(Operation::Atomic {
        operation,
        remote: RemoteAddress {
            stag: Stag(wanted.rkey),
            to: wanted.remote_addr,
        },
        sink: Some(sink(request)?),
    })
}

/// The binding of a window.
fn bind(request: SendWr<'_>) -> Result<Operation> {
    let (fields, info) = (request.fields(), request.fields().bind_info);
    let region = request.bound_region().ok_or(Errno::EINVAL)?;
    Ok(Operation::Memory(MemoryOperation::Bind(Bind {
        window: Stag(fields.bind_rkey),
        region: Stag(region),
        to: info.addr,
        len: info.length,
        zero_based: info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0,
        access: window_access(info.mw_access_flags)?,
    })))
}
