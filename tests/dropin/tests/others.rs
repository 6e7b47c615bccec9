//! Programs of others than rdma-core: fio, qperf, libfabric's.

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{Row, SERVER, compile, end_by, finish, run_client, serve_by_tcp};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::needs_root;

/// Where the servers of qperf and `fi_pingpong` are reached by TCP.
const QPERF: u16 = 19765;
const PINGPONG: u16 = 47592;

/// All tests of qperf that use a reliable connection. The last two compare what the atomic
/// operations return.
const QPERF_TESTS: [&str; 12] = [
    "rc_bw",
    "rc_bi_bw",
    "rc_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
];

/// Hosts whose kernels compute checksums: these programs use the kernel's TCP, too.
fn hosts() -> Hosts {
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    hosts.b.compute_checksums();
    hosts
}

#[test]
fn fio_writes_reads_and_sends() {
    needs_root!();
    let hosts = hosts();
    let server =
        "fio --name=r --ioengine=rdma --port=8899 --bs=64k --size=4m --rw=read --iodepth=64";
    for client in [
        "fio --name=s --ioengine=rdma --hostname=10.77.0.2 --port=8899 --verb=write --bs=64k --size=4m --rw=write",
        "fio --name=s --ioengine=rdma --hostname=10.77.0.2 --port=8899 --verb=read --bs=64k --size=4m --rw=write",
        "fio --name=s --ioengine=rdma --hostname=10.77.0.2 --port=8899 --verb=send --bs=64k --size=4m --rw=write",
    ] {
        Row { server, client }.run(&hosts);
    }
}

#[test]
fn qperf_measures_every_operation_of_a_reliable_connection() {
    needs_root!();
    let hosts = hosts();
    let server = serve_by_tcp(&hosts.b, "qperf", QPERF);
    for test in QPERF_TESTS {
        let told = run_client(&hosts, &format!("qperf -t 1 -cm 1 {SERVER} {test}"));
        assert!(told.stdout.contains(&format!("{test}:")), "{told}");
    }
    end_by(Signal::SIGKILL, &hosts.b, "qperf", server);
}

/// The server compares what the client sends: fio compares nothing by its other verbs, and refuses
/// random access by RDMA. Its client sends without asking whether the server has a buffer, and
/// hangs if the connection ends. So the server has one for each of the 64 messages.
#[test]
fn fio_verifies_what_it_sends() {
    needs_root!();
    Row {
        server: "fio --name=r --ioengine=rdma --port=8899 --bs=64k --size=4m --rw=read --iodepth=64 --verify=crc32c --verify_state_save=0",
        client: "fio --name=s --ioengine=rdma --hostname=10.77.0.2 --port=8899 --verb=send --bs=64k --size=4m --rw=write --verify=crc32c --verify_state_save=0",
    }
    .run(&hosts());
}

#[test]
fn fi_info_lists_both_kinds_of_endpoints_over_iwarp() {
    needs_root!();
    let hosts = Hosts::new();
    let told = run_client(&hosts, "fi_info -p verbs");
    for words in [
        "fabric: Ethernet-iWARP",
        "domain: eth1",
        "type: FI_EP_MSG",
        "protocol: FI_PROTO_IWARP",
        "type: FI_EP_RDM",
        "protocol: FI_PROTO_RXM",
    ] {
        assert!(told.stdout.contains(words), "{words}: {told}");
    }
}

/// With -c it compares what has come.
#[test]
fn fi_pingpong_compares_messages_of_both_kinds_of_endpoints() {
    needs_root!();
    let hosts = hosts();
    for endpoint in ["-p verbs -e msg", "-p verbs;ofi_rxm -e rdm"] {
        let program = format!("fi_pingpong {endpoint} -c -I 100 -S 65536");
        let server = serve_by_tcp(&hosts.b, &program, PINGPONG);
        run_client(&hosts, &format!("{program} {SERVER}"));
        finish(&hosts.b, &program, server);
    }
}

/// Only with librpma's own library: no program of Debian's uses it.
#[test]
fn librpma_writes_flushes_and_reads_memory_of_the_server() {
    needs_root!();
    let hosts = Hosts::new();
    let libraries = ["-lrpma", "-libverbs"];
    let program = compile("cc", "rpma", &libraries, &hosts.work);
    Row::run_programs(
        &hosts,
        &format!("{program} server {SERVER}"),
        &format!("{program} client {SERVER}"),
    );
}
