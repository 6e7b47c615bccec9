//! Standard output and standard error: only this module prints, as either may be closed or full.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;

/// Exit code of a run that failed. Wrong arguments give 2.
const FAILURE: u8 = 1;
/// What a shell shows for a process that a signal has ended: this and the signal's number.
const SIGNALLED: u8 = 128;

/// Why nothing can be printed any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// Whoever read it has closed the pipe.
    #[error("standard output is closed")]
    Closed,
    /// A full disk, as a rule.
    #[error("cannot write to standard output: {0}; make room there, or send it elsewhere")]
    Failed(io::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Prints a line.
pub(crate) fn write_line(line: fmt::Arguments<'_>) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Prints a line to standard output, as `println!` does; the result says whether it could.
macro_rules! print_line {
    ($($words:tt)*) => { $crate::output::write_line(format_args!($($words)*)) };
}
pub(crate) use print_line;

/// Tells the user why a run failed. Without anybody who reads that there is nobody to tell.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "xwarp: {line}");
}

/// Prints what clap has to say: help and version to standard output, complaints to standard error.
pub(crate) fn print_usage(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| io::stdout().flush());
    if said.use_stderr() {
        return u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let printed = printed.map_err(|error| OutputError::from(error).into());
    exit_code(printed.map(|()| ExitCode::SUCCESS))
}

/// What the process ends with, once nothing is left to be undone. It says why it failed, unless nobody listens. With standard output closed
/// it dies of SIGPIPE, as other programs do that do not ignore the signal.
pub(crate) fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match outcome {
        Ok(code) => return code,
        Err(error) => error,
    };
    if matches!(error.downcast_ref(), Some(OutputError::Closed)) {
        // It returns only if the signal is blocked.
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
        return ExitCode::from(SIGNALLED + u8::try_from(SIGPIPE).unwrap_or_default());
    }
    complain(format_args!("{}", sentence(&error)));
    ExitCode::from(FAILURE)
}

/// Ends the process at once, from any thread, as [`exit_code`] would. Allocates nothing: while another thread registers memory, that
/// would wait for it.
pub(crate) fn end_at_once(why: &str) -> ! {
    complain(format_args!("{why}"));
    signal_hook::low_level::exit(FAILURE.into())
}

/// An error with its causes, and what to do where only the kernel's words for it are known.
fn sentence(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    if text.contains("Too many open files") && !text.contains("ulimit -n") {
        return format!("{text}; raise the limit of open files (`ulimit -n`)");
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn too_few_descriptors_are_named_with_their_limit() {
        let kernel = io::Error::from_raw_os_error(24);
        let said = sentence(&Err::<(), _>(kernel).context("no socket").unwrap_err());
        assert_eq!(
            said,
            "no socket: Too many open files (os error 24); raise the limit of open files (`ulimit -n`)"
        );
        let known = anyhow!("Too many open files; raise `ulimit -n`");
        assert_eq!(sentence(&known), known.to_string(), "said once");
    }

    #[test]
    fn closed_pipe_is_told_from_a_full_disk() {
        let of = |errno| OutputError::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(32), OutputError::Closed)); // EPIPE
        assert!(matches!(of(28), OutputError::Failed(_))); // ENOSPC
    }
}
