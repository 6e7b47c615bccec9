//! Preferred busy polling: refused where a virtual link has no NAPI instance for it, and settings
//! that are put back.

use std::fs::{self, File};

use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Host, Hosts, Running, eventually, output_of};
use xwarp_test_kit::needs_root;

/// How a device defers its interrupts, and how it does while it is polled.
const FILES: [&str; 2] = ["napi_defer_hard_irqs", "gro_flush_timeout"];
const POLLED: &str = "2\n200000\n";

fn files() -> [String; 2] {
    FILES.map(|file| format!("/sys/class/net/{DEV}/{file}"))
}

fn deferral(host: &Host) -> String {
    let mut command = host.command("cat");
    command.args(files());
    output_of(command)
}

fn set(host: &Host, values: [&str; 2]) {
    for (file, value) in files().iter().zip(values) {
        let mut command = host.command("sh");
        command.args(["-c", &format!("echo {value} > {file}")]);
        output_of(command);
    }
}

/// Starts the guard of a process, and waits until it is ready. It keeps its output open.
fn start_guard(hosts: &Hosts, process: u32) {
    let file = hosts.work.file(&process.to_string());
    let output = File::create(&file).expect("our own directory");
    let mut starter = hosts.b.command(Hosts::command_file());
    starter.args(["guard-interface", &process.to_string(), DEV, "--busy-poll"]);
    let starter = Running::start_printing_to(starter, output);
    starter.finish().succeeded();
    eventually("the guard is ready", || {
        fs::read_to_string(&file).is_ok_and(|said| said.starts_with("off:"))
    });
}

#[test]
fn link_without_a_napi_instance_is_refused_and_left_as_it_was() {
    needs_root!();
    let hosts = Hosts::new();
    let host = &hosts.b;
    set(host, ["1", "7000"]);
    let refusal = host.xwarp(&format!("perf write-bw --dev {DEV} --busy-poll"));
    refusal.refused(&[
        "busy polling needs a NAPI instance that receives and sends",
        "queue 0 of eth1 has none",
        "do without",
    ]);
    assert!(host.program().is_none());
    eventually("its guard has ended", || host.processes() == 0);
    assert_eq!(deferral(host), "1\n7000\n");
    let both = host.xwarp(&format!("perf write-bw --dev {DEV} --busy-poll --copy"));
    assert!(both.exited(2).stderr.contains("cannot be used with"));
}

/// The guard does not ask what its process is. This one does what a killed RNIC has done.
#[test]
fn guard_puts_back_what_a_killed_process_has_set() {
    needs_root!();
    let hosts = Hosts::new();
    let host = &hosts.b;
    set(host, ["1", "7000"]);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut process = Running::start({
            let mut sleep = host.command("sleep");
            sleep.arg("1000");
            sleep
        });
        start_guard(&hosts, process.id());
        assert_eq!(deferral(host), "1\n7000\n", "it only looks");
        set(host, ["2", "200000"]);
        assert_eq!(deferral(host), POLLED);
        process.signal(signal);
        process.finish().killed_by(signal);
        eventually("all is put back", || deferral(host) == "1\n7000\n");
    }
}
