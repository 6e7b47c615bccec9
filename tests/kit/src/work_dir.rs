//! A directory for the files of one test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory that goes with the value.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// An empty directory that everybody may look into, of this name and the process's number. What
    /// killed processes left goes first.
    pub fn new(name: &str) -> Self {
        remove_leftovers(&format!("{name}-"));
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        // There is none, as a rule.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory for temporary files");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own directory");
        Self(path)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl AsRef<Path> for WorkDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // At worst it stays until the machine restarts.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directories of processes that are no more.
fn remove_leftovers(beginning: &str) {
    let all = fs::read_dir(std::env::temp_dir()).expect("a directory for temporary files");
    for entry in all.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(beginning));
        let number = owner.and_then(|owner| owner.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            // Another test may do the same.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
