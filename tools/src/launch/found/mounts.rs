//! Folders of the kernel with other entries, which only this process and its children see.

use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, getegid, geteuid};

/// Whether a user without the right to mount gets it in a namespace of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::launch) enum Namespace {
    /// No: the program needs rights to the network, which such a namespace takes away.
    OfMounts,
    /// Yes.
    OfUsers,
}

impl Namespace {
    /// Enters it. This process must have one thread.
    pub(in crate::launch) fn enter(self) -> io::Result<()> {
        match unshare(CloneFlags::CLONE_NEWNS) {
            Err(Errno::EPERM) if self == Self::OfUsers => enter_as_user(),
            entered => Ok(entered?),
        }
    }
}

/// Enters a namespace of users in which the user has the same number.
fn enter_as_user() -> io::Result<()> {
    /// Where `AppArmor` takes all rights in such a namespace away, which cannot be left again.
    const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    if fs::read_to_string(RESTRICTED).is_ok_and(|it| it.trim() != "0") {
        return Err(Errno::EPERM.into());
    }
    let (user, group): (Uid, Gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// A folder in memory on top of a folder of the kernel, with the entries of that. It goes again
/// unless it is to stay.
pub(super) struct Cover {
    folder: PathBuf,
    stays: bool,
}

impl Cover {
    /// Covers a folder. Its entries are there but for those with these names.
    pub(super) fn over(folder: &str, without: &[&str]) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let original = open(folder, flags, Mode::empty())?;
        keep_to_ourselves(Path::new(folder))?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        mount(
            Some("xwarp"),
            folder,
            Some("tmpfs"),
            flags,
            Some("mode=0755"),
        )?;
        let cover = Self {
            folder: folder.into(),
            stays: false,
        };
        for entry in fs::read_dir(path_of(&original))? {
            let entry = entry?;
            if !without.iter().any(|name| entry.file_name() == *name) {
                cover.show(&entry)?;
            }
        }
        Ok(cover)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder stays until the last process that sees it has ended.
    pub(super) fn stay(mut self) {
        self.stays = true;
    }

    /// Shows an entry of the folder beneath.
    fn show(&self, entry: &DirEntry) -> io::Result<()> {
        let (from, to) = (entry.path(), self.folder.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            return symlink(fs::read_link(from)?, to);
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            File::create(&to)?;
        }
        bind(&from, &to)
    }

    /// Makes a character device that nothing can be done with.
    pub(super) fn null_device(file: &Path) -> io::Result<()> {
        File::create(file)?;
        bind(Path::new("/dev/null"), file)
    }
}

impl Drop for Cover {
    fn drop(&mut self) {
        if !self.stays
            && let Err(errno) = umount2(&self.folder, MntFlags::MNT_DETACH)
        {
            log::debug!("{} stays covered: {errno}", self.folder.display());
        }
    }
}

/// Has what is mounted on this folder stay in this namespace: its mount, which may be that of a
/// folder above, becomes private.
fn keep_to_ourselves(folder: &Path) -> io::Result<()> {
    for part in folder.ancestors() {
        match mount(
            None::<&str>,
            part,
            None::<&str>,
            MsFlags::MS_PRIVATE,
            None::<&str>,
        ) {
            // Nothing is mounted here.
            Err(Errno::EINVAL) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::EINVAL.into())
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from), to, None::<&str>, flags, None::<&str>)?)
}

/// A path that leads to an open folder, even if another one covers it.
fn path_of(folder: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", folder.as_raw_fd())
}
