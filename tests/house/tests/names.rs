//! Names of tests: the subject comes first, so that lists sort by what tests are about.
#![forbid(unsafe_code)]

use std::fs;

use xwarp_house_tests::{Kind, functions, source_files};

/// Words that no subject begins with.
const LEADS: [&str; 6] = ["a", "an", "the", "it", "that", "there"];

/// Names of the tests of a source file that do not begin with a subject.
fn without_subject(source: &str) -> Vec<String> {
    let functions = functions(source).expect("Rust").into_iter();
    let tests = functions.filter(|it| it.kind == Kind::Test);
    let names = tests.map(|test| test.name);
    let is_lead = |word: Option<&str>| word.is_some_and(|word| LEADS.contains(&word));
    names
        .filter(|name| is_lead(name.split('_').next()))
        .collect()
}

#[test]
fn subject_comes_first_in_the_name_of_every_test() {
    let mut told = Vec::new();
    for path in source_files().expect("sources") {
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
    let source = "#[tokio::test(start_paused = true)]\nasync fn the_task_waits() {}";
    assert_eq!(without_subject(source), ["the_task_waits"]);
}
