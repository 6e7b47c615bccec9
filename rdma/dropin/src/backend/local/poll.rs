//! Completions of xwarp become those of C.

use std::sync::{Arc, Mutex, Weak};

use nix::errno::Errno;
use xwarp::completion::Arm;
use xwarp::error::TermCode;
use xwarp::{CompletionQueue, CompletionStatus, Opcode, WorkCompletion};

use super::errors::Numbered;
use super::queue_pairs::QueuePairs;
use crate::abi::numbers::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FATAL_ERR, IBV_WC_FETCH_ADD, IBV_WC_GENERAL_ERR,
    IBV_WC_LOC_ACCESS_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR,
    IBV_WC_LOCAL_INV, IBV_WC_MW_BIND_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR,
};
use crate::abi::verbs::ibv_wc;
use crate::backend::CqPort;
use crate::entry::{Result, lock};

/// Completions that are taken at once.
const BATCH: usize = 16;

/// A completion queue, until it is destroyed.
pub(super) struct Cq {
    pub(super) queue: Mutex<Option<CompletionQueue>>,
    qps: Weak<QueuePairs>,
}

impl Cq {
    pub(super) fn new(queue: CompletionQueue, qps: &Arc<QueuePairs>) -> Self {
        Self {
            queue: Mutex::new(Some(queue)),
            qps: Arc::downgrade(qps),
        }
    }
}

impl CqPort for Cq {
    fn poll(&self, places: &mut [ibv_wc]) -> Result<usize> {
        let mut queue = lock(&self.queue);
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        if let [place] = places {
            return self.poll_one(queue, place);
        }
        let mut taken = 0;
        for places in places.chunks_mut(BATCH) {
            let found = self.poll_batch(queue, places)?;
            taken += found;
            if found < places.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn arm(&self, solicited_only: bool) -> Result<()> {
        let kind = if solicited_only {
            Arm::Solicited
        } else {
            Arm::Next
        };
        let queue = lock(&self.queue);
        let queue = queue.as_ref().ok_or(Errno::EINVAL)?;
        queue.arm(kind).map_err(|error| error.errno())
    }
}

impl Cq {
    /// Takes a completion, as most polls do.
    #[inline]
    fn poll_one(&self, queue: &mut CompletionQueue, place: &mut ibv_wc) -> Result<usize> {
        match queue.poll() {
            Ok(Some(completion)) => {
                self.tell(&completion, place);
                Ok(1)
            }
            Ok(None) => Ok(0),
            Err(error) => Err(error.errno()),
        }
    }

    /// Takes as many completions as there are places, [`BATCH`] at most.
    fn poll_batch(&self, queue: &mut CompletionQueue, places: &mut [ibv_wc]) -> Result<usize> {
        let mut batch = [WorkCompletion::empty(); BATCH];
        let batch = batch.get_mut(..places.len()).unwrap_or_default();
        let found = queue.poll_into(batch).map_err(|error| error.errno())?;
        for (completion, place) in batch.iter().zip(places.iter_mut()).take(found) {
            self.tell(completion, place);
        }
        Ok(found)
    }

    /// Writes a completion into its place.
    #[inline]
    fn tell(&self, completion: &WorkCompletion, place: &mut ibv_wc) {
        let (mut imm_data, mut wc_flags) = (0, 0);
        if let Some([a, b, c, d, ..]) = completion.immediate {
            (imm_data, wc_flags) = (u32::from_ne_bytes([a, b, c, d]), IBV_WC_WITH_IMM);
        } else if let Some(stag) = completion.invalidated {
            (imm_data, wc_flags) = (stag.0, IBV_WC_WITH_INV);
        }
        let number = completion.qp.number();
        let is_success = completion.status == CompletionStatus::Success;
        *place = ibv_wc {
            wr_id: completion.wr_id.0,
            status: IBV_WC_SUCCESS,
            opcode: opcode(completion),
            vendor_err: 0,
            byte_len: completion.byte_len,
            imm_data,
            qp_num: number,
            src_qp: 0,
            wc_flags,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        if !is_success {
            self.tell_failure(completion, place);
        }
    }

    #[cold]
    fn tell_failure(&self, completion: &WorkCompletion, place: &mut ibv_wc) {
        // Only this one asks the engine: a queue that is flushed has many others.
        let is_remote = completion.status == CompletionStatus::RemoteTermination;
        let qps = is_remote.then(|| self.qps.upgrade()).flatten();
        let terminate = qps.and_then(|qps| qps.terminate_of(completion.qp));
        place.status = status(completion, terminate);
        place.vendor_err = terminate.map_or(0, vendor_error);
    }
}

/// Layer, type and code of a Terminate (RFC 5040 §4.8), one in each byte.
fn vendor_error(code: TermCode) -> u32 {
    u32::from_be_bytes([0, code.layer(), code.etype(), code.code()])
}

#[inline]
fn opcode(completion: &WorkCompletion) -> u32 {
    match completion.opcode {
        Opcode::Receive if completion.immediate.is_some() => IBV_WC_RECV_RDMA_WITH_IMM,
        Opcode::Receive => IBV_WC_RECV,
        Opcode::Write | Opcode::WriteImmediate => IBV_WC_RDMA_WRITE,
        Opcode::Read | Opcode::ReadInvalidate => IBV_WC_RDMA_READ,
        Opcode::Bind => IBV_WC_BIND_MW,
        Opcode::Invalidate => IBV_WC_LOCAL_INV,
        Opcode::FetchAdd => IBV_WC_FETCH_ADD,
        Opcode::CompareSwap => IBV_WC_COMP_SWAP,
        _ => IBV_WC_SEND,
    }
}

/// Status of a work request that has failed.
fn status(completion: &WorkCompletion, terminate: Option<TermCode>) -> u32 {
    let is_receive = completion.opcode == Opcode::Receive;
    let is_of_memory = matches!(completion.opcode, Opcode::Bind | Opcode::Invalidate);
    match completion.status {
        CompletionStatus::Success => IBV_WC_SUCCESS,
        CompletionStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        // Whatever was wrong with a window or its region.
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

/// What the peer found: a lack of rights (RDMAP's Remote Protection Errors, DDP's Tagged Buffer Errors), or something else.
fn remote_status(code: TermCode) -> u32 {
    match (code.layer(), code.etype()) {
        (0 | 1, 1) => IBV_WC_REM_ACCESS_ERR,
        _ => IBV_WC_REM_OP_ERR,
    }
}
