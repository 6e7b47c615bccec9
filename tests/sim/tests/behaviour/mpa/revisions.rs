//! Revisions of MPA, the second try, and rejections.

use std::net::SocketAddr;
use std::time::Duration;

use super::{
    CRC, ENHANCED, Initiating, LIMIT, REJECTED, Responding, connected, exchange, info, pair,
    peer_to_peer, up_to, with_depths,
};
use xwarp::cm::{Depth, EnhancedData, MpaConfig, PeerToPeer, Revision, RtrTypes};
use xwarp::error::{AcceptError, ConnectError, CreateError, StartupError};
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::wire::{ENHANCED_REQUEST, REPLY, REQUEST, enhanced, reply, request};
use xwarp_sim_tests::{PlainPeer, pattern};

use Revision::{One, Two};

#[test]
fn two_rnics_speak_the_highest_revision_of_both() {
    for (a, b, spoken) in [(Two, Two, 2), (Two, One, 1), (One, Two, 1), (One, One, 1)] {
        let mut sim = pair(up_to(a), up_to(b));
        if a > b {
            sim = sim.expecting(&["drop_startup"]); // the first Request
        }
        let default = QpConfig::default();
        let (mut near, mut far) = connected(&mut sim, &default, &default);
        for end in [&near, &far] {
            assert_eq!(info(end).revision, spoken, "{a:?} and {b:?}");
            assert_eq!(info(end).peer.is_some(), spoken == 2, "{a:?} and {b:?}");
        }
        assert_eq!(sim.b().drops().contains_key("drop_startup"), a > b);
        exchange(&mut sim, &mut near, &mut far);
    }
}

#[test]
fn peer_that_closes_upon_revision_2_is_tried_with_revision_1_from_another_port() {
    for end in [PlainPeer::close, PlainPeer::abort] {
        let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
        assert_eq!(initiating.request, ENHANCED_REQUEST);
        end(&initiating.peer);
        let peer = initiating.peer.clone();
        (initiating.sim).run_until("the second Request", || peer.received() == REQUEST);
        let clients = peer.clients();
        assert_eq!(clients.len(), 2);
        assert_ne!(clients[0].port(), clients[1].port());
        assert_eq!(initiating.answered(REPLY).unwrap(), b"");
        assert_eq!(info(&initiating.end).revision, 1);
        assert_eq!(initiating.end.state(), QpState::Rts);
    }
}

#[test]
fn second_try_comes_from_the_port_that_is_named() {
    for end in [PlainPeer::close, PlainPeer::abort] {
        let config = (MpaConfig::default(), QpConfig::default());
        let mut initiating = Initiating::from_port(5000, config.0, &config.1);
        end(&initiating.peer);
        let peer = initiating.peer.clone();
        (initiating.sim).run_until("the second Request", || peer.received() == REQUEST);
        let ports: Vec<_> = peer.clients().iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [5000, 5000]);
        assert_eq!(initiating.answered(REPLY).unwrap(), b"");
        assert_eq!(info(&initiating.end).revision, 1);
    }
}

#[test]
fn second_try_has_only_the_time_that_is_left() {
    let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
    initiating.sim.run_for(Duration::from_secs(3));
    initiating.peer.close();
    let outcome = initiating.outcome();
    assert!(
        matches!(outcome, Err(ConnectError::TimedOut { .. })),
        "{outcome:?}"
    );
    assert_eq!(initiating.peer.clients().len(), 2);
    let late = initiating.sim.now().abs_diff(LIMIT);
    assert!(late < Duration::from_millis(10), "{late:?}");
    assert_eq!(initiating.end.state(), QpState::Idle);
}

