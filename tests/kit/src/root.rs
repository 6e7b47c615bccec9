//! Root: tests that make network namespaces or load programs into the kernel.

use std::io::Write;
use std::{env, io, thread};

use nix::unistd::Uid;

/// Set to `required`, it makes a skipped test a failure. `tools/test` sets it.
const VARIABLE: &str = "XWARP_ROOT";

/// Skips the test that calls it unless the test runs as root. Must be the first statement of the test.
///
/// The test harness knows no skipped tests, so it counts this one as passed. The kit therefore names each on standard error, which
/// the harness does not capture. With `XWARP_ROOT=required` in the environment the test fails instead.
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
    verdict(Uid::effective().is_root(), required)
}

fn verdict(is_root: bool, required: bool) -> bool {
    if !is_root {
        let why = "it makes network namespaces or loads programs into the kernel, which needs root";
        assert!(!required, "{VARIABLE}=required: {why}");
        let thread = thread::current();
        let test = thread.name().unwrap_or("a test");
        // Nobody reads it: then nothing is lost.
        let _ = writeln!(io::stderr(), "skipped: {test}: {why}");
    }
    is_root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_whatever_is_required() {
        assert!(verdict(true, false));
        assert!(verdict(true, true));
    }

    #[test]
    fn others_skip() {
        assert!(!verdict(false, false));
    }

    #[test]
    #[should_panic(expected = "needs root")]
    fn others_fail_where_root_is_required() {
        verdict(false, true);
    }
}
