//! A queue pair's identity and state (verbs draft §6.2), and what the engine shows of it.

/// The states of a queue pair (verbs draft §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// No connection. Work can be posted and waits.
    Idle,
    /// Ready To Send: connected, and FPDUs go both ways.
    Rts,
    /// The connection is being closed gracefully.
    Closing,
    /// The connection is being ended because of an error.
    Terminate,
    /// Ended; all work has been flushed.
    Error,
}

impl QpState {
    /// Is there a way from this state to that one, asked for or not (verbs draft §6.2; verbs.md
    /// §4)? Into Error there is one from everywhere: the RNIC is closed, or the queue pair
    /// destroyed.
    pub(crate) const fn leads_to(self, to: Self) -> bool {
        match (self, to) {
            (Self::Idle, Self::Rts)
            | (Self::Rts, Self::Closing | Self::Terminate)
            | (Self::Closing | Self::Error, Self::Idle)
            | (_, Self::Error) => true,
            (_, Self::Idle | Self::Rts | Self::Closing | Self::Terminate) => false,
        }
    }

    #[inline]
    pub(crate) fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::Rts,
            2 => Self::Closing,
            3 => Self::Terminate,
            _ => Self::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: from Idle, RTS, Closing, Terminate, Error. The draft's twelve edges, and what closing
    /// the RNIC does.
    #[test]
    fn states_follow_each_other_as_the_draft_has_it() {
        let states = [0, 1, 2, 3, 4].map(QpState::from_u8);
        let matrix = states.map(|from| states.map(|to| u8::from(from.leads_to(to))));
        assert_eq!(
            matrix,
            [
                [0, 1, 0, 0, 1],
                [0, 0, 1, 1, 1],
                [1, 0, 0, 0, 1],
                [0, 0, 0, 0, 1],
                [1, 0, 0, 0, 1],
            ]
        );
    }
}
