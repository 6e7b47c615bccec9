//! Frames that come to the queue of another engine than their connection's, as the NIC chooses
//! queues anew.

use std::collections::BTreeSet;
use std::time::Duration;

use xwarp::QpConfig;
use xwarp::event::AsyncEventKind;
use xwarp_sim_tests::{Sim, SimEnd, for_each_seed};
use xwarp_test_kit::netsim::Seed;
use xwarp_test_kit::pattern_of;

use super::{ENGINES, engines, pairs};

/// Frames after which the NICs choose anew: often within a message, and before a handshake is over.
const FRAMES: usize = 3;
/// Bytes of a message: some segments.
const LEN: usize = 5000;
/// Connections after each other: more than a host keeps ports for.
const REUSED: usize = 400;

fn message(number: u64) -> Vec<u8> {
    pattern_of(number, LEN)
}

/// Sends both ways; each arrives as it was sent.
fn exchange(sim: &mut Sim, ends: &mut [(SimEnd, SimEnd)]) {
    for (number, (a, b)) in (0..).zip(&mut *ends) {
        a.post_recv(number, LEN);
        b.post_recv(number, LEN);
        a.post_send(number, &message(number));
        b.post_send(number, &message(number + 100));
    }
    sim.run_until_idle();
    for (number, (a, b)) in (0..).zip(ends) {
        assert_eq!((a.sends().len(), b.sends().len()), (1, 1));
        assert_eq!((a.receives().len(), b.receives().len()), (1, 1));
        assert!(a.buffer(number) == message(number + 100));
        assert!(b.buffer(number) == message(number));
    }
}

/// Frames that engines have handed over and received from others, at both hosts, and those that got
/// lost there.
fn crossed(sim: &Sim) -> (u64, u64, u64) {
    let all = [sim.a(), sim.b()].map(|host| host.rnic().counters().unwrap());
    let sum = |count: fn(&xwarp::attr::RnicCounters) -> u64| all.iter().map(count).sum();
    (
        sum(|it| it.tcp.handed_over),
        sum(|it| it.io.crossed_frames),
        sum(|it| it.io.drop_crossed),
    )
}

#[test]
fn connections_stay_on_their_engines_whatever_queue_their_frames_come_to() {
    for_each_seed(|seed| {
        let mut sim = Sim::with_resteering(seed, ENGINES, FRAMES);
        sim = sim.one_way_delay(Duration::from_micros(50));
        let mut ends = pairs(&mut sim);
        let before = engines(ends.iter().map(|(a, _)| a));
        exchange(&mut sim, &mut ends);
        assert_eq!(engines(ends.iter().map(|(a, _)| a)), before);
        let (handed_over, came, lost) = crossed(&sim);
        assert!(handed_over > 100 && came == handed_over && lost == 0);
        for host in [sim.a(), sim.b()] {
            let tcp = host.rnic().counters().unwrap().tcp;
            assert_eq!(tcp.retransmissions, 0, "nothing is lost");
        }
    });
}

/// A port whose last connection is in TIME-WAIT on one engine begins the next one on another.
#[test]
fn connection_succeeds_one_in_time_wait_on_another_engine() {
    let mut sim = Sim::with_resteering(Seed(89), ENGINES, FRAMES);
    sim = sim.one_way_delay(Duration::from_micros(50));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut ports = BTreeSet::new();
    for _ in 0..REUSED {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let limit = Duration::from_secs(5);
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        ports.insert(connecting.local().port());
        let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
        request.accept(&mut b.qp, b"").unwrap();
        sim.wait_for("the Reply", || connecting.try_finish())
            .unwrap();
        a.qp.begin_disconnect().unwrap();
        sim.run_for(Duration::from_millis(1));
        assert_eq!(a.events(), [AsyncEventKind::Closed]);
    }
    assert!(ports.len() < REUSED, "ports are used again");
}
