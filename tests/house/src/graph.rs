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
    /// Names that the module passes on (`pub use`). They are no use of the module's own, unless
    /// its code has them as well.
    pub(crate) reexports: Vec<(String, Vec<String>)>,
    /// Identifiers of the module's code.
    pub(crate) idents: BTreeSet<String>,
}

impl Names {
    /// Paths that the module uses itself.
    fn used(&self) -> impl Iterator<Item = &Vec<String>> {
        let reexports = self.reexports.iter();
        let used = reexports.filter(|(name, _)| self.idents.contains(name));
        self.paths.iter().chain(used.map(|(_, path)| path))
    }
}

/// All modules of a crate.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    modules: BTreeMap<Module, Names>,
    /// Modules within the file of the module above.
    inline: BTreeSet<Module>,
}

/// Imports that are followed to find where an item is from.
const MAX_IMPORTS: usize = 8;

impl Graph {
    pub(crate) fn names(&mut self, module: &[String]) -> &mut Names {
        self.modules.entry(module.to_vec()).or_default()
    }

    /// Records that a module is within the file of the module above it.
    pub(crate) fn set_inline(&mut self, module: &[String]) {
        self.inline.insert(module.to_vec());
    }

    /// Each file, by the module that it is, with the files that it names.
    pub(crate) fn edges(&self) -> BTreeMap<&[String], BTreeSet<Module>> {
        let mut edges: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (module, names) in &self.modules {
            let from = self.file_of(module);
            let targets = names
                .used()
                .filter_map(|path| self.module_of(module, path, MAX_IMPORTS))
                .map(|target| self.file_of(&target).to_vec())
                .filter(|target| target != from);
            edges.entry(from).or_default().extend(targets);
        }
        edges
    }

    /// The module whose file has this one.
    fn file_of<'a>(&self, module: &'a [String]) -> &'a [String] {
        match module.split_last() {
            Some((_, above)) if self.inline.contains(module) => self.file_of(above),
            _ => module,
        }
    }

    /// The module that has the item which `module` names by `path`; `None` for one of another
    /// crate.
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
