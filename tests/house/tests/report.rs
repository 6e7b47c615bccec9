//! Output and refusals of the program `ledger`.

use std::process::{Command, Output};

fn report(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ledger"))
        .args(args)
        .output()
        .expect("the program runs")
}

/// It prints one sentence to standard error and exits with 2.
fn assert_refused(args: &[&str], sentence: &str) {
    let output = report(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(told, format!("ledger: {sentence}\n"));
}

#[test]
fn coverage_ends_with_the_sum_of_all_requirements() {
    let output = report(&[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let last: Vec<&str> = text
        .lines()
        .last()
        .expect("a line")
        .split_whitespace()
        .collect();
    let catalogue =
        xwarp_house_tests::ledger::Catalogue::own().expect("requirements.tsv can be read");
    let all = catalogue.requirements().len().to_string();
    assert_eq!((last[0], last[1], last[6]), ("all", "all", &*all));
}

#[test]
fn text_and_evidence_of_one_requirement_are_printed() {
    let output = report(&["--id", "R5044-4.3-5"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("R5044-4.3-5  MUST  proved"));
    let catalogue =
        xwarp_house_tests::ledger::Catalogue::own().expect("requirements.tsv can be read");
    let required = catalogue.find("R5044-4.3-5").expect("a requirement");
    let printed = lines.next().map(str::trim_start);
    assert_eq!(printed, Some(&*required.text));
    assert!(lines.all(|line| line.contains(".rs::")), "{text}");
    assert!(text.lines().count() > 2, "{text}");
}

#[test]
fn deviation_is_printed_with_its_reason() {
    let output = report(&["--id", "R5044-9.3-1"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("R5044-9.3-1  MUST  deviation"));
    assert!(lines.any(|line| line.contains("IPsec")), "{text}");
}

#[test]
fn wrong_arguments_are_refused_in_one_sentence() {
    assert_refused(
        &["--id", "R5044-99"],
        "\"R5044-99\" is no requirement of the catalogue.",
    );
    assert_refused(&["--all"], "unexpected argument '--all' found; try --help.");
    assert_refused(
        &["R5044-4.3-5"],
        "unexpected argument 'R5044-4.3-5' found; try --help.",
    );
    assert_refused(
        &["--id"],
        "a value is required for '--id <ID>' but none was supplied; try --help.",
    );
}
