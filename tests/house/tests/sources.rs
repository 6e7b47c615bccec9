//! Only tests that a test program runs can be cited.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use xwarp_house_tests::ledger::Sources;

const TEST: &str = "#[test]\nfn it() {}\n";

/// A package of these files, as [`Sources`] sees it.
fn sources(files: &[(&str, &str)]) -> Sources {
    let package = tempfile::tempdir().expect("a directory");
    let manifest = "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    for (path, text) in files.iter().chain([&("Cargo.toml", manifest)]) {
        let path = package.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
        fs::write(path, text).expect("a file");
    }
    Sources::built(package.path()).expect("sources")
}

#[test]
fn files_that_a_target_reaches_are_built() {
    let sources = sources(&[
        ("src/lib.rs", "mod a;"),
        ("src/a.rs", "#[cfg(test)]\nmod b;"),
        ("src/a/b.rs", TEST),
        ("src/a/c.rs", TEST),
        ("tests/whole/main.rs", "mod d;\n#[cfg(loom)]\nmod e;"),
        ("tests/whole/d/mod.rs", "#[path = \"../shared.rs\"]\nmod f;"),
        ("tests/whole/e.rs", TEST),
        ("tests/whole/shared.rs", TEST),
        ("examples/shown.rs", TEST),
    ]);
    let it = BTreeSet::from(["it".to_owned()]);
    for path in ["src/a/b.rs", "tests/whole/shared.rs"] {
        assert_eq!(sources.tests(path), Some(&it), "{path}");
    }
    for path in [
        "src/a/c.rs",
        "tests/whole/e.rs",
        "examples/shown.rs",
        "src/none.rs",
    ] {
        assert_eq!(sources.tests(path), None, "{path}");
    }
}

#[test]
fn tests_of_this_file_are_built() {
    let sources = Sources::built(&xwarp_house_tests::ledger::repository()).expect("sources");
    let tests = sources.tests("tests/house/tests/sources.rs");
    assert!(tests.is_some_and(|tests| tests.contains("tests_of_this_file_are_built")));
}
