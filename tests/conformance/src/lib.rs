//! The conformance ledger: which test proves each requirement of the wire, or why none can.
//!
//! `ids.tsv` lists the requirements by id and level, in the catalogue's order, of the verbs draft those that are done so far;
//! `ledger/*.tsv` holds one row for each, a file per specification. A row is `proved` by tests that fail when the requirement is broken, `excused` for a reason, or `open` while work
//! is under way. [`check`] finds everything that makes the ledger incomplete or untrue; the crate's tests require that it finds
//! nothing, and the `report` program prints what is covered.
#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod coverage;
mod family;
mod ledger;
mod row;
mod sources;

use std::path::PathBuf;

pub use catalogue::{Catalogue, CatalogueError, Level, Requirement};
pub use check::{Finding, check};
pub use coverage::{Coverage, Tally};
pub use family::Family;
pub use ledger::{Ledger, LedgerError, Table};
pub use row::{Citation, Evidence, Row, RowError};
pub use sources::{Sources, test_functions};

/// The repository's root, to which citations are relative.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
