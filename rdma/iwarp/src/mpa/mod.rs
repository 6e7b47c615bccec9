//! MPA: start-up frames and FPDUs over a TCP byte stream (RFC 5044, RFC 6581).
//!
//! Start-up: [`encode_request`] and [`Initiator`] on one side, [`Responder`] on the other. Full
//! Operation: a [`Deframer`] and a [`Framer`] per connection; [`next_fpdu`] and [`seal_fpdu`] are
//! their core without markers.

mod deframer;
mod depths;
mod enhanced;
mod fpdu;
mod frame;
mod framer;
mod marker;
mod startup;
mod startup_error;

pub use deframer::{Deframer, Unverified};
pub use depths::{Enhanced, NegotiatedEnhanced};
pub use enhanced::{Depth, EnhancedData, EnhancedHeader, Rtr, RtrTypes};
pub(crate) use fpdu::LENGTH_BYTES;
pub use fpdu::{MAX_ULPDU, MIN_MULPDU, MpaError, Step, fpdu_len, mulpdu, next_fpdu, seal_fpdu};
pub use frame::{
    MAX_PRIVATE_DATA, MAX_STARTUP_FRAME, PrivateData, PrivateDataTooLong, REVISION_1, REVISION_2,
    REVISION_RDMAC, StartupFrame, StartupHeader,
};
pub use framer::Framer;
pub use marker::{MARKER_BYTES, MARKER_INTERVAL, Marker};
pub use startup::{
    Initiator, InitiatorStep, Negotiated, Request, Responder, ResponderStep, Revision,
    StartupParams, encode_request,
};
pub use startup_error::StartupError;
