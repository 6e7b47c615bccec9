//! Libraries that Python wheels bundle under names of their own, as `libibverbs-1de1263b.so.1`: a
//! program that needs such a name does not ask for `libibverbs.so.1`.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What bundled names begin with: libraries whose place xwarp's library takes.
const LIBRARIES: [&str; 4] = ["libefa-", "libibverbs-", "libmlx5-", "librdmacm-"];
/// Folders of packages in a folder of a Python version.
const PACKAGES: [&str; 2] = ["dist-packages", "site-packages"];
/// Wheels put bundled libraries into a folder with this end.
const BUNDLE: &str = ".libs";
/// In such a folder, the folder of UCX's modules, and what the name of the one for verbs begins
/// with.
const UCX_MODULES: &str = "ucx";
const UCX_MODULE: &str = "libuct_ib.";

/// Folders of libraries that a program's packages bundle.
pub(super) struct Bundles {
    folders: Vec<PathBuf>,
    /// The program is Python, or a script for it.
    is_python: bool,
}

impl Bundles {
    /// Those of a program's packages. Its packages are those of the Python environment that its
    /// file is in, of the user and of the host, and those that the environment variables name.
    pub(super) fn of(program: Option<&Path>) -> Self {
        let packages = packages_of(program);
        Self {
            folders: packages.iter().flat_map(|it| bundles_in(it)).collect(),
            is_python: program.is_some_and(is_python),
        }
    }

    /// Names of libraries whose place xwarp's library takes.
    pub(super) fn names(&self) -> BTreeSet<OsString> {
        let is_one = |name: &str| {
            let is_library = LIBRARIES.iter().any(|library| name.starts_with(library));
            is_library && name.contains(".so")
        };
        let files = self.folders.iter();
        let files = files.flat_map(|bundle| entries(bundle, is_one));
        files
            .filter_map(|file| file.file_name().map(OsStr::to_owned))
            .collect()
    }

    /// Whether the program is one of Python, and finds UCX with its module for verbs.
    pub(super) fn have_ucx(&self) -> bool {
        let is_module = |name: &str| name.starts_with(UCX_MODULE) && name.contains(".so");
        let mut folders = self.folders.iter().map(|bundle| bundle.join(UCX_MODULES));
        self.is_python && folders.any(|folder| !entries(&folder, is_module).is_empty())
    }
}

/// Whether a file is an interpreter of Python, or a script that begins by naming one.
fn is_python(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str);
    if name.is_some_and(|it| it.starts_with("python")) {
        return true;
    }
    let mut begin = [0; 128];
    let read = File::open(program).and_then(|mut file| file.read(&mut begin));
    let begin = String::from_utf8_lossy(begin.get(..read.unwrap_or(0)).unwrap_or_default());
    let first = begin.lines().next().unwrap_or_default();
    first.starts_with("#!") && first.contains("python")
}

fn packages_of(program: Option<&Path>) -> Vec<PathBuf> {
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
    packages.chain(env::split_paths(&named)).collect()
}

/// The folders of packages below the root of a Python environment.
fn packages(root: &Path) -> Vec<PathBuf> {
    let versions = entries(&root.join("lib"), |name| name.starts_with("python"));
    let versions = versions.into_iter();
    versions
        .flat_map(|version| PACKAGES.map(|it| version.join(it)))
        .collect()
}

/// Folders of bundled libraries in a folder of packages.
fn bundles_in(packages: &Path) -> Vec<PathBuf> {
    entries(packages, |name| name.ends_with(BUNDLE))
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
        let packages = packages(root);
        let bundles = || Bundles {
            folders: packages.iter().flat_map(|it| bundles_in(it)).collect(),
            is_python: true,
        };
        let found = bundles().names();
        let expected = [
            "libibverbs-1de1263b.so.1.14.48.0",
            "libmlx5-79ef1d27.so.1.24.48.0",
            "librdmacm-2.so.1",
        ];
        assert_eq!(found, BTreeSet::from(expected.map(OsString::from)));
        let program = folder.file("bin/python3");
        let of_program = Bundles::of(Some(&program));
        assert!(of_program.names().is_superset(&found));
        assert!(!bundles().have_ucx());
        let module = "lib/python3.11/site-packages/nixl.libs/ucx/libuct_ib.so.0.0.0";
        let module = folder.file(module);
        fs::create_dir_all(module.parent().expect("a folder")).expect("our own folder");
        fs::write(module, "").expect("our own folder");
        assert!(bundles().have_ucx() && Bundles::of(Some(&program)).have_ucx());
        for (text, is_script) in [
            ("#!/usr/bin/env python3\nimport nixl\n", true),
            ("#!/bin/sh\npython3 nixl.py\n", false),
            ("", false),
        ] {
            let script = folder.file("bin/serve");
            fs::write(&script, text).expect("our own folder");
            assert_eq!(Bundles::of(Some(&script)).have_ucx(), is_script, "{text}");
        }
    }
}
