//! Both roles of MPA start-up (RFC 5044 §7.1, RFC 6581). Deadlines and closing are the caller's.

mod initiator;
mod read;
mod responder;

pub use initiator::{Initiator, InitiatorStep, encode_request};
pub use responder::{Request, Responder, ResponderStep};

use super::depths::{Enhanced, NegotiatedEnhanced};
use super::frame::{FLAG_CRC, FLAG_MARKERS, MAX_PRIVATE_DATA, REVISION_RDMAC};
use crate::ddp::{VERSION_IETF, VERSION_RDMAC};
use crate::rdmap::{TermCode, Terminate};

/// The highest MPA revision that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044's: no enhanced start-up in either role.
    One,
    /// RFC 6581's.
    Two,
}

/// What this side wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupParams {
    /// The C bit we ask for. Off is an administrator's explicit choice (R5044-4.4-2).
    pub crc: bool,
    /// The M bit we ask for: markers in what we receive. The peer's M bit is obeyed in any case (R5044-4.3-1).
    pub markers: bool,
    /// The highest revision. Revision 1 is always understood (R6581-6-6).
    pub highest: Revision,
    /// As initiator: ask for enhanced start-up, with revision 2; `None` sends a Request of revision 1 (R6581-10-3).
    /// As responder: what an enhanced Request is answered; `None` is [`Enhanced::LEFT_TO_ULP`].
    pub enhanced: Option<Enhanced>,
    /// Permissive mode of RFC 5044's appendix C: accept a peer of the RDMA Consortium, that is of revision 0.
    pub rdmac: bool,
}

impl StartupParams {
    /// CRCs on, no markers, nothing of RFC 6581 asked for but everything of it answered, no RDMA Consortium.
    pub const DEFAULT: Self = Self {
        crc: true,
        markers: false,
        highest: Revision::Two,
        enhanced: None,
        rdmac: false,
    };

    /// What the Request asks for.
    fn asks(self) -> Option<Enhanced> {
        self.enhanced.filter(|_| self.highest >= Revision::Two)
    }

    fn flags(self) -> u8 {
        let markers = if self.markers { FLAG_MARKERS } else { 0 };
        let crc = if self.crc { FLAG_CRC } else { 0 };
        markers | crc
    }
}

impl Default for StartupParams {
    /// [`StartupParams::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What both agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRCs are generated and checked: one side's wish is enough (R5044-7.1.1-6).
    pub crc: bool,
    /// We generate markers: the peer's M bit.
    pub send_markers: bool,
    /// The peer generates markers: our M bit.
    pub receive_markers: bool,
    /// MPA revision of the Reply.
    pub revision: u8,
    /// DDP and RDMAP version of the stream: the RDMA Consortium's 0 only with revision 0.
    pub version: u8,
    /// What enhanced start-up has settled, if both speak it.
    pub enhanced: Option<NegotiatedEnhanced>,
}

impl Negotiated {
    /// Our wishes and the peer's frame.
    fn new(params: StartupParams, peer: &read::WholeFrame<'_>) -> Self {
        let revision = peer.header.revision;
        if revision == REVISION_RDMAC {
            return Self::RDMAC;
        }
        Self {
            crc: params.crc || peer.has(FLAG_CRC),
            send_markers: peer.has(FLAG_MARKERS),
            receive_markers: params.markers,
            revision,
            version: VERSION_IETF,
            enhanced: None,
        }
    }

    /// CRCs and markers both ways, whatever the bits say (RFC 5044, appendix C).
    const RDMAC: Self = Self {
        crc: true,
        send_markers: true,
        receive_markers: true,
        revision: REVISION_RDMAC,
        version: VERSION_RDMAC,
        enhanced: None,
    };
}

/// Why start-up failed: MPA error code 4, but for the last two. No Reply: the TCP connection is closed (R5044-8-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// The first bytes are of no MPA frame.
    #[error("the peer does not speak MPA: wrong key")]
    NotMpa,
    /// A Request where a Reply was awaited, or the reverse: both ends took the same role (R5044-7.1.2-8-1).
    #[error("the peer has the same MPA start-up role as this side")]
    WrongRole,
    /// `PD_Length` above 512 (R5044-7.1.1-14).
    #[error("PD_Length {0} is above the limit of {MAX_PRIVATE_DATA} bytes")]
    PrivateDataLength(u16),
    /// S=1, but the private data is too short for the enhanced data (R6581-6-8).
    #[error("PD_Length {0} leaves no room for the enhanced data that the S bit announces")]
    EnhancedLength(u16),
    /// A revision that is not spoken here, or that does not answer ours (R5044-7.1.1-13).
    #[error("MPA revision {0} is not supported")]
    Revision(u8),
    /// So many bytes came after the Request, before any Reply (D11).
    #[error("{0} bytes after the MPA Request and before the Reply")]
    Trailing(usize),
    /// The Reply is not enhanced, and what our Request asked for is required (D10).
    #[error("the peer's Reply ignores the enhanced Request")]
    NotEnhanced,
    /// Code 6: the responder's ORD is beyond what our IRD can be raised to (R6581-9.1-8).
    #[error("the peer demands an IRD of {demanded}, the limit is {limit}")]
    InsufficientIrd {
        /// ORD of the Reply.
        demanded: u16,
        /// The highest IRD that there are resources for.
        limit: u16,
    },
    /// Code 7: none of the Reply's RTR types can be sent, or it has none (R6581-9.2-10).
    #[error("no RTR type in common with the peer")]
    NoCommonRtr,
}

impl StartupError {
    /// The Terminate that an initiator enters Full Operation to send, before it closes (RFC 6581 §8). `None`: just close.
    pub fn terminate(&self) -> Option<Terminate> {
        match self {
            Self::InsufficientIrd { .. } => Some(Terminate::with_code(TermCode::mpa(0x06))),
            Self::NoCommonRtr => Some(Terminate::with_code(TermCode::mpa(0x07))),
            Self::NotMpa
            | Self::WrongRole
            | Self::PrivateDataLength(_)
            | Self::EnhancedLength(_)
            | Self::Revision(_)
            | Self::Trailing(_)
            | Self::NotEnhanced => None,
        }
    }
}
