//! Interruption of a run by a signal, and the resulting exit code.

/// Base of the exit code that a shell shows for a process that a signal has ended: this plus the
/// signal's number.
const SIGNALLED: u8 = 128;

/// A signal has asked the program to end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interruption {
    /// Number of the first signal.
    pub(crate) signal: i32,
}

impl Interruption {
    /// Exit code of a process that ends because of the signal, as shells show it.
    pub(crate) fn exit_code(self) -> u8 {
        SIGNALLED + u8::try_from(self.signal).unwrap_or_default()
    }
}
