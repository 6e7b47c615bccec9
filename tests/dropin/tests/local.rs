//! Debian's RDMA programs on one host by a software switch: without root, interface, or kernel
//! module. The programs are of a user without any capability, in a namespace of the test's own.

use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use xwarp_dropin_tests::{LIBISCSI, SERVER, SERVER_V6, await_tcp, compile};
use xwarp_system_tests::{Finished, Host, Hosts, Running, eventually, output_of};
use xwarp_test_kit::needs_root;

/// A user without privileges.
const USER: u32 = 65_534;
/// Another user without privileges.
const OTHER: u32 = 65_533;
/// How long a program may take.
const LIMIT: Duration = Duration::from_mins(2);

/// A switch on a host, its user's programs, and the host.
struct Local {
    hosts: Hosts,
    xwarp: PathBuf,
    library: PathBuf,
    socket: PathBuf,
    switch: Option<Running>,
}

impl Local {
    /// Programs find the kernel's TCP at the same addresses, which some use to begin with.
    fn new() -> Self {
        let hosts = Hosts::new();
        hosts.b.compute_checksums();
        let [xwarp, library, socket] = ["xwarp", "lib", "run"].map(|name| hosts.work.file(name));
        fs::copy(Hosts::command_file(), &xwarp).expect("the command");
        fs::create_dir(&library).expect("our own folder");
        copy_library(&library);
        fs::create_dir(&socket).expect("our own folder");
        fs::set_permissions(&socket, Permissions::from_mode(0o777)).expect("our own folder");
        let mut local = Self {
            socket: socket.join("xw0.sock"),
            hosts,
            xwarp,
            library,
            switch: None,
        };
        local.begin_switch();
        local
    }

    fn begin_switch(&mut self) {
        let mut command = self.as_user(&self.hosts.b, USER);
        command.args(["serve", "--local", "xw0", "--address", SERVER]);
        command.args(["--address", SERVER_V6, "--address", "127.0.0.1"]);
        command
            .arg("--socket")
            .arg(&self.socket)
            .args(["--mode", "666"]);
        let mut switch = Running::start(command);
        switch.line("programs find it by XWARP_SERVICE=");
        self.switch = Some(switch);
    }

    /// The command, as a user of a host who has no privileges and cannot get any.
    fn as_user(&self, host: &Host, uid: u32) -> Command {
        let mut command = host.command("setpriv");
        command.arg(format!("--reuid={uid}"));
        command.args("--regid 65534 --clear-groups --inh-caps -all".split(' '));
        command.args("--bounding-set -all --no-new-privs".split(' '));
        command.arg(&self.xwarp);
        command.env("XWARP_LIB", &self.library);
        command.env("HOME", self.hosts.work.as_ref());
        command
    }

    fn start(&self, program: &str) -> Running {
        self.start_as(&self.hosts.b, USER, program)
    }

    /// Starts a program that may be in another network namespace than the switch.
    fn start_as(&self, host: &Host, uid: u32, program: &str) -> Running {
        let mut command = self.as_user(host, uid);
        command
            .args(["run", "--stats", "--service"])
            .arg(&self.socket);
        command.arg("--").args(program.split_whitespace());
        command.env("XWARP_LOG", "info");
        Running::start(command)
    }

    fn serve(&self, program: &str) -> Running {
        let server = self.start(program);
        eventually("the server listens", || {
            server.complained().contains("listening on")
        });
        server
    }

    /// Runs both ends, which have to succeed and leave no object.
    fn run(&self, server: &str, client: &str) -> [Finished; 2] {
        let running = self.serve(server);
        let client = Self::finish(client, self.start(client));
        [client, Self::finish(server, running)]
    }

    fn finish(program: &str, running: Running) -> Finished {
        let finished = running.finish_within(LIMIT).succeeded();
        xwarp_dropin_tests::left_no_object(&finished, program);
        finished
    }

    fn run_both(&self, program: &str) {
        self.run(program, &format!("{program} {SERVER}"));
    }
}

/// Copies the library, which another user may not reach where it was built, with all its names.
fn copy_library(into: &Path) {
    const FILE: &str = "libxwarp-rdma.so.1";
    let built = xwarp_dropin_tests::library();
    fs::copy(built.join(FILE), into.join(FILE)).expect("the library");
    for entry in fs::read_dir(built).expect("the library").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            symlink(FILE, into.join(entry.file_name())).expect("our own folder");
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let Some(mut switch) = self.switch.take() else {
            return;
        };
        switch.signal(Signal::SIGTERM);
        let ended = switch.finish();
        if !std::thread::panicking() {
            ended.exited(143);
            assert!(!self.socket.exists(), "the switch has left its socket");
        }
    }
}

