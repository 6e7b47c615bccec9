//! The crates of the workspace, as Cargo knows them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use serde::Deserialize;

/// Why the crates are unknown.
#[derive(Debug, thiserror::Error)]
pub enum TargetsError {
    /// Cargo cannot be run.
    #[error("cargo metadata: {0}")]
    Io(#[from] io::Error),
    /// Cargo refuses.
    #[error("cargo metadata: {0}")]
    Cargo(String),
    /// Cargo says something else than expected.
    #[error("cargo metadata: {0}")]
    Json(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Root>,
}

#[derive(Deserialize)]
struct Root {
    name: String,
    src_path: PathBuf,
    test: bool,
    doctest: bool,
}

/// A crate: library, program, test or example.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its package.
    pub package: String,
    /// Its own name.
    pub name: String,
    /// Its root file.
    pub root: PathBuf,
    /// `cargo test` runs its tests.
    pub has_tests: bool,
    /// `cargo test` runs the examples of its documentation.
    pub has_doctests: bool,
}

impl Target {
    fn new(package: &str, root: Root) -> Self {
        Self {
            package: package.to_owned(),
            name: root.name,
            root: root.src_path,
            has_tests: root.test,
            has_doctests: root.doctest,
        }
    }
}

/// All crates of the workspace that `directory` is in.
pub fn targets(directory: &Path) -> Result<Vec<Target>, TargetsError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(directory)
        .output()?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(TargetsError::Cargo(told));
    }
    read_targets(&output.stdout)
}

/// The crates that `cargo metadata` lists.
pub fn read_targets(metadata: &[u8]) -> Result<Vec<Target>, TargetsError> {
    let metadata: Metadata = serde_json::from_slice(metadata)?;
    let of = |Package { name, targets }| {
        let targets: Vec<Root> = targets;
        targets
            .into_iter()
            .map(move |root| Target::new(&name, root))
    };
    Ok(metadata.packages.into_iter().flat_map(of).collect())
}
