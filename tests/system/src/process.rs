//! Processes that cannot outlive their test, and what they print.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::eventually_within;
use xwarp_test_kit::timeout;

/// A process of ours. It is killed, by its number, when the value goes or its time is over.
pub struct Running {
    what: String,
    child: Child,
    since: Instant,
    /// How long it may take for its next line, or its end.
    limit: Duration,
    stdout: Output,
    stderr: Output,
}

impl Running {
    /// Starts it, with nothing to read and both outputs kept.
    pub fn start(command: Command) -> Self {
        Self::start_reading(command, Stdio::null())
    }

    /// Starts it with this as its input, and both outputs kept.
    pub fn start_reading(command: Command, input: impl Into<Stdio>) -> Self {
        Self::launch(command, input.into(), Stdio::piped())
    }

    /// Starts it with this as its standard output, of which nothing is kept.
    pub fn start_printing_to(command: Command, output: impl Into<Stdio>) -> Self {
        Self::launch(command, Stdio::null(), output.into())
    }

    fn launch(mut command: Command, input: Stdio, output: Stdio) -> Self {
        let what = text_of(&command);
        command.stdin(input).stdout(output).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let stdout = Output::collect(child.stdout.take());
        let stderr = Output::collect(child.stderr.take());
        Self {
            what,
            child,
            since: Instant::now(),
            limit: timeout(),
            stdout,
            stderr,
        }
    }