#[test]
fn devices_and_their_attributes_are_the_switchs() {
    needs_root!();
    let local = Local::new();
    let listed = Local::finish("ibv_devices", local.start("ibv_devices"));
    assert!(listed.stdout.contains("xw0"), "{listed}");
    let shown = Local::finish("ibv_devinfo", local.start("ibv_devinfo -v"));
    assert!(shown.stdout.contains("state:\t\t\tPORT_ACTIVE"), "{shown}");
}

#[test]
fn rping_validates_by_each_family_and_on_loopback() {
    needs_root!();
    let local = Local::new();
    for address in [SERVER, SERVER_V6, "127.0.0.1"] {
        let [client, _] = local.run(
            &format!("rping -s -C 20 -V -a {address}"),
            &format!("rping -c -a {address} -C 20 -V"),
        );
        assert!(client.stderr.contains("placed_bytes"), "{client}");
    }
}

#[test]
fn perftest_measures_every_operation() {
    needs_root!();
    let local = Local::new();
    for program in [
        "ib_write_bw -R -s 65536 -n 500",
        "ib_read_bw -R -s 65536 -n 500",
        "ib_send_bw -R -s 4096 -n 500",
        "ib_write_lat -R -n 500",
        "ib_send_lat -R -n 500",
        "ib_write_bw -R -q 4 -n 500 -b",
    ] {
        local.run_both(program);
    }
}

/// Queue pairs of several programs at one address have different numbers.
#[test]
fn programs_bring_their_queue_pairs_up_by_hand_at_once() {
    needs_root!();
    let local = Local::new();
    let programs = [
        "ibv_rc_pingpong -g 0 -c -p 18501",
        "ibv_rc_pingpong -g 1 -c -e -p 18502",
        "ibv_srq_pingpong -g 0 -c -p 18503",
        "ib_write_bw -n 500 -p 18504",
        "ib_read_lat -n 200 -p 18505",
    ];
    let servers = programs.map(|program| local.start(program));
    for port in 18_501..=18_505 {
        await_tcp(&local.hosts.b, port);
    }
    let commands = programs.map(|program| format!("{program} {SERVER}"));
    let clients = commands.each_ref().map(|client| local.start(client));
    for (program, running) in commands.iter().zip(clients) {
        let ended = Local::finish(program, running);
        assert!(
            ended.stderr.contains(" fpdus_"),
            "the RNIC has carried it: {ended}"
        );
    }
    for (program, running) in programs.iter().zip(servers) {
        Local::finish(program, running);
    }
}

#[test]
fn ucmatose_and_qperf_and_fio_end_well() {
    needs_root!();
    let local = Local::new();
    local.run(
        "ucmatose -c 4 -C 20",
        &format!("ucmatose -s {SERVER} -c 4 -C 20"),
    );
    local.run(
        "fio --name=r --ioengine=rdma --port=8899 --bs=64k --size=4m --rw=read --iodepth=64",
        &format!("fio --name=s --ioengine=rdma --hostname={SERVER} --port=8899 --verb=write --bs=64k --size=4m --rw=write"),
    );
}

/// Has messages and windows go by libfabric's verbs provider, and nothing by TCP or by memory of the
/// ranks.
const BY_VERBS: &str = "--oversubscribe --mca pml cm --mca mtl ofi \
    --mca mtl_ofi_provider_include verbs;ofi_rxm --mca osc pt2pt --mca btl ^openib";

/// Runs a program as so many ranks, each of whose RNICs has to carry something.
fn run_ranks(local: &Local, ranks: usize, program: &str) -> Finished {
    let mpirun = format!("mpirun.openmpi {BY_VERBS} -np {ranks} {program}");
    let ended = local.start(&mpirun).finish_within(LIMIT).succeeded();
    assert_eq!(
        ended.stderr.matches("placed_bytes").count(),
        ranks,
        "{ended}"
    );
    ended
}

fn ranks_compare_all(ranks: usize) {
    let local = Local::new();
    let program = compile("mpicc.openmpi", "ranks", &[], &local.hosts.work);
    let ended = run_ranks(&local, ranks, &program);
    for rank in 0..ranks {
        let said = format!("rank {rank} of {ranks} has compared all");
        assert!(ended.stdout.contains(&said), "{ended}");
    }
}

#[test]
fn open_mpi_compares_messages_collectives_and_windows_of_four_ranks() {
    needs_root!();
    ranks_compare_all(4);
}

#[test]
fn open_mpi_compares_messages_collectives_and_windows_of_eight_ranks() {
    needs_root!();
    ranks_compare_all(8);
}

