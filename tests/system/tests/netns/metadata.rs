//! Receive metadata: what the driver tells of a frame's arrival is in the capture.

use std::path::PathBuf;
use std::process::Command;

use xwarp_system_tests::{DEV, Hosts, PERF_PORT};
use xwarp_test_kit::needs_root;

use crate::start_up::connect;

const TEST: &str = "write-bw --verify --size 4096 --iterations 20";

/// The server's frames of a run: those that it has received with what their comment says, and the comments of those that it has sent.
struct Captured {
    received: Vec<String>,
    sent: Vec<String>,
    /// The server's first line.
    opened: String,
}

fn captured(hosts: &Hosts, name: &str, options: &str) -> Captured {
    let file = hosts.work.file(&format!("{name}.pcapng"));
    let capture = format!("--capture {} {options}", file.display());
    let mut server = hosts.b.start(&format!("perf {TEST} --dev {DEV} {capture}"));
    server.line("waiting for a client at ");
    // The kernel's TCP sends frames with a hash, a socket of AF_XDP without one.
    hosts.a.compute_checksums();
    drop(connect(hosts, PERF_PORT, &[]));
    let client = hosts.a.xwarp(&format!("perf {TEST} 10.77.0.2 {options}"));
    client.succeeded();
    let opened = server.finish().succeeded().stdout;
    let opened = opened.lines().next().expect("a line").to_owned();
    let (received, sent) = comments(&file);
    Captured {
        received,
        sent,
        opened,
    }
}

/// The comments of frames to the server's port, and of those from it.
fn comments(file: &PathBuf) -> (Vec<String>, Vec<String>) {
    let [to, from] = ["dstport", "srcport"].map(|port| {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(file);
        tshark.args(["-Y", &format!("tcp.{port}=={PERF_PORT}"), "-T", "fields"]);
        let printed = tshark.args(["-e", "frame.comment"]).output();
        let printed = printed.expect("tshark").stdout;
        let printed = String::from_utf8(printed).expect("text");
        printed.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(!to.is_empty() && !from.is_empty(), "{to:?} {from:?}");
    (to, from)
}

/// veth knows the hash that the sender's kernel has computed, which is one for each flow, and has no clock.
#[test]
fn capture_has_the_hash_that_the_driver_tells() {
    needs_root!();
    let hosts = Hosts::new();
    // Beneath the larger MTU runs the program for frames of several buffers.
    for mtu in [1500, 9000] {
        for host in [&hosts.a, &hosts.b] {
            host.ip(&format!("link set {DEV} mtu {mtu}"));
        }
        let run = captured(&hosts, &mtu.to_string(), "");
        assert!(run.opened.contains("  RX metadata"), "{}", run.opened);
        let mut told: Vec<_> = run.received.iter().map(String::as_str).collect();
        told.sort_unstable();
        told.dedup();
        // A frame of several chunks is joined elsewhere, without metadata.
        told.retain(|told| mtu == 1500 || !told.is_empty());
        let [of_kernel, of_afxdp] = told[..] else {
            panic!("two flows have other hashes than two: {told:?}")
        };
        assert_eq!(of_afxdp, "no NIC time, no RX hash");
        let (hash, kind) = of_kernel.split_once(" (type ").expect("a type");
        assert!(hash.starts_with("no NIC time, RX hash 0x"), "{hash}");
        assert_eq!(kind, "0x8)", "of TCP's ports and more");
        assert!(run.sent.iter().all(String::is_empty), "{:?}", run.sent);
    }
}

/// The plain program goes everywhere, and asks nothing.
#[test]
fn where_the_driver_is_not_asked_nothing_is_made_up() {
    needs_root!();
    let hosts = Hosts::new();
    let generic = captured(&hosts, "generic", "--mode generic");
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    let found = captured(&hosts, "found", "");
    for run in [generic, found] {
        assert!(!run.opened.contains("metadata"), "{}", run.opened);
        let all: Vec<_> = run.received.iter().chain(&run.sent).collect();
        assert!(all.iter().all(|comment| comment.is_empty()), "{all:?}");
    }
}
