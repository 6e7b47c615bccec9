//! Processes of xwarp: a switch, and programs on its device.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use xwarp_test_kit::{WorkDir, eventually};

pub(super) const XWARP: &str = env!("CARGO_BIN_EXE_xwarp");

/// A process that is killed at the end of a test that fails.
pub(super) struct Running(Option<Child>);

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .stdin(Stdio::null());
        Self(Some(command.spawn().expect("a process")))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }

    /// Reads up to the line that begins so.
    pub(super) fn line(&mut self, beginning: &str) -> String {
        let stdout = self.child().stdout.take().expect("its output");
        let mut lines = BufReader::new(stdout).lines();
        let line = lines.find_map(|line| {
            let line = line.expect("text");
            line.starts_with(beginning).then_some(line)
        });
        // The process goes on writing.
        std::thread::spawn(move || lines.for_each(drop));
        line.unwrap_or_else(|| panic!("no line {beginning:?}"))
    }

    pub(super) fn id(&mut self) -> u32 {
        self.child().id()
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.child().id().cast_signed());
        kill(pid, signal).expect("it runs");
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child().try_wait().expect("our child").is_some()
    }

    pub(super) fn wait(mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child().try_wait().expect("our child");
            status.is_some()
        });
        self.0 = None;
        status.expect("it has ended")
    }

    pub(super) fn output(mut self) -> Output {
        eventually("the process ends", || self.has_ended());
        let child = self.0.take().expect("it runs");
        child.wait_with_output().expect("our child")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ended = child.kill();
            let _ended = child.wait();
        }
    }
}

/// A switch, and the folder of its socket.
pub(super) struct Local {
    pub(super) switch: Option<Running>,
    pub(super) socket: PathBuf,
    options: &'static str,
    _folder: WorkDir,
}

impl Local {
    pub(super) fn new(name: &str) -> Self {
        Self::with(name, "")
    }

    /// A switch with these options.
    pub(super) fn with(name: &str, options: &'static str) -> Self {
        let folder = WorkDir::new(&format!("xwarp-local-{name}"));
        let mut local = Self {
            switch: None,
            socket: folder.file("t0.sock"),
            options,
            _folder: folder,
        };
        local.begin();
        local
    }

    pub(super) fn begin(&mut self) {
        let mut command = Command::new(XWARP);
        command.args("serve --local t0 --address 127.0.0.1 --address ::1 --socket".split(' '));
        command.arg(&self.socket);
        let mut switch = Running::start(command.args(self.options.split_whitespace()));
        switch.line("programs find it by XWARP_SERVICE=");
        self.switch = Some(switch);
    }

    pub(super) fn switch(&mut self) -> &mut Running {
        self.switch.as_mut().expect("it runs")
    }

    pub(super) fn xwarp(&self, arguments: &str) -> Command {
        let mut command = Command::new(XWARP);
        command.args(arguments.split_whitespace());
        command.env("XWARP_SERVICE", &self.socket);
        command
    }

    /// Starts a server, and waits until it listens. Returns its port.
    pub(super) fn serve(&self, arguments: &str) -> (Running, String) {
        let mut server = Running::start(&mut self.xwarp(&format!("{arguments} --port 0")));
        let line = server.line("waiting for a client at ");
        let first = line
            .split([' ', ','])
            .find_map(|it| it.strip_prefix("127.0.0.1:"));
        (server, first.expect("its port").to_owned())
    }

    pub(super) fn client(&self, arguments: &str) -> Output {
        Running::start(&mut self.xwarp(arguments)).output()
    }
}

pub(super) fn succeeded(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {stdout}{stderr}",
        output.status
    );
    stdout
}
