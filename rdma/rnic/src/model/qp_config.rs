//! Configuration of a new queue pair (verbs draft §9.2.5.1).

use xwarp_iwarp::mpa::Revision;

use super::error::{CapabilityError, CreateError};
use super::limits::{MAX_DEPTH, MAX_READS};
use super::mpa::{PeerToPeer, StartUpParameters};
use super::qp_identity::QpAccess;
use super::sge::MAX_SGE;
use super::work::{MAX_INLINE, PayloadLimits};

/// A queue pair's size and limits.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own, as Create QP has them"
)]
#[non_exhaustive]
pub struct QpConfig {
    /// Work requests that the send queue holds.
    pub send_depth: usize,
    /// Work requests that the receive queue holds. Ignored if the receive queue is shared.
    pub recv_depth: usize,
    /// Elements that the list of a Send may have, [`MAX_SGE`] at most.
    pub send_sge: usize,
    /// Elements that the list of an RDMA Write may have.
    pub write_sge: usize,
    /// Elements that the list of a receive buffer may have. Ignored if the receive queue is shared.
    pub recv_sge: usize,
    /// Bytes of inline data that a work request may carry, [`MAX_INLINE`] at most.
    pub max_inline: usize,
    /// Messages that may be in progress before
    /// [`RqLimitReached`](crate::model::AsyncEventKind::RqLimitReached) is reported, once; 0 for
    /// never (verbs draft §6.3.8). Such a message has taken a buffer and not completed. Needs a
    /// shared receive queue. Messages of a queue pair are placed one after the other, so only a
    /// limit of 0 can be exceeded, once `QpChange::arm_rq_limit` has armed it.
    pub rq_limit: usize,
    /// Reads and Atomic Operations that this side may have outstanding (ORD). Further ones wait in
    /// the send queue. MPA revision 2 lowers it to the peer's IRD. Revision 1 does not exchange it,
    /// so it must not exceed the peer's IRD. With 0 a posted Read ends the connection.
    pub ord: u16,
    /// Reads and Atomic Operations that the peer may have outstanding (IRD). A further one ends the
    /// connection. Accepting with MPA revision 2 lowers it to the peer's ORD.
    pub ird: u16,
    /// The peer-to-peer model. For an initiator: the requested model; `None`, the default, is the
    /// client-server model. For a responder only the RTR types matter, and `None` allows all: the
    /// initiator chooses the model.
    pub peer_to_peer: Option<PeerToPeer>,
    /// Whether Immediate Data and Atomic Operations are allowed, in both directions (RFC 7306).
    /// Connection set-up does not negotiate them: a peer without them ends the connection when it
    /// receives one. So does this side if this is false.
    pub rfc7306: bool,
    /// Whether the peer may write memory of this side: by Writes, and by the Responses to Reads
    /// (verbs draft §6.1.3, figure 21). Otherwise such a message ends the connection unless it is
    /// empty. [`ird`](Self::ird) determines whether the peer may read.
    pub inbound_write: bool,
    /// Whether the sink of a Read needs only the local right to write. Then the Read itself allows
    /// the peer to write, once, and only the requested bytes; neither the remote right nor
    /// [`inbound_write`](Self::inbound_write) is needed. False by default, as in the verbs draft
    /// (§7.5). InfiniBand's programs register sinks with the local right.
    pub local_read_sinks: bool,
    /// Whether the queue pair may bind memory windows (verbs draft §6.1.3).
    pub bind_windows: bool,
    /// Whether scatter/gather lists may name `STag` 0, which is all of the region area by physical
    /// addresses (`Rnic::physical_address`), and whether Fast-Register is allowed (verbs draft
    /// §7.2.1, §7.5). The queue pair does not hand out its `DataPath`, as a Non-Privileged Consumer
    /// may do neither.
    pub privileged: bool,
    /// Whether work that is posted in Terminate or Error is accepted, and completes as flushed,
    /// behind work that was flushed before. So are buffers that are posted in Closing. False by
    /// default: the verb fails at once (verbs draft §6.2). InfiniBand's verbs accept such work.
    /// Their programs post a last request to learn that all earlier requests have completed, and
    /// may post a buffer while the peer closes.
    pub flush_late_posts: bool,
    /// Whether each end of a connection is reported: if no other event reports it,
    /// [`Ended`](crate::model::AsyncEventKind::Ended) does. False by default, as the verbs draft
    /// has no event for an end that a completion reports or that the application requested
    /// (§8.3.3).
    pub report_ends: bool,
    /// Whether the end of a connection is quiet while no request of this side is unfinished:
    /// receive buffers stay posted, and the queue pair returns to Idle, even if the peer is lost. A
    /// peer that is lost before it has acknowledged all messages is an error still. Work that is
    /// posted meanwhile waits for the next connection. False by default: receive buffers are
    /// flushed (verbs draft §6.2.5), and a lost connection leads to Error (§6.2.4). On InfiniBand a
    /// queue pair does not notice that its peer is gone until it sends to it.
    pub quiet_end: bool,
    /// Whether a message that finds no receive buffer waits for one, and all later ones behind it.
    /// The peer's TCP waits once this side's window is closed. False by default: the connection
    /// ends (RFC 5041 §7.1). InfiniBand's programs may send before the peer is ready to receive. If
    /// the peer has closed behind such a message, and no buffer is posted for 2 s, the connection
    /// is reset.
    pub await_receives: bool,
    /// Whether Sends may carry four bytes of immediate data, in both directions, as InfiniBand's
    /// do. False by default: no RFC has such messages, so both sides must know it of each other. A
    /// peer that does not know them ends the connection (RFC 5040 §4.8). With them, a receive that
    /// Immediate Data complete reports the length of the Write right before these.
    pub send_immediates: bool,
    /// Whether Sends and Writes complete when the peer has handled them, or with
    /// [`RemoteTermination`](crate::model::CompletionStatus::RemoteTermination) when it has refused
    /// them, as on InfiniBand. A Read of no bytes behind them, which counts towards ORD, proves it
    /// to any peer (RFC 5040 §5.5); without ORD they complete as by default. If the connection ends
    /// without a Terminate, what the peer's TCP has acknowledged counts as handled. False by
    /// default: they complete when TCP has them, and the peer's refusal is an event.
    pub confirm_sends: bool,
}

