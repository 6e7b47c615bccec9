//! The peer-to-peer model and its RTR (RFC 6581 §9.2).

use super::{
    A, B, C, CRC, D, ENHANCED, Initiating, Responding, connected, exchange, info, pair,
    peer_to_peer, without_nudge,
};
use std::time::Duration;
use xwarp::cm::{MpaConfig, PeerToPeer, Rtr, RtrTypes};
use xwarp::{QpConfig, QpState, Stag};
use xwarp_sim_tests::wire::{Tagged, Untagged, enhanced, read_request, reply, request, ulpdus};
use xwarp_sim_tests::{Done, Sim};

const KINDS: [Rtr; 3] = [Rtr::Send, Rtr::Write, Rtr::Read];

fn default_pair() -> Sim {
    pair(MpaConfig::default(), MpaConfig::default())
}

/// The RTR as a ULPDU (F-20, F-21, F-23 of vectors.md): a message of no bytes that names `STag` 1.
fn rtr_ulpdu(rtr: Rtr) -> Vec<u8> {
    match rtr {
        Rtr::Send => Untagged::default().ulpdu(b""),
        Rtr::Write => Tagged::write(Stag(1), 0).ulpdu(b""),
        Rtr::Read => Untagged::read_request().ulpdu(&read_request(Stag(1), 0, 0, Stag(1), 0)),
    }
}

/// An accepting Reply of the peer-to-peer model, IRD and ORD 32.
fn p2p_reply(b: u16, c_d: u16) -> Vec<u8> {
    reply(CRC | ENHANCED, 2, &enhanced(A | b | 32, c_d | 32))
}

/// The same for a Request.
fn p2p_request(b: u16, c_d: u16) -> Vec<u8> {
    request(CRC | ENHANCED, 2, &enhanced(A | b | 32, c_d | 32))
}

#[test]
fn after_any_rtr_the_responder_may_speak_first_and_no_receive_is_used_up() {
    for rtr in KINDS {
        let mut sim = default_pair();
        let p2p = peer_to_peer(RtrTypes::only(rtr));
        let (mut a, mut b) = connected(&mut sim, &p2p, &QpConfig::default());
        assert_eq!((info(&a).rtr, info(&b).rtr), (Some(rtr), None));
        a.post_recv(1, 20);
        b.post_recv(2, 20);
        b.post_send(3, b"I speak first");
        sim.run_until_idle();
        assert_eq!(a.receives(), [Done::receive(1, 13)], "{rtr:?}");
        assert_eq!(b.receives(), [], "{rtr:?}");
        a.post_send(4, b"and I second");
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(2, 12)], "{rtr:?}");
        assert_eq!(a.sends(), [Done::send(4, 12)], "the RTR completes nothing");
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
}

#[test]
fn rtr_needs_no_receive_at_all() {
    for rtr in KINDS {
        let mut sim = pair(without_nudge(), without_nudge());
        let p2p = peer_to_peer(RtrTypes::only(rtr));
        let (a, b) = connected(&mut sim, &p2p, &QpConfig::default());
        sim.run_until_idle();
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
        assert_eq!(sim.b().rnic().counters().unwrap().rdma.fpdus_in, 1);
    }
}

#[test]
fn rtr_is_the_very_first_fpdu_whatever_was_posted_before() {
    for (rtr, b, c_d) in [(Rtr::Send, B, 0), (Rtr::Write, 0, C), (Rtr::Read, 0, D)] {
        let mut initiating = Initiating::new(MpaConfig::default(), &peer_to_peer(RtrTypes::ALL));
        assert_eq!(initiating.request[20..], enhanced(A | B | 32, C | D | 32));
        initiating.end.post_send(1, b"patience");
        initiating.answered(&p2p_reply(b, c_d)).unwrap();
        let fpdus = || ulpdus(&initiating.peer.received()[24..]);
        initiating.sim.run_until("two FPDUs", || fpdus().len() == 2);
        let msn = if rtr == Rtr::Send { 2 } else { 1 };
        let send = Untagged {
            msn,
            ..Untagged::default()
        };
        assert_eq!(
            fpdus(),
            [rtr_ulpdu(rtr), send.ulpdu(b"patience")],
            "{rtr:?}"
        );
    }
}

#[test]
fn of_the_replys_types_a_write_is_preferred_then_a_read() {
    for (b, c_d, chosen) in [
        (B, C | D, Rtr::Write),
        (B, D, Rtr::Read),
        (B, C, Rtr::Write),
        (B, 0, Rtr::Send),
    ] {
        let mut initiating = Initiating::new(MpaConfig::default(), &peer_to_peer(RtrTypes::ALL));
        initiating.answered(&p2p_reply(b, c_d)).unwrap();
        assert_eq!(info(&initiating.end).rtr, Some(chosen));
    }
}