#[test]
fn peer_that_has_gone_before_the_second_try_has_closed_the_first() {
    let mut sim = pair(up_to(Two), up_to(One)).expecting(&["drop_startup", "drop_no_flow"]);
    let at = sim.b().at(sim.new_port());
    let listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&QpConfig::default());
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let b = sim.b();
    sim.run_until("the first Request", || {
        b.drops().contains_key("drop_startup")
    });
    drop(listener);
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    assert!(
        matches!(outcome, Err(ConnectError::PeerClosed(peer)) if peer == at),
        "{outcome:?}"
    );
}

/// Row 4.
#[test]
fn peer_that_closes_within_its_reply_is_not_tried_again() {
    for end in [PlainPeer::close, PlainPeer::abort] {
        let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
        let whole = reply(CRC, 1, b"cut");
        initiating.peer.send(&whole[..21]);
        initiating.sim.run_for(Duration::from_millis(10));
        end(&initiating.peer);
        let outcome = initiating.outcome();
        assert!(
            matches!(outcome, Err(ConnectError::PeerClosed(_))),
            "{outcome:?}"
        );
        assert_eq!(initiating.peer.clients().len(), 1);
    }
}

#[test]
fn revision_1_is_not_tried_where_it_would_not_do_or_was_tried() {
    let p2p = peer_to_peer(RtrTypes::ALL);
    for (mpa, config) in [(up_to(One), QpConfig::default()), (up_to(Two), p2p)] {
        let mut initiating = Initiating::new(mpa, &config);
        initiating.peer.close();
        let outcome = initiating.outcome();
        assert!(
            matches!(outcome, Err(ConnectError::PeerClosed(_))),
            "{outcome:?}"
        );
        initiating.sim.run_until_idle();
        assert_eq!(initiating.peer.clients().len(), 1);
        assert_eq!(initiating.end.state(), QpState::Idle);
    }
}

#[test]
fn rtr_that_is_not_required_is_given_up_with_revision_2() {
    let config = QpConfig::default().peer_to_peer(Some(PeerToPeer {
        required: false,
        ..PeerToPeer::default()
    }));
    let mut sim = pair(up_to(Two), up_to(One)).expecting(&["drop_startup"]);
    let (mut a, mut b) = connected(&mut sim, &config, &QpConfig::default());
    assert_eq!((info(&a).revision, info(&a).rtr), (1, None));
    exchange(&mut sim, &mut a, &mut b);
}

/// Row 17.
#[test]
fn unenhanced_reply_will_do_unless_an_rtr_is_required() {
    for revision in [1, 2] {
        let mut initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
        let answer = reply(CRC, revision, b"plain");
        assert_eq!(initiating.answered(&answer).unwrap(), b"plain");
        let info = info(&initiating.end);
        assert_eq!((info.revision, info.peer), (revision, None));
        assert_eq!((info.ird, info.ord), (32, 32));

        let p2p = peer_to_peer(RtrTypes::ALL);
        let initiating = Initiating::new(MpaConfig::default(), &p2p);
        let mut initiating = initiating.expecting(&["drop_startup"]);
        let outcome = initiating.answered(&answer);
        let not_enhanced = StartupError::NotEnhanced;
        assert!(
            matches!(outcome, Err(ConnectError::NotIwarp { source, .. }) if source == not_enhanced),
            "{outcome:?}"
        );
        assert_eq!(initiating.end.state(), QpState::Idle);
    }
}

/// Row 18.
#[test]
fn enhanced_reply_to_revision_1_is_refused() {
    let mut initiating = Initiating::new(up_to(One), &QpConfig::default());
    assert_eq!(initiating.request, REQUEST);
    initiating = initiating.expecting(&["drop_startup"]);
    let outcome = initiating.answered(&reply(CRC | ENHANCED, 2, &enhanced(1, 1)));
    let revision = StartupError::Revision(2);
    assert!(
        matches!(outcome, Err(ConnectError::NotIwarp { source, .. }) if source == revision),
        "{outcome:?}"
    );
}

