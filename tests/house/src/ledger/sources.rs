//! Source files of the workspace, and the tests in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::TargetsError;

use super::targets::test_roots;
use super::tests_of::{Build, contents};

/// The tests that run, by source file.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: BTreeMap<PathBuf, BTreeSet<String>>,
}

/// Why the sources cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// The programs are unknown.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Not Rust.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// What was read.
        path: PathBuf,
        /// What is wrong with it.
        source: syn::Error,
    },
}

impl Sources {
    /// The files of all test programs that `tools/test` runs of this repository.
    pub fn built(repository: &Path) -> Result<Self, SourcesError> {
        let failed = |path: &Path, source| SourcesError::Io {
            path: path.to_owned(),
            source,
        };
        let mut sources = Self::default();
        for (root, build) in test_roots(repository)? {
            sources.add(root, true, build)?;
        }
        let top = repository
            .canonicalize()
            .map_err(|source| failed(repository, source))?;
        let mut files = BTreeMap::<_, BTreeSet<_>>::new();
        for (path, tests) in sources.files {
            let whole = path
                .canonicalize()
                .map_err(|source| failed(&path, source))?;
            let path = whole.strip_prefix(&top).unwrap_or(&whole).to_owned();
            files.entry(path).or_default().extend(tests);
        }
        Ok(Self { files })
    }

    /// With a file of this text and its modules, which are read from the disk.
    fn add(&mut self, path: PathBuf, is_root: bool, build: Build) -> Result<(), SourcesError> {
        let text = fs::read_to_string(&path).map_err(|source| SourcesError::Io {
            path: path.clone(),
            source,
        })?;
        let found =
            contents(&path, &text, is_root, build).map_err(|source| SourcesError::Syntax {
                path: path.clone(),
                source,
            })?;
        self.files.entry(path).or_default().extend(found.tests);
        for candidates in found.modules {
            // A module without a file does not compile, so that none is left out here.
            if let Some(file) = candidates.into_iter().find(|file| file.is_file()) {
                self.add(file, false, build)?;
            }
        }
        Ok(())
    }

    /// With a file that has these tests.
    #[must_use]
    pub fn with(mut self, path: &str, tests: &[&str]) -> Self {
        let tests = tests.iter().map(|&name| name.to_owned()).collect();
        self.files.insert(path.into(), tests);
        self
    }

    /// The tests of this file, if a test program has it.
    pub fn tests(&self, path: &str) -> Option<&BTreeSet<String>> {
        self.files.get(Path::new(path))
    }
}
