//! The end of another process, as a descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;

/// A descriptor that is readable when the process has ended, for any reason (Linux 5.3). A program
/// that it executes is the same process.
///
/// # Errors
///
/// [`io::Error`]: there is no such process, or no file descriptor is left.
pub fn process_end(process: u32) -> io::Result<OwnedFd> {
    let process = libc::pid_t::try_from(process).map_err(io::Error::other)?;
    // SAFETY: the call has no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let fd = RawFd::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given us this descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::{is_any_readable, sleep_on};

    #[test]
    #[cfg_attr(miri, ignore = "needs processes")]
    fn end_of_a_process_is_seen_and_a_running_one_is_waited_for() {
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let end = process_end(child.id()).unwrap();
        assert!(!is_any_readable(&[end.as_fd()]).unwrap());
        child.kill().unwrap();
        assert!(sleep_on([], &[end.as_fd()], Some(Duration::from_secs(5))).unwrap());
        child.wait().unwrap();
        let gone = process_end(child.id()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
