//! Receive metadata: the driver's data on a frame's arrival is in the capture, and on demand in
//! completions.

use std::path::Path;
use std::process::Command;

use xwarp::config::{NicConfig, Progress, XdpMode};
use xwarp::error::OpenError;
use xwarp::{
    Access, CompletionQueue, MemoryRegion, Opcode, QpConfig, QueuePair, RecvRequest, Rnic,
    RnicConfig, SendRequest, WrId,
};
use xwarp_system_tests::{DEV, Host, Hosts, PERF_PORT, TIMEOUT, eventually, output_of};
use xwarp_test_kit::needs_root;

use crate::start_up::connect;

const TEST: &str = "write-bw --verify --size 4096 --iterations 20";

/// The comments of the server's frames in one run.
struct Captured {
    /// Received from the kernel's TCP, without its RSTs.
    from_kernel: Vec<String>,
    /// Received from the client's RNIC.
    from_rnic: Vec<String>,
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
    // The kernel gives a flow another hash after a retransmission, unless this forbids it.
    hosts.a.sh("echo 0 >/proc/sys/net/core/txrehash");
    let of_kernel = connect(hosts, PERF_PORT, &[]);
    let port = of_kernel.local_addr().expect("an address").port();
    drop(of_kernel);
    let client = hosts.a.xwarp(&format!("perf {TEST} 10.77.0.2 {options}"));
    client.succeeded();
    let opened = server.finish().succeeded().stdout;
    let opened = opened.lines().next().expect("a line").to_owned();
    let received = format!("tcp.dstport=={PERF_PORT}");
    let comments = |filter: &str| comments(&file, filter);
    Captured {
        // A RST for a closed socket leaves by a socket of the kernel's own, with another hash.
        from_kernel: comments(&format!(
            "{received} && tcp.srcport=={port} && tcp.flags.reset==0"
        )),
        from_rnic: comments(&format!("{received} && tcp.srcport!={port}")),
        sent: comments(&format!("tcp.srcport=={PERF_PORT}")),
        opened,
    }
}

/// The comments of the captured frames that pass a filter of tshark's, of which there are some.
fn comments(file: &Path, filter: &str) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file);
    tshark.args(["-Y", filter, "-T", "fields", "-e", "frame.comment"]);
    let printed = output_of(tshark);
    assert!(!printed.is_empty(), "no frame passes {filter}");
    printed.lines().map(str::to_owned).collect()
}

fn distinct(comments: &[String]) -> Vec<&str> {
    let mut distinct: Vec<_> = comments.iter().map(String::as_str).collect();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// veth knows the hash that the sender's kernel has computed, which is one for each flow, and has
/// no clock.
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
        let of_kernel = distinct(&run.from_kernel);
        let [of_kernel] = of_kernel[..] else {
            panic!("one flow has other hashes than one: {of_kernel:?}")
        };
        let mut of_rnic = distinct(&run.from_rnic);
        // A frame of several chunks is joined elsewhere, without metadata.
        of_rnic.retain(|comment| mtu == 1500 || !comment.is_empty());
        assert_eq!(of_rnic, ["no NIC time, no RX hash"]);
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
        let received = run.from_kernel.iter().chain(&run.from_rnic);
        let all: Vec<_> = received.chain(&run.sent).collect();
        assert!(all.iter().all(|comment| comment.is_empty()), "{all:?}");
    }
}

/// An RNIC whose completions are to have times.
fn timed(host: &Host, mode: XdpMode) -> Result<Rnic, OpenError> {
    let nic = NicConfig::default()
        .mode(Some(mode))
        .region_bytes(1 << 20)
        .timestamps(true);
    let config = RnicConfig::default().nic(nic).progress(Progress::Thread);
    host.run(|| Rnic::open(DEV, &config))
}

/// A queue pair, where it completes, and its memory.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    fn new(rnic: &Rnic) -> Self {
        let (pd, cq) = (rnic.allocate_pd(), rnic.create_cq(8));
        let (pd, cq) = (pd.expect("a domain"), cq.expect("a queue"));
        let qp = pd.create_qp(&QpConfig::default(), &cq, &cq);
        let both = Access::LOCAL_READ | Access::LOCAL_WRITE;
        Self {
            qp: qp.expect("a queue pair"),
            cq,
            memory: pd.allocate(64, both).expect("memory"),
        }
    }
}

/// Two connected ends: the client's and the server's.
fn connected(hosts: &Hosts, [a, b]: &[Rnic; 2]) -> [End; 2] {
    let [mut client, mut server] = [a, b].map(End::new);
    let at = (Hosts::SERVER, PERF_PORT).into();
    let mut listener = hosts.b.run(|| b.listen(at)).expect("a port");
    let begun = (hosts.a).run(|| client.qp.begin_connect(at, b"", TIMEOUT));
    let mut request = None;
    eventually("the client asks", || {
        request = listener.try_accept().expect("a listener");
        request.is_some()
    });
    let accepted = request.map(|request| request.accept(&mut server.qp, b""));
    accepted.expect("a request").expect("a connection");
    let answer = begun.expect("an attempt").wait();
    answer.expect("an answer");
    [client, server]
}

/// veth takes the question, and has no clock.
#[test]
fn completion_has_no_time_that_the_nic_has_not_told() {
    needs_root!();
    let hosts = Hosts::new();
    let refused = timed(&hosts.a, XdpMode::Generic).err();
    let refused = refused.expect("the driver cannot be asked").to_string();
    let why = "eth1 does not report when frames arrive";
    assert!(refused.contains(why), "{refused}");
    assert!(hosts.a.program().is_none(), "nothing is left");
    let rnics = [&hosts.a, &hosts.b].map(|host| timed(host, XdpMode::Native).expect("an RNIC"));
    let asks = |rnic: &Rnic| rnic.info().is_some_and(|info| info.rx_metadata);
    assert!(rnics.iter().all(asks));
    let [mut client, mut server] = connected(&hosts, &rnics);
    let into = RecvRequest::new(WrId(1), server.memory.local(0, 64));
    server.qp.post_recv(into).expect("room");
    let from = SendRequest::send(WrId(2), client.memory.local(0, 64));
    client.qp.post_send(from).expect("room");
    let done = server.cq.wait(TIMEOUT).expect("an RNIC");
    let done = done.expect("a message");
    assert_eq!((done.opcode, done.timestamp()), (Opcode::Receive, None));
}
