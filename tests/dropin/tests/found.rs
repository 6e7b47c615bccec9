//! Programs that look for RDMA devices in the kernel's files, as `xwarp run` shows them.

use std::fs;
use std::path::Path;

use xwarp_dropin_tests::{SERVER, await_tcp, compile, counter, finish, run_client, start};
use xwarp_system_tests::{Hosts, Running, output_of};
use xwarp_test_kit::needs_root;

/// TCP port of `ucx_perftest`.
const UCX_PORT: u16 = 13337;

/// Runs a program on host A that opens no RNIC; what it prints.
fn said(hosts: &Hosts, program: &str) -> String {
    start(&hosts.a, program).finish().succeeded().stdout
}

#[test]
fn device_is_in_sysfs_and_in_dev_for_the_program_alone() {
    needs_root!();
    let hosts = Hosts::new();
    let status = said(&hosts, "ibstatus");
    for line in [
        "Infiniband device 'eth1' port 1 status:",
        "0000:0000:0000:0000:0000:ffff:0a4d:0001",
        "4: ACTIVE",
        "link_layer:\t Ethernet",
    ] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let guid = said(&hosts, "cat /sys/class/infiniband/eth1/node_guid");
    let info = said(&hosts, "ibv_devinfo");
    assert!(
        info.contains(&format!("node_guid:\t\t\t{guid}")),
        "{guid}{info}"
    );
    let node = said(&hosts, "stat --format %F /dev/infiniband/uverbs0");
    assert_eq!(node, "character special file\n");
    // All else is there.
    let interfaces = said(
        &hosts,
        "ls /sys/class/net /sys/class/infiniband/eth1/device/net",
    );
    assert_eq!(interfaces.matches("eth1").count(), 3, "{interfaces}");
    let mut devices = hosts.a.command("ls");
    devices.arg("/dev");
    let with_ours = output_of(devices).replace("infiniband\n", "");
    assert_eq!(
        said(&hosts, "ls /dev").replace("infiniband\n", ""),
        with_ours
    );
    for folder in ["/sys/class/infiniband", "/dev/infiniband"] {
        assert!(!Path::new(folder).exists(), "{folder} is left on the host");
    }
}

#[test]
fn program_that_may_not_see_the_device_there_is_said_so() {
    needs_root!();
    let hosts = Hosts::new();
    let unseen = hosts
        .a
        .xwarp("run --dev eth1 --no-sysfs -- ls /sys/class/infiniband");
    assert!(unseen.exited(2).stderr.contains("No such file"));
    let without_mounting = |options: &str| {
        let mut command = hosts.a.command("setpriv");
        command
            .args(["--bounding-set", "-sys_admin"])
            .arg(Hosts::command_file());
        command
            .args(["run", "--dev", "eth1"])
            .args(options.split_whitespace());
        Running::start(command).finish().succeeded().stderr
    };
    let warned = without_mounting("-- true");
    assert!(
        warned.contains("cannot be shown to the program: Operation not permitted"),
        "{warned}"
    );
    assert_eq!(without_mounting("--quiet -- true"), "");
}

/// As NIXL's wheel has it: the program needs the bundled name, and has a RUNPATH to it.
#[test]
fn library_takes_the_place_of_one_that_a_wheel_bundles() {
    const NAME: &str = "libibverbs-1de1263b.so.1.14.48.0";
    needs_root!();
    let hosts = Hosts::new();
    let bundle = hosts
        .work
        .file("venv/lib/python3.11/site-packages/nixl.libs");
    fs::create_dir_all(&bundle).expect("our own folder");
    let bundled = compile("gcc", "bundled", &["-shared", "-fPIC"], &hosts.work);
    fs::rename(bundled, bundle.join(NAME)).expect("our own folder");
    let folder = bundle.display();
    let options = [
        format!("-L{folder}"),
        format!("-l:{NAME}"),
        format!("-Wl,--enable-new-dtags,-rpath,{folder}"),
    ];
    let options = options.each_ref().map(String::as_str);
    let program = compile("gcc", "devices", &options, &hosts.work);
    // It is in no Python environment.
    let unseen = start(&hosts.a, &program).finish().exited(1);
    assert_eq!(unseen.stdout, "0 devices\n");
    let named = hosts
        .a
        .xwarp(&format!("run --dev eth1 --alias {NAME} -- {program}"));
    assert_eq!(named.succeeded().stdout, "1 devices\n");
    let bin = hosts.work.file("venv/bin");
    fs::create_dir(&bin).expect("our own folder");
    fs::rename(program, bin.join("devices")).expect("our own folder");
    let installed = bin.join("devices").display().to_string();
    assert_eq!(said(&hosts, &installed), "1 devices\n");
    let wrong = hosts
        .a
        .xwarp("run --dev eth1 --alias ../x -- true")
        .exited(2);
    assert!(wrong.stderr.contains("\"../x\" is no file name"), "{wrong}");
}

/// Debian's UCX 1.13, which finds devices by their files. By its own datagrams it cannot connect,
/// so the transport is named.
#[test]
fn ucx_measures_over_the_device_that_it_finds() {
    needs_root!();
    let hosts = Hosts::new();
    let found = said(&hosts, "ucx_info -d");
    assert!(
        found.contains("Transport: rc_verbs") && found.contains("Device: eth1:1"),
        "{found}"
    );
    for test in [
        "put_lat",
        "put_bw -D zcopy -s 65536",
        "get -D zcopy -s 4096",
        "am_lat",
        "am_bw -D bcopy",
        "fadd",
        "cswap",
    ] {
        let measure = format!("ucx_perftest -t {test} -n 300 -w 10 -d eth1:1 -x rc_verbs");
        let server = start(&hosts.b, &measure);
        await_tcp(&hosts.b, UCX_PORT);
        let client = run_client(&hosts, &format!("{measure} {SERVER}"));
        assert!(client.stdout.contains("Final:"), "{client}");
        assert!(counter(&client, "fpdus_out") > 100, "{client}");
        assert!(client.stderr.contains("xwarp: RDMA carried "), "{client}");
        finish(&hosts.b, &measure, server);
    }
}