/// The ring compares what comes back, and warns if it differs. Python makes that an error.
#[test]
fn benchmark_of_mpi4py_has_messages_go_round_four_ranks() {
    needs_root!();
    let local = Local::new();
    let bench = "/usr/bin/python3 -W error::UserWarning -m mpi4py.bench ringtest";
    for bytes in [1, 1_000_000] {
        let ended = run_ranks(&local, 4, &format!("{bench} -n {bytes} -l 20 -s 2"));
        let said = format!("(4 processes, {bytes} bytes)");
        assert!(ended.stdout.contains(&said), "{ended}");
    }
}

#[test]
fn store_with_an_event_loop_serves_four_clients_at_once() {
    needs_root!();
    let local = Local::new();
    let libraries = ["-lrdmacm", "-libverbs"];
    let program = compile("cc", "store", &libraries, &local.hosts.work);
    let server = local.serve(&format!("{program} server {SERVER} 4"));
    let clients: Vec<_> = (0..4)
        .map(|number| local.start(&format!("{program} client {SERVER} {number}")))
        .collect();
    for (number, client) in clients.into_iter().enumerate() {
        let ended = Local::finish("store client", client);
        let said = format!("client {number} has compared all");
        assert!(ended.stdout.contains(&said), "{ended}");
    }
    let ended = Local::finish("store server", server);
    assert!(ended.stdout.contains("served 4 clients"), "{ended}");
}

#[test]
fn queue_pair_is_its_own_peer() {
    needs_root!();
    let local = Local::new();
    let program = compile("cc", "own_peer", &["-libverbs"], &local.hosts.work);
    let ended = Local::finish("own_peer", local.start(&program));
    assert_eq!(ended.stdout, "all compared\n");
}

/// tgtd keeps a session until the connection manager reports the end of the timewait state. iWARP
/// has none, so the device passes as InfiniBand.
#[test]
fn tgtd_serves_a_disk_to_libiscsi_over_iser() {
    const TARGET: &str = "iqn.2026-01.xwarp:disk";
    const INITIATOR: &str = "iqn.2026-01.xwarp:client";
    needs_root!();
    let local = Local::new();
    let folder = local.socket.parent().expect("a folder");
    let (disk, commands) = (folder.join("disk"), folder.join("ipc"));
    let file = fs::File::create(&disk).expect("our own folder");
    file.set_len(16 << 20).expect("room for the disk");
    fs::set_permissions(&disk, Permissions::from_mode(0o666)).expect("our own file");
    let settings = format!("TGT_IPC_SOCKET={} XWARP_TRANSPORT=ib", commands.display());
    let portals = "--iscsi portal=127.0.0.1:3260 --iser port=3261,pool_sz_mb=16";
    let daemon = local.start(&format!("env {settings} tgtd -f {portals}"));
    let bound = folder.join("ipc.0");
    eventually("tgtd takes commands", || bound.exists());
    // tgtd takes commands of its own user.
    let manage = |arguments: &str| {
        let command = format!("env {settings} tgtadm {arguments}");
        let ended = local.start(&command).finish_within(LIMIT);
        ended.succeeded().stdout
    };
    let of_target = "--lld iser --tid 1 --mode";
    manage(&format!(
        "{of_target} target --op new --targetname {TARGET}"
    ));
    let store = disk.display();
    manage(&format!(
        "{of_target} logicalunit --op new --lun 1 --backing-store {store}"
    ));
    for who in [
        "--initiator-address ALL".to_owned(),
        format!("--initiator-name {INITIATOR}"),
    ] {
        manage(&format!("{of_target} target --op bind {who}"));
    }
    let unit = format!("-i {INITIATOR} iser://{SERVER}:3261/{TARGET}/1");
    for test in [
        "Write10.Simple",
        "WriteVerify10.Simple",
        "Verify10.Mismatch",
    ] {
        let suite =
            format!("{LIBISCSI} iscsi-test-cu --silent --fail --dataloss --test=ALL.{test} {unit}");
        let ended = Local::finish(&suite, local.start(&suite));
        assert!(ended.stdout.contains("return value: 0"), "{ended}");
        assert!(!ended.stdout.contains("[SKIPPED]"), "{ended}");
    }
    eventually("tgtd has no sessions", || {
        manage(&format!("{of_target} conn --op show"))
            .trim()
            .is_empty()
    });
    manage(&format!("{of_target} target --op delete"));
    manage("--mode system --op delete");
    daemon.finish_within(LIMIT).succeeded();
}

