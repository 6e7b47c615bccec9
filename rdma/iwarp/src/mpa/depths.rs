//! Read depths and RTR types: what each side derives from the other's (RFC 6581 §9.1, §9.2; wire.md
//! §3.4).

use super::enhanced::{Depth, EnhancedData, Rtr, RtrTypes};
use super::startup_error::StartupError;

/// Parameters of enhanced start-up on this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// IRD. An initiator offers it. For a responder it only matters whether it is left to the ULP.
    pub ird: Depth,
    /// Maximum IRD by available resources: a responder's limit, and how far an initiator's IRD may
    /// be raised (R6581-9.1-8).
    pub max_ird: u16,
    /// Requested ORD.
    pub ord: Depth,
    /// The initiator's A bit: it will send an RTR, after which the responder may send first. A
    /// responder copies the Request's.
    pub peer_to_peer: bool,
    /// Offered RTR types. An empty set counts as all types (R6581-9.2-4).
    pub rtr: RtrTypes,
    /// The initiator fails if the responder ignores what it requested (D10; wire.md rows 16 and
    /// 17).
    pub required: bool,
}

impl Enhanced {
    /// Depths are left to the ULP, and every RTR is accepted: the answer of a responder without
    /// requirements.
    pub const LEFT_TO_ULP: Self = Self {
        ird: Depth::LeftToUlp,
        max_ird: Depth::MAX,
        ord: Depth::LeftToUlp,
        peer_to_peer: false,
        rtr: RtrTypes::ALL,
        required: true,
    };

    /// These depths, in the client-server model.
    pub const fn with_depths(ird: u16, ord: u16) -> Self {
        Self {
            ird: Depth::Count(ird),
            max_ird: ird,
            ord: Depth::Count(ord),
            ..Self::LEFT_TO_ULP
        }
    }

    const fn rtr_types(self) -> RtrTypes {
        if self.rtr.is_empty() {
            RtrTypes::ALL
        } else {
            self.rtr
        }
    }

    /// Contents of the Request.
    pub(super) fn offer(self) -> EnhancedData {
        EnhancedData {
            ird: self.ird,
            ord: self.ord,
            rtr: self.peer_to_peer.then_some(self.rtr_types()),
        }
    }

    /// Contents of the Reply to `request`, and the result for the responder.
    pub(super) fn answer(self, request: EnhancedData) -> (EnhancedData, NegotiatedEnhanced) {
        let ord = match (self.ord, request.ird) {
            (Depth::LeftToUlp, _) | (_, Depth::LeftToUlp) => Depth::LeftToUlp,
            (Depth::Count(wish), Depth::Count(limit)) => Depth::Count(wish.min(limit)),
        };
        let needed = self.ird_for_rtr(request);
        let ird = match (self.ird, request.ord) {
            (Depth::LeftToUlp, _) | (_, Depth::LeftToUlp) => Depth::LeftToUlp,
            (Depth::Count(_), Depth::Count(wanted)) => {
                Depth::Count(wanted.max(needed).min(self.max_ird))
            }
        };
        let rtr = request.rtr.map(|_| self.rtr_types());
        let negotiated = NegotiatedEnhanced {
            ird: settled(ird),
            ord: settled(ord),
            peer: request,
            send_rtr: None,
            await_rtr: rtr.is_some(),
        };
        (EnhancedData { ird, ord, rtr }, negotiated)
    }

    /// An RTR that can only be a Read needs a credit (R6581-9.1-4).
    fn ird_for_rtr(self, request: EnhancedData) -> u16 {
        let common = request
            .rtr
            .map_or(RtrTypes::NONE, |types| types.common(self.rtr_types()));
        u16::from(common == RtrTypes::only(Rtr::Read))
    }

    /// Result of an accepting Reply for the initiator.
    pub(super) fn settle(self, reply: EnhancedData) -> Result<NegotiatedEnhanced, StartupError> {
        let send_rtr = self.choose_rtr(reply)?;
        let ord = match (self.ord, reply.ird) {
            (Depth::LeftToUlp, _) | (_, Depth::LeftToUlp) => None,
            (Depth::Count(own), Depth::Count(limit)) => Some(own.min(limit)),
        };
        let ord = match send_rtr {
            Some(Rtr::Read) => ord.map(|ord| ord.max(1)), // R6581-9.2-14
            Some(Rtr::Send | Rtr::Write) | None => ord,
        };
        Ok(NegotiatedEnhanced {
            ird: self.raised_ird(reply)?,
            ord,
            peer: reply,
            send_rtr,
            await_rtr: false,
        })
    }

    /// R6581-9.1-7, -8.
    fn raised_ird(self, reply: EnhancedData) -> Result<Option<u16>, StartupError> {
        match (self.ird, reply.ord) {
            (Depth::LeftToUlp, _) | (_, Depth::LeftToUlp) => Ok(None),
            (Depth::Count(own), Depth::Count(demanded)) if demanded <= own.max(self.max_ird) => {
                Ok(Some(own.max(demanded)))
            }
            (Depth::Count(own), Depth::Count(demanded)) => Err(StartupError::InsufficientIrd {
                demanded,
                limit: own.max(self.max_ird),
            }),
        }
    }

    /// Chooses among the types that both sides support. A Write costs no credit and no buffer, a
    /// Read costs a credit, a Send a buffer.
    fn choose_rtr(self, reply: EnhancedData) -> Result<Option<Rtr>, StartupError> {
        if !self.peer_to_peer {
            return Ok(None);
        }
        let Some(theirs) = reply.rtr else {
            // The peer breaks R6581-9.2-5.
            return if self.required {
                Err(StartupError::NoCommonRtr)
            } else {
                Ok(None)
            };
        };
        let common = theirs.common(self.rtr_types());
        [Rtr::Write, Rtr::Read, Rtr::Send]
            .into_iter()
            .filter(|rtr| common.contains(*rtr))
            .find(|rtr| *rtr != Rtr::Read || reply.ird != Depth::Count(0))
            .map(Some)
            .ok_or(StartupError::NoCommonRtr)
    }
}

const fn settled(depth: Depth) -> Option<u16> {
    match depth {
        Depth::Count(count) => Some(count),
        Depth::LeftToUlp => None,
    }
}

/// Result of enhanced start-up for this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedEnhanced {
    /// IRD from now on, or `None` to leave it to the ULP.
    pub ird: Option<u16>,
    /// ORD from now on, or `None` to leave it to the ULP.
    pub ord: Option<u16>,
    /// Contents of the peer's frame, for the ULP (R6581-9.1-2, -9).
    pub peer: EnhancedData,
    /// RTR that the initiator sends as its first FPDU, before all work (R6581-5-1): see
    /// `Sender::ready_to_receive`.
    pub send_rtr: Option<Rtr>,
    /// The responder's first received FPDU is the RTR: see `StreamConfig::await_rtr`.
    pub await_rtr: bool,
}
