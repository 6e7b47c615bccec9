//! Programs of rdma-core and perftest, each by a row: both ends' exit codes and what they say of
//! the data, and nothing is left behind.

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{Perftest, Row, SERVER, end_by, run_client, serve, start};
use xwarp_system_tests::{DEV, Hosts};
use xwarp_test_kit::needs_root;

/// Runs rows of one kind on one pair of hosts.
fn run_all(rows: &[Row]) {
    let hosts = Hosts::new();
    for row in rows {
        row.run(&hosts);
    }
}

/// Runs rows of perftest on one pair of hosts.
fn measure_all(rows: &[&'static str]) {
    let hosts = Hosts::new();
    for row in rows {
        Perftest(row).run(&hosts);
    }
}

#[test]
fn device_is_listed_and_described_without_being_opened() {
    needs_root!();
    let hosts = Hosts::new();
    let listed = run_client(&hosts, "ibv_devices");
    assert!(listed.stdout.contains(DEV), "{listed}");
    let described = run_client(&hosts, "ibv_devinfo -v");
    for words in ["iWARP", "PORT_ACTIVE", "Ethernet", "::ffff:10.77.0.1"] {
        assert!(described.stdout.contains(words), "{words}: {described}");
    }
}

/// With -V rping compares what it reads back.
#[test]
fn rping_reads_and_writes_what_it_sent() {
    needs_root!();
    run_all(&[
        Row {
            server: "rping -s -C 10 -V",
            client: "rping -c -a 10.77.0.2 -C 10 -V",
        },
        Row {
            server: "rping -s -C 20 -V -S 65535",
            client: "rping -c -a 10.77.0.2 -C 20 -V -S 65535",
        },
        Row {
            server: "rping -s -a fd77::2 -C 10 -V",
            client: "rping -c -a fd77::2 -C 10 -V",
        },
        Row {
            server: "rping -s -q -C 10 -V",
            client: "rping -c -q -a 10.77.0.2 -C 10 -V",
        },
    ]);
}

/// The same link-local addresses are also on another interface of each host, where no server
/// listens.
#[test]
fn rping_finds_link_local_hosts_on_the_link_that_it_names() {
    needs_root!();
    let hosts = Hosts::new();
    for (host, address) in [(&hosts.a, "fe80::a"), (&hosts.b, "fe80::b")] {
        for dev in ["lo", DEV] {
            host.ip(&format!("addr add {address}/64 dev {dev} nodad"));
        }
    }
    for row in [
        Row {
            server: "rping -s -a fe80::b%eth1 -C 10 -V",
            client: "rping -c -a fe80::b%eth1 -C 10 -V",
        },
        Row {
            server: "rping -s -a fe80::b%eth1 -C 10 -V",
            client: "rping -c -I fe80::a%eth1 -a fe80::b%eth1 -C 10 -V",
        },
    ] {
        row.run(&hosts);
    }
    let nowhere = start(&hosts.a, "rping -c -a fe80::b%lo -C 1 -V").finish();
    assert!(!nowhere.succeeds(), "{nowhere}");
}

#[test]
fn persistent_rping_server_takes_one_client_after_the_other() {
    needs_root!();
    let hosts = Hosts::new();
    let server = serve(&hosts.b, "rping -s -P -V");
    for _ in 0..3 {
        run_client(&hosts, "rping -c -a 10.77.0.2 -C 10 -V");
    }
    end_by(Signal::SIGTERM, &hosts.b, "rping -P", server);
}

#[test]
fn programs_of_the_connection_manager_end_well() {
    needs_root!();
    run_all(&[
        Row {
            server: "ucmatose -C 10 -S 1000",
            client: "ucmatose -s 10.77.0.2 -C 10 -S 1000",
        },
        Row {
            server: "rdma_server",
            client: "rdma_client -s 10.77.0.2",
        },
        Row {
            server: "rdma_xserver",
            client: "rdma_xclient -s 10.77.0.2",
        },
    ]);
}

/// Its server serves until it is ended.
#[test]
fn cmtime_makes_and_ends_a_hundred_connections() {
    needs_root!();
    let hosts = Hosts::new();
    let server = serve(&hosts.b, "cmtime");
    let client = format!("cmtime -s {SERVER} -c 100");
    let told = run_client(&hosts, &client);
    assert!(told.stdout.contains("disconnect   :"), "{told}");
    end_by(Signal::SIGTERM, &hosts.b, "cmtime", server);
}

#[test]
fn perftest_measures_bandwidth_of_every_operation() {
    needs_root!();
    measure_all(&[
        "ib_write_bw -R -n 1000",
        "ib_read_bw -R -n 1000",
        "ib_send_bw -R -n 1000",
        "ib_atomic_bw -R -n 1000",
        "ib_write_bw -R -n 500 -b",
        "ib_send_bw -R -n 500 -b",
        "ib_write_bw -R -D 1",
        "ib_write_bw -R -n 500 --use_old_post_send",
    ]);
}

/// perftest itself refuses other sizes than 8 bytes for atomic operations.
#[test]
#[ignore = "takes minutes without optimisation; tools/test --long runs it"]
fn perftest_measures_every_size_up_to_8_mib() {
    needs_root!();
    measure_all(&[
        "ib_write_bw -R -n 5 -a",
        "ib_read_bw -R -n 5 -a",
        "ib_send_bw -R -n 5 -a",
        "ib_write_lat -R -n 5 -a",
        "ib_read_lat -R -n 5 -a",
        "ib_send_lat -R -n 5 -a",
    ]);
}

/// What other tests leave out. perftest itself refuses the rest: events of Writes, and inline data
/// of Reads and atomic operations. It has shared receive queues for Sends alone. It measures
/// latency on one queue pair, one way, and posts no lists then.
#[test]
#[ignore = "takes minutes; tools/test --long runs it"]
fn perftest_takes_every_option_with_every_operation() {
    needs_root!();
    measure_all(&[
        "ib_read_bw -R -n 500 -b",
        "ib_atomic_bw -R -n 500 -b",
        "ib_read_bw -R -n 500 -e",
        "ib_atomic_bw -R -n 500 -e",
        "ib_read_lat -R -n 100 -e",
        "ib_atomic_lat -R -n 100 -e",
        "ib_read_bw -R -n 200 -q 8",
        "ib_atomic_bw -R -n 200 -q 8",
        "ib_read_bw -R -n 500 --use_old_post_send",
        "ib_send_bw -R -n 500 --use_old_post_send",
        "ib_atomic_bw -R -n 500 --use_old_post_send",
        "ib_write_lat -R -n 100 --use_old_post_send",
        "ib_read_lat -R -n 100 --use_old_post_send",
        "ib_send_lat -R -n 100 --use_old_post_send",
        "ib_atomic_lat -R -n 100 --use_old_post_send",
        "ib_read_bw -R -D 1",
        "ib_send_bw -R -D 1",
        "ib_atomic_bw -R -D 1",
        "ib_write_lat -R -D 1",
        "ib_read_lat -R -D 1",
        "ib_send_lat -R -D 1",
        "ib_atomic_lat -R -D 1",
        "ib_write_bw -R -n 500 -s 64 -I 64",
        "ib_write_bw -R -n 500 -s 64 -I 0",
        "ib_send_bw -R -n 500 -s 64 -I 64",
        "ib_send_bw -R -n 500 -s 64 -I 0",
        "ib_write_lat -R -n 100 -s 64 -I 0",
        "ib_send_lat -R -n 100 -s 64 -I 64",
        "ib_send_lat -R -n 100 --use-srq",
    ]);
}

#[test]
fn perftest_uses_events_many_queue_pairs_and_shared_receive_queues() {
    needs_root!();
    measure_all(&[
        "ib_send_bw -R -n 500 -e",
        "ib_send_lat -R -n 100 -e",
        "ib_write_bw -R -n 200 -q 8",
        "ib_send_bw -R -n 200 -q 8",
        "ib_send_bw -R -n 200 -q 2 --use-srq",
    ]);
}

#[test]
fn perftest_measures_latency_of_every_operation() {
    needs_root!();
    measure_all(&[
        "ib_write_lat -R -n 200",
        "ib_read_lat -R -n 200",
        "ib_send_lat -R -n 200",
        "ib_atomic_lat -R -n 200",
        "ib_write_lat -R -n 100 -s 64 -I 64",
        "ib_send_lat -R -n 100 -s 64 -I 0",
    ]);
}

/// Programs treat InfiniBand in another way: they register the sink of a Read without a remote
/// right, for example.
#[test]
fn perftest_takes_the_device_for_infiniband_where_it_is_told_so() {
    needs_root!();
    run_all(&[
        Row {
            server: "env XWARP_TRANSPORT=ib ib_read_bw -R -n 100",
            client: "env XWARP_TRANSPORT=ib ib_read_bw -R -n 100 10.77.0.2",
        },
        Row {
            server: "env XWARP_TRANSPORT=ib ib_read_lat -R -n 100",
            client: "env XWARP_TRANSPORT=ib ib_read_lat -R -n 100 10.77.0.2",
        },
        Row {
            server: "env XWARP_TRANSPORT=ib ib_write_bw -R -n 100",
            client: "env XWARP_TRANSPORT=ib ib_write_bw -R -n 100 10.77.0.2",
        },
        Row {
            server: "env XWARP_TRANSPORT=ib ib_send_bw -R -n 100",
            client: "env XWARP_TRANSPORT=ib ib_send_bw -R -n 100 10.77.0.2",
        },
    ]);
}
