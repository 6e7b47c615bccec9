//! Programs that `cargo test` builds.

use std::path::{Path, PathBuf};

use crate::{Target, TargetsError, targets};

use super::tests_of::Build;

/// Packages that `tools/test` leaves out of `cargo test`: their tests need a guest, and say nothing
/// where there is none.
const LEFT_OUT: [&str; 1] = ["xwarp-guest-tests"];

/// The root file of each target that has its tests or the examples of its documentation run, once
/// for either.
pub(crate) fn test_roots(repository: &Path) -> Result<Vec<(PathBuf, Build)>, TargetsError> {
    Ok(roots(targets(repository)?))
}

fn roots(targets: Vec<Target>) -> Vec<(PathBuf, Build)> {
    let is_run = |target: &Target| !LEFT_OUT.contains(&target.package.as_str());
    targets
        .into_iter()
        .filter(is_run)
        .flat_map(builds)
        .collect()
}

fn builds(target: Target) -> impl Iterator<Item = (PathBuf, Build)> {
    let builds = [
        (target.has_tests, Build::Tests),
        (target.has_doctests, Build::Docs),
    ];
    builds
        .into_iter()
        .filter(|(is_run, _)| *is_run)
        .map(move |(_, build)| (target.root.clone(), build))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::read_targets;

    use super::{Build, roots};

    #[test]
    fn targets_without_tests_and_those_for_guests_are_left_out() {
        let metadata = br#"{"packages": [
            {"name": "xwarp", "targets": [
                {"name": "a", "src_path": "/x/lib.rs", "test": true, "doctest": true, "kind": ["lib"]},
                {"name": "a", "src_path": "/x/t.rs", "test": true, "doctest": false, "kind": ["test"]},
                {"name": "a", "src_path": "/x/e.rs", "test": false, "doctest": false, "kind": ["example"]}]},
            {"name": "xwarp-guest-tests", "targets": [
                {"name": "a", "src_path": "/i/siw.rs", "test": true, "doctest": false}]}]}"#;
        let expected = [
            ("/x/lib.rs", Build::Tests),
            ("/x/lib.rs", Build::Docs),
            ("/x/t.rs", Build::Tests),
        ];
        let expected = expected.map(|(path, build)| (PathBuf::from(path), build));
        assert_eq!(roots(read_targets(metadata).unwrap()), expected);
    }
}
