//! Work requests of C become those of xwarp, one after the other while a list is posted.

use std::sync::Mutex;

use nix::errno::Errno;
use xwarp::error::PostListError;
use xwarp::memory::{Bind, MemoryOperation};
use xwarp::work::{AtomicOperation, MAX_INLINE, Operation, Payload, ReceiveQueue, SendQueue, Sgl};
use xwarp::{RecvRequest, RemoteAddress, SendRequest, Sge, SharedReceiveQueue, Stag, WrId};

use super::errors::Numbered;
use super::memory::window_access;
use crate::abi::numbers::{
    IBV_ACCESS_ZERO_BASED, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_INV,
};
use crate::abi::requests::{Element, RecvList, RecvWr, SendList, SendWr};
use crate::abi::verbs::Rdma;
use crate::backend::{PostFailure, QpPort, SrqPort};
use crate::entry::{Result, lock};

/// The posting ends of a queue pair.
pub(super) struct Posts {
    sends: Mutex<SendQueue>,
    /// None if the receive queue is shared.
    recvs: Option<Mutex<ReceiveQueue>>,
    all_signaled: bool,
}

/// The posting end of a shared receive queue, until that is destroyed.
pub(super) struct SrqPosts(pub(super) Mutex<Option<SharedReceiveQueue>>);

impl Posts {
    pub(super) fn new(sends: SendQueue, recvs: Option<ReceiveQueue>, all_signaled: bool) -> Self {
        Self {
            sends: Mutex::new(sends),
            recvs: recvs.map(Mutex::new),
            all_signaled,
        }
    }
}

type Posted = std::result::Result<(), PostFailure>;

/// What a list came to, of which a request may have had no meaning: `refused`.
#[inline]
fn posted(result: std::result::Result<usize, PostListError>, refused: Option<Errno>) -> Posted {
    match (result, refused) {
        (Ok(_all), None) => Ok(()),
        (Ok(posted), Some(errno)) => Err(PostFailure { posted, errno }),
        (Err(error), _) => Err(PostFailure {
            posted: error.posted,
            errno: error.error.errno(),
        }),
    }
}

/// The requests of a list up to the first without a meaning, whose error number is put aside.
#[inline]
fn meant<W, R>(
    list: impl Iterator<Item = W>,
    refused: &mut Option<Errno>,
    meaning: impl Fn(W) -> Result<R>,
) -> impl Iterator<Item = R> {
    list.map_while(move |request| {
        meaning(request)
            .map_err(|errno| *refused = Some(errno))
            .ok()
    })
}

impl QpPort for Posts {
    fn post_send(&self, list: SendList<'_>) -> Posted {
        let mut sends = lock(&self.sends);
        if let Some(request) = list.only() {
            return posted_one(post_one(&mut sends, request, self.all_signaled));
        }
        let mut refused = None;
        let meaning = |request| send(request, self.all_signaled);
        let result = sends.post_list(meant(list, &mut refused, meaning));
        posted(result, refused)
    }

    fn post_all(&self, list: SendList<'_>) -> Result<()> {
        if let Some(request) = list.only() {
            return post_one(&mut lock(&self.sends), request, self.all_signaled);
        }
        let requests = list.map(|request| send(request, self.all_signaled));
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let posted = lock(&self.sends).post_all(requests);
        posted.map_err(|error| error.errno())
    }

    fn post_recv(&self, list: RecvList<'_>) -> Posted {
        let Some(recvs) = &self.recvs else {
            return posted_one(Err(Errno::EINVAL));
        };
        let mut recvs = lock(recvs);
        if let Some(request) = list.only() {
            return posted_one(receive_one(&mut recvs, request));
        }
        let mut refused = None;
        let result = recvs.post_list(meant(list, &mut refused, recv));
        posted(result, refused)
    }
}

/// What a list of one request came to.
#[inline]
fn posted_one(result: Result<()>) -> Posted {
    result.map_err(|errno| PostFailure { posted: 0, errno })
}

