//! Attributes of a new queue pair (verbs draft §6.1, §9.2.5.1).

use std::sync::Arc;

use rtrb::Consumer;

use crate::model::{
    CqId, PayloadLimits, PdId, QpAccess, RecvRequest, SendRequest, SrqId, StartUpParameters,
};
use crate::queues::{QpShared, SlotTable};
use crate::tables::Srq;

/// Where a new queue pair takes receive buffers from.
pub enum NewReceives {
    /// A ring of its own.
    Own(Consumer<RecvRequest>),
    /// A shared receive queue, and how many messages may be in progress until an event reports it.
    Shared(SrqId, usize),
}

/// Where it takes them from, once a shared receive queue is found.
pub(crate) enum Receives {
    Own(Consumer<RecvRequest>),
    Shared(Arc<Srq>, usize),
}

/// What a new queue pair is made of, besides where it takes receive buffers from.
pub struct NewQp {
    /// Its protection domain.
    pub pd: PdId,
    /// What it may do with memory.
    pub access: QpAccess,
    /// What it asks for in start-up.
    pub start_up: StartUpParameters,
    /// Immediate Data and Atomic Operations are known (RFC 7306).
    pub extensions: bool,
    /// Each end of a connection is reported.
    pub report_ends: bool,
    /// The longest scatter/gather lists.
    pub sge: PayloadLimits,
    /// The engine's end of its send queue.
    pub sq: Consumer<SendRequest>,
    /// Where its sends complete.
    pub send_cq: CqId,
    /// Where its receives complete.
    pub recv_cq: CqId,
    /// What the application sees of it.
    pub shared: Arc<QpShared>,
    /// The credits of its queues.
    pub slots: Arc<SlotTable>,
}