/// Row 10.
#[test]
fn responder_of_revision_1_closes_upon_revision_2() {
    for frame in [
        request(CRC | ENHANCED, 2, &enhanced(1, 1)),
        request(CRC, 2, b""),
    ] {
        let mut responding = Responding::new(up_to(One)).expecting(&["drop_startup"]);
        responding.assert_dropped(&frame);
    }
}

/// Row 11.
#[test]
fn enhanced_data_that_is_cut_is_refused() {
    for len in 0..4 {
        let mut responding = Responding::new(up_to(Two)).expecting(&["drop_startup"]);
        responding.assert_dropped(&request(CRC | ENHANCED, 2, &vec![0; len]));
    }
}

/// Rows 12 and 13.
#[test]
fn bits_that_mean_nothing_in_a_request_are_not_read() {
    for (flags, revision) in [(CRC | ENHANCED, 1), (CRC | REJECTED, 1), (CRC | 0x0f, 2)] {
        let mut responding = Responding::new(up_to(Two));
        let asked = responding.asked(&request(flags, revision, b"untouched"));
        assert_eq!(asked.private_data(), b"untouched");
        assert_eq!((asked.revision(), asked.enhanced()), (revision, None));
        assert!(!asked.is_peer_to_peer());
        let mut end = responding.sim.a().end(&QpConfig::default());
        asked.accept(&mut end.qp, b"same").unwrap();
        responding.sim.run_until_idle();
        let answer = reply(CRC, revision, b"same"); // D2: the Request's revision, S=0
        assert_eq!(responding.peer.received(), answer);
    }
}

#[test]
fn request_tells_the_application_what_the_peer_brings() {
    let mut responding = Responding::new(up_to(Two));
    let data = [enhanced(super::A | super::B | 7, super::D | 9), pattern(3)].concat();
    let asked = responding.asked(&request(CRC | ENHANCED, 2, &data));
    let rtr = RtrTypes::only(xwarp::cm::Rtr::Send).with(xwarp::cm::Rtr::Read);
    let expected = EnhancedData {
        ird: Depth::Count(7),
        ord: Depth::Count(9),
        rtr: Some(rtr),
    };
    assert_eq!(asked.enhanced(), Some(expected));
    assert_eq!((asked.revision(), asked.is_peer_to_peer()), (2, true));
    assert_eq!(asked.private_data(), pattern(3));
}

#[test]
fn private_data_fits_up_to_512_bytes_less_the_enhanced_data() {
    for (highest, limit) in [(One, 512), (Two, 508)] {
        for len in [0, 1, 4, limit - 1, limit] {
            let mut sim = pair(up_to(highest), up_to(highest));
            let at = sim.b().at(sim.new_port());
            let mut listener = sim.b().rnic().listen(at).unwrap();
            let mut a = sim.a().end(&QpConfig::default());
            let mut b = sim.b().end(&QpConfig::default());
            let mut connecting = a.qp.begin_connect(at, &pattern(len), LIMIT).unwrap();
            let asked = sim.wait_for("the request", || listener.try_accept().unwrap());
            assert_eq!(asked.private_data(), pattern(len));
            asked.accept(&mut b.qp, &pattern(len)).unwrap();
            let outcome = sim.wait_for("the outcome", || connecting.try_finish());
            assert_eq!(outcome.unwrap(), pattern(len), "{highest:?}");
        }
        let sim = pair(up_to(highest), up_to(highest));
        let mut a = sim.a().end(&QpConfig::default());
        let refused =
            a.qp.begin_connect(sim.b().at(1), &pattern(limit + 1), LIMIT);
        let Err(ConnectError::PrivateDataTooLong { len, limit: said }) = refused.map(drop) else {
            panic!("{highest:?}: {} bytes do not fit", limit + 1);
        };
        assert_eq!((len, said), (limit + 1, limit));
    }
}

