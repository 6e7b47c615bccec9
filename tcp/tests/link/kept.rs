//! Tables that are kept beside the tests that make them, so that a change shows as a diff.

use std::env;
use std::fs;

/// Compares a table with the one in the file at `path`, relative to the package, which `XWARP_ACCEPT` in the environment replaces.
///
/// # Panics
/// If they differ: `what` says what that means.
pub(crate) fn compare(path: &str, table: &str, what: &str) {
    let file = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if env::var_os("XWARP_ACCEPT").is_some() {
        fs::write(&file, table).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        table == kept,
        "{what} than before.\n\nbefore:\n{kept}\nnow:\n{table}\n\
         If that is meant, run the test again with XWARP_ACCEPT=1 in the environment and commit {path}."
    );
}
