//! Polling: completions of xwarp are converted to those of C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use xwarp::attr::{CqId, QpId};
use xwarp::completion::Arm;
use xwarp::error::{RefusedError, TermCode};
use xwarp::{CompletionQueue, CompletionStatus, Opcode, WorkCompletion};

use super::errors::Numbered;
use super::owned::Release;
use super::{Backend, BackendRef};
use crate::abi::numbers::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_DRIVER1, IBV_WC_FATAL_ERR, IBV_WC_FETCH_ADD,
    IBV_WC_GENERAL_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
    IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR,
    IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND, IBV_WC_SUCCESS,
    IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR,
};
use crate::abi::verbs::ibv_wc;
use crate::backend::{CompletionCallback, CqPort, EventTarget};
use crate::entry::Result;
use crate::lock::Lock;

/// Reports why connections of queue pairs have ended.
pub(super) trait Terminates: Send + Sync {
    /// The Terminate that has ended the connection of a queue pair.
    fn terminate_of(&self, qp: QpId) -> Option<TermCode>;
    /// Whether the flushed send of the queue pair with this number is the one that the peer has not
    /// answered. True once.
    fn takes_unanswered(&self, number: u32) -> bool;
}

/// A completion queue, until it is destroyed.
pub(crate) struct Cq {
    queue: Lock<Option<CompletionQueue>>,
    id: CqId,
    rnic: BackendRef,
    /// A weak reference instead of `rnic`: a poll holds the lock of this queue, which dropping the
    /// RNIC takes.
    terminates: Weak<dyn Terminates>,
    /// Flushed sends may be unanswered.
    has_unanswered: Arc<AtomicBool>,
}

impl Backend {
    /// Makes a completion queue. `callback` is called when the completion arrives that the queue
    /// was armed for.
    pub(crate) fn create_cq(
        &self,
        entries: usize,
        callback: Option<CompletionCallback>,
    ) -> Result<Arc<Cq>> {
        let made = self.rnic.create_cq_with(entries, self.handler);
        let queue = made.map_err(|error| error.errno())?;
        let id = queue.id();
        let terminates: Arc<dyn Terminates> = self.registry();
        let cq = Arc::new(Cq {
            queue: Lock::new(Some(queue)),
            id,
            rnic: self.reference(),
            terminates: Arc::downgrade(&terminates),
            has_unanswered: self.registry.has_quiet(),
        });
        self.objects.add(&cq);
        self.registry.add_cq(id, callback);
        Ok(cq)
    }
}

impl Cq {
    /// The port that polls the queue.
    pub(crate) fn port(self: &Arc<Self>) -> Box<dyn CqPort> {
        Box::new(Arc::clone(self))
    }

    /// Reports the queue's events to `target` from now on.
    pub(crate) fn report_events(&self, target: Weak<dyn EventTarget>) -> Result<()> {
        self.rnic.get()?.registry.report_cq(self.id, target);
        Ok(())
    }

    pub(crate) fn resize(&self, entries: usize) -> Result<()> {
        let _rnic = self.rnic.get()?;
        let mut queue = self.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        queue.resize(entries).map_err(|error| error.errno())
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        self.rnic.end(|rnic| {
            end_queue(&self.queue, CompletionQueue::destroy)?;
            rnic.registry.remove_cq(self.id);
            Ok(())
        })
    }

    /// Lends both completion queues of a new queue pair. Two are locked in the order of their
    /// addresses.
    pub(super) fn with_both<R>(
        send: &Arc<Self>,
        recv: &Arc<Self>,
        verb: impl FnOnce(&CompletionQueue, &CompletionQueue) -> Result<R>,
    ) -> Result<R> {
        if Arc::ptr_eq(send, recv) {
            let queue = send.queue.lock();
            let queue = queue.as_ref().ok_or(Errno::EINVAL)?;
            return verb(queue, queue);
        }
        let is_in_order = Arc::as_ptr(send) < Arc::as_ptr(recv);
        let (first, second) = if is_in_order {
            (send, recv)
        } else {
            (recv, send)
        };
        let (first, second) = (first.queue.lock(), second.queue.lock());
        let first = first.as_ref().ok_or(Errno::EINVAL)?;
        let second = second.as_ref().ok_or(Errno::EINVAL)?;
        if is_in_order {
            verb(first, second)
        } else {
            verb(second, first)
        }
    }
}

/// Destroys the queue of a port by a verb that takes it. A queue that the verb refuses to destroy
/// stays in the port.
pub(super) fn end_queue<T, E: Numbered>(
    place: &Lock<Option<T>>,
    end: impl FnOnce(T) -> std::result::Result<(), RefusedError<T, E>>,
) -> Result<()> {
    let mut place = place.lock();
    end(place.take().ok_or(Errno::EINVAL)?).map_err(|refused| {
        *place = Some(*refused.object);
        refused.error.errno()
    })
}

