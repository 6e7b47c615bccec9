//! Folder of xwarp's libibverbs and librdmacm.

use std::env;
use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Environment variable with the folder.
const FOLDER: &str = "XWARP_LIB";
/// The library.
pub(super) const FILE: &str = "libxwarp-rdma.so.1";
/// The library, and one of the names under which programs load it.
const FILES: [&str; 2] = [FILE, "librdmacm.so.1"];

/// The folder that the environment names, or the first folder with the library among those where it
/// is built or installed.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().context("cannot find out where xwarp is")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let named = env::var_os(FOLDER).filter(|named| !named.is_empty());
    let found = find(named.map(PathBuf::from), beside)?;
    Ok(found.canonicalize()?)
}

/// Candidate folders, relative to the folder of the command. `tools/dropin` builds the library into
/// `target/dropin`. Packages install it in `lib`, which Debian and Fedora divide by architecture.
fn places(beside: &Path) -> Vec<PathBuf> {
    let multiarch = format!("../lib/{ARCH}-linux-gnu/xwarp");
    let places = [
        ".",
        "dropin",
        "../dropin",
        "../lib/xwarp",
        &multiarch,
        "../lib64/xwarp",
    ];
    places.map(|place| normal(&beside.join(place))).to_vec()
}

/// A path without `.` and `..`, for people to read. A command's own folder has no symbolic links.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

fn find(named: Option<PathBuf>, beside: &Path) -> anyhow::Result<PathBuf> {
    let has_it = |folder: &PathBuf| FILES.iter().all(|file| folder.join(file).exists());
    if let Some(named) = named {
        if has_it(&named) {
            return Ok(named);
        }
        bail!(
            "{FOLDER} names {}, which has no {} and {}: name the folder that `tools/dropin` prints",
            named.display(),
            FILES[0],
            FILES[1]
        );
    }
    let places = places(beside);
    if let Some(found) = places.iter().find(|folder| has_it(folder)) {
        return Ok(found.clone());
    }
    let looked: Vec<String> = places.iter().map(|it| it.display().to_string()).collect();
    bail!(
        "the library for unmodified programs is in none of {}: build it with `tools/dropin {}`, or name its folder by {FOLDER}",
        looked.join(", "),
        places[3].display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xwarp_test_kit::WorkDir;

    use super::*;

    /// Puts the library into a folder, and searches for it from PREFIX/bin.
    fn found_in(place: &str, named: Option<&str>) -> Result<PathBuf, String> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let files = WorkDir::new(&format!("xwarp-library-{number}"));
        let prefix: &Path = files.as_ref();
        fs::create_dir_all(prefix.join(place)).unwrap();
        fs::create_dir_all(prefix.join("bin")).unwrap();
        for file in FILES {
            fs::write(prefix.join(place).join(file), "").unwrap();
        }
        let named = named.map(|named| prefix.join(named));
        let found = find(named, &prefix.join("bin")).map_err(|error| error.to_string());
        let below = |found: PathBuf| found.strip_prefix(prefix).unwrap().to_owned();
        found.map(below)
    }

    #[test]
    fn library_is_found_where_it_is_built_and_installed() {
        let multiarch = format!("lib/{ARCH}-linux-gnu/xwarp");
        for place in ["dropin", "lib/xwarp", &multiarch, "lib64/xwarp", "bin"] {
            assert_eq!(found_in(place, None), Ok(place.into()), "{place}");
        }
        assert_eq!(found_in("mine", Some("mine")), Ok("mine".into()));
    }

    #[test]
    fn library_that_is_not_there_is_said_with_where_it_was_looked_for() {
        let nowhere = found_in("elsewhere", None).unwrap_err();
        for words in ["/lib/xwarp, ", "/dropin, ", "tools/dropin /", "XWARP_LIB"] {
            assert!(nowhere.contains(words), "{nowhere}");
        }
        let wrong = found_in("lib/xwarp", Some("empty")).unwrap_err();
        assert!(wrong.starts_with("XWARP_LIB names "), "{wrong}");
    }
}
