//! Readers of the sources, for the rules of the project. Its laws are this crate's tests: the module
//! graphs, the core's law, documents, the public interface, dependencies. [`remarks`] on style are
//! advice, which the program `style` prints.
//!
//! The modules of one parent form no circle, each taken together with all modules below it. A parent and its own children may name each other.
#![forbid(unsafe_code)]

mod circle;
mod functions;
mod graph;
mod interface;
mod reader;
mod source_files;
mod style;
mod target;

pub use circle::{Circle, circles};
pub use functions::{Function, Kind, functions};
pub use graph::{Graph, Module};
pub use interface::Interface;
pub use reader::ReadError;
pub use source_files::{below_root, markdown_files, source_files};
pub use style::{Remark, Report, Rule, doc_comments, remarks};
pub use target::{Target, TargetsError, read_targets, targets};
