//! Check of the ledger: it is complete and true. An unmet requirement is a deviation, and no excuse
//! (decision record tests/0002).

use std::collections::BTreeSet;

use super::{Catalogue, Citation, Evidence, Family, Ledger, Sources, Table};

/// Words that a reason has at least.
const LEAST_WORDS: usize = 8;

/// Something that makes the ledger incomplete or untrue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A requirement without a row.
    #[error("{0} has no row")]
    Missing(String),
    /// A row without a requirement.
    #[error("{file} has a row for {id}, which is no requirement")]
    Unknown {
        /// The ledger's file.
        file: String,
        /// The row's id.
        id: String,
    },
    /// A second row.
    #[error("{0} has more than one row")]
    Duplicate(String),
    /// A row in the file of another specification.
    #[error("{id} belongs into another file than {file}")]
    Misfiled {
        /// The ledger's file.
        file: String,
        /// The row's id.
        id: String,
    },
    /// A row that comes later than the catalogue has it.
    #[error("{0} is not in the catalogue's order")]
    OutOfOrder(String),
    /// Not yet proved.
    #[error("{id} is open: {missing}")]
    Open {
        /// The row's id.
        id: String,
        /// What is missing.
        missing: String,
    },
    /// A reason that says nothing.
    #[error("{id} has too little of a reason: {reason:?}")]
    ThinReason {
        /// The row's id.
        id: String,
        /// All of it.
        reason: String,
    },
    /// No test program has the file.
    #[error("{id} cites {citation}, a file that is not there or in no test program")]
    NotBuilt {
        /// The row's id.
        id: String,
        /// The test that is named.
        citation: Citation,
    },
    /// The file has no such test that runs.
    #[error("{id} cites {citation}, which is no test of that file, or one that does not run")]
    NoSuchTest {
        /// The row's id.
        id: String,
        /// The test that is named.
        citation: Citation,
    },
}

/// Everything that is wrong.
pub fn check(catalogue: &Catalogue, ledger: &Ledger, sources: &Sources) -> Vec<Finding> {
    let mut findings = ids(catalogue, ledger);
    for table in &ledger.tables {
        findings.extend(filing(catalogue, table));
    }
    for row in ledger.rows() {
        findings.extend(evidence(&row.id, &row.evidence, sources));
    }
    findings
}

/// Every id has exactly one row.
fn ids(catalogue: &Catalogue, ledger: &Ledger) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for row in ledger.rows() {
        if !seen.insert(&row.id) {
            findings.push(Finding::Duplicate(row.id.clone()));
        }
    }
    let missing = catalogue.requirements().iter().map(|found| &found.id);
    findings.extend(
        missing
            .filter(|id| !seen.contains(id))
            .cloned()
            .map(Finding::Missing),
    );
    findings
}

/// Each row is known, in the file of its family and in the catalogue's order.
fn filing(catalogue: &Catalogue, table: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut latest = 0;
    for row in &table.rows {
        let (file, id) = (table.file.clone(), row.id.clone());
        let requirements = catalogue.requirements();
        let Some(place) = requirements.iter().position(|found| found.id == id) else {
            findings.push(Finding::Unknown { file, id });
            continue;
        };
        if Family::of(&id).is_none_or(|family| family.file() != file) {
            findings.push(Finding::Misfiled { file, id });
        } else if place < latest {
            findings.push(Finding::OutOfOrder(id));
        }
        latest = latest.max(place);
    }
    findings
}

fn evidence(id: &str, evidence: &Evidence, sources: &Sources) -> Vec<Finding> {
    let id = id.to_owned();
    match evidence {
        Evidence::Open(missing) => vec![Finding::Open {
            id,
            missing: missing.clone(),
        }],
        Evidence::Excused(reason) | Evidence::Deviation(reason) => thin_reason(&id, &reason.text)
            .into_iter()
            .chain(citation_faults(&id, &reason.shown_by, sources))
            .collect(),
        Evidence::Proved(citations) => citation_faults(&id, citations, sources).collect(),
    }
}

fn thin_reason(id: &str, reason: &str) -> Option<Finding> {
    (reason.split_whitespace().count() < LEAST_WORDS).then(|| Finding::ThinReason {
        id: id.to_owned(),
        reason: reason.to_owned(),
    })
}

fn citation_faults(
    id: &str,
    citations: &[Citation],
    sources: &Sources,
) -> impl Iterator<Item = Finding> {
    citations
        .iter()
        .filter_map(move |citation| citation_fault(id, citation, sources))
}

fn citation_fault(id: &str, citation: &Citation, sources: &Sources) -> Option<Finding> {
    let (id, citation) = (id.to_owned(), citation.clone());
    match sources.tests(&citation.path) {
        None => Some(Finding::NotBuilt { id, citation }),
        Some(tests) if !tests.contains(&citation.function) => {
            Some(Finding::NoSuchTest { id, citation })
        }
        Some(_) => None,
    }
}
