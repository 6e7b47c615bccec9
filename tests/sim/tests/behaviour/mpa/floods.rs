//! Many connections at one listener: those without a Request make way.

use super::Responding;
use std::time::Duration;
use xwarp::MpaConfig;
use xwarp_sim_tests::wire::REQUEST;
use xwarp_tcp::CloseReason;

/// Connections without a queue pair that a listener keeps.
const BACKLOG: u64 = 128;

/// Connects once more; the connection before stays as it is.
fn connect_again(responding: &mut Responding) {
    let at = responding.listener.addresses()[0];
    responding.peer.connect(at);
    let peer = responding.peer.clone();
    responding.sim.run_until("TCP", || peer.is_connected());
}

#[test]
fn silent_connections_cannot_keep_others_out() {
    let responding = Responding::new(MpaConfig::default());
    let drops = ["drop_startup_backlog", "drop_startup_timeout"];
    let mut responding = responding.expecting(&drops);
    for _ in 1..BACKLOG + 100 {
        connect_again(&mut responding);
    }
    responding.sim.run_for(Duration::from_millis(10));
    let drops = responding.sim.a().drops();
    assert_eq!(drops["drop_startup_backlog"], 100);
    assert_eq!(drops.get("drop_startup_timeout"), None);
    responding.peer.send(REQUEST);
    let asked = (responding.sim).wait_for("the Request", || responding.listener.try_accept());
    assert_eq!(asked.private_data(), b"");
    responding.sim.run_for(Duration::from_secs(11));
    let drops = responding.sim.a().drops();
    assert_eq!(
        drops["drop_startup_timeout"],
        BACKLOG - 1,
        "no more were kept"
    );
}

#[test]
fn requests_that_wait_for_the_application_are_kept_and_later_ones_refused() {
    let responding = Responding::new(MpaConfig::default());
    let mut responding = responding.expecting(&["drop_startup_backlog"]);
    responding.peer.send(REQUEST);
    for _ in 1..BACKLOG {
        responding.sim.run_for(Duration::from_millis(5));
        connect_again(&mut responding);
        responding.peer.send(REQUEST);
    }
    responding.sim.run_for(Duration::from_millis(5));
    assert_eq!(responding.peer.ended(), None);
    connect_again(&mut responding);
    responding.sim.run_for(Duration::from_millis(5));
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(responding.sim.a().drops()["drop_startup_backlog"], 1);
    let waiting: Vec<_> = std::iter::from_fn(|| responding.listener.try_accept()).collect();
    assert_eq!(waiting.len() as u64, BACKLOG);
}
