//! Readers of the sources, for the house's rules: the module graph of a crate, functions, sentences of documentation.
//!
//! The modules of one parent form no circle, each taken together with all modules below it. A parent and its own children may name each other.
#![forbid(unsafe_code)]

mod circle;
mod functions;
mod graph;
mod prose;
mod reader;
mod source_files;
mod target;

pub use circle::{Circle, circles};
pub use functions::{Function, Kind, functions};
pub use graph::{Graph, Module};
pub use prose::{DocComment, Sentence, doc_comments, sentences};
pub use reader::ReadError;
pub use source_files::{below_root, markdown_files, source_files};
pub use target::{Target, TargetsError, read_targets, targets};
