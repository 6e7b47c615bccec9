//! A command that runs in a guest.

use std::fmt;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use xwarp_system_tests::TIMEOUT;

use crate::siw::guest::Guest;
use crate::siw::serial::SerialLine;

/// What a command's last line begins with; its exit status follows. See `serve` in guest/init.
const END: char = '\u{4}';

/// It is killed, with all its children, when the value goes.
pub struct Job<'a> {
    guest: &'a Guest<'a>,
    what: String,
    /// Until it has ended. Then the line is the next command's.
    line: Option<SerialLine>,
    group: String,
    heard: Vec<String>,
    status: Option<i32>,
}

impl Guest<'_> {
    /// Starts a shell command.
    pub fn start(&self, command: &str) -> Job<'_> {
        Job::start(self, self.take_line(), command)
    }

    /// Runs a shell command, with nothing to read.
    pub fn run(&self, command: &str) -> Ended {
        self.start(&format!("{{ {command}; }} </dev/null")).finish()
    }

    /// Gives servers of perftest time to listen for each connection: they let their client connect
    /// before they do, and siw does not retry a refused connection. The SYNs of this guest (by
    /// their flags in an IPv4 packet without options) are delayed, and what `others` match
    /// (`tc-u32(8)`).
    pub fn await_listeners(&self, others: &[&str]) {
        const SYN: &str = "u8 0x02 0x3f at 33";
        let tc = |setting: &str| {
            let _ = self.run(&format!("tc {setting}")).succeeded();
        };
        tc(
            "qdisc add dev eth0 root handle 1: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        );
        tc("qdisc add dev eth0 parent 1:2 netem delay 500ms");
        for packets in [&[SYN], others].concat() {
            tc(&format!(
                "filter add dev eth0 parent 1: protocol ip u32 match {packets} flowid 1:2"
            ));
        }
    }

    /// Sets a parameter of the siw driver (guest/siw-parameters.sed), for the connections that
    /// follow.
    pub fn set_siw(&self, parameter: &str, value: impl fmt::Display) {
        let command = format!("echo {value} >/sys/module/siw/parameters/{parameter}");
        let _ = self.run(&command).succeeded();
    }
}

impl<'a> Job<'a> {
    fn start(guest: &'a Guest<'a>, mut line: SerialLine, what: &str) -> Self {
        line.say(what);
        let group = line.hear(TIMEOUT).unwrap_or_else(|error| {
            panic!("{what} has not started: {error}\n{}", guest.console());
        });
        Self {
            guest,
            what: what.to_owned(),
            line: Some(line),
            group,
            heard: Vec::new(),
            status: None,
        }
    }

    /// Gives it a line to read.
    pub fn tell(&mut self, text: &str) {
        let Some(line) = &mut self.line else {
            panic!("it has ended: {self}");
        };
        line.say(text);
    }

    /// The next line that it prints, which must come within this time; `None` once it has ended.
    pub fn next_line(&mut self, within: Duration) -> Option<String> {
        match self.hear(within) {
            Ok(line) => line,
            Err(error) => panic!("nothing within {within:?} ({error}): {self}"),
        }
    }

    fn hear(&mut self, within: Duration) -> Result<Option<String>, RecvTimeoutError> {
        let Some(line) = &mut self.line else {
            return Ok(None);
        };
        let text = line.hear(within)?;
        let Some(status) = text.strip_prefix(END) else {
            self.heard.push(text.clone());
            return Ok(Some(text));
        };
        self.status = Some(status.parse().expect("an exit status"));
        // The line before the last is empty, so that the last is a line of its own.
        if self.heard.last().is_some_and(String::is_empty) {
            self.heard.pop();
        }
        self.guest.give_back(self.line.take().expect("just used"));
        Ok(None)
    }

    /// Waits until it has printed a line that begins like this, and returns the line.
    pub fn line(&mut self, beginning: &str) -> String {
        self.line_that(beginning, |line| line.starts_with(beginning))
    }

    /// Waits until it has printed a line with these words.
    pub fn line_with(&mut self, words: &str) {
        let _ = self.line_that(words, |line| line.contains(words));
    }

    fn line_that(&mut self, words: &str, fits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.next_line(left) {
                Some(line) if fits(&line) => return line,
                Some(_) => {}
                None => panic!("it ended without saying {words:?}: {self}"),
            }
        }
    }

    /// Waits for its end, and fails if that takes longer than `timeout` from now.
    pub fn finish_within(self, timeout: Duration) -> Ended {
        match self.try_finish_within(timeout) {
            Ok(ended) => ended,
            Err(job) => panic!("it has not ended within {timeout:?}: {job}"),
        }
    }

    /// Waits for its end. If that takes longer than `timeout` from now, the job comes back and runs
    /// on.
    pub fn try_finish_within(mut self, timeout: Duration) -> Result<Ended, Self> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.hear(deadline.saturating_duration_since(Instant::now())) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(RecvTimeoutError::Timeout) => return Err(self),
                Err(error) => panic!("the guest has gone ({error}): {self}"),
            }
        }
        Ok(Ended {
            what: self.what.clone(),
            status: self.status.expect("it has ended"),
            output: self.heard.join("\n"),
        })
    }

    /// Waits for its end.
    pub fn finish(self) -> Ended {
        self.finish_within(TIMEOUT)
    }
}

impl fmt::Display for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, heard) = (&self.what, self.heard.join("\n"));
        write!(f, "{what}\nprinted: {heard}\n{}", self.guest.console())
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if self.line.is_none() {
            return;
        }
        self.guest.kill(&self.group);
        let deadline = Instant::now() + TIMEOUT;
        // A guest that does not answer is killed, and its line is not needed.
        while let Ok(Some(_)) = self.hear(deadline.saturating_duration_since(Instant::now())) {}
    }
}

/// A command that has ended.
pub struct Ended {
    what: String,
    status: i32,
    /// All that it printed, to either output.
    pub output: String,
}

impl Ended {
    /// Fails unless it ended well.
    #[must_use = "the check is done when the value is passed on"]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.status, 0, "{self}");
        self
    }

    /// Its exit status; 128 and the signal's number if a signal ended it.
    pub fn status(&self) -> i32 {
        self.status
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, status, output) = (&self.what, self.status, &self.output);
        write!(f, "{what}: exit status {status}\nprinted: {output}")
    }
}
