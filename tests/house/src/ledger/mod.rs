//! The conformance ledger: which test proves each requirement, or why there is none.
//!
//! `requirements.tsv` is the catalogue: id, level and text of each requirement, in the order of the
//! specifications. An id names the specification and the section, such as R5044-4.3-5 for RFC 5044
//! §4.3. A text sums up what the section asks for; the section itself prevails.
//!
//! `ledger/*.tsv` holds one row for each requirement, a file per specification. The status of a row
//! is one of four:
//! - `proved`: the cited tests fail when the requirement is broken.
//! - `excused`: there is nothing to prove, for the reason that the row gives.
//! - `deviation`: the requirement applies and xwarp knowingly does otherwise, for the reason that
//!   the row gives.
//! - `open`: work is under way.
//!
//! Behind a reason `(see path.rs::function)` may name tests: they show that the case cannot arise,
//! or what is done instead.
//!
//! [`check`] finds everything that makes the ledger incomplete or untrue. The crate's tests require
//! that it finds nothing, and the program `ledger` prints what is covered.
//!
//! [`dead_references`] finds every citation in a comment or document that names nothing in the
//! tree: documents, their sections, rows of unusual input, decisions, requirements, vectors. The
//! crate's tests require that there is none.

mod catalogue;
mod check;
mod coverage;
mod family;
mod prose;
mod published;
mod references;
mod row;
mod sources;
mod table;
mod targets;
mod tests_of;
mod tree;

use std::path::PathBuf;

pub use catalogue::{Catalogue, CatalogueError, Level, Requirement};
pub use check::{Finding, check};
pub use coverage::{Coverage, Tally};
pub use family::Family;
pub use references::{DeadReference, dead_references};
pub use row::{Citation, Evidence, Reason, Row, RowError};
pub use sources::{Sources, SourcesError};
pub use table::{Ledger, LedgerError, Table};
pub use tree::{Tree, TreeError};

/// The repository's root, to which citations are relative.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
