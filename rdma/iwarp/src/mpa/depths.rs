//! Read depths and RTR types: what both ends make of each other's (RFC 6581 §9.1, §9.2; wire.md §3.4).

use super::enhanced::{Depth, EnhancedData, Rtr, RtrTypes};
use super::startup_error::StartupError;

/// What this side brings to enhanced start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// IRD. An initiator offers it; to a responder only matters whether it is left to the ULP.
    pub ird: Depth,
    /// Most IRD that there are resources for: a responder's limit, and how far an initiator may be raised (R6581-9.1-8).
    pub max_ird: u16,
    /// ORD that is wished for.
    pub ord: Depth,
    /// The initiator's A: it will send an RTR, so that the responder may then send first. A responder copies the Request's.
    pub peer_to_peer: bool,
    /// RTR types that are offered. None at all counts as all (R6581-9.2-4).
    pub rtr: RtrTypes,
    /// An initiator does not go on with a responder that ignores what was asked of it (D10; wire.md rows 16 and 17).
    pub required: bool,
}

impl Enhanced {
    /// Depths are the ULP's business, every RTR is taken: what a responder without wishes answers.
    pub const LEFT_TO_ULP: Self = Self {
        ird: Depth::LeftToUlp,
        max_ird: Depth::MAX,
        ord: Depth::LeftToUlp,
        peer_to_peer: false,
        rtr: RtrTypes::ALL,
        required: true,
    };

    /// These depths, client-server model.
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

    /// What the Request says.
    pub(super) fn offer(self) -> EnhancedData {
        EnhancedData {
            ird: self.ird,
            ord: self.ord,
            rtr: self.peer_to_peer.then_some(self.rtr_types()),
        }
    }

    /// What the Reply to `request` says, and its effect on the responder.
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

    /// What an accepting Reply means to the initiator.
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

    /// Of the types that both can: a Write costs neither a credit nor a buffer, a Read a credit, a Send a buffer.
    fn choose_rtr(self, reply: EnhancedData) -> Result<Option<Rtr>, StartupError> {
        if !self.peer_to_peer {
            return Ok(None);
        }
        let Some(theirs) = reply.rtr else {
            // R6581-9.2-5 is broken.
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

/// What enhanced start-up has settled, as this side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiatedEnhanced {
    /// IRD from now on; `None` leaves it as the ULP has it.
    pub ird: Option<u16>,
    /// ORD from now on; `None` leaves it as the ULP has it.
    pub ord: Option<u16>,
    /// What the peer's frame says, for the ULP (R6581-9.1-2, -9).
    pub peer: EnhancedData,
    /// The initiator's very first FPDU, ahead of all work (R6581-5-1): see `Sender::ready_to_receive`.
    pub send_rtr: Option<Rtr>,
    /// The responder's first FPDU received is the RTR: see `StreamConfig::await_rtr`.
    pub await_rtr: bool,
}
