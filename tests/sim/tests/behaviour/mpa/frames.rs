//! Start-up frames that come late, in pieces or not at all, and what is or is not sent before the
//! first FPDU.

use super::{CRC, ENHANCED, Initiating, LIMIT, Responding, info, peer_to_peer, up_to};
use std::time::Duration;
use xwarp::cm::{MpaConfig, Revision, RtrTypes};
use xwarp::error::{ConnectError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::{QpConfig, QpState, Stag};
use xwarp_sim_tests::wire::{ENHANCED_REQUEST, Tagged, Untagged, enhanced, reply, request, ulpdus};
use xwarp_sim_tests::{Done, PlainPeer};
use xwarp_tcp::CloseReason;

/// What a Request may take (wire.md §3.5).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// Row 4.
#[test]
fn request_that_is_cut_by_the_peers_end_is_forgotten() {
    let whole = request(
        CRC | ENHANCED,
        2,
        &[&enhanced(1, 1)[..], b"and data"].concat(),
    );
    for len in [1, 19, 20, 22, 24, whole.len() - 1] {
        for end in [PlainPeer::close, PlainPeer::abort] {
            let mut responding = Responding::new(MpaConfig::default());
            responding.peer.send(&whole[..len]);
            responding.sim.run_for(Duration::from_millis(10));
            end(&responding.peer);
            responding.sim.run_until_idle();
            assert!(
                responding.listener.try_accept().unwrap().is_none(),
                "{len} bytes"
            );
            assert!(responding.peer.received().is_empty(), "{len} bytes");
            assert!(responding.peer.ended().is_some(), "{len} bytes");
        }
    }
}

/// Row 5.
#[test]
fn private_data_that_never_comes_is_waited_for_until_the_deadline() {
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_startup_timeout"]);
    let connected = responding.sim.now();
    let whole = request(CRC | ENHANCED, 2, &enhanced(1, 1));
    responding.peer.send(&whole[..20]);
    responding.sim.run_for(Duration::from_millis(9_900));
    assert_eq!(responding.peer.ended(), None);
    responding.sim.run_for(Duration::from_millis(200));
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(responding.sim.a().drops()["drop_startup_timeout"], 1);
    assert!(responding.sim.now() < connected + REQUEST_TIMEOUT + SECOND);
}

/// Row 6.
#[test]
fn request_in_drips_does_not_extend_the_deadline() {
    let mut responding =
        Responding::new(MpaConfig::default()).expecting(&["drop_startup_timeout", "drop_no_flow"]);
    let connected = responding.sim.now();
    for byte in request(CRC, 2, b"drip, drip") {
        responding.peer.send(&[byte]);
        responding.sim.run_for(SECOND);
        if responding.peer.ended().is_some() {
            break;
        }
    }
    assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
    let now = responding.sim.now();
    assert!(now <= connected + REQUEST_TIMEOUT + SECOND, "{now:?}");
    assert!(responding.listener.try_accept().unwrap().is_none());
}

/// Row 7.
#[test]
fn frames_in_segments_of_one_byte_are_understood_by_both_roles() {
    let mut responding = Responding::new(MpaConfig::default());
    let data = [&enhanced(3, 3)[..], b"in pieces"].concat();
    (responding.peer).send_pieces(&request(CRC | ENHANCED, 2, &data), 1);
    let asked =
        (responding.sim).wait_for("the Request", || responding.listener.try_accept().unwrap());
    assert_eq!(asked.private_data(), b"in pieces");

    let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
    (initiating.peer).send_pieces(&reply(CRC | ENHANCED, 2, &data), 1);
    assert_eq!(initiating.outcome().unwrap(), b"in pieces");
    assert_eq!(info(&initiating.end).ord, 3);
}

#[test]
fn reply_in_drips_does_not_extend_the_time_to_connect() {
    let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
    initiating = initiating.expecting(&["drop_no_flow"]);
    let frame = reply(CRC | ENHANCED, 2, &enhanced(3, 3));
    let mut outcome = None;
    for byte in frame {
        initiating.peer.send(&[byte]);
        initiating.sim.run_for(SECOND);
        outcome = initiating.connecting.try_finish();
        if outcome.is_some() {
            break;
        }
    }
    let outcome = outcome.expect("24 seconds are more than the limit");
    assert!(
        matches!(outcome, Err(ConnectError::TimedOut { .. })),
        "{outcome:?}"
    );
    let now = initiating.sim.now();
    assert!(now <= LIMIT + SECOND, "{now:?}");
    initiating.sim.run_until_idle();
    assert_eq!(initiating.peer.ended(), Some(CloseReason::Reset));
}

/// Row 3.
#[test]
fn frame_of_too_much_private_data_is_refused_before_it_is_here() {
    let too_long = |mut frame: Vec<u8>| {
        frame[18..20].copy_from_slice(&513_u16.to_be_bytes());
        frame
    };
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_startup"]);
    responding.assert_dropped(&too_long(request(CRC | ENHANCED, 2, b"")));
    let initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
    let mut initiating = initiating.expecting(&["drop_startup"]);
    let outcome = initiating.answered(&too_long(reply(CRC | ENHANCED, 2, b"")));
    assert!(
        matches!(outcome, Err(ConnectError::NotIwarp { .. })),
        "{outcome:?}"
    );
}

/// Row 24.
#[test]
fn bytes_between_request_and_reply_end_the_connection() {
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_startup"]);
    responding.assert_dropped(&[ENHANCED_REQUEST.as_slice(), b"!"].concat());
}

/// Row 25.
#[test]
fn fpdus_in_the_segment_of_the_reply_are_received() {
    let mut initiating = Initiating::new(MpaConfig::default(), &peer_to_peer(RtrTypes::ALL));
    initiating.end.post_recv(1, 10);
    let target = initiating.end.target(4);
    let place = target.remote(0);
    let frames = [
        reply(CRC | ENHANCED, 2, &enhanced(super::A | 1, super::C | 1)),
        Tagged::write(place.stag, place.to).fpdu(b"fast"),
        Untagged::default().fpdu(b"faster"),
    ];
    initiating.answered(&frames.concat()).unwrap();
    initiating.sim.run_until_idle();
    assert_eq!(target.to_vec(), b"fast");
    assert_eq!(initiating.end.receives(), [Done::receive(1, 6)]);
    let rtr = Tagged::write(Stag(1), 0).ulpdu(b"");
    assert_eq!(ulpdus(&initiating.sent()), [rtr]);
}

#[test]
fn responder_sends_nothing_before_the_first_fpdu_in_either_revision() {
    let p2p = request(
        CRC | ENHANCED,
        2,
        &enhanced(super::A | super::B | 1, super::C | 1),
    );
    for frame in [request(CRC, 1, b""), ENHANCED_REQUEST.to_vec(), p2p] {
        let mut responding = Responding::new(MpaConfig::default());
        let (mut end, answer) = responding.accepted(&frame, &QpConfig::default());
        end.post_send(1, b"at last");
        responding.sim.run_for(Duration::from_mins(1));
        assert_eq!(responding.peer.received(), answer);
        responding.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
        responding.sim.run_until_idle();
        let sent = responding.peer.received().split_off(answer.len());
        assert_eq!(ulpdus(&sent), [Untagged::default().ulpdu(b"at last")]);
    }
}

/// Row 27.
#[test]
fn first_fpdu_with_a_bad_crc_ends_the_connection_without_a_terminate() {
    for frame in [request(CRC, 1, b""), ENHANCED_REQUEST.to_vec()] {
        let mut responding = Responding::new(up_to(Revision::Two)).expecting(&["drop_bad_fpdu"]);
        let (mut end, answer) = responding.accepted(&frame, &QpConfig::default());
        end.post_send(1, b"never");
        let mut fpdu = Untagged::default().fpdu(b"broken");
        fpdu[20] ^= 1;
        responding.peer.send(&fpdu);
        responding.sim.run_until_idle();
        assert_eq!(responding.peer.received(), answer, "not one FPDU (D1)");
        assert_eq!(responding.peer.ended(), Some(CloseReason::Reset));
        let events = end.events();
        let code = TermCode::mpa(2);
        assert!(
            matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
            "{events:?}"
        );
        assert_eq!(end.state(), QpState::Error);
    }
}

/// Rows 28 and 29.
#[test]
fn first_fpdu_that_mpa_finds_right_is_acted_upon_and_answered() {
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_refused_segment"]);
    let (_end, answer) = responding.accepted(ENHANCED_REQUEST, &QpConfig::default());
    responding
        .peer
        .send(&Tagged::write(Stag(99), 0).fpdu(b"where"));
    let peer = responding.peer.clone();
    responding.sim.run_until("the FIN", || peer.saw_fin());
    let sent = peer.received().split_off(answer.len());
    let code = xwarp_sim_tests::wire::terminate(&sent).0;
    assert_eq!(code, TermCode::ddp_tagged(0));
    peer.close();
    responding.sim.run_until_idle();

    let mut responding = Responding::new(MpaConfig::default());
    let (end, answer) = responding.accepted(ENHANCED_REQUEST, &QpConfig::default());
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    responding.peer.send(&terminate.fpdu(&[0x20, 5, 0, 0]));
    responding.sim.run_for(SECOND);
    let told = AsyncEventKind::TerminateReceived(TermCode::mpa(5));
    assert_eq!(end.events(), [told]);
    assert_eq!(responding.peer.received(), answer);
    assert!(responding.peer.saw_fin());
    responding.peer.close();
    responding.sim.run_until_idle();
}
