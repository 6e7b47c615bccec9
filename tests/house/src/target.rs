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
}

/// A crate: library, program, test or example.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its package and its own name.
    pub name: String,
    /// Its root file.
    pub root: PathBuf,
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
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let all = metadata.packages.into_iter().flat_map(|package| {
        let named = move |root: Root| Target {
            name: format!("{} {}", package.name, root.name),
            root: root.src_path,
        };
        package.targets.into_iter().map(named)
    });
    Ok(all.collect())
}
