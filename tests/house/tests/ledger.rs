//! The ledger of this repository is complete and true.

use std::fs;

use xwarp_house_tests::ledger::{
    Catalogue, Coverage, Family, Ledger, Level, Sources, check, repository,
};

#[test]
fn requirements_are_as_many_as_the_catalogues_have() {
    let catalogue = Catalogue::own().expect("requirements.tsv can be read");
    let counts = |draft: bool| {
        Level::ALL.map(|level| {
            let all = catalogue.requirements().iter();
            all.filter(|it| it.level == level && (it.family == Family::Draft) == draft)
                .count()
        })
    };
    // MUST, SHOULD, MAY, info
    assert_eq!(counts(false), [387, 41, 36, 150], "of the RFCs");
    assert_eq!(counts(true), [1196, 6, 59, 203], "of the verbs draft");
}

#[test]
fn every_requirement_has_one_row_with_evidence_that_exists() {
    let catalogue = Catalogue::own().expect("requirements.tsv can be read");
    let ledger = Ledger::load(&repository()).expect("the ledger can be read");
    let sources = Sources::built(&repository()).expect("the sources can be read");
    let findings = check(&catalogue, &ledger, &sources);
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} findings:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

#[test]
fn readme_gives_the_numbers_of_the_ledger() {
    let catalogue = Catalogue::own().expect("requirements.tsv can be read");
    let ledger = Ledger::load(&repository()).expect("the ledger can be read");
    let tally = Coverage::new(&catalogue, &ledger).tally(None, None);
    let sentence = format!(
        "Of {} requirements of the RFCs and the verbs draft, tests prove {}, and {} are [deviations]",
        tally.all(),
        tally.proved,
        tally.deviation
    );
    let readme = fs::read_to_string(repository().join("README.md")).expect("README.md is there");
    let readme = readme.replace('\n', " ");
    assert!(readme.contains(&sentence), "README.md lacks: {sentence}");
}
