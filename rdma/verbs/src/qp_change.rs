//! What Modify QP changes (verbs draft §6.1.3, figures 4 and 5).

use std::sync::{Arc, Weak};

use crate::control::Control;
use crate::qp_state::QpState;
use crate::streaming::{Framing, LlpStream, StreamId};

/// A change of a queue pair, for [`QueuePair::modify`](crate::QueuePair::modify): the state that it shall be in next, which may be the
/// present one, and attributes.
///
/// What is not said stays as it is. Attributes go only with Idle to Idle, Idle to RTS and RTS to RTS.
#[derive(Clone, Debug)]
pub struct QpChange {
    pub(crate) next: QpState,
    pub(crate) ord: Option<u16>,
    pub(crate) ird: Option<u16>,
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

    /// Nothing but the state is to change.
    pub(crate) fn is_bare(&self) -> bool {
        self.ord.is_none() && self.ird.is_none() && self.handover.is_none()
    }

    /// Its stream, if it has one, is of this RNIC.
    pub(crate) fn is_of(&self, control: &Arc<Control>) -> bool {
        let rnic = self.handover.as_ref().map(|handover| &handover.rnic);
        rnic.is_none_or(|rnic| rnic.ptr_eq(&Arc::downgrade(control)))
    }
}

/// A queue pair's depths (verbs draft §6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Reads and Atomic Operations that this side may have outstanding.
    pub ord: u16,
    /// Those that the peer may have outstanding.
    pub ird: u16,
}
