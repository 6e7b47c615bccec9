//! Full operation of a queue pair: its stream and its work queues, as sending and receiving use
//! them together.

use xwarp_tcp::Instant;

use super::stream::Stream;
use super::work_queues::WorkQueues;
use crate::model::{QpId, QpIdentity};

/// See the module. Lent for the processing of one event or turn.
pub(super) struct FullOperation<'a> {
    pub(super) id: QpId,
    /// What its accesses to regions are judged by.
    pub(super) user: QpIdentity,
    /// Work that was posted is begun: this side has not closed, and sends no Terminate.
    pub(super) begins_work: bool,
    /// Reads and Atomic Operations that may be outstanding.
    pub(super) ord: u16,
    pub(super) now: Instant,
    pub(super) stream: &'a mut Stream,
    pub(super) work: &'a mut WorkQueues,
    #[cfg(feature = "fault-injection")]
    pub(super) injected: &'a mut super::fault::Injected,
}
