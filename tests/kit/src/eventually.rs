//! Conditions to wait for: a test never waits for a time alone.

use std::thread;
use std::time::{Duration, Instant};

use crate::diagnosis;

/// How long a condition may take that takes milliseconds on an idle machine.
pub const TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// Time in which some thread of the machine waited for a processor (`some` in the kernel's
/// `psi.rst`).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Four fifths of that time do not count, so a wait takes at most five times as long.
const NOT_COUNTED: (u32, u32) = (4, 5);

/// Environment variable with a number by which [`timeout`] multiplies [`TIMEOUT`].
pub const PATIENCE: &str = "XWARP_TEST_PATIENCE";

/// [`TIMEOUT`], times [`PATIENCE`] if that is set.
///
/// It is set in emulated guests. Their processors wait for those of the machine, and their disks
/// for its files, which their kernel does not see.
pub fn timeout() -> Duration {
    multiplied(std::env::var(PATIENCE).ok().as_deref())
}

fn multiplied(patience: Option<&str>) -> Duration {
    let times = patience.map(str::parse);
    TIMEOUT * times.map_or(1, |it| it.expect("XWARP_TEST_PATIENCE is a number"))
}

/// Waits until `condition` holds, and fails the test if it does not within [`timeout`].
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    let timeout = timeout();
    assert!(
        eventually_within(timeout, condition),
        "not within {timeout:?}: {what}\n{}",
        diagnosis()
    );
}

/// Waits until `condition` holds. Returns `false` if it does not within `timeout`.
///
/// On a machine whose processors are all busy, a condition takes longer, and may. Four fifths of
/// the time in which threads waited for a processor do not count.
pub fn eventually_within(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let (began, waited) = (Instant::now(), waited_for_a_processor());
    while !condition() {
        let elapsed = began.elapsed();
        if elapsed >= timeout
            && counted(elapsed, waited_for_a_processor().saturating_sub(waited)) >= timeout
        {
            return false;
        }
        thread::sleep(PAUSE);
    }
    true
}

/// The part of `elapsed` that counts, if threads waited for a processor for `waited` of it.
fn counted(elapsed: Duration, waited: Duration) -> Duration {
    let (parts, of) = NOT_COUNTED;
    elapsed.saturating_sub(waited.min(elapsed) * parts / of)
}

/// Since the machine's start. Zero where the kernel does not count it.
fn waited_for_a_processor() -> Duration {
    // Miri reads no files.
    let text = if cfg!(miri) {
        String::new()
    } else {
        std::fs::read_to_string(PRESSURE).unwrap_or_default()
    };
    Duration::from_micros(total(&text).unwrap_or_default())
}

fn total(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.rsplit_once("total=")?;
    total.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_multiplied_by_the_variable() {
        assert_eq!(multiplied(None), TIMEOUT);
        assert_eq!(multiplied(Some("15")), Duration::from_mins(5));
    }

    #[test]
    fn total_is_that_of_the_line_some() {
        let text = "some avg10=99.50 avg60=99.30 avg300=97.26 total=1316821076\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total(text), Some(1_316_821_076));
        assert_eq!(total(""), None);
    }

    #[test]
    fn fifth_of_the_time_under_pressure_counts() {
        let second = Duration::from_secs(1);
        assert_eq!(counted(100 * second, Duration::ZERO), 100 * second);
        assert_eq!(counted(100 * second, 50 * second), 60 * second);
        // The kernel's total can be ahead of the clock a little.
        assert_eq!(counted(100 * second, 101 * second), 20 * second);
    }

    #[test]
    fn condition_that_never_holds_ends_the_wait() {
        let began = Instant::now();
        assert!(!eventually_within(Duration::from_millis(20), || false));
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(eventually_within(Duration::ZERO, || true));
    }
}
