//! Both roles of MPA start-up (RFC 5044 §7.1, RFC 6581). The caller owns deadlines and closing.

mod initiator;
mod read;
mod responder;

pub use initiator::{Initiator, InitiatorStep, encode_request};
pub use responder::{Request, Responder, ResponderStep};

use super::depths::{Enhanced, NegotiatedEnhanced};
use super::frame::{FLAG_CRC, FLAG_MARKERS, REVISION_RDMAC};
use crate::ddp::{VERSION_IETF, VERSION_RDMAC};

/// Highest supported MPA revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// Revision of RFC 5044: no enhanced start-up in either role.
    One,
    /// Revision of RFC 6581.
    Two,
}

/// Start-up parameters of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupParams {
    /// C bit to send. Off is an administrator's explicit choice (R5044-4.4-2).
    pub crc: bool,
    /// M bit to send: requests markers in received FPDUs. The peer's M bit is always obeyed
    /// (R5044-4.3-1).
    pub markers: bool,
    /// The highest revision. Revision 1 is always accepted (R6581-6-6).
    pub max_revision: Revision,
    /// As initiator: requests enhanced start-up, with revision 2; `None` sends a Request of
    /// revision 1 (R6581-10-3). As responder: the answer to an enhanced Request; `None` is
    /// [`Enhanced::LEFT_TO_ULP`].
    pub enhanced: Option<Enhanced>,
    /// Permissive mode of RFC 5044's appendix C: accepts a peer of the RDMA Consortium, which has
    /// revision 0.
    pub allow_revision_0: bool,
}

impl StartupParams {
    /// CRCs on, no markers. RFC 6581 is not requested but answered, and the RDMA Consortium is not
    /// accepted.
    pub const DEFAULT: Self = Self {
        crc: true,
        markers: false,
        max_revision: Revision::Two,
        enhanced: None,
        allow_revision_0: false,
    };

    /// Enhanced data that the Request offers.
    fn asks(self) -> Option<Enhanced> {
        self.enhanced.filter(|_| self.max_revision >= Revision::Two)
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

/// Parameters that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRCs are generated and checked: one side's request is enough (R5044-7.1.1-6).
    pub crc: bool,
    /// This side generates markers: the peer's M bit.
    pub send_markers: bool,
    /// The peer generates markers: our M bit.
    pub receive_markers: bool,
    /// MPA revision of the Reply.
    pub revision: u8,
    /// DDP and RDMAP version of the stream: the RDMA Consortium's 0 only with revision 0.
    pub version: u8,
    /// Result of enhanced start-up, if both sides support it.
    pub enhanced: Option<NegotiatedEnhanced>,
}

impl Negotiated {
    /// Combines our parameters with the peer's frame.
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

    /// CRCs and markers in both directions, regardless of the frames' bits (RFC 5044, appendix C).
    const RDMAC: Self = Self {
        crc: true,
        send_markers: true,
        receive_markers: true,
        revision: REVISION_RDMAC,
        version: VERSION_RDMAC,
        enhanced: None,
    };
}
