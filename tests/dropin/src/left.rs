//! Leftovers of a program: on its host, and the objects and descriptors that the library reports at
//! the program's exit.

use xwarp_system_tests::{Finished, Host, eventually, output_of};

use crate::SERVER;

/// The library's reports begin with these words.
const NEVER_DESTROYED: &str = "xwarp: never destroyed: ";
const NEVER_CLOSED: &str = "xwarp: never closed: ";

/// What perftest with -R leaves. Version 4.5 never calls `ibv_free_device_list`, and
/// `ibv_close_device` without -R only. It makes a first connection to agree on the test, and calls
/// `destroy_rdma_resources` for its identifier and channel after errors only.
const PERFTEST: &str = "1 ibv_context, 1 list of devices, 1 rdma_cm_id, 1 rdma_event_channel";

/// What it leaves without -R.
const WITHOUT_CM: &str = "1 list of devices";

/// Objects that a program itself never destroys, by words of its command line. The first that fits
/// counts.
const KNOWN: [(&[&str], &str); 16] = [
    // destroy_ctx() destroys the client's completion queue for receives only with -e or -b;
    // create_cqs() always makes it.
    (&["ib_send_bw", " -R", " -e"], PERFTEST),
    (&["ib_send_bw", " -R", " -b"], PERFTEST),
    (
        &["ib_send_bw", " -R", SERVER],
        "1 ibv_context, 1 ibv_cq, 1 list of devices, 1 rdma_cm_id, 1 rdma_event_channel",
    ),
    (&["ib_atomic_lat", " -R", SERVER], PERFTEST),
    // The server returns from main() without destroy_ctx().
    (
        &["ib_atomic_lat", " -R", " -e"],
        "1 ibv_comp_channel, 1 ibv_context, 3 ibv_cq, 2 ibv_mr, 2 ibv_pd, 2 ibv_qp, 1 list of devices, 1 rdma_addrinfo, 2 rdma_cm_id, 2 rdma_event_channel",
    ),
    (
        &["ib_atomic_lat", " -R"],
        "1 ibv_context, 3 ibv_cq, 2 ibv_mr, 2 ibv_pd, 2 ibv_qp, 1 list of devices, 1 rdma_addrinfo, 2 rdma_cm_id, 2 rdma_event_channel",
    ),
    (&["ib_", " -R"], PERFTEST),
    (&["ib_send_bw", " -e"], WITHOUT_CM),
    (&["ib_send_bw", SERVER], "1 ibv_cq, 1 list of devices"),
    (&["ib_atomic_lat", SERVER], WITHOUT_CM),
    // As with -R.
    (
        &["ib_atomic_lat"],
        "1 ibv_context, 1 ibv_cq, 1 ibv_mr, 1 ibv_pd, 1 ibv_qp, 1 list of devices",
    ),
    (&["ib_"], WITHOUT_CM),
    // rdma_create_qp() returns in the attributes which completion queues it has made, and cmtime
    // uses the attributes again. So all queue pairs complete on the queues of the first, which
    // cannot be destroyed with it.
    (&["cmtime -s"], "2 ibv_comp_channel, 2 ibv_cq"),
    // cm_open_client() calls cm_init() a second time, and rd_close() destroys the domain before the
    // region in it.
    (
        &["qperf -t"],
        "1 ibv_pd, 1 rdma_cm_id, 1 rdma_event_channel",
    ),
    // iscsi_destroy_context() disconnects if the context has a descriptor, and libiscsi 1.19 gives
    // an iSER context none. The test suite has two contexts.
    (
        &["iscsi-test-cu", "iser://"],
        "2 ibv_comp_channel, 2 ibv_cq, 1538 ibv_mr, 2 ibv_pd, 2 ibv_qp, 2 rdma_cm_id, 2 rdma_event_channel",
    ),
    (
        &["iscsi-", "iser://"],
        "1 ibv_comp_channel, 1 ibv_cq, 769 ibv_mr, 1 ibv_pd, 1 ibv_qp, 1 rdma_cm_id, 1 rdma_event_channel",
    ),
];

/// Programs that use the library in a child. The child ends by `_exit`, so that the library reports
/// nothing.
const SILENT: [&str; 1] = ["fio"];

/// Fails if a host has anything of a program that has ended: a process, an XDP program, a port.
pub fn left_nothing(host: &Host, program: &str) {
    eventually("all processes of the program have ended", || {
        host.processes() == 0
    });
    assert_eq!(host.program(), None, "{program} has left its XDP program");
    let mut listening = host.command("ss");
    listening.args(["-ltnH"]);
    assert_eq!(output_of(listening), "", "{program} has left a port");
}

/// Fails if a program has left an object, or the library a descriptor.
pub fn left_no_object(finished: &Finished, program: &str) {
    if SILENT.iter().any(|name| program.starts_with(name)) {
        return;
    }
    let fits = |words: &[&str]| words.iter().all(|word| program.contains(word));
    let known = KNOWN.iter().find(|(words, _)| fits(words));
    let expected = known.map_or("nothing", |(_, objects)| objects);
    for (beginning, expected) in [(NEVER_DESTROYED, expected), (NEVER_CLOSED, "nothing")] {
        let mut told = finished.stderr.lines();
        let told = told.find_map(|line| line.strip_prefix(beginning));
        assert_eq!(told, Some(expected), "{beginning}{finished}");
    }
}
