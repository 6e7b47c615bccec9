//! Query RNIC (verbs draft §5.1.3, §9.2.1.2).

use super::limits::{
    MAX_CQ_ENTRIES, MAX_CQS, MAX_DEPTH, MAX_HANDLERS, MAX_LIST_ENTRIES, MAX_PDS, MAX_QPS,
    MAX_READS, MAX_SRQS, MAX_STAGS,
};
use super::memory::{EntrySizes, PblMode};
use super::sge::MAX_SGE;
use super::work::MAX_INLINE;

/// In which order messages of several queue pairs take the buffers of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DequeuingModel {
    /// In the order of arrival, one buffer for each message.
    Arrival,
}

/// Attributes and limits of an RNIC. Each maximum assumes objects of that kind only: memory, file
/// descriptors and ports may be exhausted before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an attribute of its own, as Query RNIC has them"
)]
#[non_exhaustive]
pub struct RnicAttributes {
    /// Vendor and version.
    pub vendor: String,
    /// Queue pairs that the RNIC can have.
    pub max_qps: usize,
    /// Work requests that a send queue or receive queue holds.
    pub max_work_requests: usize,
    /// Work requests that a shared receive queue holds.
    pub max_srq_work_requests: usize,
    /// Elements in the list of a Send, and of a receive buffer.
    pub max_send_sge: usize,
    /// Elements in the list of an RDMA Write.
    pub max_write_sge: usize,
    /// Bytes of inline data in a work request.
    pub max_inline: usize,
    /// Completion queues that the RNIC can have.
    pub max_cqs: usize,
    /// Completions that a completion queue has room for.
    pub max_cq_entries: usize,
    /// Completion event handlers that can be set.
    pub max_completion_handlers: usize,
    /// Asynchronous events that may wait to be polled, as configured when the RNIC was opened.
    pub max_events: usize,
    /// Memory regions, together with windows.
    pub max_regions: usize,
    /// Entries in a physical buffer list.
    pub max_list_entries: usize,
    /// Protection domains that the RNIC can have.
    pub max_pds: usize,
    /// Memory windows, together with regions.
    pub max_windows: usize,
    /// Shared receive queues that the RNIC can have.
    pub max_srqs: usize,
    /// Inbound Reads of all queue pairs together; 0, as each queue pair has its own.
    pub max_inbound_reads_shared: usize,
    /// Outbound Reads of all queue pairs together; 0, as each queue pair has its own.
    pub max_outbound_reads_shared: usize,
    /// Inbound Reads of one queue pair (IRD).
    pub max_ird: usize,
    /// Outbound Reads of one queue pair (ORD).
    pub max_ord: usize,
    /// IRD can be changed after a queue pair was created, by `QueuePair::modify`.
    pub can_modify_ird: bool,
    /// ORD can be raised after a queue pair was created.
    pub can_increase_ord: bool,
    /// A queue pair's send queue and receive queue can be resized after it was created.
    pub can_modify_depths: bool,
    /// Kind of physical buffer lists, as configured when the RNIC was opened.
    pub pbl_mode: PblMode,
    /// Allowed sizes of pages or blocks, in bytes.
    pub entry_sizes: EntrySizes,
    /// Shared receive queues are supported.
    pub shared_receive_queues: bool,
    /// In which order shared receive queues hand out their buffers.
    pub srq_dequeuing: DequeuingModel,
    /// Whether the overflow of a completion queue is detected.
    pub detects_cq_overflow: bool,
}

impl RnicAttributes {
    #[doc(hidden)]
    pub fn new(pbl_mode: PblMode, max_events: usize) -> Self {
        Self {
            vendor: concat!("xwarp ", env!("CARGO_PKG_VERSION")).to_owned(),
            max_qps: MAX_QPS,
            max_work_requests: MAX_DEPTH,
            max_srq_work_requests: MAX_DEPTH,
            max_send_sge: MAX_SGE,
            max_write_sge: MAX_SGE,
            max_inline: MAX_INLINE,
            max_cqs: MAX_CQS,
            max_cq_entries: MAX_CQ_ENTRIES,
            max_completion_handlers: MAX_HANDLERS,
            max_events,
            max_regions: MAX_STAGS,
            max_list_entries: MAX_LIST_ENTRIES,
            max_pds: MAX_PDS,
            max_windows: MAX_STAGS,
            max_srqs: MAX_SRQS,
            max_inbound_reads_shared: 0,
            max_outbound_reads_shared: 0,
            max_ird: MAX_READS,
            max_ord: MAX_READS,
            can_modify_ird: true,
            can_increase_ord: true,
            can_modify_depths: true,
            pbl_mode,
            entry_sizes: EntrySizes::of(pbl_mode),
            shared_receive_queues: true,
            srq_dequeuing: DequeuingModel::Arrival,
            detects_cq_overflow: true,
        }
    }
}