/// In a user namespace, where the user has the same number and files have their owners.
#[test]
fn ordinary_user_finds_the_device_in_sysfs() {
    needs_root!();
    let local = Local::new();
    let said = |program: &str| {
        let ended = local.start(program).finish_within(LIMIT);
        ended.succeeded().stdout
    };
    let status = said("ibstatus");
    let begin = "Infiniband device 'xw0' port 1 status:";
    assert!(status.starts_with(begin), "{status}");
    assert!(status.contains("0000:ffff:0a4d:0002"), "{status}");
    assert_eq!(said("stat --format %u /proc/self"), format!("{USER}\n"));
    assert_eq!(
        said("cat /sys/class/infiniband_verbs/uverbs0/ibdev"),
        "xw0\n"
    );
    assert_eq!(
        said("stat --format %F /dev/infiniband/uverbs0 /dev/zero"),
        "character special file\n".repeat(2)
    );
}

/// As in a project's own tests: the runner knows nothing of RDMA, and starts both ends.
#[test]
fn runner_of_tests_starts_server_and_client_itself() {
    needs_root!();
    let local = Local::new();
    let script = local.hosts.work.file("test_rdma.py");
    fs::write(&script, TESTS.replace("ADDRESS", SERVER)).expect("our own folder");
    let folder = local.hosts.work.as_ref().display();
    let runner = format!("/usr/bin/python3 -B -m unittest discover -s {folder}");
    let ended = local.start(&runner).finish_within(LIMIT).succeeded();
    assert!(ended.stderr.contains("Ran 3 tests"), "{ended}");
}

/// Tests of a project, in Python.
const TESTS: &str = r#"
import subprocess, unittest

def start(program):
    return subprocess.Popen(program.split(), stdout=subprocess.PIPE, text=True)

class Rdma(unittest.TestCase):
    def both(self, server, client):
        with start(server) as server:
            tried = subprocess.run(client.split())
            while tried.returncode != 0 and server.poll() is None:
                tried = subprocess.run(client.split())
            server.communicate(timeout=60)
            self.assertEqual((tried.returncode, server.returncode), (0, 0))

    def test_device(self):
        with start("ibv_devinfo") as devinfo:
            self.assertIn("PORT_ACTIVE", devinfo.communicate()[0])

    def test_ping(self):
        self.both("rping -s -C 10 -V -a ADDRESS", "rping -c -C 10 -V -a ADDRESS")

    def test_bandwidth(self):
        self.both("ib_write_bw -R -n 100", "ib_write_bw -R -n 100 ADDRESS")
"#;

#[test]
fn fi_pingpong_compares_messages_of_both_kinds_of_endpoints() {
    needs_root!();
    let local = Local::new();
    for endpoint in ["-p verbs -e msg", "-p verbs;ofi_rxm -e rdm"] {
        let program = format!("fi_pingpong {endpoint} -c -I 100 -S 65536");
        let server = local.start(&program);
        eventually("the server listens by the kernel's TCP", || {
            let mut command = local.hosts.b.command("ss");
            command.args(["-ltnH", "sport = :47592"]);
            !output_of(command).trim().is_empty()
        });
        let client = format!("{program} {SERVER}");
        Local::finish(&client, local.start(&client));
        Local::finish(&program, server);
    }
}

#[test]
fn several_programs_at_once_disturb_none() {
    needs_root!();
    let local = Local::new();
    let servers: Vec<_> = (7001..7005)
        .map(|port| (port, local.serve(&format!("rping -s -C 200 -V -p {port}"))))
        .collect();
    let clients: Vec<_> = (servers.iter())
        .map(|(port, _)| local.start(&format!("rping -c -a {SERVER} -C 200 -V -p {port}")))
        .collect();
    for running in clients
        .into_iter()
        .chain(servers.into_iter().map(|it| it.1))
    {
        Local::finish("rping", running);
    }
}

#[test]
fn sixteen_processes_of_two_users_exchange_messages() {
    needs_root!();
    let local = Local::new();
    // Half of the pairs are of one user, whose frames go without the switch.
    let uids = [[USER, USER], [OTHER, OTHER], [USER, OTHER], [OTHER, USER]];
    let mut running = Vec::new();
    for (port, [server, client]) in (7001..).zip(uids.into_iter().cycle().take(8)) {
        let program = format!("rping -s -C 100 -V -p {port}");
        let serving = local.start_as(&local.hosts.b, server, &program);
        eventually("the server listens", || {
            serving.complained().contains("listening on")
        });
        running.push(serving);
        let program = format!("rping -c -a {SERVER} -C 100 -V -p {port}");
        running.push(local.start_as(&local.hosts.b, client, &program));
    }
    for running in running {
        Local::finish("rping", running);
    }
}

/// As in a container that has nothing but the socket: no interface, no address and no route.
#[test]
fn socket_is_all_that_a_program_in_another_namespace_needs() {
    needs_root!();
    let local = Local::new();
    let server = local.serve("rping -s -C 20 -V");
    let client = format!("rping -c -a {SERVER} -C 20 -V");
    let running = local.start_as(&local.hosts.a, USER, &client);
    Local::finish(&client, running);
    Local::finish("rping -s", server);
}
