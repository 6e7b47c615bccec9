//! Locks among test programs: one test at a time, of whatever program.

use std::fs::File;

use nix::fcntl::{Flock, FlockArg};

/// A lock that goes with the value, or with the process.
pub struct Exclusive(#[expect(dead_code, reason = "held, not read")] Flock<File>);

impl Exclusive {
    /// Waits until no other test program or thread has this file locked.
    pub fn wait_for(path: &str) -> Self {
        let file = File::create(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lock = Flock::lock(file, FlockArg::LockExclusive);
        Self(lock.unwrap_or_else(|(_, errno)| panic!("{path}: {errno}")))
    }
}
