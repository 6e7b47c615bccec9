//! States of a queue pair (verbs draft §6.2).

/// The states of a queue pair (verbs draft §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// No connection. Posted work waits.
    Idle,
    /// Ready To Send: connected, with FPDUs in both directions.
    Rts,
    /// The connection is being closed gracefully.
    Closing,
    /// The connection is being ended because of an error.
    Terminate,
    /// The connection has ended, and all work was flushed.
    Error,
}

impl QpState {
    /// Whether there is a transition from this state to `to`, requested or not (verbs draft §6.2;
    /// verbs.md §4). Every state has one to Error, for closing the RNIC and destroying the queue
    /// pair.
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

    /// Rows: from Idle, RTS, Closing, Terminate, Error. The draft's twelve edges, and those of
    /// closing the RNIC.
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
