//! MPA: start-up frames and FPDUs over a TCP octet stream (RFC 5044).
//!
//! Start-up: [`encode_request`] and [`Initiator`] on one side, [`Responder`] on the other; revision 1, without markers.
//! Full Operation: [`next_fpdu`] and [`seal_fpdu`].

mod fpdu;
mod frame;
mod startup;

pub use fpdu::{MAX_ULPDU, MIN_MULPDU, MpaError, Step, fpdu_len, mulpdu, next_fpdu, seal_fpdu};
pub use frame::{
    MAX_PRIVATE_DATA, MAX_STARTUP_FRAME, PrivateData, PrivateDataTooLong, REVISION, StartupFrame,
    StartupHeader,
};
pub use startup::{
    Initiator, InitiatorStep, Negotiated, Request, Responder, ResponderStep, StartupError,
    StartupParams, encode_request,
};
