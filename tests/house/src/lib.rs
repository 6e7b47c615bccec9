//! Module graph of a crate: which module names items of which other one, and the circles in it.
//!
//! The modules of one parent form no circle, each taken together with all modules below it. A parent and its own children may name each other.
#![forbid(unsafe_code)]

mod circle;
mod graph;
mod reader;
mod target;

pub use circle::{Circle, circles};
pub use graph::{Graph, Module};
pub use reader::ReadError;
pub use target::{Target, TargetsError, read_targets, targets};
