//! `xwarp run`: which device it names, what it passes on, and how it refuses.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{compile, finish, start};
use xwarp_system_tests::{Finished, Hosts, Running, eventually, output_of};
use xwarp_test_kit::needs_root;

#[test]
fn exit_code_and_output_are_those_of_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let ended = start(&hosts.a, "false").finish().exited(1);
    let device = "xwarp: RDMA device eth1 (10.77.0.1";
    assert!(ended.stderr.starts_with(device), "{ended}");
    let said = start(&hosts.a, "echo it is here").finish().succeeded();
    assert_eq!(said.stdout, "it is here\n");
}

#[test]
fn signals_reach_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let mut sleeper = start(&hosts.a, "sleep 1000");
    eventually("the program has begun", || {
        sleeper.waits_in().contains("nanosleep")
    });
    sleeper.signal(Signal::SIGUSR1);
    sleeper.finish().killed_by(Signal::SIGUSR1);
}

/// tgtd sends itself SIGUSR2 and reads it from a signalfd: it ends if one of our threads takes it.
#[test]
fn threads_of_the_library_leave_signals_to_the_program() {
    needs_root!();
    let hosts = Hosts::new();
    let server = xwarp_dropin_tests::serve(&hosts.b, "rping -s -P");
    let ours = || {
        let mut threads = server.threads_holding_back(Signal::SIGUSR2);
        threads.retain(|(name, _)| name.starts_with("xwarp-"));
        threads.sort();
        threads
    };
    let wanted = ["xwarp-cm", "xwarp-engine", "xwarp-watch"].map(|name| (name.to_owned(), true));
    eventually("all threads hold back the signal", || ours() == wanted);
}

/// The program takes the place of the process that is guarded.
#[test]
fn offloads_are_fixed_until_the_program_ends() {
    needs_root!();
    let hosts = Hosts::new();
    let before = hosts.a.offloads();
    let mut sleeper = hosts.a.start("run --dev eth1 --fix-offloads -- sleep 1000");
    eventually("the program has begun", || {
        sleeper.waits_in().contains("nanosleep")
    });
    let during = hosts.a.offloads();
    let checksums = "tx-checksum-ip-generic";
    assert!(before.iter().any(|it| it == checksums), "{before:?}");
    assert!(!during.iter().any(|it| it == checksums), "{during:?}");
    sleeper.signal(Signal::SIGKILL);
    sleeper.finish().killed_by(Signal::SIGKILL);
    eventually("the offloads are back", || hosts.a.offloads() == before);
    let unnamed = hosts.a.xwarp("run --fix-offloads -- true");
    assert!(unnamed.exited(1).stderr.contains("name them with --dev"));
}

#[test]
fn what_cannot_be_run_is_refused_in_one_sentence() {
    needs_root!();
    let hosts = Hosts::new();
    let refused = |arguments: &str, parts: &[&str]| {
        hosts.a.xwarp(arguments).refused(parts);
    };
    refused("run --dev nope -- true", &["no interface is named", "nope"]);
    let loopback = "lo is the loopback interface, which has no Ethernet frames";
    refused("run --dev lo -- true", &[loopback, "choose another one"]);
    hosts.a.ip("link set eth1 down");
    refused(
        "run --dev eth1 -- true",
        &["eth1 is down", "ip link set eth1 up"],
    );
    refused("run -- true", &["no interface is up and has an address"]);
}

