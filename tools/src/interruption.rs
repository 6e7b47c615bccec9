//! Interruption of a run by a signal, and the exit code that follows from it.

/// What a shell shows for a process that a signal has ended: this and the signal's number.
const SIGNALLED: u8 = 128;

/// The user has asked the program to end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interruption {
    /// The number of the first signal.
    pub(crate) signal: i32,
}

impl Interruption {
    /// The exit code of a process that ends because of it, as shells show it.
    pub(crate) fn exit_code(self) -> u8 {
        SIGNALLED + u8::try_from(self.signal).unwrap_or_default()
    }
}
