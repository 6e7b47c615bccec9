//! What Modify QP changes (verbs draft §6.1.3, figures 4 and 5).

use std::sync::{Arc, Weak};

use rtrb::Consumer;

use crate::control::Control;
use crate::error::ModifyError;
use crate::qp_state::QpState;
use crate::streaming::{Framing, LlpStream, StreamId};
use crate::work::{RecvRequest, SendRequest};

/// A change of a queue pair, for [`QueuePair::modify`](crate::QueuePair::modify): the state that it shall be in next, which may be the
/// present one, and attributes.
///
/// What is not said stays as it is. Attributes go only with Idle to Idle, Idle to RTS and RTS to RTS.
#[derive(Clone, Debug)]
pub struct QpChange {
    pub(crate) next: QpState,
    pub(crate) ord: Option<u16>,
    pub(crate) ird: Option<u16>,
    pub(crate) send_depth: Option<usize>,
    pub(crate) recv_depth: Option<usize>,
    pub(crate) rq_limit: Option<usize>,
    pub(crate) arm_rq_limit: bool,
    pub(crate) handover: Option<Handover>,
}

/// A stream for a queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Handover {
    rnic: Weak<Control>,
    pub(crate) stream: StreamId,
    pub(crate) framing: Framing,
    pub(crate) message: Option<Vec<u8>>,
}

impl QpChange {
    /// To this state.
    pub fn to(next: QpState) -> Self {
        Self {
            next,
            ord: None,
            ird: None,
            send_depth: None,
            recv_depth: None,
            rq_limit: None,
            arm_rq_limit: false,
            handover: None,
        }
    }

    /// From Idle to RTS over `stream`, which must be established. What was posted in Idle goes out at once; what the peer has sent and
    /// was not read is taken as FPDUs, so that nothing is lost however early it comes (verbs draft §6.2.1.2).
    ///
    /// This is for the side that has read the last streaming message of the other (the draft's passive side, which sends the first FPDU),
    /// or for both sides where there is no streaming mode at all.
    pub fn start(stream: &LlpStream, framing: Framing) -> Self {
        let handover = Some(Handover {
            rnic: stream.rnic(),
            stream: stream.id(),
            framing,
            message: None,
        });
        Self {
            handover,
            ..Self::to(QpState::Rts)
        }
    }

    /// The same for the side that sends the last streaming message: `message` goes out as it is, ahead of all FPDUs (the draft's active
    /// side). Work that was posted waits until the peer's first FPDU is here: before, the peer may still be in streaming mode.
    pub fn start_with(stream: &LlpStream, framing: Framing, message: &[u8]) -> Self {
        let mut change = Self::start(stream, framing);
        if let Some(handover) = &mut change.handover {
            handover.message = Some(message.to_vec());
        }
        change
    }

    /// Reads and Atomic Operations that this side may have outstanding: more or less than before. Those that are outstanding already
    /// are not called back; further ones wait until there are fewer.
    #[must_use]
    pub fn ord(self, ord: u16) -> Self {
        let ord = Some(ord);
        Self { ord, ..self }
    }

    /// Reads and Atomic Operations that the peer may have outstanding. A queue pair that was created with an
    /// [`ird`](crate::QpConfig::ird) of 0 never lets its peer read.
    ///
    /// The peer is not told. One that has more of them outstanding than this ends the connection.
    #[must_use]
    pub fn ird(self, ird: u16) -> Self {
        let ird = Some(ird);
        Self { ird, ..self }
    }

    /// Work requests that the send queue holds, whatever is going on: what is outstanding stays, and is done in its order. Fewer than are
    /// outstanding are refused.
    #[must_use]
    pub fn send_depth(self, depth: usize) -> Self {
        let send_depth = Some(depth);
        Self { send_depth, ..self }
    }

    /// The same of the receive queue. A shared one is resized by [`SharedReceiveQueue::resize`](crate::SharedReceiveQueue::resize) instead.
    #[must_use]
    pub fn recv_depth(self, depth: usize) -> Self {
        let recv_depth = Some(depth);
        Self { recv_depth, ..self }
    }

    /// Where the receive queue is shared: how many messages may be in progress until
    /// [`RqLimitReached`](crate::AsyncEventKind::RqLimitReached) is told. It stays as armed as it was.
    #[must_use]
    pub fn rq_limit(self, limit: usize) -> Self {
        let rq_limit = Some(limit);
        Self { rq_limit, ..self }
    }

    /// Arms that limit, also if it is armed already. A limit of 0 tells of the next message; what is in progress counts.
    #[must_use]
    pub fn arm_rq_limit(self) -> Self {
        let arm_rq_limit = true;
        Self {
            arm_rq_limit,
            ..self
        }
    }

    /// Something is to change that start-up settles.
    pub(crate) fn concerns_connection(&self) -> bool {
        self.ord.is_some() || self.ird.is_some() || self.handover.is_some()
    }

    /// A work queue is to be resized.
    pub(crate) fn resizes(&self) -> bool {
        self.send_depth.is_some() || self.recv_depth.is_some()
    }

    /// Nothing but the state is to change.
    pub(crate) fn is_bare(&self) -> bool {
        let limits = self.rq_limit.is_some() || self.arm_rq_limit;
        !self.concerns_connection() && !self.resizes() && !limits
    }

    /// Its stream, if it has one, is of this RNIC.
    pub(crate) fn is_of(&self, control: &Arc<Control>) -> bool {
        let rnic = self.handover.as_ref().map(|handover| &handover.rnic);
        rnic.is_none_or(|rnic| rnic.ptr_eq(&Arc::downgrade(control)))
    }
}

/// A queue pair's depths (verbs draft §6.1.3, §6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Work requests that the send queue holds.
    pub send_depth: usize,
    /// Work requests that the receive queue holds; 0 where it is shared.
    pub recv_depth: usize,
    /// Reads and Atomic Operations that this side may have outstanding.
    pub ord: u16,
    /// Those that the peer may have outstanding.
    pub ird: u16,
}

/// Those of Reads alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadDepths {
    pub(crate) ord: u16,
    pub(crate) ird: u16,
}

/// What a work queue that is resized goes on with.
pub(crate) struct NewRing<T> {
    pub(crate) ring: Consumer<T>,
    /// Work requests that are outstanding.
    pub(crate) present: usize,
}

/// The same of both queues of a queue pair.
#[derive(Default)]
pub(crate) struct NewRings {
    pub(crate) sq: Option<NewRing<SendRequest>>,
    pub(crate) rq: Option<NewRing<RecvRequest>>,
}

impl<T> NewRing<T> {
    fn check(&self, what: &'static str) -> Result<(), ModifyError> {
        let (present, wanted) = (self.present, self.ring.buffer().capacity());
        if wanted < present {
            return Err(ModifyError::TooManyPresent {
                what,
                present,
                wanted,
            });
        }
        Ok(())
    }
}

impl NewRings {
    /// Is there room for all that is outstanding?
    pub(crate) fn check(&self) -> Result<(), ModifyError> {
        let sq = (self.sq.as_ref()).map_or(Ok(()), |ring| ring.check("the send queue"));
        let rq = (self.rq.as_ref()).map_or(Ok(()), |ring| ring.check("the receive queue"));
        sq.and(rq)
    }
}
