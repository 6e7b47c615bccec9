//! Stray answer to our SYN: one that arrived at another stack of the interface than the stack that
//! sent the SYN.

/// How a stray answer is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StrayAnswer {
    /// It is accepted like any other answer.
    #[default]
    Taken,
    /// It will be refused.
    Unwanted,
    /// One was refused, which is still to be reported to the user.
    Refused,
    /// One was refused, and this was reported. No answer is accepted any longer.
    Reported,
}

impl StrayAnswer {
    /// True if an answer is refused. `stray`: it arrived at another stack.
    pub(super) fn is_refused(&mut self, stray: bool) -> bool {
        match self {
            Self::Taken => false,
            Self::Unwanted => {
                if stray {
                    *self = Self::Refused;
                }
                stray
            }
            Self::Refused | Self::Reported => true,
        }
    }

    /// True if an answer was refused since the connection began.
    pub(super) fn was_refused(self) -> bool {
        matches!(self, Self::Refused | Self::Reported)
    }

    /// Returns true once after an answer was refused.
    pub(super) fn take_report(&mut self) -> bool {
        let news = *self == Self::Refused;
        if news {
            *self = Self::Reported;
        }
        news
    }
}
