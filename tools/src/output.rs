//! Standard output and standard error: only this module prints, as either may be closed or full.
//!
//! Exit code 1 means a failure, an interruption, or output that could not be written; 2 means wrong
//! arguments. A closed pipe ends the process by SIGPIPE. An output error unwinds as any other error
//! does.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;

use crate::interruption::Interruption;

/// Exit code of a run that failed. Wrong arguments give 2.
const FAILURE: u8 = 1;

/// Why output failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The reader has closed the pipe.
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

/// A failure with its own exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct FailedWith {
    pub(crate) code: u8,
    /// One sentence.
    pub(crate) text: String,
}

/// Prints a line.
pub(crate) fn write_line(line: fmt::Arguments<'_>) -> Result<(), OutputError> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Prints a line to standard output, as `println!` does. The result says whether that succeeded.
macro_rules! print_line {
    ($($words:tt)*) => { $crate::output::write_line(format_args!($($words)*)) };
}
pub(crate) use print_line;

/// Formats a log line: a sentence, like every other line on standard error. Debug lines also name
/// their place in the source.
pub(crate) fn log_line(record: &log::Record<'_>) -> String {
    let text = record.args();
    if record.level() <= log::Level::Warn {
        format!("xwarp: {text}")
    } else {
        let level = record.level().as_str().to_ascii_lowercase();
        format!("xwarp: {level}: {}: {text}", record.target())
    }
}

/// Prints why a run failed. If standard error is closed, the message is lost.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "xwarp: {line}");
}

/// Prints clap's output: help and version to standard output, errors to standard error.
pub(crate) fn print_usage(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| io::stdout().flush());
    if said.use_stderr() {
        return u8::try_from(said.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let printed = printed.map_err(|error| OutputError::from(error).into());
    exit_code(printed.map(|()| ExitCode::SUCCESS))
}

/// Exit code of the process, after all cleanup. Prints why the run failed. If standard output is
/// closed, the process dies of SIGPIPE, as do other programs that do not ignore the signal.
pub(crate) fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match outcome {
        Ok(code) => return code,
        Err(error) => error,
    };
    if matches!(error.downcast_ref(), Some(OutputError::Closed)) {
        // It returns only if the signal is blocked.
        let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
        return ExitCode::from(Interruption { signal: SIGPIPE }.exit_code());
    }
    complain(format_args!("{}", sentence(&error)));
    ExitCode::from(code_of(&error))
}

fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(failed) = error.downcast_ref::<FailedWith>() {
        return failed.code;
    }
    let interruption = error.downcast_ref::<Interruption>();
    interruption.map_or(FAILURE, |interruption| interruption.exit_code())
}

/// Ends the process at once, from any thread, as [`exit_code`] would. Allocates no memory: that
/// would wait while another thread registers memory.
pub(crate) fn end_at_once(why: Interruption) -> ! {
    complain(format_args!("{why}"));
    signal_hook::low_level::exit(why.exit_code().into())
}

/// An error with its causes, and the remedy for errors that only the kernel names.
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
    fn exit_code_is_that_of_the_failure() {
        let interrupted = Interruption { signal: 2 };
        let of = |error: anyhow::Error| code_of(&error.context("ping 3 failed"));
        assert_eq!(of(interrupted.into()), 130);
        let text = "no program".to_owned();
        assert_eq!(of(FailedWith { code: 127, text }.into()), 127);
        assert_eq!(of(anyhow!("another")), 1);
    }

    #[test]
    fn warning_is_a_sentence() {
        let line = |level| {
            let mut record = log::Record::builder();
            record.level(level).target("xwarp_tcp::device");
            log_line(&record.args(format_args!("a frame was dropped")).build())
        };
        assert_eq!(line(log::Level::Warn), "xwarp: a frame was dropped");
        let debug = "xwarp: debug: xwarp_tcp::device: a frame was dropped";
        assert_eq!(line(log::Level::Debug), debug);
    }

    #[test]
    fn closed_pipe_differs_from_a_full_disk() {
        let of = |errno| OutputError::from(io::Error::from_raw_os_error(errno));
        assert!(matches!(of(32), OutputError::Closed)); // EPIPE
        assert!(matches!(of(28), OutputError::Failed(_))); // ENOSPC
    }
}
