//! Failures of MPA start-up (RFC 5044 §8, RFC 6581 §8).

use super::frame::MAX_PRIVATE_DATA;

/// Why start-up failed: MPA error code 4, except the last two. No Reply is sent: the TCP connection
/// is closed (R5044-8-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartupError {
    /// The first bytes belong to no MPA frame.
    #[error("the peer does not speak MPA: wrong key")]
    NotMpa,
    /// A Request where a Reply was expected, or the reverse: both ends took the same role
    /// (R5044-7.1.2-8-1).
    #[error("the peer has the same MPA start-up role as this side")]
    WrongRole,
    /// `PD_Length` above 512 (R5044-7.1.1-14).
    #[error("PD_Length {0} is above the limit of {MAX_PRIVATE_DATA} bytes")]
    PrivateDataLength(u16),
    /// S=1, but the private data is too short for the enhanced data (R6581-6-8).
    #[error("PD_Length {0} leaves no room for the enhanced data that the S bit announces")]
    EnhancedLength(u16),
    /// A revision that is not supported, or does not answer ours (R5044-7.1.1-13).
    #[error("MPA revision {0} is not supported")]
    Revision(u8),
    /// Bytes arrived after the Request, before any Reply (D11).
    #[error("{0} bytes after the MPA Request and before the Reply")]
    Trailing(usize),
    /// The Reply is not enhanced, although our Request required that (D10).
    #[error("the peer's Reply ignores the enhanced Request")]
    NotEnhanced,
    /// Code 6: the responder's ORD exceeds the maximum of our IRD (R6581-9.1-8).
    #[error("the peer demands an IRD of {demanded}, the limit is {limit}")]
    InsufficientIrd {
        /// ORD of the Reply.
        demanded: u16,
        /// The maximum IRD by available resources.
        limit: u16,
    },
    /// Code 7: none of the Reply's RTR types is supported, or it has none (R6581-9.2-10).
    #[error("no RTR type in common with the peer")]
    NoCommonRtr,
}