/// As shells, env(1) and timeout(1) have it.
#[test]
fn program_that_cannot_be_started_has_an_exit_code_of_its_own() {
    needs_root!();
    let hosts = Hosts::new();
    let script = hosts.work.file("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    for (program, code, said) in [
        (
            "no-such-program",
            127,
            "no program is named \"no-such-program\" here; install it",
        ),
        ("/no/such/program", 127, "no program is named"),
        ("/etc/passwd", 126, "/etc/passwd may not be executed"),
        ("/etc", 126, "/etc may not be executed"),
        (&script, 126, "the interpreter that it names is not here"),
    ] {
        let run = format!("run --quiet --dev eth1 -- {program}");
        let ended = hosts.a.xwarp(&run).exited(code);
        assert!(ended.stderr.contains(said), "{ended}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    }
}

#[test]
fn quiet_run_adds_nothing_to_what_the_program_prints() {
    needs_root!();
    let hosts = Hosts::new();
    let ended = hosts.a.xwarp("run --quiet --dev eth1 -- ls /nowhere");
    assert!(ended.stderr.starts_with("ls: "), "{ended}");
}

/// A program that counts devices, linked with these options.
fn devices(hosts: &Hosts, options: &[&str]) -> String {
    let options = [options, &["-libverbs"]].concat();
    compile("gcc", "devices", &options, &hosts.work)
}

/// Runs a program as a user without capabilities, by a copy of the command that this user may run.
fn run_as_nobody(hosts: &Hosts, library: &Path, program: &str) -> Finished {
    let copy = hosts.work.file("xwarp");
    fs::copy(Hosts::command_file(), &copy).unwrap();
    let mut command = hosts.a.command("setpriv");
    command.args("--reuid 65534 --regid 65534 --clear-groups --inh-caps -all".split(' '));
    command
        .arg(copy)
        .args(["run", "--dev", "eth1", "--", program]);
    command.env("XWARP_LIB", library);
    Running::start(command).finish()
}

#[test]
fn program_that_the_loader_gives_no_library_is_said_so() {
    needs_root!();
    let hosts = Hosts::new();
    let plain = devices(&hosts, &[]);
    let ended = start(&hosts.a, &plain).finish().succeeded();
    assert!(!ended.stderr.contains("will not use xwarp"), "{ended}");
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,/usr/lib/{ARCH}-linux-gnu");
    let ended = start(&hosts.a, &devices(&hosts, &[&rpath])).finish();
    assert!(
        ended
            .stderr
            .contains("will not use xwarp: its DT_RPATH leads to /usr/lib/"),
        "{ended}"
    );
    let ended = start(&hosts.a, "/sbin/ldconfig --version")
        .finish()
        .succeeded();
    assert!(ended.stderr.contains("it is linked statically"), "{ended}");
}

#[test]
fn file_that_runs_with_other_rights_is_said_to_get_no_library() {
    needs_root!();
    let hosts = Hosts::new();
    // What the loader does not look at need not be a library.
    let folder = hosts.work.file("library");
    fs::create_dir(&folder).unwrap();
    for name in ["libxwarp-rdma.so.1", "librdmacm.so.1"] {
        fs::write(folder.join(name), "").unwrap();
    }
    let program = devices(&hosts, &[]);
    let mut command = Command::new("setcap");
    command.args(["cap_net_raw+ep", &program]);
    output_of(command);
    let ended = run_as_nobody(&hosts, &folder, &program).exited(1);
    assert_eq!(ended.stdout, "0 devices\n");
    assert!(
        ended.stderr.contains("its file has capabilities"),
        "{ended}"
    );
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let ended = run_as_nobody(&hosts, &folder, &program).exited(1);
    assert!(
        ended.stderr.contains("a set-user-ID or set-group-ID bit"),
        "{ended}"
    );
}

#[test]
fn counters_are_printed_when_the_program_is_done() {
    needs_root!();
    let hosts = Hosts::new();
    let server = xwarp_dropin_tests::serve(&hosts.b, "rping -s -C 5 -V");
    let client = "run --dev eth1 --stats -- rping -c -a 10.77.0.2 -C 5 -V";
    let told = hosts.a.xwarp(client).succeeded();
    for name in ["fpdus_in", "fpdus_out", "placed_bytes", "RDMA carried "] {
        assert!(told.stderr.contains(name), "{told}");
    }
    let idle = hosts.a.xwarp("run --dev eth1 --stats -- ibv_devices");
    let nothing = "RDMA carried nothing: the program opened no RNIC";
    assert!(idle.stderr.contains(nothing), "{idle}");
    finish(&hosts.b, "rping", server);
}
