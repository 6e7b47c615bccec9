//! Modules and the paths that they name.

use std::collections::{BTreeMap, BTreeSet};

/// The path of a module below the root of its crate.
pub type Module = Vec<String>;

/// What one module names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Paths as they are written.
    pub(crate) paths: Vec<Vec<String>>,
    /// Names that `use` brings into the module, and what they stand for.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
}

/// All modules of a crate.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    modules: BTreeMap<Module, Names>,
}

/// Imports that are followed to find where an item is from.
const MAX_IMPORTS: usize = 8;

impl Graph {
    pub(crate) fn names(&mut self, module: &[String]) -> &mut Names {
        self.modules.entry(module.to_vec()).or_default()
    }

    /// Each module with those that it names, except itself, the modules above it and the modules below it.
    pub(crate) fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let edges = self.modules.iter().map(|(module, names)| {
            let targets = names
                .paths
                .iter()
                .filter_map(|path| self.module_of(module, path, MAX_IMPORTS))
                .filter(|target| !target.starts_with(module) && !module.starts_with(target));
            (module, targets.collect())
        });
        edges.collect()
    }

    /// The module that has the item which `module` names by `path`; `None` for one of another crate.
    fn module_of(&self, module: &[String], path: &[String], imports: usize) -> Option<Module> {
        let (mut at, mut rest) = self.beginning(module, path)?;
        while let Some((first, others)) = rest.split_first() {
            let mut child = at.clone();
            child.push(first.clone());
            if !self.modules.contains_key(&child) {
                break;
            }
            (at, rest) = (child, others);
        }
        let import = rest
            .first()
            .filter(|_| imports > 0 && at != module)
            .and_then(|name| self.modules.get(&at)?.imports.get(name));
        let from = import.and_then(|path| self.module_of(&at, path, imports - 1));
        Some(from.unwrap_or(at))
    }

    /// Where a path begins, and what is left of it.
    fn beginning<'a>(
        &self,
        module: &[String],
        path: &'a [String],
    ) -> Option<(Module, &'a [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((module.to_vec(), rest)),
            "super" => {
                let above = path.iter().take_while(|part| *part == "super").count();
                let depth = module.len().checked_sub(above)?;
                Some((module[..depth].to_vec(), &path[above..]))
            }
            name => {
                let mut child = module.to_vec();
                child.push(name.to_owned());
                self.modules
                    .contains_key(&child)
                    .then(|| (module.to_vec(), path))
            }
        }
    }
}
