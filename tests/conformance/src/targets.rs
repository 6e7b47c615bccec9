//! Which programs `cargo test` builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use serde::Deserialize;

use crate::tests_of::Build;

/// Packages that `tools/test` leaves out of `cargo test`: their tests need a guest, and say nothing where there is none.
const LEFT_OUT: [&str; 1] = ["xwarp-interop-tests"];

/// Why the targets are unknown.
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
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
    test: bool,
    doctest: bool,
}

impl Target {
    fn builds(self) -> impl Iterator<Item = (PathBuf, Build)> {
        let builds = [(self.test, Build::Tests), (self.doctest, Build::Docs)];
        builds
            .into_iter()
            .filter(|(is_run, _)| *is_run)
            .map(move |(_, build)| (self.src_path.clone(), build))
    }
}

/// The root file of each target that has its tests or the examples of its documentation run, once for either.
pub(crate) fn test_roots(repository: &Path) -> Result<Vec<(PathBuf, Build)>, TargetsError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(repository)
        .output()?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(TargetsError::Cargo(told));
    }
    roots(&output.stdout)
}

fn roots(metadata: &[u8]) -> Result<Vec<(PathBuf, Build)>, TargetsError> {
    let metadata: Metadata = serde_json::from_slice(metadata)?;
    let packages = metadata.packages.into_iter();
    Ok(packages
        .filter(|package| !LEFT_OUT.contains(&package.name.as_str()))
        .flat_map(|package| package.targets)
        .flat_map(Target::builds)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Build, roots};

    #[test]
    fn targets_without_tests_and_those_for_guests_are_left_out() {
        let metadata = br#"{"packages": [
            {"name": "xwarp", "targets": [
                {"src_path": "/x/lib.rs", "test": true, "doctest": true, "kind": ["lib"]},
                {"src_path": "/x/t.rs", "test": true, "doctest": false, "kind": ["test"]},
                {"src_path": "/x/e.rs", "test": false, "doctest": false, "kind": ["example"]}]},
            {"name": "xwarp-interop-tests", "targets": [
                {"src_path": "/i/siw.rs", "test": true, "doctest": false}]}]}"#;
        let expected = [
            ("/x/lib.rs", Build::Tests),
            ("/x/lib.rs", Build::Docs),
            ("/x/t.rs", Build::Tests),
        ];
        let expected = expected.map(|(path, build)| (PathBuf::from(path), build));
        assert_eq!(roots(metadata).unwrap(), expected);
    }
}
