//! Faults of region memory. An access to bytes that the application has unmapped, protected or
//! truncated returns an error. SIGSEGV or SIGBUS would end the process otherwise (decision record
//! driver/0018).
//!
//! A hardware RNIC pins the memory of a region. A software RNIC accesses it as the application
//! does: without this module, a peer's Write could end a process that has unmapped its buffer too
//! early.
//!
//! On x86-64 a signal handler recognises the instructions of `racy` by a table that the linker
//! collects. It passes the fault of any other instruction to the previous handler, or to the
//! default action. Other architectures have no handler.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod handler;

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

/// Environment variable that disables the handler if it is `off`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SWITCH: &std::ffi::CStr = c"XWARP_FAULTS";

/// Makes accesses to memory that is gone return an error from now on. Call it for each memory that
/// may vanish: if the program has installed its own handlers in the meantime, xwarp's are put in
/// front of them. Failures are logged.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn survive() {
    use std::sync::OnceLock;

    static WANTED: OnceLock<bool> = OnceLock::new();
    if !WANTED.get_or_init(|| !handler::is_set_to(SWITCH, c"off")) {
        return;
    }
    if let Err(error) = handler::install() {
        log::warn!("memory that is unmapped while registered will end the process: {error}");
    }
}

/// On this architecture a signal ends the process if the memory is gone.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn survive() {}

/// Makes the calling thread receive the signals of its own faults, and no others: those are for the
/// application's threads, whose system calls they interrupt. The kernel ends a process whose thread
/// faults while it blocks the signal.
///
/// # Errors
///
/// [`io::Error`]: the kernel refuses, which is not expected.
pub fn take_only_faults() -> io::Result<()> {
    let mut others = SigSet::all();
    others.remove(Signal::SIGSEGV);
    others.remove(Signal::SIGBUS);
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&others), None)?;
    Ok(())
}

#[cfg(all(test, not(miri)))]
mod tests;
