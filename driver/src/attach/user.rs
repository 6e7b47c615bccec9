//! A process that uses the XDP program of an interface.

use std::fmt;

/// A process that uses an interface's XDP program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number, in this process's PID namespace.
    pub process: u32,
    /// The name of its program, as `ps` shows it.
    pub program: String,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.program, self.process)
    }
}
