//! Checksums that are left to the NIC, on a link whose driver names no such thing. A probe finds
//! out, and they are left only if it is answered.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use xwarp::cm::MpaConfig;
use xwarp::config::{NicConfig, Progress, TxChecksum, WaitMode, XdpMode};
use xwarp::{CompletionQueue, QpConfig, Rnic, RnicConfig};
use xwarp_driver::net;
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, eventually, output_of};
use xwarp_tcp::StackCounters;
use xwarp_test_kit::{End, needs_root, next_success};

/// A port of the server's.
const PORT: u16 = 7471;
/// Messages each way, and bytes of each.
const MESSAGES: u64 = 50;
const BYTES: u32 = 1000;
/// Attempts to exchange them on a busy machine without a peer that waits for a processor for too
/// long.
const EXCHANGES: u64 = 20;

fn config(host: &Host, tx_checksum: TxChecksum, capture: Option<PathBuf>) -> Rnic {
    let nic = NicConfig::default()
        .mode(Some(XdpMode::Native))
        .region_bytes(1 << 20)
        .capture(capture)
        .tx_checksum(tx_checksum);
    let config = RnicConfig::default()
        .nic(nic)
        .progress(Progress::Thread)
        .wait_mode(WaitMode::Blocking)
        // Its pass over the payload would have the checksum as well.
        .mpa(MpaConfig::default().crc(false));
    host.run(|| Rnic::open(DEV, &config)).expect("an RNIC")
}

/// What has connected, and where it completes.
struct Connected {
    near: (End, CompletionQueue),
    far: (End, CompletionQueue),
}

fn connect(hosts: &Hosts, [a, b]: &[Rnic; 2]) -> Connected {
    let end = |rnic: &Rnic| {
        let pd = rnic.allocate_pd().expect("a domain");
        let cq = rnic.create_cq(64).expect("a queue");
        let end = End::new(&pd, &cq, &QpConfig::default(), BYTES as usize);
        (end, cq)
    };
    let (mut near, mut far) = (end(a), end(b));
    let at = SocketAddr::new(Hosts::SERVER, PORT);
    let mut listener = hosts.b.run(|| b.listen(at)).expect("a port");
    far.0.post_recv(0, BYTES);
    thread::scope(|scope| {
        scope.spawn(|| far.0.accept(&mut listener, b""));
        let connect = || near.0.qp.connect(at, b"", TIMEOUT);
        hosts.a.run(connect).expect("a connection");
    });
    Connected { near, far }
}

/// One message after the other, each way by turns, which arrive as they were sent.
fn exchange(connected: &mut Connected, messages: u64) {
    let Connected {
        near: (near, near_cq),
        far: (far, far_cq),
    } = connected;
    for id in 1..=messages {
        let fill = id.to_le_bytes()[0];
        let filled = near.source.bytes().fill(0..BYTES as usize, fill);
        filled.expect("in the region");
        near.post_recv(id, BYTES);
        near.post(near.send(id, BYTES));
        next_success(near_cq);
        next_success(far_cq);
        assert_eq!(far.sink.bytes().to_vec(), [fill; BYTES as usize]);
        far.post_recv(id, BYTES);
        far.post(far.send(id, BYTES));
        next_success(far_cq);
        next_success(near_cq);
    }
}

fn tcp(rnic: &Rnic) -> StackCounters {
    rnic.counters().expect("an engine").tcp
}

/// Segments that were sent again, without those that the peer has reported as duplicates.
fn unreported(rnic: &Rnic) -> u64 {
    let counters = tcp(rnic);
    let reported = counters.duplicates_reported;
    counters.retransmissions.saturating_sub(reported)
}

/// [`exchange`], in which nothing is lost. A peer that waits for a processor gets segments again,
/// and reports each as a duplicate.
fn exchange_without_loss(connected: &mut Connected, rnics: &[Rnic; 2]) {
    // SYNs are not reported.
    let before = rnics.each_ref().map(unreported);
    exchange(connected, MESSAGES);
    for (rnic, before) in rnics.iter().zip(before) {
        eventually("all that was sent again had arrived", || {
            unreported(rnic) <= before
        });
    }
}

/// Exchanges until nothing is sent again in one; how many there were. What is sent again is taken
/// for a loss, after which the peer is asked anew, or checksums are computed here. The first
/// message has the probe follow it, and the others follow the answer.
fn undisturbed_exchange(hosts: &Hosts, rnics: &[Rnic; 2]) -> u64 {
    let repeated = || tcp(&rnics[0]).retransmissions;
    let proven = || tcp(&rnics[0]).checksums_proven;
    for exchanges in 1..=EXCHANGES {
        let before = repeated();
        let unproven = proven();
        let mut connected = connect(hosts, rnics);
        exchange(&mut connected, 1);
        eventually("the probe is answered, or something is sent again", || {
            proven() > unproven || repeated() > before
        });
        exchange_without_loss(&mut connected, rnics);
        if repeated() == before {
            return exchanges;
        }
    }
    panic!("segments are sent again in each of {EXCHANGES} exchanges");
}