/// Posts a request by itself, as most are. What is posted most often is made where it is posted.
#[inline]
fn post_one(sends: &mut SendQueue, request: SendWr<'_>, all_signaled: bool) -> Result<()> {
    let (fields, is_inline) = (request.fields(), request.has(IBV_SEND_INLINE));
    let (wr_id, opcode) = (WrId(fields.wr_id), fields.opcode);
    let mut post = |made| post_made(sends, made, request, all_signaled);
    match (request.sges(), opcode) {
        (Some([one]), IBV_WR_RDMA_WRITE) if !is_inline => {
            let to = remote(request.rdma());
            post(SendRequest::write(wr_id, element(one), to))
        }
        (Some([one]), IBV_WR_RDMA_READ) if !is_inline => {
            let from = remote(request.rdma());
            post(SendRequest::read(wr_id, element(one), from))
        }
        (Some([one]), IBV_WR_SEND) if !is_inline && !request.has(IBV_SEND_SOLICITED) => {
            post(SendRequest::send(wr_id, element(one)))
        }
        _ => post_any(sends, request, all_signaled),
    }
}

#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "a work request is long, and would be copied"
)]
fn post_made(
    sends: &mut SendQueue,
    mut made: SendRequest,
    request: SendWr<'_>,
    all_signaled: bool,
) -> Result<()> {
    made.signaled = all_signaled || request.has(IBV_SEND_SIGNALED);
    made.read_fence = request.has(IBV_SEND_FENCE);
    sends.post(made).map_err(|error| error.errno())
}

#[inline(never)]
fn post_any(sends: &mut SendQueue, request: SendWr<'_>, all_signaled: bool) -> Result<()> {
    let made = send(request, all_signaled)?;
    sends.post(made).map_err(|error| error.errno())
}

#[inline]
fn receive_one(recvs: &mut ReceiveQueue, request: RecvWr<'_>) -> Result<()> {
    let wr_id = WrId(request.fields().wr_id);
    let made = match request.sges().ok_or(Errno::EINVAL)? {
        [one] => RecvRequest::new(wr_id, element(one)),
        some => RecvRequest::new(wr_id, some.iter().map(element).collect::<Sgl>()),
    };
    recvs.post(made).map_err(|error| error.errno())
}

impl SrqPort for SrqPosts {
    fn post_recv(&self, list: RecvList<'_>) -> Posted {
        let mut queue = lock(&self.0);
        let nothing = PostFailure {
            posted: 0,
            errno: Errno::EINVAL,
        };
        let queue = queue.as_mut().ok_or(nothing)?;
        let mut refused = None;
        let result = queue.post_recv_list(meant(list, &mut refused, recv));
        posted(result, refused)
    }
}

#[inline]
fn element(sge: &Element) -> Sge {
    let sge = sge.fields();
    Sge {
        stag: Stag(sge.lkey),
        to: sge.addr,
        len: sge.length,
    }
}

#[inline]
fn elements(sges: Option<&[Element]>) -> Result<Sgl> {
    match sges.ok_or(Errno::EINVAL)? {
        [one] => Ok(Sgl::from(element(one))),
        some => Ok(some.iter().map(element).collect()),
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

/// Bytes of inline data that most programs have at most.
const FEW: usize = 64;

fn inline(request: SendWr<'_>) -> Result<Payload> {
    // Less is to be zeroed for few bytes.
    copied::<FEW>(request)
        .or_else(|| copied::<MAX_INLINE>(request))
        .ok_or(Errno::EINVAL)
}

/// The inline data, if they are not more than so many bytes.
#[inline]
fn copied<const N: usize>(request: SendWr<'_>) -> Option<Payload> {
    let mut bytes = [0; N];
    let len = request.copy_inline(&mut bytes)?;
    Some(Payload::inline(bytes.get(..len)?))
}

/// The one piece of memory that a Read or an Atomic Operation places its result into.
fn sink(request: SendWr<'_>) -> Result<Sge> {
    match request.sges() {
        Some([one]) if !request.has(IBV_SEND_INLINE) => Ok(element(one)),
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
fn send(request: SendWr<'_>, all_signaled: bool) -> Result<SendRequest> {
    let mut made = SendRequest::new(WrId(request.fields().wr_id), operation(request)?);
    made.signaled = all_signaled || request.has(IBV_SEND_SIGNALED);
    made.read_fence = request.has(IBV_SEND_FENCE);
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
    match request.fields().opcode {
        IBV_WR_SEND_WITH_INV => send_message(request, Some(key)),
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
        // Not in iWARP: Send with immediate data, and what other devices have.
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
