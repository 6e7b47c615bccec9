//! Conditions to wait for: a test never waits for a time alone.

use std::thread;
use std::time::{Duration, Instant};

/// How long a condition may take that takes milliseconds on an idle machine.
pub const TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `condition` holds, and fails the test if it does not within [`TIMEOUT`].
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        eventually_within(TIMEOUT, condition),
        "not within {TIMEOUT:?}: {what}"
    );
}

/// Waits until `condition` holds; false if it does not within `timeout`.
pub fn eventually_within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}
