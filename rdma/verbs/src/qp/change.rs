//! Changes that Modify QP makes (verbs draft §6.1.3, figures 4 and 5).

use xwarp_rnic::model::{Access, Framing, Handover, ModifyQp, QpState, RnicId};

use crate::cm::streaming::LlpStream;

/// A change of a queue pair, for [`QueuePair::modify`](crate::QueuePair::modify): the next state,
/// which may be the current one, and attributes.
///
/// Attributes that are not set stay as they are. They can be changed only from Idle to Idle, Idle
/// to RTS and RTS to RTS.
#[derive(Clone, Debug)]
pub struct QpChange {
    pub(crate) modify: ModifyQp,
    /// RNIC of the stream, if the change names one.
    rnic: Option<RnicId>,
}

impl QpChange {
    /// A change to the state `next` that sets no attribute.
    pub fn to(next: QpState) -> Self {
        Self {
            modify: ModifyQp::to(next),
            rnic: None,
        }
    }

    /// From Idle to RTS over `stream`, which must be established. Work that was posted in Idle is
    /// sent at once. Unread bytes from the peer are parsed as FPDUs, so that early FPDUs are not
    /// lost (verbs draft §6.2.1.2).
    ///
    /// Used by the side that has read the other side's last streaming message: the draft's passive
    /// side, which sends the first FPDU. Used by both sides if there is no streaming mode.
    pub fn start(stream: &LlpStream, framing: Framing) -> Self {
        let mut change = Self::to(QpState::Rts);
        change.rnic = Some(stream.rnic());
        change.modify.handover = Some(Handover {
            stream: stream.id(),
            framing,
            message: None,
        });
        change
    }

    /// From Idle to RTS, for the side that sends the last streaming message (the draft's active
    /// side, §6.6.1.1). `message` is sent unframed, ahead of all FPDUs. Posted work waits for the
    /// peer's first FPDU: until then the peer may still be in streaming mode.
    pub fn start_with(stream: &LlpStream, framing: Framing, message: &[u8]) -> Self {
        let mut change = Self::start(stream, framing);
        if let Some(handover) = &mut change.modify.handover {
            handover.message = Some(message.to_vec());
        }
        change
    }

    /// ORD (verbs draft §6.5): Reads and Atomic Operations that this side may have outstanding. It
    /// can be raised and lowered. Operations that are outstanding already continue; further ones
    /// wait until their number is below the new ORD.
    #[must_use]
    pub fn ord(mut self, ord: u16) -> Self {
        self.modify.ord = Some(ord);
        self
    }

    /// IRD (verbs draft §6.5): Reads and Atomic Operations that the peer may have outstanding. A
    /// queue pair that was created with an [`ird`](crate::QpConfig::ird) of 0 never lets its peer
    /// read.
    ///
    /// The peer is not notified. If it has more of them outstanding than this, the connection ends.
    #[must_use]
    pub fn ird(mut self, ird: u16) -> Self {
        self.modify.ird = Some(ird);
        self
    }

    /// Depth of the send queue in work requests. It may change under load: outstanding work stays,
    /// in order. A depth below the outstanding work is refused.
    #[must_use]
    pub fn send_depth(mut self, depth: usize) -> Self {
        self.modify.send_depth = Some(depth);
        self
    }

    /// Depth of the receive queue in work requests, as for [`send_depth`](Self::send_depth). A
    /// shared one is resized by [`SharedReceiveQueue::resize`](crate::SharedReceiveQueue::resize)
    /// instead.
    #[must_use]
    pub fn recv_depth(mut self, depth: usize) -> Self {
        self.modify.recv_depth = Some(depth);
        self
    }

    /// RQ Limit (verbs draft §6.3.8), where the receive queue is shared: how many messages may be
    /// in progress before [`RqLimitReached`](crate::event::AsyncEventKind::RqLimitReached) is
    /// reported. Whether the limit is armed does not change.
    #[must_use]
    pub fn rq_limit(mut self, limit: usize) -> Self {
        self.modify.rq_limit = Some(limit);
        self
    }

    /// Arms the RQ Limit (verbs draft §6.3.8), also if it is armed already. A limit of 0 reports
    /// the next message. Messages in progress count.
    #[must_use]
    pub fn arm_rq_limit(mut self) -> Self {
        self.modify.arm_rq_limit = true;
        self
    }

    /// What the peer may do from now on: the remote rights among these, if the region or window has
    /// them, too. InfiniBand's Modify QP changes it; the verbs draft fixes it when the queue pair
    /// is created (§6.1.3).
    #[must_use]
    pub fn inbound(mut self, rights: Access) -> Self {
        self.modify.inbound = Some(rights);
        self
    }

    /// Whether the end of a connection is quiet while no request of this side is unfinished, as
    /// [`QpConfig::quiet_end`](crate::QpConfig::quiet_end) has it.
    #[must_use]
    pub fn quiet_end(mut self, quiet_end: bool) -> Self {
        self.modify.quiet_end = Some(quiet_end);
        self
    }

    /// Whether a message that finds no receive buffer waits for one, as
    /// [`QpConfig::await_receives`](crate::QpConfig::await_receives) has it.
    #[must_use]
    pub fn await_receives(mut self, await_receives: bool) -> Self {
        self.modify.await_receives = Some(await_receives);
        self
    }

    /// Whether Sends of the next connection may carry immediate data, as
    /// [`QpConfig::send_immediates`](crate::QpConfig::send_immediates) has it.
    #[must_use]
    pub fn send_immediates(mut self, send_immediates: bool) -> Self {
        self.modify.send_immediates = Some(send_immediates);
        self
    }

    /// Whether Sends and Writes of the next connection complete when the peer has handled them, as
    /// [`QpConfig::confirm_sends`](crate::QpConfig::confirm_sends) has it.
    #[must_use]
    pub fn confirm_sends(mut self, confirm_sends: bool) -> Self {
        self.modify.confirm_sends = Some(confirm_sends);
        self
    }

    /// Whether its stream, if it has one, belongs to this RNIC.
    pub(crate) fn is_of(&self, rnic: RnicId) -> bool {
        self.rnic.is_none_or(|of| of == rnic)
    }
}
