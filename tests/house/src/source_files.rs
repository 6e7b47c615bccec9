//! Files of the repository, by how their names end.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// Folders in which nothing is the repository's own.
const SKIPPED: [&str; 2] = ["target", ".git"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All Rust sources of the repository.
pub fn source_files() -> io::Result<Vec<PathBuf>> {
    files("rs")
}

/// All Markdown files of the repository.
pub fn markdown_files() -> io::Result<Vec<PathBuf>> {
    files("md")
}

fn files(extension: &str) -> io::Result<Vec<PathBuf>> {
    let (mut folders, mut found) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let is_skipped = SKIPPED.iter().any(|name| path.ends_with(name));
            if path.is_dir() {
                folders.extend((!is_skipped).then_some(path));
            } else if path.extension().is_some_and(|end| end == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// How the repository names a file of its own.
pub fn below_root(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.display().to_string()
}
