//! RDMA between processes of one host by a software switch: as any user, without root, network
//! interface or kernel module. No packet leaves the host, or reaches its network at all.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use xwarp_test_kit::{WorkDir, eventually, timeout};

const XWARP: &str = env!("CARGO_BIN_EXE_xwarp");

/// A process that is killed at the end of a test that fails.
struct Running(Option<Child>);

impl Running {
    fn start(command: &mut Command) -> Self {
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
    fn line(&mut self, beginning: &str) -> String {
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

    fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_raw(self.child().id().cast_signed());
        kill(pid, signal).expect("it runs");
    }

    fn wait(mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", || {
            status = self.child().try_wait().expect("our child");
            status.is_some()
        });
        self.0 = None;
        status.expect("it has ended")
    }

    fn output(mut self) -> Output {
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
struct Local {
    switch: Option<Running>,
    socket: PathBuf,
    _folder: WorkDir,
}

impl Local {
    fn new(name: &str) -> Self {
        let folder = WorkDir::new(&format!("xwarp-local-{name}"));
        let mut local = Self {
            switch: None,
            socket: folder.file("t0.sock"),
            _folder: folder,
        };
        local.begin();
        local
    }

    fn begin(&mut self) {
        let mut command = Command::new(XWARP);
        command.args("serve --local t0 --address 127.0.0.1 --address ::1 --socket".split(' '));
        let mut switch = Running::start(command.arg(&self.socket));
        switch.line("programs find it by XWARP_SERVICE=");
        self.switch = Some(switch);
    }

    fn switch(&mut self) -> &mut Running {
        self.switch.as_mut().expect("it runs")
    }

    fn xwarp(&self, arguments: &str) -> Command {
        let mut command = Command::new(XWARP);
        command.args(arguments.split_whitespace());
        command.env("XWARP_SERVICE", &self.socket);
        command
    }

    /// Starts a server, and waits until it listens. Returns its port.
    fn serve(&self, arguments: &str) -> (Running, String) {
        let mut server = Running::start(&mut self.xwarp(&format!("{arguments} --port 0")));
        let line = server.line("waiting for a client at ");
        let first = line
            .split([' ', ','])
            .find_map(|it| it.strip_prefix("127.0.0.1:"));
        (server, first.expect("its port").to_owned())
    }

    fn client(&self, arguments: &str) -> Output {
        Running::start(&mut self.xwarp(arguments)).output()
    }
}

fn succeeded(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {stdout}{stderr}",
        output.status
    );
    stdout
}

#[test]
fn ping_and_perf_verify_data_between_processes() {
    let local = Local::new("ping");
    let (server, port) = local.serve("ping");
    let said = succeeded(&local.client(&format!("ping 127.0.0.1:{port} --count 20")));
    assert!(said.contains("20 pings, all verified"), "{said}");
    assert!(server.wait().success());
    for test in ["write-bw", "read-bw", "send-bw"] {
        let (server, port) = local.serve(&format!("perf {test}"));
        let client = format!("perf {test} --verify --size 64K --iterations 200 127.0.0.1:{port}");
        let said = succeeded(&local.client(&client));
        assert!(said.contains("verified"), "{said}");
        assert!(server.wait().success());
    }
}

/// What a process has printed to standard error: one sentence, and why it failed.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty());
    said
}

/// A command with the socket as an option, and without the environment.
fn named(local: &Local, arguments: &str) -> Command {
    let mut command = Command::new(XWARP);
    command.env_remove("XWARP_SERVICE");
    command.args(arguments.split_whitespace());
    command.arg("--service").arg(&local.socket);
    command
}

#[test]
fn switch_is_named_by_an_option_and_shown_as_the_device() {
    let local = Local::new("option");
    let device = format!("t0  by the switch at {}  MTU 65535", local.socket.display());
    let (server, port) = local.serve("ping --dev t0");
    let client = format!("ping --dev t0 127.0.0.1:{port}");
    let said = succeeded(&Running::start(&mut named(&local, &client)).output());
    let first = format!("ping 127.0.0.1:{port}  64 B  {device}");
    assert_eq!(said.lines().next(), Some(&first[..]));
    assert!(server.wait().success());
    let (server, port) = local.serve("perf write-lat");
    let client = format!("perf write-lat --json --iterations 10 127.0.0.1:{port}");
    let said = succeeded(&Running::start(&mut named(&local, &client)).output());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let switch = json!({ "device": "t0", "mtu": 65_535, "socket": local.socket });
    assert_eq!(said["setup"]["switch"], switch);
    assert!(said["setup"]["nic"].is_null());
    assert!(server.wait().success());
}

#[test]
fn options_that_only_an_interface_has_are_refused_by_a_switch() {
    let local = Local::new("refused");
    for option in [
        "--mode native",
        "--zero-copy",
        "--copy",
        "--queues 2",
        "--engines 2",
        "--tx-checksum off",
        "--fix-offloads",
        "--busy-poll",
    ] {
        for command in [
            "ping",
            "ping 127.0.0.1",
            "perf write-bw",
            "perf send-lat 127.0.0.1",
        ] {
            let said = refused(&local.client(&format!("{command} {option}")), 1);
            let name = option.split(' ').next().expect("a name");
            assert!(
                said.starts_with(&format!("xwarp: {name} is for interfaces")),
                "{said}"
            );
        }
    }
    let said = refused(&local.client("ping --dev eth7 127.0.0.1"), 1);
    assert!(said.contains("has the device t0, and not eth7"), "{said}");
}

