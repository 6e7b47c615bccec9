//! The ledger of this repository is complete and true.

use xwarp_conformance::{Catalogue, Family, Ledger, Level, Sources, check, repository};

/// Those of the verbs draft come in as they are done.
#[test]
fn requirements_are_as_many_as_the_catalogue_has() {
    let catalogue = Catalogue::own().expect("ids.tsv can be read");
    let counts = Level::ALL.map(|level| {
        let all = catalogue.requirements().iter();
        all.filter(|it| it.level == level && it.family != Family::Draft)
            .count()
    });
    assert_eq!(counts, [387, 41, 36, 150], "MUST, SHOULD, MAY, info");
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