xwarp_driver::setters!(QpConfig {
    /// Sets how many work requests the send queue holds.
    send_depth: usize,
    /// Sets how many work requests the receive queue holds.
    recv_depth: usize,
    /// Sets how many elements the list of a Send may have.
    send_sge: usize,
    /// Sets how many elements the list of an RDMA Write may have.
    write_sge: usize,
    /// Sets how many elements the list of a receive buffer may have.
    recv_sge: usize,
    /// Sets how many bytes of inline data a work request may carry.
    max_inline: usize,
    /// Sets how many messages may be in progress before the limit is reported.
    rq_limit: usize,
    /// Sets how many Reads and Atomic Operations may be outstanding (ORD).
    ord: u16,
    /// Sets how many Reads and Atomic Operations the peer may have outstanding (IRD).
    ird: u16,
    /// Sets the peer-to-peer model to request.
    peer_to_peer: Option<PeerToPeer>,
    /// Sets whether Immediate Data and Atomic Operations are allowed, in both directions (RFC
    /// 7306).
    rfc7306: bool,
    /// Sets whether the peer may write to memory of this side.
    inbound_write: bool,
    /// Sets whether the sink of a Read needs only the local right to write.
    local_read_sinks: bool,
    /// Sets whether the queue pair may bind memory windows.
    bind_windows: bool,
    /// Sets whether the queue pair may name `STag` 0 and Fast-Register.
    privileged: bool,
    /// Sets whether work posted in Terminate or Error is accepted and flushed.
    flush_late_posts: bool,
    /// Sets whether each end of a connection is reported.
    report_ends: bool,
    /// Sets whether the end of a connection is quiet while no request is unfinished.
    quiet_end: bool,
    /// Sets whether a message that finds no receive buffer waits for one.
    await_receives: bool,
    /// Sets whether Sends may carry immediate data.
    send_immediates: bool,
    /// Sets whether Sends and Writes complete when the peer has handled them.
    confirm_sends: bool,
});

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            send_depth: 128,
            recv_depth: 128,
            send_sge: MAX_SGE,
            write_sge: MAX_SGE,
            recv_sge: MAX_SGE,
            max_inline: MAX_INLINE,
            rq_limit: 0,
            ord: 32,
            ird: 32,
            peer_to_peer: None,
            rfc7306: true,
            inbound_write: true,
            local_read_sinks: false,
            bind_windows: true,
            privileged: false,
            flush_late_posts: false,
            report_ends: false,
            quiet_end: false,
            await_receives: false,
            send_immediates: false,
            confirm_sends: false,
        }
    }
}

impl QpConfig {
    /// Checks the values. `shared`: receive buffers are posted to a shared receive queue, so
    /// `recv_depth` is ignored.
    #[doc(hidden)]
    pub fn check(&self, max_revision: Revision, shared: bool) -> Result<(), CreateError> {
        let recv_depth = if shared { 1 } else { self.recv_depth };
        let limits = [
            ("a send queue of depth", self.send_depth, 1, MAX_DEPTH),
            ("a receive queue of depth", recv_depth, 1, MAX_DEPTH),
            ("ORD", usize::from(self.ord), 0, MAX_READS),
            ("IRD", usize::from(self.ird), 0, MAX_READS),
        ];
        for (what, wanted, min, max) in limits {
            CapabilityError::check(what, wanted, min, max)?;
        }
        self.payload_limits().check(shared)?;
        if self.rq_limit > 0 && !shared {
            return Err(CreateError::LimitWithoutSrq(self.rq_limit));
        }
        match self.peer_to_peer {
            Some(model) if model.rtr.is_empty() => Err(CreateError::NoRtr),
            Some(model) if model.required && max_revision < Revision::Two => {
                Err(CreateError::NeedsRevisionTwo)
            }
            Some(_) | None => Ok(()),
        }
    }

    #[doc(hidden)]
    pub fn payload_limits(&self) -> PayloadLimits {
        PayloadLimits {
            send: self.send_sge,
            write: self.write_sge,
            recv: self.recv_sge,
            inline: self.max_inline,
        }
    }

    #[doc(hidden)]
    pub fn access(&self) -> QpAccess {
        let mut access = QpAccess::empty();
        access.set(QpAccess::BIND_WINDOWS, self.bind_windows);
        let responds = QpAccess::INBOUND_READ | QpAccess::INBOUND_ATOMIC;
        access.set(responds, self.ird > 0);
        access.set(QpAccess::INBOUND_WRITE, self.inbound_write);
        access.set(QpAccess::LOCAL_SINKS, self.local_read_sinks);
        access.set(QpAccess::PHYSICAL, self.privileged);
        access
    }

    #[doc(hidden)]
    pub fn start_up(&self) -> StartUpParameters {
        StartUpParameters {
            ird: self.ird,
            ord: self.ord,
            peer_to_peer: self.peer_to_peer,
        }
    }
}
