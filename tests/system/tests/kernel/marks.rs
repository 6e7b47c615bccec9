//! ECN with the kernel's TCP: who takes marks for losses (RFC 3168) is understood, and understands.

use std::sync::mpsc;

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Rule, Side};
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_tcp::{CongestionControl, StackConfig};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;
use crate::streams::{kernel_receives, kernel_sends, receive_all, send_all};

const PORT: u16 = 5006;
/// The part of the segments of one side that is marked: some ten of a stream.
const MARKS: f64 = 0.005;
const ALGORITHMS: [CongestionControl; 2] = [CongestionControl::Cubic, CongestionControl::NewReno];

/// A network, and a host B on it whose kernel wants ECN.
fn hosts() -> Bridged {
    let hosts = Bridged::new();
    hosts
        .b
        .call(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").expect("root may"));
    hosts
}

fn rule() -> Rule {
    Rule {
        mark: MARKS,
        ..Rule::new(Seed(5))
    }
}

fn data() -> Vec<u8> {
    Rng::new(Seed(3), 0).bytes(6 << 20)
}

fn open(congestion: CongestionControl) -> Engine {
    let config = StackConfig {
        congestion,
        ecn: true,
        ..StackConfig::default()
    };
    Engine::open_with(Side::A, XdpMode::Native, &config)
}

#[test]
fn kernels_echoes_are_answered() {
    needs_root!();
    for algorithm in ALGORITHMS {
        let _alone = Exclusive::wait_for(LOCK);
        let hosts = hosts();
        let impaired = hosts.impair(Side::A, rule());
        let receiving = kernel_receives(&hosts, PORT);
        let counters = hosts.a.call(move || {
            let mut engine = open(algorithm);
            let conn = engine.connect(45_000, PORT);
            engine.until_connected();
            send_all(&mut engine, conn, &data());
            engine.check();
            engine.stack.counters()
        });
        assert!(receiving.recv().expect("what came") == data());
        let (answered, fates) = (counters.congestion_answered, impaired.fates());
        println!("{algorithm:?}: {answered} answers, {fates:?}");
        assert!(answered > 0, "{algorithm:?}: {fates:?}, {counters:?}");
        // Each was echoed until it was answered, and no longer unless a queue has lost the answer.
        let most = fates.marked + counters.retransmissions;
        assert!(answered <= most, "{answered} answers, {fates:?}");
    }
}

#[test]
fn kernel_hears_of_marks_from_us() {
    needs_root!();
    for algorithm in ALGORITHMS {
        let _alone = Exclusive::wait_for(LOCK);
        let hosts = hosts();
        let impaired = hosts.impair(Side::B, rule());
        let (ready, is_ready) = mpsc::channel();
        let receiving = hosts.a.begin(move || {
            let mut engine = open(algorithm);
            engine.listen(PORT);
            ready.send(()).expect("the test waits");
            let received = receive_all(&mut engine);
            engine.check();
            received
        });
        is_ready.recv().expect("a listener");
        kernel_sends(&hosts, PORT, data());
        assert!(receiving.recv().expect("what came") == data());
        let (heard, fates) = (hosts.b.tcp_counter("TCPDeliveredCE"), impaired.fates());
        println!("{algorithm:?}: the kernel has heard of {heard} segments, {fates:?}");
        // Marks are echoed until the kernel answers, so it counts more segments than were marked.
        assert!(heard > 0 && fates.marked > 0, "{heard} of {fates:?}");
        assert!(heard < fates.passed, "{heard} of {fates:?}");
    }
}
