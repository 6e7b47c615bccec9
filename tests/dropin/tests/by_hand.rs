//! Programs that bring their queue pairs up by `ibv_modify_qp`, without rdma_cm: as people type
//! them. Both ends' exit codes, what they say of the data, and that the RNIC has carried it.

use xwarp_dropin_tests::{SERVER, finish, serve_by_tcp, start};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::needs_root;

/// TCP port by which the programs of rdma-core and perftest exchange their numbers.
const PORT: u16 = 18_515;

/// Runs rows on one pair of hosts. The client has the server's arguments and its address.
fn run_all(rows: &[&str]) {
    let hosts = Hosts::new();
    for row in rows {
        let server = serve_by_tcp(&hosts.b, row, PORT);
        let client = format!("{row} {SERVER}");
        let ends = [
            finish(&hosts.a, &client, start(&hosts.a, &client)),
            finish(&hosts.b, row, server),
        ];
        for end in ends {
            assert!(
                end.stderr.contains(" fpdus_"),
                "the RNIC has carried it: {end}"
            );
        }
    }
}

#[test]
fn ping_pongs_of_rdma_core_compare_their_data() {
    needs_root!();
    run_all(&[
        "ibv_rc_pingpong -g 0 -c",
        "ibv_rc_pingpong -g 0 -c -e",
        "ibv_rc_pingpong -g 0 -N",
        "ibv_rc_pingpong -g 0 -s 65536 -n 200 -r 10",
        "ibv_srq_pingpong -g 0 -c",
        "ibv_rc_pingpong -g 1 -c",
        "ibv_uc_pingpong -g 0 -c",
    ]);
}

#[test]
fn perftest_measures_bandwidth_as_people_type_it() {
    needs_root!();
    run_all(&[
        "ib_write_bw -n 1000",
        "ib_read_bw -n 1000",
        "ib_atomic_bw -n 1000",
        "ib_write_bw -n 200 -q 8",
        "ib_write_bw -n 500 -b",
        "ib_read_bw -n 500 -e",
        "ib_write_bw -D 1",
        "ib_write_bw -c UC -n 500",
    ]);
}

/// Where the device is of iWARP, perftest 4.5 counts credits. It deregisters their region with -R
/// only, so that it cannot deallocate its domain. So `xwarp run` lets it have InfiniBand.
#[test]
fn perftest_sends_over_infiniband_though_the_receiver_may_not_be_ready() {
    needs_root!();
    run_all(&[
        "ib_send_bw -n 1000",
        "ib_send_bw -n 1000 -r 16",
        "ib_send_bw -n 500 -e",
        "ib_send_bw -n 200 -q 2 --use-srq",
    ]);
}

#[test]
fn perftest_measures_latency_as_people_type_it() {
    needs_root!();
    run_all(&[
        "ib_write_lat -n 200",
        "ib_read_lat -n 200",
        "ib_send_lat -n 200",
        "ib_atomic_lat -n 200",
        "ib_send_lat -n 100 -e",
        "ib_write_lat -c UC -n 100",
    ]);
}
