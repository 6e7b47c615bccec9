//! Names of tests: the subject comes first, so that lists sort by what tests are about.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

/// Words that no subject begins with.
const LEADS: [&str; 6] = ["a", "an", "the", "it", "that", "there"];
/// Folders in which nothing is the repository's own.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Names of the tests of a source file that do not begin with a subject.
fn without_subject(source: &str) -> Vec<&str> {
    let mut lines = source.lines().map(str::trim_start);
    let mut found = Vec::new();
    while lines.any(|line| line == "#[test]") {
        let name = lines.find_map(|line| line.strip_prefix("fn "));
        let name = name.and_then(|rest| rest.split('(').next());
        let lead = |name: &&str| {
            LEADS
                .iter()
                .any(|lead| name.split('_').next() == Some(lead))
        };
        found.extend(name.filter(lead));
    }
    found
}

/// All Rust sources of the repository.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut folders, mut sources) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            let is_skipped = SKIPPED.iter().any(|name| path.ends_with(name));
            if path.is_dir() {
                folders.extend((!is_skipped).then_some(path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources.push(path);
            }
        }
    }
    sources
}

#[test]
fn subject_comes_first_in_the_name_of_every_test() {
    let mut told = Vec::new();
    for path in sources() {
        let source = fs::read_to_string(&path).expect("a source is text");
        let names = without_subject(&source);
        told.extend(
            names
                .iter()
                .map(|name| format!("{}: {name}", path.display())),
        );
    }
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn name_that_begins_with_an_article_is_found() {
    let source = "#[test]\nfn a_send_is_sent() {}\n    #[test]\n    #[should_panic]\n    fn send_is_sent() {}\nfn the_helper() {}\n";
    assert_eq!(without_subject(source), ["a_send_is_sent"]);
}
