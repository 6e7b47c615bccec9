//! Modify QP as a value (verbs draft §6.1.3, figures 4 and 5).

use super::Access;
use super::ids::StreamId;
use super::qp_state::QpState;
use super::stream::Framing;

/// A queue pair's depths (verbs draft §6.1.3, §6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depths {
    /// Work requests that the send queue holds.
    pub send_depth: usize,
    /// Work requests that the receive queue holds; 0 if it is shared.
    pub recv_depth: usize,
    /// Reads and Atomic Operations that this side may have outstanding.
    pub ord: u16,
    /// Reads and Atomic Operations that the peer may have outstanding.
    pub ird: u16,
}

/// Depths of Reads and Atomic Operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDepths {
    /// Reads and Atomic Operations that this side may have outstanding.
    pub ord: u16,
    /// Reads and Atomic Operations that the peer may have outstanding.
    pub ird: u16,
}

/// A change of a queue pair: the next state, which may be the current one, and attributes.
/// Attributes that are `None` do not change.
#[derive(Clone, Debug)]
pub struct ModifyQp {
    /// The next state.
    pub next: QpState,
    /// Reads and Atomic Operations that this side may have outstanding.
    pub ord: Option<u16>,
    /// Reads and Atomic Operations that the peer may have outstanding.
    pub ird: Option<u16>,
    /// Work requests that the send queue holds.
    pub send_depth: Option<usize>,
    /// Work requests that the receive queue holds.
    pub recv_depth: Option<usize>,
    /// Messages in progress before the limit event, if the receive queue is shared.
    pub rq_limit: Option<usize>,
    /// Arms that limit.
    pub arm_rq_limit: bool,
    /// What the peer may do: the remote rights among these.
    pub inbound: Option<Access>,
    /// Whether the end of a connection is quiet while no request is unfinished.
    pub quiet_end: Option<bool>,
    /// Whether a message that finds no receive buffer waits for one.
    pub await_receives: Option<bool>,
    /// Whether Sends of the next connection may carry immediate data.
    pub send_immediates: Option<bool>,
    /// Whether Sends and Writes of the next connection complete when the peer has handled them.
    pub confirm_sends: Option<bool>,
    /// The stream that connects a queue pair in Idle.
    pub handover: Option<Handover>,
}

/// A stream to hand over to a queue pair.
#[derive(Clone, Debug)]
pub struct Handover {
    /// Identity of the stream.
    pub stream: StreamId,
    /// How FPDUs are framed on it.
    pub framing: Framing,
    /// The last streaming message, which is sent ahead of all FPDUs.
    pub message: Option<Vec<u8>>,
}

impl ModifyQp {
    /// A change to this state that sets no attribute.
    pub fn to(next: QpState) -> Self {
        Self {
            next,
            ord: None,
            ird: None,
            send_depth: None,
            recv_depth: None,
            rq_limit: None,
            arm_rq_limit: false,
            inbound: None,
            quiet_end: None,
            await_receives: None,
            send_immediates: None,
            confirm_sends: None,
            handover: None,
        }
    }

    /// True if it changes an attribute that is fixed when a connection begins.
    pub(crate) fn concerns_connection(&self) -> bool {
        let reads = self.ord.is_some() || self.ird.is_some();
        let sends = self.send_immediates.is_some() || self.confirm_sends.is_some();
        reads || sends || self.handover.is_some()
    }

    /// True if it resizes a work queue.
    pub fn resizes(&self) -> bool {
        self.send_depth.is_some() || self.recv_depth.is_some()
    }

    /// True if it changes nothing but the state.
    pub(crate) fn is_bare(&self) -> bool {
        let limits = self.rq_limit.is_some() || self.arm_rq_limit;
        let switches = self.quiet_end.is_some() || self.await_receives.is_some();
        let rights = self.inbound.is_some();
        !self.concerns_connection() && !self.resizes() && !limits && !switches && !rights
    }
}
