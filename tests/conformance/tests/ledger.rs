//! The ledger of this repository is complete and true.

use xwarp_conformance::{Catalogue, Ledger, Level, Sources, check, repository};

#[test]
fn requirements_are_as_many_as_the_catalogue_has() {
    let catalogue = Catalogue::own().expect("ids.tsv can be read");
    let counts = Level::ALL.map(|level| catalogue.count(level));
    assert_eq!(counts, [787, 41, 42, 204], "MUST, SHOULD, MAY, info");
}

#[test]
fn every_requirement_has_one_row_with_evidence_that_exists() {
    let catalogue = Catalogue::own().expect("ids.tsv can be read");
    let ledger = Ledger::load(&repository()).expect("the ledger can be read");
    let sources = Sources::cited_by(&ledger, &repository());
    let findings = check(&catalogue, &ledger, &sources);
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} findings:\n{}",
        lines.len(),
        lines.join("\n")
    );
}
