//! Tables kept beside the tests that make them, so that a change shows as a diff.

use std::env;
use std::fs;

/// Compares a table with the one in the file at `path`, relative to the package. With
/// `XWARP_ACCEPT` in the environment, a different table replaces the file.
///
/// # Panics
/// If they differ, even if the file was replaced. `what` says what a difference means.
pub(crate) fn compare(path: &str, table: &str, what: &str) {
    let file = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    compare_files(&file, table, what, env::var_os("XWARP_ACCEPT").is_some());
}

fn compare_files(file: &str, table: &str, what: &str, accept: bool) {
    let kept = fs::read_to_string(file).unwrap_or_default();
    if table == kept {
        return;
    }
    let advice = if accept {
        fs::write(file, table).unwrap_or_else(|error| panic!("{file}: {error}"));
        "The file was replaced: look at what has changed, and run the test again without XWARP_ACCEPT."
    } else {
        "If that is meant, run the test with XWARP_ACCEPT=1 in the environment, then again without, and commit the file."
    };
    panic!("{what} than before.\n\nbefore:\n{kept}\nnow:\n{table}\n{file}\n{advice}");
}

/// A file with a table, of this process.
fn table_file(name: &str) -> String {
    let file = env::temp_dir().join(format!("xwarp-{name}-{}", std::process::id()));
    fs::write(&file, "old").unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn table_that_is_replaced_fails_the_test_once() {
    let file = table_file("replaced");
    let replace = || compare_files(&file, "new", "it is other", true);
    assert!(std::panic::catch_unwind(replace).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
    replace();
    fs::remove_file(&file).unwrap();
}

#[test]
fn table_that_differs_stays_unless_it_is_accepted() {
    let file = table_file("kept");
    let compare = |table: &str| compare_files(&file, table, "it is other", false);
    compare("old");
    assert!(std::panic::catch_unwind(|| compare("new")).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    fs::remove_file(&file).unwrap();
}
