//! RDMA between processes of one host by a software switch: as any user, without root, network
//! interface or kernel module. No packet leaves the host, or reaches its network at all.

mod chaos;
mod container;
mod processes;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use xwarp_test_kit::{WorkDir, timeout};

use processes::{Local, Running, XWARP, succeeded};

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

#[test]
fn status_shows_the_device_and_the_programs_on_it() {
    let mut local = Local::new("status");
    let switch = local.switch().id();
    let socket = local.socket.display();
    let alone = succeeded(&local.client("status"));
    let first = format!("t0: switch at {socket}, process {switch}\naddresses 127.0.0.1, ::1\n");
    assert_eq!(alone, format!("{first}no program is attached\n"));
    let (mut server, port) = local.serve("ping");
    let (process, uid) = (server.id(), geteuid());
    let said = succeeded(&Running::start(&mut named(&local, "status t0")).output());
    let of_server = format!("{process:>10} {uid:>10}      2      0  xwarp\n");
    assert!(
        said.starts_with(&first) && said.ends_with(&of_server),
        "{said}"
    );
    let said = succeeded(&local.client("status --json"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let client = json!({
        "process": process, "uid": uid.as_raw(), "ports": 2, "peers": 0, "may_pair": true,
        "command": "xwarp",
    });
    assert_eq!(said["clients"], json!([client]));
    assert_eq!(said["addresses"], json!(["127.0.0.1", "::1"]));
    assert_eq!(said["counters"]["drop_spoofed"], 0);
    // Frames of the two go without the switch, but no client has another port.
    succeeded(&local.client(&format!("ping --quiet 127.0.0.1:{port}")));
    refused(&local.client("ping --quiet 127.0.0.1:7999"), 1);
    let said = succeeded(&local.client("status"));
    assert!(said.contains("drop_no_port "), "{said}");
    let said = refused(&local.client("status --attached"), 1);
    assert!(said.contains("--attached is for interfaces"), "{said}");
    let said = refused(&local.client("status eth7"), 1);
    assert!(said.contains("has the device t0, and not eth7"), "{said}");
}

#[test]
fn stat_shows_frames_of_the_switch_until_it_ends() {
    let mut local = Local::new("stat");
    let (_server, _) = local.serve("ping");
    let once = succeeded(&local.client("stat --once"));
    assert!(
        once.starts_with(&format!("{:>24} {:>12}\n", "clients", 1)),
        "{once}"
    );
    assert!(
        once.contains(&format!("{:>24} {:>12}\n", "drop_no_port", 0)),
        "{once}"
    );
    let said = succeeded(&local.client("stat --once --json"));
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["levels"], json!({ "clients": 1, "pairs": 0 }));
    assert_eq!(said["counters"]["resets"], 0);
    let mut stat = Running::start(&mut local.xwarp("stat"));
    stat.line("       1       0       0       0       0");
    local.switch().signal(Signal::SIGTERM);
    let ended = refused(&stat.output(), 1);
    assert!(ended.contains("the switch has ended"), "{ended}");
}

#[test]
fn doctor_checks_the_switch_or_says_why_there_is_none() {
    let mut local = Local::new("doctor");
    let said = succeeded(&local.client("doctor"));
    let of = |about: &str| {
        let line = said.lines().find(|it| it.contains(about));
        line.unwrap_or_else(|| panic!("{about}: {said}"))
    };
    assert!(said.lines().all(|it| it.starts_with("pass  ")), "{said}");
    assert!(of("socket").ends_with(&local.socket.display().to_string()));
    assert!(of("device").contains("t0 (127.0.0.1, ::1), of process "));
    assert!(of("protocol").contains("version 1"));
    assert!(of("pairs").contains("exchange frames without the switch"));
    assert!(of("clients").contains("no program is attached"));
    for of_interface in ["XDP", "memory", "privileges", "RSS"] {
        assert!(!said.contains(of_interface), "{said}");
    }
    local.switch().signal(Signal::SIGKILL);
    drop(local.switch.take());
    let dead = local.client("doctor --json");
    assert_eq!(dead.status.code(), Some(1));
    let dead: Value = serde_json::from_slice(&dead.stdout).expect("JSON");
    assert_eq!(dead["verdict"], "fail");
    assert_eq!(dead["service"], json!(local.socket));
    let says = dead["findings"][0]["says"].as_str().expect("a sentence");
    assert!(
        says.ends_with("start one by `xwarp serve --local`"),
        "{says}"
    );
}

#[test]
fn what_is_no_switch_is_refused_by_what_it_is() {
    let folder = WorkDir::new("xwarp-local-no-switch");
    let at = |socket: &Path, arguments: &str| {
        let mut command = Command::new(XWARP);
        command
            .args(arguments.split(' '))
            .env("XWARP_SERVICE", socket);
        command
    };
    let file = folder.file("file");
    fs::write(&file, "").expect("our own folder");
    let stream = folder.file("stream");
    let _other_program = UnixListener::bind(&stream).expect("our own folder");
    let long = folder.file(&"x".repeat(108));
    let nowhere = folder.file("nowhere");
    for (socket, words) in [
        (&file, "is no socket; name the one"),
        (&stream, "another program listens there"),
        (&long, "at most 107 bytes: choose a shorter one"),
        (&nowhere, "start one by `xwarp serve --local`"),
    ] {
        for command in ["ping 127.0.0.1", "perf read-bw", "status", "stat"] {
            let said = refused(&Running::start(&mut at(socket, command)).output(), 1);
            assert!(said.contains(words), "{command}: {said}");
        }
        let doctor = Running::start(&mut at(socket, "doctor")).output();
        assert_eq!(doctor.status.code(), Some(1));
        let said = String::from_utf8_lossy(&doctor.stdout);
        assert!(
            said.starts_with("fail  socket ") && said.contains(words),
            "{said}"
        );
    }
    for (socket, words) in [
        (&file, "exists and is no socket"),
        (&stream, "another program listens at"),
        (&long, "at most 107 bytes; choose a shorter one"),
        (&folder.file("no/folder"), "No such file or directory"),
    ] {
        let mut serve = at(socket, "serve --local t0 --socket");
        let said = refused(&Running::start(serve.arg(socket)).output(), 1);
        assert!(said.contains(words), "{said}");
    }
    let mut nothing = at(Path::new(""), "status");
    let said = refused(&Running::start(&mut nothing).output(), 2);
    assert!(
        said.contains("name a network interface, or a software switch"),
        "{said}"
    );
}

#[test]
fn user_without_the_right_to_write_to_the_socket_is_refused() {
    let local = Local::new("rights");
    let mut ping = local.xwarp("ping 127.0.0.1");
    if geteuid().is_root() {
        // Root may write to any socket.
        ping.uid(65_534).gid(65_534);
    } else {
        let none = fs::Permissions::from_mode(0o0);
        fs::set_permissions(&local.socket, none).expect("our own socket");
    }
    let said = refused(&Running::start(&mut ping).output(), 1);
    assert!(
        said.contains("only users who may write to it may attach"),
        "{said}"
    );
}

#[test]
fn names_and_addresses_that_no_device_can_have_are_wrong_arguments() {
    let long = "x".repeat(16);
    for (arguments, words) in [
        (format!("--local {long}"), "1 to 15 letters"),
        ("--local a/b".to_owned(), "1 to 15 letters"),
        ("--local .a".to_owned(), "1 to 15 letters"),
        (
            "--local t0 --address 224.0.0.1".to_owned(),
            "no single host",
        ),
        ("--local t0 --address 0.0.0.0".to_owned(), "no single host"),
        ("--local t0 --address ::".to_owned(), "no single host"),
        ("--local t0 --address ff02::1".to_owned(), "no single host"),
        (
            "--local t0 --address 255.255.255.255".to_owned(),
            "no single host",
        ),
        ("--local t0 --address host".to_owned(), "is no IP address"),
        ("--local t0 --socket=".to_owned(), "a value is required"),
    ] {
        let mut serve = Command::new(XWARP);
        serve.arg("serve").args(arguments.split(' '));
        let serve = Running::start(&mut serve).output();
        let said = String::from_utf8_lossy(&serve.stderr).into_owned();
        assert_eq!(serve.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(words), "{arguments}: {said}");
    }
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

/// The clients trust each other, so their frames go without the switch.
#[test]
fn capture_has_the_frames_of_a_pair() {
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
