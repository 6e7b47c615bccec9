//! Programs of Python wheels, which bundle libibverbs under names of their own.

use std::path::PathBuf;
use std::time::Duration;

use xwarp_dropin_tests::{counter, finish_within, start};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::needs_root;

/// Environment variable with the Python environment that has NIXL.
const ENVIRONMENT: &str = "XWARP_NIXL";
/// Loading NIXL's libraries takes seconds.
const LIMIT: Duration = Duration::from_mins(2);

/// Servers of language models move caches by NIXL. It makes a queue pair that is its own peer,
/// finds the device in sysfs, and would fall back to TCP.
#[test]
#[ignore = "needs NIXL's wheel of 70 MB; tools/test --long downloads it"]
fn nixl_reads_and_writes_memory_of_another_agent() {
    needs_root!();
    let environment = std::env::var(ENVIRONMENT).unwrap_or_else(|_| {
        panic!("{ENVIRONMENT} names no environment with NIXL; run tools/test --long, which downloads it")
    });
    let hosts = Hosts::new();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("programs/nixl_agents.py");
    let shared = hosts.work.file("shared");
    std::fs::create_dir(&shared).expect("our own folder");
    let [script, shared] = [script, shared].map(|it| it.display().to_string());
    let agent = |role: &str| format!("{environment}/bin/python3 {script} {role} {shared}");
    let [server, client] = ["server", "client"].map(agent);
    let running = [
        (&hosts.b, &server, start(&hosts.b, &server)),
        (&hosts.a, &client, start(&hosts.a, &client)),
    ];
    for (host, program, running) in running {
        let ended = finish_within(host, program, running, LIMIT);
        assert!(ended.stdout.contains("all compared"), "{ended}");
        let placed = counter(&ended, "placed_bytes");
        assert!(placed > 0, "TCP has carried it: {ended}");
    }
}
