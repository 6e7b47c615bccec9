//! tgt and libiscsi's utilities: SCSI over iSER, whose data the target moves by RDMA Read and
//! Write.

use std::path::PathBuf;

use xwarp_dropin_tests::{LIBISCSI, finish, run_client, start};
use xwarp_system_tests::{Finished, Hosts, Running, eventually, output_of};
use xwarp_test_kit::needs_root;

const TARGET: &str = "iqn.2026-01.xwarp:disk";
const INITIATOR: &str = "iqn.2026-01.xwarp:client";
/// Bytes of the disk.
const DISK: u64 = 16 << 20;

/// A target on host B with one disk, which is a file.
struct Target<'a> {
    hosts: &'a Hosts,
    daemon: Running,
}

impl<'a> Target<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        let disk = std::fs::File::create(hosts.work.file("disk")).expect("our own folder");
        disk.set_len(DISK).expect("room for the disk");
        // iSCSI over the kernel's TCP would have the same port, so it gets another address.
        let portals = "--iscsi portal=127.0.0.1:3260 --iser port=3261,pool_sz_mb=16";
        let socket = socket(hosts);
        // tgtd keeps a session until the connection manager reports the end of the timewait state,
        // which no iWARP has.
        let settings = format!("TGT_IPC_SOCKET={} XWARP_TRANSPORT=ib", socket.display());
        let program = format!("env {settings} tgtd -f {portals}");
        let target = Self {
            hosts,
            daemon: start(&hosts.b, &program),
        };
        let bound = socket.with_file_name("ipc.0");
        eventually("tgtd takes commands", || bound.exists());
        let disk = hosts.work.file("disk");
        target.manage(&format!("target --op new --targetname {TARGET}"));
        target.manage(&format!(
            "logicalunit --op new --lun 1 --backing-store {}",
            disk.display()
        ));
        // It asks for both: an address and a name.
        target.manage("target --op bind --initiator-address ALL");
        target.manage(&format!("target --op bind --initiator-name {INITIATOR}"));
        target
    }

    /// Has tgtd do something about the target; what it says.
    fn manage(&self, command: &str) -> String {
        self.command(&format!("--lld iser --tid 1 --mode {command}"))
    }

    fn command(&self, arguments: &str) -> String {
        let mut tgtadm = self.hosts.b.command("tgtadm");
        tgtadm.env("TGT_IPC_SOCKET", socket(self.hosts));
        tgtadm.args(arguments.split_whitespace());
        output_of(tgtadm)
    }

    /// Runs a utility against the disk.
    fn run(&self, utility: &str) -> Finished {
        let disk = format!("iser://10.77.0.2:3261/{TARGET}/1");
        run_client(
            self.hosts,
            &format!("{LIBISCSI} {utility} -i {INITIATOR} {disk}"),
        )
    }

    /// Runs a test of libiscsi's suite.
    fn test(&self, name: &str) {
        let told = self.run(&format!(
            "iscsi-test-cu --silent --fail --dataloss --test=ALL.{name}"
        ));
        assert!(told.stdout.contains("return value: 0"), "{told}");
        assert!(!told.stdout.contains("[SKIPPED]"), "{told}");
    }

    /// Has it delete the target and end. No session may be left of those that clients have closed.
    fn end(self) {
        eventually("tgtd has no sessions", || {
            self.manage("conn --op show").trim().is_empty()
        });
        self.manage("target --op delete");
        self.command("--mode system --op delete");
        let told = finish(&self.hosts.b, "tgtd", self.daemon);
        assert!(!told.stderr.contains("catastrophic error"), "{told}");
    }
}

/// Where tgtd takes commands. It appends a number.
fn socket(hosts: &Hosts) -> PathBuf {
    hosts.work.file("ipc")
}

/// Verify sends data that the target compares with the disk's.
#[test]
fn disk_is_found_written_read_and_compared_over_iser() {
    needs_root!();
    let hosts = Hosts::new();
    let target = Target::new(&hosts);
    let inquiry = target.run("iscsi-inq");
    assert!(inquiry.stdout.contains("VIRTUAL-DISK"), "{inquiry}");
    let capacity = target.run("iscsi-readcapacity16");
    let told = format!("Total size:{DISK}");
    assert!(capacity.stdout.contains(&told), "{capacity}");
    for test in [
        "Write10.Simple",
        "Read10.Simple",
        "Verify10.Simple",
        "Verify10.Mismatch",
        "WriteVerify10.Simple",
    ] {
        target.test(test);
    }
    target.end();
}
