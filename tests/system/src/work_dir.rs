//! A directory for the files of one test.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory that goes with the value.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// An empty directory that everybody may look into, of this name and the process's number. What an earlier process of the same
    /// number left there goes first.
    pub fn new(name: &str) -> Self {
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
