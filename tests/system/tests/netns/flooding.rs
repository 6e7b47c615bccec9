//! A listener that is flooded, and clients that mean it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xwarp::{CompletionQueue, Listener, QpConfig, QueuePair, Rnic, RnicConfig};
use xwarp_system_tests::impair::{Flood, Flooded, Hostile};
use xwarp_system_tests::{DEV, Hosts, eventually};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::Seed;

/// SYNs, and as many ACKs, per second.
const RATE: u32 = 20_000;
/// RSTs that an RNIC answers strangers with: at once, and every second.
const RESETS_AT_ONCE: u64 = 16_384;
const RESETS_PER_SECOND: u64 = 1000;
/// How long clients come, one at a time, and how many do at least.
const TIME: Duration = Duration::from_secs(4);
const CLIENTS: u64 = 4;
/// Hostile SYNs that a full backlog leaves to cookies, and hostile ACKs, between two clients.
const HOSTILE: u64 = 100;
/// How long one of them waits, and how often it tries: anew only if the server's receive ring was
/// full meanwhile.
const LIMIT: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 20;
/// Connections that the server keeps.
const KEPT: usize = 8;

fn server() -> SocketAddr {
    SocketAddr::new(Hosts::SERVER, 7471)
}

fn queue_pair(rnic: &Rnic) -> (QueuePair, CompletionQueue) {
    let cq = rnic.create_cq(16).expect("a queue");
    let pd = rnic.allocate_pd().expect("a protection domain");
    let qp = pd.create_qp(&QpConfig::default(), &cq, &cq);
    (qp.expect("a queue pair"), cq)
}

/// Floods `b` from `a`.
fn flood(hosts: &Hosts, b: &Rnic) -> Flood {
    let SocketAddr::V4(target) = server() else {
        unreachable!("the server's address");
    };
    let hostile = Hostile {
        target,
        mac: b.info().expect("an interface").mac.0,
        syns: RATE,
        acks: RATE,
        seed: Seed(1),
    };
    hosts
        .a
        .run(|| Flood::start(DEV, hostile))
        .expect("root may send")
}

/// Accepts every connection until `end`. The last ones stay connected.
fn accept_all(rnic: &Rnic, listener: &mut Listener, end: &AtomicBool) {
    let mut connections = VecDeque::new();
    while !end.load(Ordering::Relaxed) {
        let request = listener.accept(Duration::from_millis(50));
        if let Some(request) = request.expect("an RNIC") {
            let (mut qp, cq) = queue_pair(rnic);
            if request.accept(&mut qp, b"").is_ok() {
                connections.push_back((qp, cq));
                if connections.len() > KEPT {
                    connections.pop_front();
                }
            }
        }
    }
}

/// A client that is served. A server that waits for a processor loses frames of flood and client
/// alike, and then it may take another attempt.
fn connect_once(hosts: &Hosts, [a, b]: [&Rnic; 2]) {
    let lost = || {
        let io = b.counters().expect("an engine").io;
        io.drop_rx_ring_full + io.drop_rx_no_frame
    };
    for _ in 0..ATTEMPTS {
        let (before, (mut qp, _cq)) = (lost(), queue_pair(a));
        let connected = hosts.a.run(|| qp.connect(server(), b"", LIMIT));
        let Err(error) = connected else { return };
        assert!(lost() > before, "a client is not served: {error}");
    }
    panic!("a client is not served in {ATTEMPTS} attempts");
}

/// Connects again and again; how often. The flood goes on meanwhile: between two clients, `b`
/// refuses further hostile SYNs and ACKs.
fn connect_all(hosts: &Hosts, [a, b]: [&Rnic; 2]) -> u64 {
    let begin = Instant::now();
    let hostile = || {
        let counters = b.counters().expect("an engine").tcp;
        [counters.cookies_out, counters.drop_no_flow]
    };
    let (mut served, mut before) = (0, hostile());
    while served < CLIENTS || begin.elapsed() < TIME {
        eventually("the backlog is full, and strangers' ACKs come", || {
            let now = hostile();
            now.iter()
                .zip(before)
                .all(|(now, before)| *now >= before + HOSTILE)
        });
        connect_once(hosts, [a, b]);
        served += 1;
        before = hostile();
    }
    served
}

#[test]
fn honest_clients_are_served_at_20000_hostile_syns_and_as_many_acks_a_second() {
    needs_root!();
    let hosts = Hosts::new();
    let opened = Instant::now();
    let [a, b] = [&hosts.a, &hosts.b].map(|host| host.open(RnicConfig::default()));
    let mut listener = hosts.b.run(|| b.listen(server())).expect("a free port");
    let flood = flood(&hosts, &b);
    let end = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        scope.spawn(|| accept_all(&b, &mut listener, &end));
        let connect_all = || connect_all(&hosts, [&a, &b]);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(connect_all));
        end.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let Flooded { syns, acks } = flood.finish().expect("it could send");
    let counters = b.counters().expect("an engine").tcp;
    println!("{served} clients served beside {syns} SYNs and {acks} ACKs; {counters:?}");
    assert!(counters.cookies_in > served / 2, "{counters:?}");
    let resets = RESETS_AT_ONCE + RESETS_PER_SECOND * (opened.elapsed().as_secs() + 1);
    assert!(
        counters.resets_out <= resets,
        "{resets} at most: {counters:?}"
    );
}
