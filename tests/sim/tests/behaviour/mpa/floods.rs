//! Many connections at one listener: those without a Request make way.

use super::Responding;
use std::time::Duration;
use xwarp::RnicConfig;
use xwarp_sim_tests::Sim;
use xwarp_sim_tests::wire::REQUEST;
use xwarp_tcp::CloseReason;
use xwarp_test_kit::netsim::Seed;

/// Connections without a queue pair that the listener keeps.
const BACKLOG: u64 = 60;

fn responding(backlog: u64) -> Responding {
    let backlog = usize::try_from(backlog).unwrap();
    Responding::with(Sim::with_backlog_and_plain_peer(Seed(43), backlog))
}

/// Connects once more; the connection before stays as it is.
fn connect_again(responding: &mut Responding) {
    let at = responding.listener.addresses()[0];
    responding.peer.connect(at);
    let peer = responding.peer.clone();
    responding.sim.run_until("TCP", || peer.is_connected());
}

#[test]
fn silent_connections_cannot_keep_others_out() {
    let responding = responding(BACKLOG);
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
    let asked =
        (responding.sim).wait_for("the Request", || responding.listener.try_accept().unwrap());
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
    let responding = responding(BACKLOG);
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
    let waiting: Vec<_> =
        std::iter::from_fn(|| responding.listener.try_accept().unwrap()).collect();
    assert_eq!(waiting.len() as u64, BACKLOG);
}

/// A thousand clients reconnect at once to a server that accepts none of them for a while.
#[test]
fn burst_of_a_thousand_requests_waits_for_the_application() {
    let backlog = RnicConfig::default().backlog as u64;
    let mut responding = responding(backlog);
    responding.peer.send(REQUEST);
    let burst = 1000;
    for _ in 1..burst {
        responding.sim.run_for(Duration::from_millis(3));
        connect_again(&mut responding);
        responding.peer.send(REQUEST);
    }
    responding.sim.run_for(Duration::from_millis(5));
    let waiting: Vec<_> =
        std::iter::from_fn(|| responding.listener.try_accept().unwrap()).collect();
    assert_eq!(waiting.len(), burst);
    let refused = responding.sim.a().drops();
    assert_eq!(refused.get("drop_startup_backlog"), None);
}

/// A connection keeps its place in the backlog until the peer's Request is answered or the peer
/// disconnects.
#[test]
fn places_are_free_again_however_they_were_left() {
    let mut responding = responding(3).expecting(&["drop_startup_backlog", "drop_no_flow"]);
    for round in 0..20 {
        responding.peer.send(REQUEST);
        let asked =
            (responding.sim).wait_for("the Request", || responding.listener.try_accept().unwrap());
        match round % 3 {
            0 => drop(asked),
            1 => {
                responding.peer.abort();
                responding.sim.run_for(Duration::from_millis(5));
                asked.reject(b"").unwrap_err();
            }
            _ => {
                let mut end = responding.sim.a().end(&xwarp::QpConfig::default());
                asked.accept(&mut end.qp, b"").unwrap();
            }
        }
        connect_again(&mut responding);
        if round % 2 == 0 {
            responding.peer.abort(); // without a Request
            responding.sim.run_for(Duration::from_millis(5));
            connect_again(&mut responding);
        }
    }
    assert_eq!(responding.sim.a().drops().get("drop_startup_backlog"), None);
    for _ in 0..3 {
        connect_again(&mut responding);
    }
    responding.sim.run_for(Duration::from_millis(5));
    assert_eq!(responding.sim.a().drops()["drop_startup_backlog"], 1);
}

/// Peers that send a Request and disconnect at once, while the application accepts none of them.
/// The backlog bounds these Requests, too.
#[test]
fn requests_of_peers_that_have_gone_do_not_pile_up() {
    let responding = responding(BACKLOG);
    let mut responding = responding.expecting(&["drop_startup_backlog"]);
    let rounds = 5 * BACKLOG;
    for _ in 0..rounds {
        responding.peer.send(REQUEST);
        responding.sim.run_for(Duration::from_millis(5));
        responding.peer.abort();
        responding.sim.run_for(Duration::from_millis(5));
        connect_again(&mut responding);
    }
    let drops = responding.sim.a().drops();
    assert_eq!(drops["drop_startup_backlog"], rounds - BACKLOG);
    let gone: Vec<_> = std::iter::from_fn(|| responding.listener.try_accept().unwrap()).collect();
    assert_eq!(gone.len() as u64, BACKLOG);
    // The listener receives the next Request.
    responding.peer.send(REQUEST);
    let asked =
        (responding.sim).wait_for("the Request", || responding.listener.try_accept().unwrap());
    assert_eq!(asked.private_data(), b"");
}

/// A peer that was rejected and does not close its side, but says something now and then.
#[test]
fn rejected_peer_holds_its_connection_for_ten_seconds_at_most() {
    let mut responding = responding(BACKLOG);
    responding.asked(REQUEST).reject(b"").unwrap();
    for _ in 0..3 {
        responding.sim.run_for(Duration::from_secs(3));
        assert_eq!(responding.peer.ended(), None);
        responding.peer.send(b"?");
    }
    responding.sim.run_for(Duration::from_secs(2));
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
}