/// Segments to and from the server whose TCP checksum does not fit, in a capture.
fn wrong_checksums(file: &Path) -> usize {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file);
    tshark.args(["-o", "tcp.check_checksum:TRUE"]);
    let filter = format!("tcp.port=={PORT} && tcp.checksum.status==Bad");
    tshark.args(["-Y", &filter, "-T", "fields", "-e", "frame.number"]);
    output_of(tshark).lines().count()
}

/// The probe, and data that follows the answer to it, leave without a sum and arrive with one.
#[test]
fn sum_that_the_kernel_computes_is_proven_and_used() {
    needs_root!();
    let hosts = Hosts::new();
    let files = ["near", "far"].map(|name| hosts.work.file(&format!("{name}.pcapng")));
    let sides = [
        (&hosts.a, TxChecksum::InKernel, &files[0]),
        (&hosts.b, TxChecksum::Auto, &files[1]),
    ];
    let rnics = sides.map(|(host, how, file)| config(host, how, Some(file.clone())));
    let offers = rnics
        .each_ref()
        .map(|rnic| rnic.info().expect("open").tx_checksum);
    let told = [TxChecksum::InKernel, TxChecksum::Off];
    assert_eq!(offers, told, "the driver names nothing");
    let exchanges = undisturbed_exchange(&hosts, &rnics);
    let [near, far] = rnics.each_ref().map(tcp);
    let (asked, doubted) = (near.checksum_probes_out, near.checksums_doubted);
    assert_eq!(asked, exchanges + doubted, "{near:?}");
    assert!(doubted <= near.retransmissions, "{near:?}");
    assert!(
        (exchanges..=asked).contains(&near.checksums_proven),
        "{near:?}"
    );
    assert_eq!(far.checksum_probes_out, 0);
    assert_eq!((far.drop_partial_checksum, far.drop_bad_checksum), (0, 0));
    drop(rnics);
    let [left, arrived] = files.each_ref().map(|file| wrong_checksums(file));
    assert!(left as u64 >= MESSAGES, "{left} were left to the kernel");
    assert_eq!(arrived, 0);
}

/// veth takes the request and hands the frame on as it is. The peer drops the probe, and nothing
/// else.
#[test]
fn request_that_nobody_fulfils_costs_nothing() {
    needs_root!();
    let hosts = Hosts::new();
    let rnics = [&hosts.a, &hosts.b].map(|host| config(host, TxChecksum::Always, None));
    exchange_without_loss(&mut connect(&hosts, &rnics), &rnics);
    for counters in rnics.each_ref().map(tcp) {
        let asked = (counters.checksum_probes_out, counters.checksums_proven);
        assert_eq!(asked, (1, 0), "{counters:?}");
        assert_eq!(counters.drop_partial_checksum, 1, "the other's probe");
    }
}

/// Pieces of frames begin where their chunks do, so there is no room for a request.
#[test]
fn frames_of_several_chunks_are_summed_here() {
    needs_root!();
    let hosts = Hosts::new();
    for host in [&hosts.a, &hosts.b] {
        host.ip(&format!("link set {DEV} mtu 9000"));
    }
    let rnics = [&hosts.a, &hosts.b].map(|host| config(host, TxChecksum::Always, None));
    exchange(&mut connect(&hosts, &rnics), MESSAGES);
    for rnic in &rnics {
        let offered = rnic.info().expect("an interface").tx_checksum;
        assert_eq!(offered, TxChecksum::Off);
        assert_eq!(tcp(rnic).checksum_probes_out, 0);
    }
}

/// The command has the option, prints what it opened, and refuses unknown values.
#[test]
fn command_tries_what_it_is_told_to() {
    needs_root!();
    let hosts = Hosts::new();
    for (option, tried) in [("always", true), ("in-kernel", true), ("off", false)] {
        let options = format!("--no-crc --verify --size 2000 --tx-checksum {option}");
        let mut server = hosts
            .b
            .start(&format!("perf write-bw --dev {DEV} {options}"));
        server.line("waiting for a client at ");
        let run = format!("perf write-bw 10.77.0.2 --iterations 100 {options}");
        let client = hosts.a.xwarp(&run);
        assert!(client.succeeds(), "{client}");
        assert!(client.stdout.contains("every byte as sent"), "{client}");
        for said in [&client.stdout, &server.finish().succeeded().stdout] {
            assert_eq!(said.contains("TX checksum tried"), tried, "{said}");
        }
    }
    let unknown = hosts
        .a
        .xwarp(&format!("perf write-bw --dev {DEV} --tx-checksum maybe"));
    assert!(
        !unknown.succeeds() && unknown.stderr.contains("in-kernel"),
        "{unknown}"
    );
    let named = hosts
        .a
        .run(|| net::Hardware::of(&net::interface_by_name(DEV).expect("there")));
    let named = named.expect("the kernel tells").xdp.expect("features");
    assert!(
        !named.has(net::XdpFeature::TxChecksum),
        "or auto is untried"
    );
}