/// Number of packets in a pcapng file, and its bytes.
fn captured(file: &Path) -> (usize, Vec<u8>) {
    let bytes = fs::read(file).expect("the capture");
    let (mut packets, mut rest) = (0, &bytes[..]);
    while let Some((kind, behind)) = rest.split_first_chunk::<4>() {
        let len = behind.first_chunk::<4>().expect("a length");
        let len = usize::try_from(u32::from_le_bytes(*len)).expect("a length");
        packets += usize::from(u32::from_le_bytes(*kind) == 6);
        rest = &rest[len..];
    }
    (packets, bytes)
}

fn count(bytes: &[u8], text: &str) -> usize {
    let windows = bytes.windows(text.len());
    windows.filter(|it| *it == text.as_bytes()).count()
}

/// Frames that go by the switch, such as a SYN, and those of the pair that the clients are.
#[test]
fn capture_has_the_frames_of_both_ways() {
    let local = Local::new("capture");
    let file = |name: &str| local.socket.with_file_name(name);
    let capture = |name| format!("--capture {}", file(name).display());
    let (server, port) = local.serve(&format!("ping {}", capture("server.pcapng")));
    let client = format!(
        "ping --count 3 --size 9000 127.0.0.1:{port} {}",
        capture("client.pcapng")
    );
    succeeded(&local.client(&client));
    assert!(server.wait().success());
    for name in ["server.pcapng", "client.pcapng"] {
        let (packets, bytes) = captured(&file(name));
        // SYN, SYN-ACK, ACK, MPA's frames, and six FPDUs of each ping.
        assert!(packets >= 3 + 2 + 3 * 6, "{name}: {packets}");
        for ping in 0..3 {
            // The server reads the message, and writes it back.
            let times = count(&bytes, &format!("rdma-ping-{ping}: "));
            assert!(times >= 2, "{name}: ping {ping} is there {times} times");
        }
    }
}

/// Neither end asks for a CRC, as the bytes stay in memory of one kernel.
#[test]
fn trusted_peers_have_no_crc() {
    let local = Local::new("crc");
    let (server, port) = local.serve("perf write-bw");
    let client = format!("perf write-bw --json --iterations 10 127.0.0.1:{port}");
    let said = succeeded(&local.client(&client));
    assert!(said.contains("\"crc\": false"), "{said}");
    assert!(server.wait().success());
}

#[test]
fn orderly_end_of_the_switch_leaves_no_socket_and_a_killed_one_is_replaced() {
    let mut local = Local::new("end");
    local.switch().signal(Signal::SIGKILL);
    drop(local.switch.take());
    assert!(local.socket.exists());
    local.begin();
    let second = {
        let mut command = Command::new(XWARP);
        command
            .args("serve --local t1 --socket".split(' '))
            .arg(&local.socket);
        Running::start(&mut command).output()
    };
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("a switch listens at"), "{said}");
    local.switch().signal(Signal::SIGTERM);
    let ended = local.switch.take().expect("it runs").wait();
    assert_eq!(ended.code(), Some(143));
    assert!(!local.socket.exists());
    let client = local.client("ping 127.0.0.1");
    let said = String::from_utf8_lossy(&client.stderr).into_owned();
    assert_eq!(client.status.code(), Some(1));
    assert!(said.contains("no switch answers at"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn peer_that_is_killed_is_noticed_at_once() {
    let local = Local::new("killed");
    let (mut server, port) = local.serve("perf write-bw");
    let arguments = format!("perf write-bw --duration 60s 127.0.0.1:{port}");
    let client = Running::start(&mut local.xwarp(&arguments));
    std::thread::sleep(std::time::Duration::from_millis(300));
    server.signal(Signal::SIGKILL);
    let began = Instant::now();
    let client = client.output();
    assert_eq!(client.status.code(), Some(1));
    // Without the switch's RST, TCP would take more than a minute.
    assert!(began.elapsed() < timeout());
    let said = String::from_utf8_lossy(&client.stderr).into_owned();
    assert!(said.contains("reset"), "{said}");
}

/// A folder that looks like that of the library, which xwarp itself does not need.
fn library(folder: &Path) -> PathBuf {
    let library = folder.join("lib");
    fs::create_dir_all(&library).expect("our own folder");
    for name in ["libxwarp-rdma.so.1", "libibverbs.so.1", "librdmacm.so.1"] {
        fs::write(library.join(name), "").expect("our own folder");
    }
    library
}

#[test]
fn run_local_serves_a_program_and_its_children_and_ends_as_the_program_does() {
    let folder = WorkDir::new("xwarp-run-local");
    let run = |script: &str| {
        let mut command = Command::new(XWARP);
        command.args(["run", "--local", "--quiet", "--", "sh", "-c", script]);
        command.env("XWARP_LIB", library(folder.as_ref()));
        command.env("XDG_RUNTIME_DIR", folder.as_ref());
        command.env("XWARP", XWARP);
        Running::start(&mut command).output()
    };
    let script = "$XWARP ping --port 7999 & server=$!
        for i in 1 2 3 4 5 6 7 8 9; do
            $XWARP ping --quiet 127.0.0.1:7999 && break; kill -0 $server || exit 9; sleep 0.2; done
        wait $server";
    let said = succeeded(&run(script));
    assert!(said.contains("10 pings, all verified"), "{said}");
    assert_eq!(run("exit 7").status.code(), Some(7));
    assert_eq!(run("kill -9 $$").status.code(), Some(137));
    let left: Vec<_> = fs::read_dir(folder.file("xwarp"))
        .expect("the folder")
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
