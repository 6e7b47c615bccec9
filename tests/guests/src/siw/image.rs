//! The guest's kernel, and the program that tests drive in it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `tests/guests/images/siw/image` ends with when there is none.
const NONE: i32 = 77;

/// Where they are in the cache.
pub struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) peer: PathBuf,
}

impl Image {
    /// The image, if it has been built. Otherwise says why not, and fails if `XWARP_INTEROP` is
    /// `required`.
    pub fn find() -> Option<Self> {
        let output = Command::new(guest_file("image")).arg("--find").output();
        let output = output.expect("our own script");
        let reason = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Some(Self::parse(&String::from_utf8_lossy(&output.stdout)));
        }
        assert_eq!(output.status.code(), Some(NONE), "{reason}");
        let required = std::env::var("XWARP_INTEROP").is_ok_and(|value| value == "required");
        assert!(!required, "{reason}");
        // Past the test harness, which shows what a test prints only if it fails.
        let _ = writeln!(std::io::stderr(), "skipped, {}", reason.trim_end());
        None
    }

    fn parse(printed: &str) -> Self {
        let file = |name: &str| {
            let line = printed.lines().find_map(|line| line.strip_prefix(name));
            PathBuf::from(line.expect("image names both files").trim_start())
        };
        Self {
            kernel: file("kernel "),
            peer: file("peer "),
        }
    }
}

/// A file of the guest's.
pub(crate) fn guest_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("images/siw")
        .join(name)
}
