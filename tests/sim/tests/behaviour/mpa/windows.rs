//! Start-up with a peer whose window has no room for it: TCP's flow control waits, as long as the
//! start-up may take.

use std::time::Duration;

use xwarp::cm::MpaConfig;
use xwarp::error::ConnectError;
use xwarp::event::AsyncEventKind;
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::wire::{ENHANCED_REQUEST, REPLY, REQUEST, reply};
use xwarp_sim_tests::{PlainPeer, Sim, SimEnd};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::netsim::Seed;

use super::{CRC, LIMIT, REJECTED, Responding};

/// What has no room for a Reply, as the window field has it: nothing, and 8 bytes by the peer's
/// scale.
const WINDOWS: [u16; 2] = [0, 1];
/// Longer than a start-up may take.
const LONG: Duration = Duration::from_secs(11);

/// An end that has accepted a peer whose window has been this small since before its Request.
fn accepted(window: u16) -> (Responding, SimEnd) {
    let mut responding = Responding::new(MpaConfig::default());
    responding.peer.announce(Some(window));
    let request = responding.asked(REQUEST);
    let mut end = responding.sim.a().end(&QpConfig::default());
    request.accept(&mut end.qp, b"").unwrap();
    assert_eq!(end.state(), QpState::Rts);
    (responding, end)
}

#[test]
fn reply_waits_for_room() {
    for window in WINDOWS {
        let (mut responding, end) = accepted(window);
        responding.sim.run_for(Duration::from_millis(1));
        assert_eq!(responding.peer.received(), b"");
        responding.peer.announce(None);
        let peer = responding.peer.clone();
        responding
            .sim
            .run_until("the Reply", || peer.received() == REPLY);
        responding.sim.run_for(LONG);
        assert_eq!((end.state(), end.events()), (QpState::Rts, vec![]));
        assert_eq!(responding.peer.ended(), None);
    }
}

#[test]
fn reply_goes_out_in_pieces_where_room_never_grows() {
    let (mut responding, end) = accepted(1);
    let peer = responding.peer.clone();
    responding
        .sim
        .run_until("the Reply", || peer.received() == REPLY);
    assert_eq!((end.state(), end.events()), (QpState::Rts, vec![]));
}

#[test]
fn peer_that_never_has_room_for_the_reply_is_given_up() {
    let (responding, end) = accepted(0);
    let mut responding = responding.expecting(&["drop_startup_timeout"]);
    responding.sim.run_for(Duration::from_secs(9));
    assert_eq!((end.state(), end.events()), (QpState::Rts, vec![]));
    responding.sim.run_for(Duration::from_secs(2));
    let reason = "the peer had no room for the MPA Reply";
    assert_eq!(end.events(), [AsyncEventKind::ConnectionLost { reason }]);
    assert_eq!(end.state(), QpState::Error);
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(responding.sim.a().drops()["drop_startup_timeout"], 1);
}

#[test]
fn close_waits_for_the_reply_and_not_for_ever() {
    let (mut responding, mut end) = accepted(0);
    end.qp.begin_disconnect().unwrap();
    responding.sim.run_for(Duration::from_secs(2));
    responding.peer.announce(None);
    let peer = responding.peer.clone();
    responding.sim.run_until("the FIN", || peer.saw_fin());
    assert_eq!(peer.received(), REPLY);

    let (responding, mut end) = accepted(0);
    let mut responding = responding.expecting(&["drop_startup_timeout"]);
    end.qp.begin_disconnect().unwrap();
    responding.sim.run_for(2 * LONG);
    let reason = "the peer had no room for the MPA Reply";
    assert_eq!(end.events(), [AsyncEventKind::ConnectionLost { reason }]);
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
}

#[test]
fn rejection_waits_for_room_and_not_for_ever() {
    for opens in [true, false] {
        let responding = Responding::new(MpaConfig::default());
        let mut responding = responding.expecting(&["drop_startup_timeout"]);
        responding.peer.announce(Some(0));
        responding.asked(REQUEST).reject(b"no").unwrap();
        responding.sim.run_for(Duration::from_secs(2));
        assert_eq!(responding.peer.received(), b"");
        assert!(!responding.peer.saw_fin());
        let peer = responding.peer.clone();
        if opens {
            peer.announce(None);
            responding.sim.run_until("the FIN", || peer.saw_fin());
            assert_eq!(peer.received(), reply(CRC | REJECTED, 1, b"no"));
            peer.close();
            responding.sim.run_for(LONG);
            assert_eq!(peer.ended(), Some(CloseReason::Graceful));
        } else {
            responding.sim.run_for(LONG);
            assert_eq!(peer.ended(), Some(CloseReason::Reset));
            assert_eq!(responding.sim.a().drops()["drop_startup_timeout"], 1);
        }
    }
}

/// A peer that listens with a window of this size from its SYN on, and an end that connects to it.
fn requesting(window: u16) -> (Sim, PlainPeer, SimEnd, xwarp::cm::Connecting) {
    let (sim, peer) = Sim::with_plain_peer(Seed(43));
    let mut sim = sim.one_way_delay(Duration::from_millis(1));
    let port = sim.new_port();
    peer.listen(port);
    peer.announce(Some(window));
    let mut end = sim.a().end(&QpConfig::default());
    let at = peer.at(port);
    let connecting = end.qp.begin_connect(at, b"", LIMIT).unwrap();
    sim.run_for(Duration::from_millis(500));
    (sim, peer, end, connecting)
}

#[test]
fn request_waits_for_room() {
    let (mut sim, peer, end, mut connecting) = requesting(0);
    assert_eq!(peer.received(), b"");
    assert!(connecting.try_finish().is_none());
    peer.announce(None);
    sim.run_until("the Request", || peer.received() == ENHANCED_REQUEST);
    peer.send(b"MPA ID Rep Frame\x50\x02\x00\x04\x00\x20\x00\x20");
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    outcome.unwrap();
    assert_eq!(end.state(), QpState::Rts);
}

#[test]
fn peer_that_never_has_room_for_the_request_is_given_up_in_time() {
    let (mut sim, peer, end, mut connecting) = requesting(0);
    sim.run_for(Duration::from_secs(4));
    assert!(connecting.try_finish().is_none());
    sim.run_for(Duration::from_secs(1));
    let outcome = connecting.try_finish().expect("the deadline is over");
    let Err(ConnectError::TimedOut { stage, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(stage, "TCP is connected, but no MPA Reply came");
    sim.run_for(Duration::from_millis(10));
    assert_eq!(end.state(), QpState::Idle);
    assert_eq!(peer.ended(), Some(CloseReason::Reset));
}
