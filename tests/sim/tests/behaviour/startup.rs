//! Connection setup (RFC 5044 §7.1): which peers are accepted, which are refused, and what either
//! side reports.

use std::sync::mpsc::channel;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::cm::{Connecting, PrivateData};
use xwarp::error::{AcceptError, ConnectError, RnicUnavailable};
use xwarp::event::{AsyncEvent, EventContext};
use xwarp::{Listener, QpConfig, QpState};
use xwarp_sim_tests::wire::{ENHANCED_REQUEST, REPLY, REQUEST, Tagged};
use xwarp_sim_tests::{Done, PlainPeer, Side, Sim, SimEnd, needs_link, pattern};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::netsim::{Direction, Seed};

const LIMIT: Duration = Duration::from_secs(5);

fn sim() -> Sim {
    Sim::new(Seed(11)).one_way_delay(Duration::from_millis(1))
}

fn plain_sim() -> (Sim, PlainPeer) {
    let (sim, peer) = Sim::with_plain_peer(Seed(11));
    (sim.one_way_delay(Duration::from_millis(1)), peer)
}

/// An end at A that connects to a port of B, and the listener there.
fn connecting(sim: &mut Sim, private_data: &[u8]) -> (SimEnd, Connecting, Listener) {
    let at = sim.b().at(sim.new_port());
    let listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&QpConfig::default());
    let connecting = a.qp.begin_connect(at, private_data, LIMIT).unwrap();
    (a, connecting, listener)
}

/// What becomes of an attempt to connect to a plain peer that does as `act` says once TCP is
/// connected.
fn outcome_with(
    sim: &mut Sim,
    peer: &PlainPeer,
    act: impl Fn(&PlainPeer),
) -> (SimEnd, Result<PrivateData, ConnectError>) {
    let (a, mut connecting) = requesting(sim, peer);
    act(peer);
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    (a, outcome)
}

/// An end at A whose Request has reached a plain peer.
fn requesting(sim: &mut Sim, peer: &PlainPeer) -> (SimEnd, Connecting) {
    let port = sim.new_port();
    peer.listen(port);
    let mut a = sim.a().end(&QpConfig::default());
    let at = peer.at(port);
    let connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    sim.run_until("the Request", || peer.received() == ENHANCED_REQUEST);
    (a, connecting)
}

/// An attempt that has ended may be dropped late, when its queue pair makes another one.
#[test]
fn former_attempt_that_is_dropped_leaves_the_present_one_alone() {
    let mut sim = sim();
    let (mut a, former, mut listener) = connecting(&mut sim, b"");
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    drop(request); // which rejects it
    sim.run_until_idle();
    let at = listener.addresses()[0];
    let mut present = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    drop(former);
    let request = sim.wait_for("a request", || listener.try_accept().unwrap());
    let mut b = sim.b().end(&QpConfig::default());
    request.accept(&mut b.qp, b"").unwrap();
    let outcome = sim.wait_for("the outcome", || present.try_finish());
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(a.state(), QpState::Rts);
}

#[test]
fn private_data_of_any_length_reaches_the_other_side() {
    for (asked, answered) in [(0, 0), (1, 508), (508, 1)] {
        let mut sim = sim();
        let (a, mut connecting, mut listener) = connecting(&mut sim, &pattern(asked));
        let mut b = sim.b().end(&QpConfig::default());
        let request = sim.wait_for("the request", || listener.try_accept().unwrap());
        assert_eq!(request.private_data(), pattern(asked));
        assert_eq!(request.remote().ip(), sim.a().at(0).ip());
        request.accept(&mut b.qp, &pattern(answered)).unwrap();
        let outcome = sim.wait_for("the outcome", || connecting.try_finish());
        assert_eq!(outcome.unwrap(), pattern(answered));
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
}

#[test]
fn private_data_beyond_508_bytes_is_refused_at_once() {
    let mut sim = sim();
    let mut a = sim.a().end(&QpConfig::default());
    let refused = a.qp.begin_connect(sim.b().at(7471), &[0; 509], LIMIT).err();
    assert!(
        matches!(
            refused,
            Some(ConnectError::PrivateDataTooLong {
                len: 509,
                limit: 508
            })
        ),
        "{refused:?}"
    );
    let (_a, mut connecting, mut listener) = connecting(&mut sim, b"");
    let mut b = sim.b().end(&QpConfig::default());
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    assert_eq!(
        request.accept(&mut b.qp, &[0; 509]),
        Err(AcceptError::PrivateDataTooLong {
            len: 509,
            limit: 508
        })
    );
    sim = sim.expecting(&["drop_no_flow"]); // as after any rejection
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Rejected { .. })),
        "{outcome:?}"
    );
}