impl Release for Cq {
    fn release(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}

impl CqPort for Arc<Cq> {
    fn poll(&self, places: &mut [ibv_wc]) -> Result<u32> {
        if let [place] = places
            && let Some(mut queue) = self.queue.try_lock()
            && let Some(queue) = queue.as_mut()
            && queue.take_if(|completion| write_plain(completion, place))
        {
            if place.status != IBV_WC_SUCCESS && self.has_unanswered() {
                self.name_unanswered(std::slice::from_mut(place));
            }
            return Ok(1);
        }
        self.poll_any(places)
    }

    fn poll_timed(&self, place: &mut ibv_wc) -> Result<Option<u64>> {
        let mut queue = self.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        let mut time = None;
        let taken = queue.poll_each(1, |completion| {
            self.write(completion, place);
            time = Some(nanoseconds(completion));
        });
        taken.map_err(|error| error.errno())?;
        if time.is_some() && self.has_unanswered() {
            self.name_unanswered(std::slice::from_mut(place));
        }
        Ok(time)
    }

    fn arm(&self, solicited_only: bool) -> Result<()> {
        let kind = if solicited_only {
            Arm::Solicited
        } else {
            Arm::Next
        };
        let queue = self.queue.lock();
        let queue = queue.as_ref().ok_or(Errno::EINVAL)?;
        queue.arm(kind).map_err(|error| error.errno())
    }
}

impl Cq {
    /// Discards completions of a destroyed queue pair. Libraries of InfiniBand do so, and programs
    /// depend on it: libfabric frees the object that such a completion refers to.
    pub(super) fn discard(&self, qp: QpId) {
        let discarded = self.queue.lock().as_mut().map(|queue| queue.discard(qp));
        if let Some(Err(error)) = discarded {
            log::debug!("completions went with the RNIC: {error}");
        }
    }

    /// Whether successful completions of a queue pair are not polled yet.
    pub(super) fn has_successes_of(&self, qp: QpId) -> bool {
        let mut queue = self.queue.lock();
        queue.as_mut().is_some_and(|it| it.has_successes_of(qp))
    }

    /// Polls the available completions. If there is none, the engine takes a turn first.
    #[inline(never)]
    fn poll_any(&self, places: &mut [ibv_wc]) -> Result<u32> {
        let mut queue = self.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        let (most, mut free) = (places.len(), places.iter_mut());
        let taken = queue.poll_each(most, |completion| {
            if let Some(place) = free.next() {
                self.write(completion, place);
            }
        });
        let taken = taken.map_err(|error| error.errno())?;
        if self.has_unanswered() {
            self.name_unanswered(places.get_mut(..taken).unwrap_or_default());
        }
        u32::try_from(taken).map_err(|_never| Errno::EOVERFLOW)
    }

    /// Whether flushed sends may be unanswered.
    #[inline]
    fn has_unanswered(&self) -> bool {
        self.has_unanswered.load(Ordering::Relaxed)
    }

    /// Finds the flushed sends that the peer has not answered.
    #[cold]
    fn name_unanswered(&self, places: &mut [ibv_wc]) {
        let Some(terminates) = self.terminates.upgrade() else {
            return;
        };
        for place in places {
            let is_flushed_send =
                place.status == IBV_WC_WR_FLUSH_ERR && place.opcode != IBV_WC_RECV;
            if is_flushed_send && terminates.takes_unanswered(place.qp_num) {
                place.status = IBV_WC_RETRY_EXC_ERR;
            }
        }
    }

    /// Writes a completion into its place.
    #[inline]
    fn write(&self, completion: &WorkCompletion, place: &mut ibv_wc) {
        if write_plain(completion, place) {
            return;
        }
        write_common(completion, IBV_WC_SUCCESS, place);
        if completion.status == CompletionStatus::Success {
            write_data(completion, place);
        } else {
            self.write_failure(completion, place);
        }
    }

