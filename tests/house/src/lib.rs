//! Readers of the sources, for the rules of the project. Its laws are this crate's tests: the
//! module graphs, the core's law, documents, the public interface, dependencies, and
//! the [`ledger`]: each requirement's tests exist and run. [`remarks`] on style are advice, which
//! the program `style` prints.
//!
//! Files and folders of one folder form no circle. A folder counts together with all that is in it,
//! and its own `mod.rs` is one of its files.
#![forbid(unsafe_code)]

mod circle;
mod functions;
mod graph;
mod interface;
pub mod ledger;
mod reader;
mod source_files;
mod style;
mod target;

pub use circle::{Circle, Nodes, OWN_FILE, circles};
pub use functions::{Function, Kind, functions};
pub use graph::{Graph, Module};
pub use interface::Interface;
pub use reader::ReadError;
pub use source_files::{below_root, markdown_files, source_files};
pub use style::{Remark, Report, Rule, doc_comments, remarks};
pub use target::{Target, TargetsError, read_targets, targets};