#[test]
fn rtr_that_is_a_read_takes_a_credit_and_completes_no_work() {
    for credits in [1, 2] {
        let mut initiating = Initiating::new(without_nudge(), &peer_to_peer(RtrTypes::ALL));
        let sink = initiating.end.target(4);
        let source = xwarp::RemoteAddress {
            stag: Stag(7),
            to: 0,
        };
        initiating.end.post_read(1, sink.local(0, 4), source);
        let answer = reply(CRC | ENHANCED, 2, &enhanced(A | credits, D));
        initiating.answered(&answer).unwrap();
        initiating.sim.run_for(Duration::from_secs(1));
        let sent = ulpdus(&initiating.sent());
        assert_eq!(sent[0], rtr_ulpdu(Rtr::Read));
        assert_eq!(sent.len(), usize::from(credits), "the other Read waits");

        (initiating.peer).send(&Tagged::read_response(Stag(1), 0).fpdu(b""));
        initiating.sim.run_for(Duration::from_secs(1));
        assert_eq!(ulpdus(&initiating.sent()).len(), 2);
        assert_eq!(initiating.end.sends(), [], "of {credits} credits");

        let place = sink.remote(0);
        (initiating.peer).send(&Tagged::read_response(place.stag, place.to).fpdu(b"data"));
        initiating.sim.run_for(Duration::from_secs(1));
        assert_eq!(initiating.end.sends(), [Done::read(1, 4)]);
        assert_eq!(sink.to_vec(), b"data");
    }
}

#[test]
fn ord_of_nothing_is_enough_for_an_rtr_that_is_a_read() {
    for depth in [1, super::LEFT_TO_ULP] {
        let config = peer_to_peer(RtrTypes::ALL).ord(0);
        let mut initiating = Initiating::new(without_nudge(), &config);
        let answer = reply(CRC | ENHANCED, 2, &enhanced(A | depth, D));
        initiating.answered(&answer).unwrap();
        initiating.sim.run_for(Duration::from_millis(10));
        assert_eq!(ulpdus(&initiating.sent()), [rtr_ulpdu(Rtr::Read)]);
        (initiating.peer).send(&Tagged::read_response(Stag(1), 0).fpdu(b""));
        initiating.sim.run_for(Duration::from_millis(10));
        assert_eq!(initiating.end.state(), QpState::Rts);
    }
}

#[test]
fn responder_without_reads_takes_one_as_rtr_if_it_can_be_nothing_else() {
    let without_reads = QpConfig::default().ird(0);
    let mut responding = Responding::new(MpaConfig::default());
    let (end, answer) = responding.accepted(&p2p_request(0, D), &without_reads);
    let expected = enhanced(A | B | 1, C | D | 32);
    assert_eq!(answer, reply(CRC | ENHANCED, 2, &expected));
    assert_eq!(end.qp.ird(), 1);
    let rtr = xwarp_sim_tests::wire::fpdu(&rtr_ulpdu(Rtr::Read));
    responding.peer.send(&rtr);
    responding.sim.run_until_idle();
    let sent = responding.peer.received().split_off(answer.len());
    assert_eq!(
        ulpdus(&sent),
        [Tagged::read_response(Stag(1), 0).ulpdu(b"")]
    );

    let mut responding = Responding::new(MpaConfig::default());
    let (end, _) = responding.accepted(&p2p_request(B, D), &without_reads);
    assert_eq!(end.qp.ird(), 0, "the RTR can be a Send");
}

#[test]
fn reply_offers_the_types_of_the_accepting_queue_pair() {
    for (own, b, c_d) in [
        (RtrTypes::only(Rtr::Send), B, 0),
        (RtrTypes::only(Rtr::Write), 0, C),
        (RtrTypes::only(Rtr::Write).with(Rtr::Read), 0, C | D),
        (RtrTypes::ALL, B, C | D),
    ] {
        let mut responding = Responding::new(MpaConfig::default());
        let (_end, answer) = responding.accepted(&p2p_request(B, C), &peer_to_peer(own));
        assert_eq!(answer, p2p_reply(b, c_d), "{own:?}");
    }
}

/// Row 14.
#[test]
fn rtr_types_without_a_mean_nothing() {
    let mut responding = Responding::new(MpaConfig::default());
    let frame = request(CRC | ENHANCED, 2, &enhanced(B | 32, C | D | 32));
    let asked = responding.asked(&frame);
    assert!(!asked.is_peer_to_peer());
    let mut end = responding.sim.a().end(&peer_to_peer(RtrTypes::ALL));
    end.post_recv(1, 10);
    asked.accept(&mut end.qp, b"").unwrap();
    responding.sim.run_until_idle();
    let expected = reply(CRC | ENHANCED, 2, &enhanced(32, 32));
    assert_eq!(responding.peer.received(), expected);
    responding.peer.send(&Untagged::default().fpdu(b""));
    responding.sim.run_until_idle();
    assert_eq!(end.receives(), [Done::receive(1, 0)], "an ordinary Send");
}

/// Row 15.
#[test]
fn request_for_an_rtr_of_no_type_is_answered_with_our_types() {
    let mut responding = Responding::new(MpaConfig::default());
    let (_end, answer) = responding.accepted(&p2p_request(0, 0), &QpConfig::default());
    assert_eq!(answer, p2p_reply(B, C | D));
}

