//! Text files of the repository, by path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Directories whose names begin with a dot and that belong to the repository all the same.
const HIDDEN: [&str; 2] = [".ci", ".github"];

/// Files of a repository. A file that is no text has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

/// Why the files cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct TreeError {
    path: PathBuf,
    source: io::Error,
}

impl Tree {
    /// Everything below `root` but what is built there, and what is hidden.
    ///
    /// # Errors
    ///
    /// A directory or file that the operating system does not let us read.
    pub fn read(root: &Path) -> Result<Self, TreeError> {
        let mut tree = Self::default();
        tree.add(root, "")
            .map_err(|(path, source)| TreeError { path, source })?;
        Ok(tree)
    }

    fn add(&mut self, directory: &Path, prefix: &str) -> Result<(), (PathBuf, io::Error)> {
        let failed = |source| (directory.to_owned(), source);
        for entry in fs::read_dir(directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (path, place) = (entry.path(), format!("{prefix}{name}"));
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && is_ours(&name) {
                self.add(&path, &format!("{place}/"))?;
            } else if kind.is_file() {
                let bytes = fs::read(&path).map_err(|source| (path, source))?;
                let text = String::from_utf8(bytes).unwrap_or_default();
                self.files.insert(place, text);
            }
        }
        Ok(())
    }

    /// With a file of this text.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    /// Path and text of each file.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (&**path, &**text))
    }

    /// The text at `path`, if there is such a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

/// Does the path's name end with `.` and this?
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

fn is_ours(directory: &str) -> bool {
    HIDDEN.contains(&directory) || !(directory.starts_with('.') || directory == "target")
}
