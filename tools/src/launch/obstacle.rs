//! Obstacles: programs that do not load xwarp's library even though `LD_LIBRARY_PATH` names its
//! folder (ld.so(8)).

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{getgid, getuid};

use super::elf::{Elf, Linked};
use super::found_in_path;

/// Bits of a file's mode: set-user-ID, set-group-ID, execution by the group.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;
/// Extended attribute with a file's capabilities (capabilities(7)).
const CAPABILITIES: &str = "security.capability";
/// Libraries that programs load.
const WANTED: [&str; 2] = ["libibverbs.so.1", "librdmacm.so.1"];
/// Maximum depth of interpreters of interpreters, as in the kernel.
const DEPTH: usize = 4;

/// Why a program will not load the library.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its file has capabilities.
    Capabilities(PathBuf),
    /// Its file has a set-user-ID or set-group-ID bit.
    SetId(PathBuf),
    /// Its `DT_RPATH`, which precedes `LD_LIBRARY_PATH`, has a library of that name.
    Rpath(PathBuf, PathBuf),
    /// It is statically linked.
    Static(PathBuf),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capabilities(file) => write!(
                f,
                "{} will not use xwarp: its file has capabilities, for which the loader ignores LD_LIBRARY_PATH; run it as root, or run a copy, which has none",
                file.display()
            ),
            Self::SetId(file) => write!(
                f,
                "{} will not use xwarp: its file has a set-user-ID or set-group-ID bit, for which the loader ignores LD_LIBRARY_PATH; run it as its owner, or run a copy, which has none",
                file.display()
            ),
            Self::Rpath(file, library) => write!(
                f,
                "{} will not use xwarp: its DT_RPATH leads to {}, which the loader takes first; remove that with `patchelf --remove-rpath`",
                file.display(),
                library.display()
            ),
            Self::Static(file) => write!(
                f,
                "{} itself will not use xwarp: it is linked statically, so no loader gives it a library; link it to libibverbs.so.1",
                file.display()
            ),
        }
    }
}

/// The obstacle for a program that this process executes. `None` also if the file cannot be read.
pub(super) fn of(program: &Path) -> Option<Obstacle> {
    let file = executed(program.to_owned(), DEPTH)?;
    if let Some(elevated) = elevated(&file) {
        return Some(elevated);
    }
    match Elf::read(&file)?.linked()? {
        Linked::Statically => Some(Obstacle::Static(file)),
        Linked::Dynamically { rpath } => {
            let folders = rpath.iter().map(|folder| expanded(folder, &file));
            let mut libraries = folders.flat_map(|folder| WANTED.map(|name| folder.join(name)));
            let taken = libraries.find(|library| library.exists())?;
            Some(Obstacle::Rpath(file, taken))
        }
    }
}

/// The file that the kernel executes: the interpreter of a script, and the program that `env`
/// searches for.
fn executed(file: PathBuf, depth: usize) -> Option<PathBuf> {
    let mut start = [0; 256];
    let read = File::open(&file).ok()?.read_at(&mut start, 0).ok()?;
    let Some(line) = start.get(..read)?.strip_prefix(b"#!") else {
        return Some(file);
    };
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let interpreter = PathBuf::from(words.next()?);
    let named = match words.next() {
        Some(name) if interpreter.ends_with("env") => found_in_path(name.as_ref())?,
        _ => interpreter,
    };
    executed(named, depth.checked_sub(1)?)
}

/// The obstacle if the file would run with other rights than this process has (`AT_SECURE` of
/// getauxval(3)).
fn elevated(file: &Path) -> Option<Obstacle> {
    let metadata = file.metadata().ok()?;
    if statvfs(file).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOSUID)) {
        return None;
    }
    let mode = metadata.mode();
    let path = file.to_owned();
    let other_user = mode & SET_USER != 0 && metadata.uid() != getuid().as_raw();
    let group_counts = mode & SET_GROUP != 0 && mode & GROUP_EXECUTES != 0;
    let other_group = group_counts && metadata.gid() != getgid().as_raw();
    if (other_user || other_group) && !has_no_new_privileges() {
        return Some(Obstacle::SetId(path));
    }
    // Root has all capabilities anyway.
    let has = !getuid().is_root() && has_capabilities(file);
    has.then_some(Obstacle::Capabilities(path))
}

fn has_capabilities(file: &Path) -> bool {
    // The attribute has at most 24 bytes. With an empty buffer, `getxattr` returns 0.
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(file, CAPABILITIES, &mut value).is_ok_and(|bytes| bytes > 0)
}

/// True if this process ignores set-user-ID bits (`PR_SET_NO_NEW_PRIVS`).
fn has_no_new_privileges() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line == "NoNewPrivs:\t1")
}

/// A folder of `DT_RPATH`. `$ORIGIN` is the file's folder.
fn expanded(folder: &str, file: &Path) -> PathBuf {
    let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let named = folder.replace("${ORIGIN}", &origin);
    PathBuf::from(named.replace("$ORIGIN", &origin))
}
