//! Attributes of a new queue pair (verbs draft §6.1, §9.2.5.1).

use std::sync::Arc;

use rtrb::Consumer;

use crate::model::{
    CqId, PayloadLimits, PdId, QpAccess, RecvRequest, SendRequest, SrqId, StartUpParameters,
};
use crate::queues::{QpShared, SlotTable};
use crate::tables::Srq;

/// Source of a new queue pair's receive buffers.
pub enum NewReceives {
    /// Its own ring.
    Own(Consumer<RecvRequest>),
    /// A shared receive queue, and the limit of messages in progress that raises an event.
    Shared(SrqId, usize),
}

/// Source of the receive buffers, with the shared receive queue looked up.
pub(crate) enum Receives {
    Own(Consumer<RecvRequest>),
    Shared(Arc<Srq>, usize),
}

/// What becomes of a message that finds no receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It ends the connection (RFC 5041 §7.1).
    Ends,
    /// It waits for one.
    Waits,
}

impl NotReady {
    /// By the attribute of a queue pair.
    pub fn new(await_receives: bool) -> Self {
        if await_receives {
            Self::Waits
        } else {
            Self::Ends
        }
    }
}

/// When a Send or a Write is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoneWhen {
    /// TCP has its whole message (RFC 5040 §5.5).
    Sent,
    /// The peer has handled it.
    Handled,
}

impl DoneWhen {
    /// By the attribute of a queue pair.
    pub fn new(confirm_sends: bool) -> Self {
        if confirm_sends {
            Self::Handled
        } else {
            Self::Sent
        }
    }
}

/// Attributes of a new queue pair, except for the source of its receive buffers.
pub struct NewQp {
    /// Its protection domain.
    pub pd: PdId,
    /// Its access flags.
    pub access: QpAccess,
    /// Parameters of its next start-up.
    pub start_up: StartUpParameters,
    /// Whether Immediate Data and Atomic Operations are allowed (RFC 7306).
    pub extensions: bool,
    /// Whether each end of a connection is reported.
    pub report_ends: bool,
    /// Whether the end of a connection is quiet while no request is unfinished.
    pub quiet_end: bool,
    /// What becomes of a message that finds no receive buffer.
    pub not_ready: NotReady,
    /// When a Send or a Write is done.
    pub done_when: DoneWhen,
    /// Maximum lengths of scatter/gather lists and inline data.
    pub sge: PayloadLimits,
    /// The engine's end of its send queue.
    pub sq: Consumer<SendRequest>,
    /// Completion queue of its sends.
    pub send_cq: CqId,
    /// Completion queue of its receives.
    pub recv_cq: CqId,
    /// State that the application sees.
    pub shared: Arc<QpShared>,
    /// Table of its work queues' credits.
    pub slots: Arc<SlotTable>,
}
