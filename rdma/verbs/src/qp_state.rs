//! A queue pair's identity and state (verbs draft §6.2), and what the engine shows of it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use crate::mpa::ConnectionInfo;

/// A queue pair's identity within its RNIC. No other queue pair of the RNIC ever has it, so that a completion which is read late
/// names nobody else (verbs draft §6.1.4, digest A38). They are in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(u64);

impl QpId {
    const SLOT_BITS: u32 = u16::BITS;
    /// Queue pairs that there may be at once.
    pub(crate) const SLOTS: usize = 1 << Self::SLOT_BITS;

    /// The `serial`-th queue pair of the RNIC, which is in this slot of its engine. 2^48 will not be created.
    pub(crate) fn new(serial: u64, slot: usize) -> Self {
        debug_assert!(slot < Self::SLOTS);
        Self(serial << Self::SLOT_BITS | slot as u64)
    }

    /// Its slot in the engine, where another queue pair may be by now.
    pub(crate) fn slot(self) -> usize {
        let [.., high, low] = self.0.to_be_bytes();
        usize::from(u16::from_be_bytes([high, low]))
    }
}

impl fmt::Display for QpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The states of a queue pair (verbs draft §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpState {
    /// No connection. Work can be posted and waits.
    Idle,
    /// Connected.
    Rts,
    /// The connection is being closed gracefully.
    Closing,
    /// The connection is being ended because of an error.
    Terminate,
    /// Ended; all work has been flushed.
    Error,
}

impl QpState {
    /// Is there a way from this state to that one, asked for or not (verbs draft §6.2, digest 4)? Into Error there is one from
    /// everywhere: the RNIC is closed, or the queue pair destroyed.
    pub(crate) const fn leads_to(self, to: Self) -> bool {
        match (self, to) {
            (Self::Idle, Self::Rts)
            | (Self::Rts, Self::Closing | Self::Terminate)
            | (Self::Closing | Self::Error, Self::Idle)
            | (_, Self::Error) => true,
            (_, Self::Idle | Self::Rts | Self::Closing | Self::Terminate) => false,
        }
    }

    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Idle,
            1 => Self::Rts,
            2 => Self::Closing,
            3 => Self::Terminate,
            _ => Self::Error,
        }
    }
}

/// What the engine shows of a queue pair.
pub(crate) struct QpShared {
    state: AtomicU8,
    destroyed: AtomicBool,
    /// Written once per connection.
    connection: Mutex<Option<ConnectionInfo>>,
}

impl QpShared {
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU8::new(QpState::Idle as u8),
            destroyed: AtomicBool::new(false),
            connection: Mutex::new(None),
        }
    }

    pub(crate) fn state(&self) -> QpState {
        QpState::from_u8(self.state.load(Ordering::Acquire))
    }

    /// Shows a new state. What the application posted before it can see the state is seen by whoever looks after this call.
    pub(crate) fn set(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// There is no such queue pair any more.
    pub(crate) fn set_destroyed(&self) {
        self.destroyed.store(true, Ordering::Release);
        self.set(QpState::Error);
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    pub(crate) fn set_connection(&self, info: ConnectionInfo) {
        *(self.connection.lock()).unwrap_or_else(PoisonError::into_inner) = Some(info);
    }

    pub(crate) fn connection(&self) -> Option<ConnectionInfo> {
        *(self.connection.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: from Idle, RTS, Closing, Terminate, Error. The draft's twelve edges, and what closing the RNIC does.
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
