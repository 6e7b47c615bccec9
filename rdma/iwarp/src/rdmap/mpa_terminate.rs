//! Terminates of MPA's errors (RFC 5044 §8, RFC 6581 §8): layer 2.

use super::{TermCode, Terminate};
use crate::mpa::{MpaError, StartupError};

impl MpaError {
    /// Code of the Terminate, which never has a captured header.
    pub const fn term_code(self) -> TermCode {
        match self {
            Self::Crc => TermCode::mpa(0x02),
            Self::Marker { .. } => TermCode::mpa(0x03),
            Self::Length(_) => TermCode::ddp_local(), // D13: "segment larger than supported"
        }
    }

    /// The Terminate to send, if any FPDU may be sent at all (R5044-7.1.2-4-1, D1).
    pub fn terminate(self) -> Terminate {
        Terminate::with_code(self.term_code())
    }
}

impl StartupError {
    /// Code of the Terminate that an initiator enters Full Operation to send before it closes (RFC
    /// 6581 §8). `None`: it only closes.
    pub const fn term_code(&self) -> Option<TermCode> {
        match self {
            Self::InsufficientIrd { .. } => Some(TermCode::mpa(0x06)),
            Self::NoCommonRtr => Some(TermCode::mpa(0x07)),
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