    /// Gives it this long for its next line or its end, instead of [`timeout`].
    #[must_use]
    pub fn limited_to(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        // The child is not reaped before the value goes, so that the number is still its own.
        let number = i32::try_from(self.child.id()).expect("process numbers fit");
        signal::kill(Pid::from_raw(number), signal)
            .unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.what));
    }

    /// Whether it holds back a signal by now, to take it by a thread of its own.
    pub fn holds_back(&self, signal: Signal) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        blocks(&status.expect("our own child"), signal)
    }

    /// The names of its threads, with whether each holds back a signal.
    pub fn threads_holding_back(&self, signal: Signal) -> Vec<(String, bool)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = tasks.expect("our own child").filter_map(|thread| {
            let folder = thread.expect("a thread").path();
            // A thread that has ended meanwhile has neither.
            let name = std::fs::read_to_string(folder.join("comm")).ok()?;
            let status = std::fs::read_to_string(folder.join("status")).ok()?;
            Some((name.trim().to_owned(), blocks(&status, signal)))
        });
        threads.collect()
    }

    /// Lets it open no further file: its limit is the lowest number that none has.
    pub fn limit_files(&self) {
        let pid = self.child.id();
        let is_open = |number: &u32| Path::new(&format!("/proc/{pid}/fd/{number}")).is_symlink();
        let free = (0..u32::MAX).find(|number| !is_open(number));
        let limit = format!("--nofile={}", free.expect("a number"));
        let limited = Command::new("prlimit")
            .args(["--pid", &pid.to_string(), &limit])
            .status();
        assert!(limited.is_ok_and(|it| it.success()), "prlimit {limit}");
    }

    /// The kernel's functions in which its threads sleep. A thread of its own opens the RNIC.
    pub fn waits_in(&self) -> String {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.expect("our own child").flatten();
        // A thread that has ended meanwhile sleeps nowhere.
        let functions =
            threads.filter_map(|it| std::fs::read_to_string(it.path().join("wchan")).ok());
        functions.collect::<Vec<_>>().join(" ")
    }

    /// What it has complained of so far.
    pub fn complained(&self) -> String {
        self.stderr.text().clone()
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        self.stdout.text().clone()
    }

    /// What all its threads have had of a processor so far.
    pub fn processor_time(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.child.id());
        let threads = std::fs::read_dir(tasks).expect("our own child");
        let nanoseconds = threads.map(|thread| {
            let file = thread.expect("a thread").path().join("schedstat");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let first = text.split_whitespace().next().map(str::parse::<u64>);
            first.map_or(0, |time| time.expect("a number"))
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    /// Waits until it has printed a line that begins like this, and returns the line. Fails if it
    /// ends before.
    pub fn line(&mut self, beginning: &str) -> String {
        let mut ended = None;
        let printed = eventually_within(self.limit, || {
            // Asked first: what a process printed before its end must be looked at after it.
            ended = self.child.try_wait().expect("our own child");
            if ended.is_some() {
                self.stdout.finish();
            }
            self.find(beginning).is_some() || ended.is_some()
        });
        self.find(beginning).unwrap_or_else(|| {
            let how = if printed {
                "it ended"
            } else {
                "its time is over"
            };
            panic!(
                "{} has not said {beginning:?}, and {how}\n{}",
                self.what,
                self.outputs()
            );
        })
    }

    fn find(&self, beginning: &str) -> Option<String> {
        let text = self.stdout.text();
        text.lines()
            .find(|line| line.starts_with(beginning))
            .map(str::to_owned)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// Fails if it has ended.
    pub fn still_runs(&mut self) {
        let ended = self.child.try_wait().expect("our own child");
        assert!(
            ended.is_none(),
            "{} has ended\n{}",
            self.what,
            self.outputs()
        );
    }

    /// Waits for its end, and fails if that takes longer than `timeout` from now.
    pub fn finish_within(mut self, timeout: Duration) -> Finished {
        let mut ended = None;
        eventually_within(timeout, || {
            ended = self.child.try_wait().expect("our own child");
            ended.is_some()
        });
        let Some(status) = ended else {
            panic!(
                "{} has not ended within {timeout:?}\n{}",
                self.what,
                self.outputs()
            );
        };
        let took = self.since.elapsed();
        self.stdout.finish();
        self.stderr.finish();
        Finished {
            what: self.what.clone(),
            status,
            took,
            stdout: self.stdout.text().clone(),
            stderr: self.stderr.text().clone(),
        }
    }

    /// Waits for its end.
    pub fn finish(self) -> Finished {
        let limit = self.limit;
        self.finish_within(limit)
    }

    fn outputs(&self) -> String {
        format!(
            "stdout: {}\nstderr: {}",
            *self.stdout.text(),
            *self.stderr.text()
        )
    }
}

/// Whether a thread of this status blocks a signal.
fn blocks(status: &str, signal: Signal) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .map(|mask| u64::from_str_radix(mask.trim(), 16).expect("hexadecimal"));
    let bit = 1 << (signal as i32 - 1);
    mask.expect("a mask of signals") & bit != 0
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither fails on a child that has been waited for: std remembers that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that has ended.
pub struct Finished {
    what: String,
    status: ExitStatus,
    /// From start to end.
    pub took: Duration,
    /// All that it printed.
    pub stdout: String,
    /// All that it complained of.
    pub stderr: String,
}

impl Finished {
    /// Whether it ended well.
    pub fn succeeds(&self) -> bool {
        self.status.success()
    }

    /// Fails unless it ended well.
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// Fails unless it ended with this code.
    pub fn exited(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Fails unless it refused as `xwarp` does: exit code 1, and exactly one line on stderr, with
    /// all of `parts` in this order. Returns the line.
    pub fn refused(self, parts: &[&str]) -> String {
        self.exited(1).one_line(parts)
    }

    /// Fails unless it ended in order because of a signal, with the exit code that shells show for
    /// that. The only line on stderr says so at its end.
    pub fn interrupted_by(self, signal: Signal) {
        let line = self.exited(128 + signal as i32).one_line(&["interrupted"]);
        assert!(line.ends_with("interrupted"), "{line}");
    }

    /// The only line on stderr, which is `xwarp`'s and has all of `parts` in this order.
    fn one_line(self, parts: &[&str]) -> String {
        let lines = self.stderr.lines().count();
        assert_eq!(lines, 1, "one line is wanted: {self}");
        assert!(self.stderr.starts_with("xwarp: "), "{self}");
        let mut rest = self.stderr.as_str();
        for part in parts {
            let at = rest
                .find(part)
                .unwrap_or_else(|| panic!("{part:?} is not in it: {self}"));
            rest = &rest[at + part.len()..];
        }
        self.stderr.trim_end().to_owned()
    }

    /// Fails unless a signal that it does not handle ended it.
    pub fn killed_by(self, signal: Signal) {
        assert_eq!(self.status.signal(), Some(signal as i32), "{self}");
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, status) = (&self.what, self.status);
        write!(
            f,
            "{what}: {status}\nstdout: {}\nstderr: {}",
            self.stdout, self.stderr
        )
    }
}

/// What a command prints, which must end well.
pub fn output_of(command: Command) -> String {
    Running::start(command).finish().succeeded().stdout
}

fn text_of(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// One output of a process, read as it comes by a thread of its own.
struct Output {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn collect(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = pipe.map(|pipe| thread::spawn(move || copy_lines(pipe, &into)));
        Self { text, reader }
    }

    fn text(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all of it is here. Only for a process that has ended, and that has no children.
    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading a pipe");
        }
    }
}

fn copy_lines(pipe: impl Read, into: &Mutex<String>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
}