#[test]
fn rejection_brings_its_private_data_and_leaves_the_queue_pair_idle() {
    let mut sim = sim();
    let (mut a, mut connecting, mut listener) = connecting(&mut sim, b"may I");
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    request.reject(b"not today").unwrap();
    match sim.wait_for("the outcome", || connecting.try_finish()) {
        Err(ConnectError::Rejected { private_data, .. }) => assert_eq!(private_data, b"not today"),
        other => panic!("{other:?}"),
    }
    // The initiator resets, the responder's FIN is on its way.
    sim = sim.expecting(&["drop_no_flow"]);
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Idle);
    let mut b = sim.b().end(&QpConfig::default());
    sim.connect(&mut a, &mut b);
    assert_eq!(a.state(), QpState::Rts);
}

#[test]
fn request_that_is_dropped_is_rejected() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (_a, mut connecting, mut listener) = connecting(&mut sim, b"");
    drop(sim.wait_for("the request", || listener.try_accept().unwrap()));
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Rejected { .. })),
        "{outcome:?}"
    );
}

/// A handler may call no verb, so the answer never reaches the engine.
#[test]
fn request_that_a_handler_answers_in_vain_is_rejected() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut other, _b) = sim.connected_pair();
    let (_a, mut connecting, mut listener) = connecting(&mut sim, b"");
    let mut request = Some(sim.wait_for("the request", || listener.try_accept().unwrap()));
    let (tell, answers) = channel();
    let on_event = move |_: &EventContext<'_>, _: &AsyncEvent| {
        let answer = request.take().map(|it| it.reject(b"not here"));
        tell.send(answer).unwrap();
    };
    sim.b().rnic().set_event_handler(on_event).unwrap();
    other.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Rejected { .. })),
        "{outcome:?}"
    );
    let in_handler = AcceptError::Unavailable(RnicUnavailable::InHandler);
    assert_eq!(answers.try_recv(), Ok(Some(Err(in_handler))));
}

#[test]
fn peer_that_has_gone_cannot_be_accepted() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, _connecting, mut listener) = connecting(&mut sim, b"");
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    a.qp.abort().unwrap();
    sim.run_until_idle();
    let mut b = sim.b().end(&QpConfig::default());
    assert_eq!(request.accept(&mut b.qp, b""), Err(AcceptError::PeerGone));
    assert_eq!(b.state(), QpState::Idle);
}

#[test]
fn port_without_a_listener_refuses() {
    needs_link!("the switch refuses, in no time");
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut a = sim.a().end(&QpConfig::default());
    let at = sim.b().at(9);
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Refused(peer)) if peer == at),
        "{outcome:?}"
    );
    assert_eq!(a.state(), QpState::Idle);
    assert_eq!(sim.now(), Duration::from_millis(2), "one round trip");
}

#[test]
fn port_whose_listener_was_dropped_refuses() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let at = sim.b().at(7471);
    drop(sim.b().rnic().listen(at).unwrap());
    let mut a = sim.a().end(&QpConfig::default());
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Refused(_))),
        "{outcome:?}"
    );
    sim.b().rnic().listen(at).expect("the port is free again");
}

#[test]
fn silent_host_times_out_when_the_application_said() {
    needs_link!("the switch refuses for a machine without the port");
    for limit in [Duration::from_millis(300), LIMIT, 12 * LIMIT] {
        let mut sim = sim();
        let at = sim.b().at(7471);
        sim.remove(Side::B);
        let mut a = sim.a().end(&QpConfig::default());
        let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
        let outcome = sim.wait_for("the outcome", || connecting.try_finish());
        assert!(
            matches!(outcome, Err(ConnectError::TimedOut { .. })),
            "{outcome:?}"
        );
        let late = sim.now().abs_diff(limit);
        assert!(late < Duration::from_millis(100), "after {:?}", sim.now());
        assert_eq!(a.state(), QpState::Idle);
    }
}

