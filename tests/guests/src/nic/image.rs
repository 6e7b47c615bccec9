//! Image that guests boot from.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `tests/guests/images/nic/image` ends with when there is none.
const NONE: i32 = 77;

/// Where it is in the cache.
pub struct Image(pub(crate) PathBuf);

impl Image {
    /// The image, if it has been made. Otherwise says why not, and fails if `XWARP_NIC` is
    /// `required`.
    pub fn find() -> Option<Self> {
        let output = Command::new(guest_file("image")).arg("--find").output();
        let output = output.expect("our own script");
        if output.status.success() {
            let printed = String::from_utf8_lossy(&output.stdout);
            return Some(Self(PathBuf::from(printed.trim())));
        }
        let reason = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(NONE), "{reason}");
        let required = std::env::var("XWARP_NIC").is_ok_and(|value| value == "required");
        assert!(!required, "{reason}");
        // Past the test harness, which shows what a test prints only if it fails.
        let _ = writeln!(std::io::stderr(), "skipped, {}", reason.trim_end());
        None
    }
}

/// A file of the guest's.
pub(crate) fn guest_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("images/nic")
        .join(name)
}
