//! Which programs `cargo test` builds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

use serde::Deserialize;

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
}

/// The root file of each target that has its tests run.
pub(crate) fn test_roots(repository: &Path) -> Result<Vec<PathBuf>, TargetsError> {
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

fn roots(metadata: &[u8]) -> Result<Vec<PathBuf>, TargetsError> {
    let metadata: Metadata = serde_json::from_slice(metadata)?;
    let packages = metadata.packages.into_iter();
    Ok(packages
        .filter(|package| !LEFT_OUT.contains(&package.name.as_str()))
        .flat_map(|package| package.targets)
        .filter(|target| target.test)
        .map(|target| target.src_path)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::roots;

    #[test]
    fn targets_without_tests_and_those_for_guests_are_left_out() {
        let metadata = br#"{"packages": [
            {"name": "xwarp", "targets": [
                {"src_path": "/x/src/lib.rs", "test": true, "kind": ["lib"]},
                {"src_path": "/x/examples/e.rs", "test": false, "kind": ["example"]}]},
            {"name": "xwarp-interop-tests", "targets": [{"src_path": "/i/tests/siw.rs", "test": true}]}]}"#;
        assert_eq!(roots(metadata).unwrap(), [PathBuf::from("/x/src/lib.rs")]);
    }
}
