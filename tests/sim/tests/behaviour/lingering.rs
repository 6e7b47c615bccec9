//! Ports of connections that have ended: kept for TCP's sake, but never many.

use std::time::Duration;

use xwarp::QpConfig;
use xwarp_netsim::Seed;
use xwarp_sim_tests::Sim;

/// The first port that the simulated host gives away, and how many ports of ended connections an RNIC keeps.
const FIRST: usize = 49_152;
const KEPT: usize = 256;

/// Each port is a descriptor of the process, of which it often has 1024.
#[test]
fn a_client_that_comes_and_goes_holds_few_ports() {
    let mut sim = Sim::new(Seed(61)).one_way_delay(Duration::from_micros(50));
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut highest = 0;
    for _ in 0..3 * KEPT {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let limit = Duration::from_secs(5);
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        let request = sim.wait_for("the Request", || listener.try_accept());
        highest = highest.max(usize::from(request.remote().port()));
        request.accept(&mut b.qp, b"").unwrap();
        let answer = sim.wait_for("the Reply", || connecting.try_finish());
        answer.unwrap();
        a.qp.begin_disconnect().unwrap();
        sim.run_for(Duration::from_millis(1));
        assert_eq!(
            a.events(),
            [xwarp::AsyncEventKind::Closed],
            "gracefully, however soon the port goes"
        );
    }
    // Each connect takes a spare port besides.
    assert!(highest < FIRST + KEPT + 4, "port {highest}");
}