#[test]
fn host_that_takes_the_request_and_says_nothing_times_out() {
    let (mut sim, peer) = plain_sim();
    let (a, outcome) = outcome_with(&mut sim, &peer, |_| ());
    let Err(ConnectError::TimedOut { stage, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(stage.contains("MPA Reply"), "{stage}");
    assert_eq!(a.state(), QpState::Idle);
}

#[test]
fn answers_that_are_no_mpa_reply_are_named_as_such() {
    let answers: [&[u8]; 7] = [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"H",
        b"MPA ID Req Frame\x40\x01\x00\x00", // a Request
        b"MPA ID Rep FramE\x40\x01\x00\x00", // last byte of the key
        b"MPA ID Rep Frame\x40\x00\x00\x00", // revision 0
        b"MPA ID Rep Frame\x40\x03\x00\x00", // revision 3
        b"MPA ID Rep Frame\x40\x01\x02\x01", // 513 bytes of private data
    ];
    for answer in answers {
        let (sim, peer) = plain_sim();
        let mut sim = sim.expecting(&["drop_startup"]);
        let (a, outcome) = outcome_with(&mut sim, &peer, |peer| peer.send(answer));
        assert!(
            matches!(outcome, Err(ConnectError::NotIwarp { .. })),
            "{answer:?}: {outcome:?}"
        );
        assert_eq!(a.state(), QpState::Idle);
        assert_eq!(sim.a().drops()["drop_startup"], 1);
        sim.run_until_idle();
        assert_eq!(peer.ended(), Some(CloseReason::Reset));
    }
}

#[test]
fn peer_that_closes_or_resets_instead_of_answering_is_reported() {
    for end in [PlainPeer::close, PlainPeer::abort] {
        let (mut sim, peer) = plain_sim();
        let (a, mut connecting) = requesting(&mut sim, &peer);
        end(&peer);
        sim.run_until("the second Request", || peer.received() == REQUEST);
        end(&peer);
        let outcome = sim.wait_for("the outcome", || connecting.try_finish());
        assert!(
            matches!(outcome, Err(ConnectError::PeerClosed(_))),
            "{outcome:?}"
        );
        assert_eq!(a.state(), QpState::Idle);
        assert_eq!(peer.clients().len(), 2, "there is no third try");
    }
}

#[test]
fn fpdus_right_behind_the_reply_are_received() {
    let (mut sim, peer) = plain_sim();
    let target = sim.a().target(4);
    let write = Tagged::write(target.remote(0).stag, target.remote(0).to).fpdu(b"fast");
    let answer = [REPLY, write.as_slice()].concat();
    let (a, outcome) = outcome_with(&mut sim, &peer, |peer| peer.send(&answer));
    assert_eq!(outcome.unwrap(), b"");
    sim.run_until_idle();
    assert_eq!(target.to_vec(), b"fast");
    assert_eq!(a.state(), QpState::Rts);
}

/// Connects `peer` to a listener at A.
fn plain_client(sim: &mut Sim, peer: &PlainPeer) -> Listener {
    let at = sim.a().at(sim.new_port());
    let listener = sim.a().rnic().listen(at).unwrap();
    peer.connect(at);
    sim.run_until("TCP", || peer.is_connected());
    listener
}

#[test]
fn client_that_never_sends_its_request_is_dropped_after_ten_seconds() {
    let (sim, peer) = plain_sim();
    let mut sim = sim.expecting(&["drop_startup_timeout"]);
    let mut listener = plain_client(&mut sim, &peer);
    sim.run_for(Duration::from_millis(9_900));
    assert_eq!(peer.ended(), None);
    sim.run_for(Duration::from_millis(200));
    assert_eq!(peer.ended(), Some(CloseReason::Reset));
    assert!(listener.try_accept().unwrap().is_none());
    assert_eq!(sim.a().drops()["drop_startup_timeout"], 1);
}

#[test]
fn client_that_sends_a_byte_per_second_has_no_more_time() {
    let (sim, peer) = plain_sim();
    let mut sim = sim.expecting(&["drop_startup_timeout", "drop_no_flow"]);
    let mut listener = plain_client(&mut sim, &peer);
    for byte in REQUEST {
        peer.send(&[*byte]);
        sim.run_for(Duration::from_secs(1));
    }
    assert_eq!(peer.ended(), Some(CloseReason::Reset));
    assert!(listener.try_accept().unwrap().is_none());
    assert_eq!(sim.a().drops()["drop_startup_timeout"], 1);
}

#[test]
fn request_in_segments_of_one_byte_is_understood() {
    let (mut sim, peer) = plain_sim();
    let mut listener = plain_client(&mut sim, &peer);
    peer.send_pieces(b"MPA ID Req Frame\x40\x01\x00\x05hello", 1);
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    assert_eq!(request.private_data(), b"hello");
    let mut a = sim.a().end(&QpConfig::default());
    request.accept(&mut a.qp, b"").unwrap();
    sim.run_until_idle();
    assert_eq!(peer.received(), REPLY);
}

#[test]
fn requests_that_are_none_are_dropped_and_counted() {
    let requests: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"mPA ID Req Frame\x40\x01\x00\x00", // first byte of the key
        b"MPA ID Req FramE\x40\x01\x00\x00", // last byte of the key
        b"MPA ID Rep Frame\x40\x01\x00\x00", // a Reply
        b"MPA ID Req Frame\x40\x00\x00\x00", // revision 0
        b"MPA ID Req Frame\x40\x03\x00\x00", // revision 3
        b"MPA ID Req Frame\x40\xff\x00\x00", // revision 255
        b"MPA ID Req Frame\x40\x01\x02\x01", // 513 bytes of private data, none of them here
        b"MPA ID Req Frame\x40\x01\x00\x00\0", // a byte after the Request (D11)
    ];
    for request in requests {
        let (sim, peer) = plain_sim();
        let mut sim = sim.expecting(&["drop_startup"]);
        let mut listener = plain_client(&mut sim, &peer);
        peer.send(request);
        sim.run_for(Duration::from_millis(10));
        assert_eq!(peer.ended(), Some(CloseReason::Reset), "{request:?}");
        assert!(listener.try_accept().unwrap().is_none(), "{request:?}");
        assert!(peer.received().is_empty(), "no Reply to {request:?}");
        assert_eq!(sim.a().drops()["drop_startup"], 1, "{request:?}");
    }
}

#[test]
fn bytes_after_the_request_and_before_the_reply_end_the_connection() {
    let (sim, peer) = plain_sim();
    let mut sim = sim.expecting(&["drop_startup"]);
    let mut listener = plain_client(&mut sim, &peer);
    peer.send(REQUEST);
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    peer.send(b"impatient");
    sim.run_until_idle();
    let mut a = sim.a().end(&QpConfig::default());
    assert_eq!(request.accept(&mut a.qp, b""), Err(AcceptError::PeerGone));
    assert_eq!(peer.ended(), Some(CloseReason::Reset));
    assert_eq!(sim.a().drops()["drop_startup"], 1);
}

#[test]
fn client_that_leaves_within_its_request_is_forgotten() {
    for end in [PlainPeer::close, PlainPeer::abort] {
        let (mut sim, peer) = plain_sim();
        let mut listener = plain_client(&mut sim, &peer);
        peer.send(&REQUEST[..10]);
        sim.run_for(Duration::from_millis(10));
        end(&peer);
        sim.run_until_idle();
        assert!(listener.try_accept().unwrap().is_none());
        assert!(peer.ended().is_some());
    }
}

#[test]
fn connected_queue_pair_can_be_neither_connected_nor_accepted_with() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let at = sim.b().at(7471);
    let refused = a.qp.begin_connect(at, b"", LIMIT).err();
    assert!(
        matches!(refused, Some(ConnectError::InvalidState(QpState::Rts))),
        "{refused:?}"
    );
    let (_a, mut connecting, mut listener) = connecting(&mut sim, b"");
    let request = sim.wait_for("the request", || listener.try_accept().unwrap());
    assert_eq!(
        request.accept(&mut b.qp, b""),
        Err(AcceptError::InvalidState(QpState::Rts))
    );
    sim = sim.expecting(&["drop_no_flow"]);
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::Rejected { .. })),
        "a request that could not be accepted is not left hanging: {outcome:?}"
    );
}

#[test]
fn connection_is_made_whichever_frame_of_its_start_is_lost() {
    for direction in Direction::ALL {
        for n in 1..=4 {
            let mut sim = sim();
            sim.link().lane(direction).drop_nth(n);
            let (mut a, mut b) = sim.connected_pair();
            b.post_recv(1, 10);
            a.post_send(1, b"made it");
            sim.run_until_idle();
            assert_eq!(
                b.receives(),
                [Done::receive(1, 7)],
                "without frame {n} of {direction:?}"
            );
        }
    }
}