/// Row 16.
#[test]
fn reply_of_the_client_server_model_is_terminated_where_an_rtr_is_required() {
    let answer = reply(CRC | ENHANCED, 2, &enhanced(32, 32));
    let initiating = Initiating::new(MpaConfig::default(), &peer_to_peer(RtrTypes::ALL));
    initiating.assert_unacceptable(&answer, 7);

    let optional = QpConfig::default().peer_to_peer(Some(PeerToPeer {
        required: false,
        ..PeerToPeer::default()
    }));
    let mut initiating = Initiating::new(MpaConfig::default(), &optional);
    initiating.answered(&answer).unwrap();
    initiating.sim.run_for(Duration::from_secs(1));
    assert_eq!(info(&initiating.end).rtr, None);
    assert_eq!(initiating.sent(), b"", "no RTR");
}

/// Row 21.
#[test]
fn reply_without_an_rtr_type_in_common_is_terminated() {
    let write_only = peer_to_peer(RtrTypes::only(Rtr::Write));
    for (b, c_d) in [(B, D), (0, 0)] {
        let initiating = Initiating::new(MpaConfig::default(), &write_only);
        initiating.assert_unacceptable(&p2p_reply(b, c_d), 7);
    }
    // A Read that the peer cannot serve is no RTR.
    let initiating = Initiating::new(MpaConfig::default(), &peer_to_peer(RtrTypes::ALL));
    initiating.assert_unacceptable(&reply(CRC | ENHANCED, 2, &enhanced(A, D | 32)), 7);
}

#[test]
fn two_rnics_without_an_rtr_in_common_part_by_a_terminate() {
    let mut sim = default_pair().expecting(&["drop_startup"]);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&peer_to_peer(RtrTypes::only(Rtr::Write)));
    let mut b = sim.b().end(&peer_to_peer(RtrTypes::only(Rtr::Send)));
    let mut connecting = a.qp.begin_connect(at, b"", super::LIMIT).unwrap();
    let asked = sim.wait_for("the request", || listener.try_accept().unwrap());
    asked.accept(&mut b.qp, b"").unwrap();
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    let error = outcome.unwrap_err();
    let cause = std::error::Error::source(&error).expect("a term that cannot be met");
    let text = cause.to_string();
    assert!(text.contains("no RTR type in common"), "{text}");
    sim.run_until_idle();
    let told = xwarp::event::AsyncEventKind::TerminateReceived(xwarp::error::TermCode::mpa(7));
    assert_eq!(b.events(), [told]);
    assert_eq!((a.state(), b.state()), (QpState::Idle, QpState::Error));
    let mut other = sim.b().end(&QpConfig::default());
    sim.connect_silently(&mut a, &mut other);
    exchange(&mut sim, &mut a, &mut other);
}

/// Row 30.
#[test]
fn rtr_of_another_type_than_negotiated_opens_the_fence_as_well() {
    for negotiated in KINDS {
        for sent in KINDS {
            let mut responding = Responding::new(MpaConfig::default());
            let only = peer_to_peer(RtrTypes::only(negotiated));
            let (mut end, answer) = responding.accepted(&p2p_request(B, C | D), &only);
            end.post_recv(1, 10);
            end.post_send(2, b"go");
            responding.sim.run_until_idle();
            assert_eq!(responding.peer.received(), answer, "fenced");
            let rtr = xwarp_sim_tests::wire::fpdu(&rtr_ulpdu(sent));
            responding.peer.send(&rtr);
            responding.sim.run_until_idle();
            assert_eq!(end.receives(), [], "{negotiated:?}, {sent:?}");
            assert_eq!(end.sends(), [Done::send(2, 2)], "{negotiated:?}, {sent:?}");
            assert_eq!(end.state(), QpState::Rts);
        }
    }
}

#[test]
fn real_send_instead_of_the_rtr_is_delivered_and_opens_the_fence() {
    let mut responding = Responding::new(MpaConfig::default());
    let (mut end, _) = responding.accepted(&p2p_request(B, C | D), &QpConfig::default());
    end.post_recv(1, 10);
    end.post_send(2, b"go");
    responding.peer.send(&Untagged::default().fpdu(b"at once"));
    responding.sim.run_until_idle();
    assert_eq!(end.receives(), [Done::receive(1, 7)]);
    assert_eq!(end.sends(), [Done::send(2, 2)]);
}

#[test]
fn close_waits_for_the_answer_to_an_rtr_that_is_a_read() {
    let mut initiating = Initiating::new(
        MpaConfig::default(),
        &peer_to_peer(RtrTypes::only(Rtr::Read)),
    );
    initiating.answered(&p2p_reply(0, D)).unwrap();
    initiating.end.qp.begin_disconnect().unwrap();
    initiating.sim.run_for(Duration::from_secs(1));
    assert!(!initiating.peer.saw_fin());
    (initiating.peer).send(&Tagged::read_response(Stag(1), 0).fpdu(b""));
    initiating.sim.run_for(Duration::from_millis(10));
    assert!(initiating.peer.saw_fin());
    initiating.peer.close();
    initiating.sim.run_until_idle();
    assert_eq!(initiating.end.state(), QpState::Idle);
}
