//! Programs under valgrind's memcheck. It fails a program that accesses memory which it must not,
//! or branches on uninitialized bytes.

use std::time::Duration;

use xwarp_dropin_tests::{SERVER, finish_within, serve_within, start};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::needs_root;

/// Memcheck ends with 9 if anything is found, which is then on its standard error.
const MEMCHECK: &str = concat!(
    "valgrind --quiet --error-exitcode=9 --suppressions=",
    env!("CARGO_MANIFEST_DIR"),
    "/valgrind.supp"
);

/// Memcheck makes a program some thirty times as slow.
const LIMIT: Duration = Duration::from_mins(2);

/// Both ends under memcheck, with more options.
fn check(hosts: &Hosts, options: &str, server: &str, client: &str) {
    let checked = |program| format!("{MEMCHECK} {options} {program}");
    let server_end = serve_within(LIMIT, &hosts.b, &checked(server));
    let client_end = start(&hosts.a, &checked(client));
    finish_within(&hosts.a, client, client_end, LIMIT);
    finish_within(&hosts.b, server, server_end, LIMIT);
}

#[test]
fn rping_touches_no_memory_that_it_may_not() {
    needs_root!();
    check(
        &Hosts::new(),
        "",
        "rping -s -C 10 -V",
        &format!("rping -c -a {SERVER} -C 10 -V"),
    );
}

/// These send what they have not written, whose sum decides what goes out. So only addresses are
/// checked.
#[test]
#[ignore = "takes minutes; tools/test --long runs it"]
fn other_programs_touch_no_memory_that_they_may_not() {
    needs_root!();
    let hosts = Hosts::new();
    let addresses = "--undef-value-errors=no";
    for (server, client) in [
        ("ucmatose -C 10 -S 1000", "ucmatose -C 10 -S 1000 -s"),
        ("rdma_server", "rdma_client -s"),
        ("rdma_xserver", "rdma_xclient -s"),
        (
            "ib_write_bw -R -n 100 -s 4096",
            "ib_write_bw -R -n 100 -s 4096",
        ),
        (
            "ib_read_bw -R -n 100 -s 4096",
            "ib_read_bw -R -n 100 -s 4096",
        ),
        (
            "ib_send_bw -R -n 100 -s 4096",
            "ib_send_bw -R -n 100 -s 4096",
        ),
        (
            "ib_send_bw -R -n 500 -e -s 4096",
            "ib_send_bw -R -n 500 -e -s 4096",
        ),
        ("ib_atomic_bw -R -n 100", "ib_atomic_bw -R -n 100"),
        ("ib_send_lat -R -n 50", "ib_send_lat -R -n 50"),
        ("ib_write_lat -R -n 50", "ib_write_lat -R -n 50"),
    ] {
        check(&hosts, addresses, server, &format!("{client} {SERVER}"));
    }
}
