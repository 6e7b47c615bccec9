//! Full operation of a queue pair: its stream and its work queues together, for sending and
//! receiving.

use xwarp_tcp::Instant;

use super::new_qp::NotReady;
use super::stream::Stream;
use super::work_queues::WorkQueues;
use crate::model::{QpId, QpIdentity};

/// State of a queue pair in full operation, borrowed for one event or turn.
pub(super) struct FullOperation<'a> {
    pub(super) id: QpId,
    /// Identity that its accesses to regions are checked with.
    pub(super) user: QpIdentity,
    /// Whether posted work is begun: this side has not closed, and sends no Terminate.
    pub(super) begins_work: bool,
    /// Reads and Atomic Operations that this side may have outstanding.
    pub(super) ord: u16,
    pub(super) not_ready: NotReady,
    pub(super) now: Instant,
    pub(super) stream: &'a mut Stream,
    pub(super) work: &'a mut WorkQueues,
    #[cfg(feature = "fault-injection")]
    pub(super) injected: &'a mut super::fault::Injected,
}