    #[cold]
    fn write_failure(&self, completion: &WorkCompletion, place: &mut ibv_wc) {
        // Only this one asks the engine.
        let is_remote = completion.status == CompletionStatus::RemoteTermination;
        let terminates = is_remote.then(|| self.terminates.upgrade()).flatten();
        let terminate = terminates.and_then(|it| it.terminate_of(completion.qp));
        place.status = status(completion, terminate);
        place.vendor_err = terminate.map_or(0, vendor_error);
    }
}

/// When the NIC received the frame that raised a completion, in nanoseconds by its clock; 0 if the
/// NIC has not reported a time.
fn nanoseconds(completion: &WorkCompletion) -> u64 {
    let time = completion.timestamp().unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Layer, type and code of a Terminate (RFC 5040 §4.8), one in each byte.
fn vendor_error(code: TermCode) -> u32 {
    u32::from_be_bytes([0, code.layer(), code.etype(), code.code()])
}

/// Writes a completion into its place if it has no further fields; most have none.
#[inline]
fn write_plain(completion: &WorkCompletion, place: &mut ibv_wc) -> bool {
    let status = match completion.status {
        CompletionStatus::Success if has_no_data(completion) => IBV_WC_SUCCESS,
        // A queue that is flushed has many.
        CompletionStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        _ => return false,
    };
    write_common(completion, status, place);
    true
}

/// Writes the fields that every completion has.
#[inline]
fn write_common(completion: &WorkCompletion, status: u32, place: &mut ibv_wc) {
    *place = ibv_wc {
        wr_id: completion.wr_id.0,
        status,
        opcode: opcode(completion.opcode),
        vendor_err: 0,
        byte_len: completion.byte_len,
        imm_data: 0,
        qp_num: completion.qp.number(),
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
}

/// Whether the peer has sent only the message.
#[inline]
fn has_no_data(completion: &WorkCompletion) -> bool {
    completion.immediate.is_none() && completion.invalidated.is_none()
}

/// Writes the immediate data or the invalidated `STag` that the peer has sent with the message.
#[inline(never)]
fn write_data(completion: &WorkCompletion, place: &mut ibv_wc) {
    if let Some([a, b, c, d, ..]) = completion.immediate {
        (place.imm_data, place.wc_flags) = (u32::from_ne_bytes([a, b, c, d]), IBV_WC_WITH_IMM);
        if completion.opcode == Opcode::Receive {
            place.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        }
    } else if let Some(stag) = completion.invalidated {
        (place.imm_data, place.wc_flags) = (stag.0, IBV_WC_WITH_INV);
    }
}

#[inline]
fn opcode(of: Opcode) -> u32 {
    match of {
        Opcode::Receive | Opcode::ReceiveImmediate => IBV_WC_RECV,
        Opcode::Write | Opcode::WriteImmediate => IBV_WC_RDMA_WRITE,
        Opcode::Read | Opcode::ReadInvalidate => IBV_WC_RDMA_READ,
        Opcode::Bind => IBV_WC_BIND_MW,
        Opcode::Invalidate => IBV_WC_LOCAL_INV,
        Opcode::FetchAdd => IBV_WC_FETCH_ADD,
        Opcode::CompareSwap => IBV_WC_COMP_SWAP,
        Opcode::Send
        | Opcode::SendSolicited
        | Opcode::SendInvalidate
        | Opcode::SendSolicitedInvalidate
        | Opcode::SendImmediate
        | Opcode::FastRegister
        | Opcode::Immediate => IBV_WC_SEND,
        // An opcode without a name in C.
        _ => IBV_WC_DRIVER1,
    }
}

/// Status of a failed work request.
fn status(completion: &WorkCompletion, terminate: Option<TermCode>) -> u32 {
    let is_receive = completion.opcode == Opcode::Receive;
    let is_of_memory = matches!(completion.opcode, Opcode::Bind | Opcode::Invalidate);
    match completion.status {
        CompletionStatus::Success => IBV_WC_SUCCESS,
        CompletionStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        // Any error of a window or its region.
        _ if is_of_memory => IBV_WC_MW_BIND_ERR,
        CompletionStatus::RemoteTermination => terminate.map_or(IBV_WC_REM_OP_ERR, remote_status),
        CompletionStatus::BaseBounds if is_receive => IBV_WC_LOC_LEN_ERR,
        CompletionStatus::BaseBounds
        | CompletionStatus::InvalidStag
        | CompletionStatus::InvalidPd
        | CompletionStatus::Wrap => IBV_WC_LOC_PROT_ERR,
        CompletionStatus::AccessViolation => IBV_WC_LOC_ACCESS_ERR,
        CompletionStatus::InvalidWindow
        | CompletionStatus::InvalidRegion
        | CompletionStatus::InvalidRights
        | CompletionStatus::StagNotInvalid => IBV_WC_MW_BIND_ERR,
        CompletionStatus::InvalidateRefused => IBV_WC_REM_INV_REQ_ERR,
        CompletionStatus::ZeroReadResources | CompletionStatus::NotInVersion => {
            IBV_WC_LOC_QP_OP_ERR
        }
        CompletionStatus::LocalCatastrophic => IBV_WC_FATAL_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

/// The error that the peer found: a lack of rights (RDMAP's Remote Protection Errors, DDP's Tagged
/// Buffer Errors), a message too long for its buffer (RFC 5041 §7.2), or another one.
fn remote_status(code: TermCode) -> u32 {
    match (code.layer(), code.etype(), code.code()) {
        (0 | 1, 1, _) => IBV_WC_REM_ACCESS_ERR,
        (1, 2, 5) => IBV_WC_REM_INV_REQ_ERR,
        _ => IBV_WC_REM_OP_ERR,
    }
}