#[test]
fn answer_that_does_not_fit_is_refused_and_becomes_a_rejection() {
    for (frame, limit) in [(REQUEST.to_vec(), 512), (ENHANCED_REQUEST.to_vec(), 508)] {
        let mut responding = Responding::new(up_to(Two));
        let asked = responding.asked(&frame);
        let mut end = responding.sim.a().end(&QpConfig::default());
        let refused = asked.accept(&mut end.qp, &pattern(limit + 1));
        let len = limit + 1;
        assert_eq!(refused, Err(AcceptError::PrivateDataTooLong { len, limit }));
        responding
            .sim
            .run_until("the FIN", || responding.peer.saw_fin());
        assert_eq!(responding.peer.received()[16] & REJECTED, REJECTED);
        assert_eq!(end.state(), QpState::Idle);
    }
}

#[test]
fn rejection_has_the_revision_of_the_request() {
    let unsettled = enhanced(super::LEFT_TO_ULP, super::LEFT_TO_ULP);
    let needs_40 = enhanced(super::LEFT_TO_ULP, 40);
    let with_data = |head: &[u8]| [head, b"no"].concat();
    let frames = [
        (request(CRC, 1, b""), None, reply(CRC | REJECTED, 1, b"no")),
        (
            request(CRC, 1, b""),
            Some(40),
            reply(CRC | REJECTED, 1, b"no"),
        ),
        (
            request(CRC, 2, b""),
            Some(40),
            reply(CRC | REJECTED, 2, b"no"),
        ),
        (
            ENHANCED_REQUEST.to_vec(),
            None,
            reply(CRC | REJECTED | ENHANCED, 2, &with_data(&unsettled)),
        ),
        (
            ENHANCED_REQUEST.to_vec(),
            Some(40),
            reply(CRC | REJECTED | ENHANCED, 2, &with_data(&needs_40)),
        ),
    ];
    for (frame, ord, answer) in frames {
        let mut responding = Responding::new(up_to(Two));
        let asked = responding.asked(&frame);
        match ord {
            None => asked.reject(b"no").unwrap(),
            Some(ord) => asked.reject_for_ord(ord, b"no").unwrap(),
        }
        responding
            .sim
            .run_until("the FIN", || responding.peer.saw_fin());
        assert_eq!(responding.peer.received(), answer);
    }
}

/// Row 22.
#[test]
fn reject_tells_the_initiator_which_ord_was_needed() {
    let mut sim = pair(up_to(Two), up_to(Two)).expecting(&["drop_no_flow"]);
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen(at).unwrap();
    let mut a = sim.a().end(&with_depths(4, 4));
    let mut connecting = a.qp.begin_connect(at, b"", LIMIT).unwrap();
    let asked = sim.wait_for("the request", || listener.try_accept().unwrap());
    assert_eq!(asked.enhanced().unwrap().ird, Depth::Count(4));
    asked.reject_for_ord(16, b"more").unwrap();
    let outcome = sim.wait_for("the outcome", || connecting.try_finish());
    let Err(ConnectError::Rejected {
        private_data,
        enhanced,
        ..
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(private_data, b"more");
    assert_eq!(enhanced.unwrap().ord, Depth::Count(16));
    assert_eq!(a.state(), QpState::Idle);
}

#[test]
fn impossible_configuration_is_refused_when_the_queue_pair_is_created() {
    let sim = pair(up_to(One), up_to(Two));
    let create = |host: xwarp_sim_tests::Host, rtr, required| {
        let config = QpConfig::default().peer_to_peer(Some(PeerToPeer { rtr, required }));
        let cq = host.rnic().create_cq(16).unwrap();
        host.pd().create_qp(&config, &cq, &cq).map(drop)
    };
    let refused = create(sim.b(), RtrTypes::NONE, false);
    assert!(matches!(refused, Err(CreateError::NoRtr)), "{refused:?}");
    let refused = create(sim.a(), RtrTypes::ALL, true);
    let needs = matches!(refused, Err(CreateError::NeedsRevisionTwo));
    assert!(needs, "{refused:?}");
    create(sim.a(), RtrTypes::ALL, false).unwrap();
}
