//! Libraries that Python wheels bundle under names of their own, as `libibverbs-1de1263b.so.1`: a
//! program that needs such a name does not ask for `libibverbs.so.1`.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// What bundled names begin with: libraries whose place xwarp's library takes.
const LIBRARIES: [&str; 4] = ["libefa-", "libibverbs-", "libmlx5-", "librdmacm-"];
/// Folders of packages in a folder of a Python version.
const PACKAGES: [&str; 2] = ["dist-packages", "site-packages"];
/// Wheels put bundled libraries into a folder with this end.
const BUNDLE: &str = ".libs";

/// Names of the libraries that the packages of a program bundle. Its packages are those of the
/// Python environment that its file is in, of the user and of the host, and those that the
/// environment variables name.
pub(super) fn names(program: Option<&Path>) -> BTreeSet<OsString> {
    let beside = program.and_then(|file| Some(file.parent()?.parent()?.to_owned()));
    let variable = |name: &str| env::var_os(name).filter(|it| !it.is_empty());
    let roots = [
        beside,
        Some(PathBuf::from("/usr/local")),
        variable("VIRTUAL_ENV").map(PathBuf::from),
        variable("HOME").map(|home| Path::new(&home).join(".local")),
    ];
    let named = variable("PYTHONPATH").unwrap_or_default();
    let packages = roots.into_iter().flatten().flat_map(|root| packages(&root));
    let packages = packages.chain(env::split_paths(&named));
    packages.flat_map(|folder| bundled_in(&folder)).collect()
}

/// The folders of packages below the root of a Python environment.
fn packages(root: &Path) -> Vec<PathBuf> {
    let versions = entries(&root.join("lib"), |name| name.starts_with("python"));
    let versions = versions.into_iter();
    versions
        .flat_map(|version| PACKAGES.map(|it| version.join(it)))
        .collect()
}

/// Names of the libraries that the packages of a folder bundle.
fn bundled_in(packages: &Path) -> Vec<OsString> {
    let bundles = entries(packages, |name| name.ends_with(BUNDLE));
    let is_one = |name: &str| {
        let is_library = LIBRARIES.iter().any(|library| name.starts_with(library));
        is_library && name.contains(".so")
    };
    let files = bundles.iter().flat_map(|bundle| entries(bundle, is_one));
    files
        .filter_map(|file| file.file_name().map(OsStr::to_owned))
        .collect()
}

/// Entries of a folder by their names; none if it is not there.
fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_wanted = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(&wanted)
    };
    entries
        .map(|entry| entry.path())
        .filter(is_wanted)
        .collect()
}

#[cfg(test)]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    #[test]
    fn bundled_names_of_the_program_s_environment_are_found() {
        let folder = WorkDir::new("bundled");
        for file in [
            "bin/python3",
            "lib/python3.11/site-packages/nixl.libs/libibverbs-1de1263b.so.1.14.48.0",
            "lib/python3.11/site-packages/nixl.libs/libmlx5-79ef1d27.so.1.24.48.0",
            "lib/python3.11/site-packages/nixl.libs/libucp-1.so.0",
            "lib/python3.11/site-packages/nixl/libibverbs-0.so.1",
            "lib/other/site-packages/x.libs/libibverbs-0.so.1",
            "lib/python3/dist-packages/y.libs/librdmacm-2.so.1",
        ] {
            let file = folder.file(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
            fs::write(file, "").expect("our own folder");
        }
        let root: &Path = folder.as_ref();
        let found = packages(root)
            .iter()
            .flat_map(|it| bundled_in(it))
            .collect::<BTreeSet<_>>();
        let expected = [
            "libibverbs-1de1263b.so.1.14.48.0",
            "libmlx5-79ef1d27.so.1.24.48.0",
            "librdmacm-2.so.1",
        ];
        assert_eq!(found, BTreeSet::from(expected.map(OsString::from)));
        assert!(names(Some(&folder.file("bin/python3"))).is_superset(&found));
    }
}
