//! Circles among the files and folders of one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::graph::{Graph, Module};

/// Files and folders of one folder, each of which names the next one, and the last the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The folder; empty for that of the whole crate.
    pub parent: Module,
    /// The modules, in the order in which they name each other. [`OWN_FILE`] is the folder's own
    /// file.
    pub modules: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = ["crate".to_owned()].into_iter().chain(self.parent.clone());
        let parent = parent.collect::<Vec<_>>().join("::");
        let first = self.modules.first().map_or("", String::as_str);
        write!(f, "in {parent}: {} -> {first}", self.modules.join(" -> "))
    }
}

/// The file of a folder itself, as it is called in a circle.
pub const OWN_FILE: &str = "mod.rs";

/// What a circle is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Folders, and beside them the files of the same folder, `mod.rs` included.
    Files,
    /// The modules of one parent. A parent and its own children may name each other.
    Siblings,
}

type Siblings = BTreeMap<String, BTreeSet<String>>;

/// One circle of each folder that has any, a shortest one.
pub fn circles(graph: &Graph, nodes: Nodes) -> Vec<Circle> {
    let mut parents: BTreeMap<Module, Siblings> = BTreeMap::new();
    for (from, targets) in graph.edges() {
        for to in targets {
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if nodes == Nodes::Siblings && shared == from.len().min(to.len()) {
                continue;
            }
            let node = |module: &[String]| {
                let name = module.get(shared);
                name.cloned().unwrap_or_else(|| OWN_FILE.to_owned())
            };
            let siblings = parents.entry(from[..shared].to_vec()).or_default();
            siblings.entry(node(from)).or_default().insert(node(&to));
        }
    }
    let found = parents.into_iter().filter_map(|(parent, siblings)| {
        let modules = shortest(&siblings)?;
        Some(Circle { parent, modules })
    });
    found.collect()
}

fn shortest(siblings: &Siblings) -> Option<Vec<String>> {
    let found = siblings.keys().filter_map(|start| back_to(start, siblings));
    found.min_by_key(Vec::len)
}

/// The shortest way from `start` back to it.
fn back_to(start: &String, siblings: &Siblings) -> Option<Vec<String>> {
    let mut ways = std::collections::VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let last = way.last().and_then(|last| siblings.get(*last));
        for next in last.into_iter().flatten() {
            if next == start {
                return Some(way.into_iter().cloned().collect());
            }
            if seen.insert(next) {
                ways.push_back(way.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}
