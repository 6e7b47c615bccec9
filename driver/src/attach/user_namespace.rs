//! User namespace of this process: outside of the initial one, no capability allows a process to
//! load an XDP program or to lock memory.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// Inode of the initial user namespace (`USER_NS_INIT_INO` of <linux/nsfs.h>); Linux has had this
/// number since 3.8.
const INITIAL: u64 = 0xEFFF_FFFD;

/// Error text for a process outside of the initial user namespace.
pub(crate) const NOT_INITIAL: &str = "an RNIC needs privileges in the initial user namespace, and this process is in another one, as in \
                                      a rootless container: run it as the host's root, or in a container that root has started";

/// Whether this process is in the initial user namespace. Without /proc, true is assumed.
pub fn in_initial_user_namespace() -> bool {
    fs::metadata("/proc/self/ns/user").map_or(true, |namespace| namespace.ino() == INITIAL)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::process::Command;

    use super::*;

    /// The inode of a process's user namespace that `unshare` starts with these options.
    fn inode(options: &[&str]) -> Option<u64> {
        let mut command = Command::new("unshare");
        command
            .args(options)
            .args(["stat", "-Lc", "%i", "/proc/self/ns/user"]);
        let answer = command
            .output()
            .ok()
            .filter(|answer| answer.status.success())?;
        String::from_utf8(answer.stdout).ok()?.trim().parse().ok()
    }

    #[test]
    fn namespace_of_the_machine_differs_from_one_that_was_made() {
        if !in_initial_user_namespace() {
            return; // these tests run in a container
        }
        assert_eq!(inode(&[]), Some(INITIAL));
        // If users may not create a user namespace, there is none to compare with.
        if let Some(other) = inode(&["--user", "--map-root-user"]) {
            assert_ne!(other, INITIAL);
        }
    }
}
