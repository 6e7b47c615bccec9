//! Root: tests that make network namespaces or load programs into the kernel.

use std::io::Write;
use std::{env, io, thread};

use nix::unistd::Uid;

/// Set to `required`, it makes a skipped test a failure. `tools/test` sets it.
const VARIABLE: &str = "XWARP_ROOT";

/// Skips the test that calls it unless the test runs as root. Must be the first statement of the
/// test.
///
/// The test harness knows no skipped tests, so it counts this one as passed. The kit therefore
/// names each on standard error, which the harness does not capture. With `XWARP_ROOT=required` in
/// the environment the test fails instead.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::is_root_or_skipped() {
            return;
        }
    };
}

/// Whether the test may go on. If not, says that it is skipped, and why. [`needs_root`] calls it.
pub fn is_root_or_skipped() -> bool {
    let required = env::var(VARIABLE).is_ok_and(|value| value == "required");
    let Some(why) = reason_to_skip(Uid::effective().is_root(), required) else {
        return true;
    };
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    // If standard error is closed, only this notice is lost.
    let _ = writeln!(io::stderr(), "skipped: {test}: {why}");
    false
}

fn reason_to_skip(is_root: bool, required: bool) -> Option<&'static str> {
    const WHY: &str =
        "it makes network namespaces or loads programs into the kernel, which needs root";
    assert!(is_root || !required, "{VARIABLE}=required: {WHY}");
    (!is_root).then_some(WHY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_whatever_is_required() {
        assert_eq!(reason_to_skip(true, false), None);
        assert_eq!(reason_to_skip(true, true), None);
    }

    #[test]
    fn others_skip_and_say_why() {
        let why = reason_to_skip(false, false);
        assert!(why.is_some_and(|why| why.contains("root")));
    }

    #[test]
    #[should_panic(expected = "needs root")]
    fn others_fail_where_root_is_required() {
        let _ = reason_to_skip(false, true);
    }
}
