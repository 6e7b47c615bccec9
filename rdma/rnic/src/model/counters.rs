//! Counters of an RNIC since it was opened.

use xwarp_driver::IoCounters;
use xwarp_tcp::StackCounters;

/// All counters of an RNIC.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RnicCounters {
    /// Counters of the interface's queue: frames and bytes.
    pub io: IoCounters,
    /// Counters of TCP: segments, and drops by cause.
    pub tcp: StackCounters,
    /// Counters of MPA, DDP and RDMAP: FPDUs, messages, and refused segments.
    pub rdma: EngineCounters,
}

impl RnicCounters {
    /// Sum of the counters of several engines.
    #[doc(hidden)]
    pub fn total(engines: &[Self]) -> Self {
        Self {
            io: engines.iter().map(|it| it.io).sum(),
            tcp: engines.iter().map(|it| it.tcp).sum(),
            rdma: engines.iter().map(|it| it.rdma).sum(),
        }
    }
}

/// Counters of the RDMA layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineCounters {
    /// FPDUs that were received completely with a valid CRC.
    pub fpdus_in: u64,
    /// FPDUs handed to TCP.
    pub fpdus_out: u64,
    /// FPDUs among these that are RDMA Writes of no bytes, to wake a silent peer.
    pub first_fpdu_retries: u64,
    /// Payload bytes placed into regions.
    pub placed_bytes: u64,
    /// Messages that waited for a receive buffer.
    pub rnr_waits: u64,
    /// Connections refused because their start-up was not valid MPA.
    pub drop_startup: u64,
    /// Connections dropped because their start-up took too long.
    pub drop_startup_timeout: u64,
    /// Connections dropped because the backlog of their listener was full: those without a Request
    /// first.
    pub drop_startup_backlog: u64,
    /// FPDUs whose framing or CRC was invalid.
    pub drop_bad_fpdu: u64,
    /// Segments refused by the checks of DDP and RDMAP.
    pub drop_refused_segment: u64,
    /// Bytes that arrived after a stream had failed.
    pub drop_after_failure: u64,
    /// Completions lost because their queue was full.
    pub drop_cq_overflow: u64,
    /// Asynchronous events lost because earlier events were not taken.
    pub drop_events: u64,
    /// Terminate messages sent.
    pub terminates_out: u64,
    /// Terminate messages received.
    pub terminates_in: u64,
}

xwarp_driver::named_counters!(EngineCounters {
    fpdus_in,
    fpdus_out,
    first_fpdu_retries,
    placed_bytes,
    rnr_waits,
    drop_startup,
    drop_startup_timeout,
    drop_startup_backlog,
    drop_bad_fpdu,
    drop_refused_segment,
    drop_after_failure,
    drop_cq_overflow,
    drop_events,
    terminates_out,
    terminates_in,
});
