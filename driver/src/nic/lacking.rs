//! Limits of the host, for messages that name the limit which was hit.

use std::io;

use nix::errno::Errno;

/// The missing resource of an error, and the limit that can be raised, to be appended to a message.
/// Empty for any other error.
pub fn lacking(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => {
            ", as no thread is left: raise the limit of threads (`ulimit -u`, or pids.max of the control group)"
        }
        Some(Errno::EMFILE) => {
            ", as no file descriptor is left: raise the limit of open files (`ulimit -n`)"
        }
        Some(Errno::ENFILE) => {
            ", as the host has no file descriptor left: raise fs.file-max, or end what has many files open"
        }
        Some(Errno::ENOMEM) => {
            ", as no memory is left: free some, or raise a limit (`ulimit -v`, or that of the control group)"
        }
        _ => "",
    }
}
