//! Stray answer to our SYN: one that has come to another stack of the interface than the one that sent the SYN.

/// What becomes of such an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StrayAnswer {
    /// It is taken as any other.
    #[default]
    Taken,
    /// It is refused.
    Unwanted,
    /// One was refused, which the user is to be told.
    Refused,
    /// One was refused, as the user knows. No answer is wanted any more.
    Told,
}

impl StrayAnswer {
    /// Whether an answer is refused. `stray`: it has come to another stack.
    pub(super) fn is_refused(&mut self, stray: bool) -> bool {
        match self {
            Self::Taken => false,
            Self::Unwanted => {
                if stray {
                    *self = Self::Refused;
                }
                stray
            }
            Self::Refused | Self::Told => true,
        }
    }

    /// One was refused since the connection began.
    pub(super) fn was_refused(self) -> bool {
        matches!(self, Self::Refused | Self::Told)
    }

    /// True, once, if one was refused.
    pub(super) fn take_news(&mut self) -> bool {
        let news = *self == Self::Refused;
        if news {
            *self = Self::Told;
        }
        news
    }
}
