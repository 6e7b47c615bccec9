//! MPA start-up with siw, in both roles.

use std::thread;

use ::xwarp::QpConfig;
use ::xwarp::cm::{MpaConfig, PeerToPeer, Revision, Rtr, RtrTypes};
use ::xwarp::error::ConnectError;
use xwarp_guest_tests::siw::{Peer, XWARP_ADDRESS};
use xwarp_system_tests::{Capture, check_nothing_dropped};
use xwarp_test_kit::next_request;

use crate::xwarp::{Setup, Xwarp};
use crate::{PORT, Pair, Role, with_guest};

fn speaking(highest: Revision) -> Setup {
    Setup {
        mpa: MpaConfig::default().max_revision(highest),
        ..Setup::default()
    }
}

fn wanting_crc(crc: bool) -> Setup {
    Setup {
        mpa: MpaConfig::default().crc(crc),
        ..Setup::default()
    }
}

#[test]
fn either_side_connects_with_either_revision() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for (highest, spoken) in [(Revision::Two, 2), (Revision::One, 1)] {
                // As initiator siw speaks the revision that it is set to, and refuses a Reply of
                // another.
                guest.set_siw("mpa_version", spoken);
                let setup = speaking(highest);
                let mut pair = Pair::connect(lab, guest, role, &setup);
                assert_eq!(pair.xwarp.info().revision, spoken, "{role:?}");
                assert_eq!(pair.told_xwarp, b"from siw");
                assert_eq!(pair.told_siw, "66726f6d207877617270");
                pair.exchange(role, 20_000);
                check_nothing_dropped(&pair.xwarp.rnic);
            }
        }
    });
}

#[test]
fn crcs_are_used_if_either_side_wants_them() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for (xwarp, siw) in [(true, false), (false, false), (true, true), (false, true)] {
                guest.set_siw("mpa_crc_required", u8::from(siw));
                // As responder siw does not ask, whatever it is set to.
                let asked = xwarp || siw && role == Role::Responder;
                let recorder = lab.record(1);
                let mut pair = Pair::connect(lab, guest, role, &wanting_crc(xwarp));
                let case = format!("{role:?}, xwarp {xwarp}, siw {siw}");
                assert_eq!(pair.xwarp.info().crc, asked, "{case}");
                pair.exchange(role, 20_000);
                check_nothing_dropped(&pair.xwarp.rnic);
                let capture = Capture::dissect_port(&recorder.finish(), PORT);
                let good = if asked { capture.fpdus() } else { 0 };
                assert!(capture.fpdus() > 20, "{case}");
                assert_eq!(capture.verdicts().good, good, "{case}");
            }
        }
    });
}

/// siw takes 256 bytes, with the 4 of revision 2.
#[test]
fn private_data_of_any_length_that_siw_takes_arrives() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for len in [0, 1, 56, 200, 251] {
                let ours: Vec<u8> = (0..len).map(|i: u8| i ^ 0x55).collect();
                // What siw's library sends is limited by rdma_cm.
                let theirs: Vec<u8> = (0..len.min(56)).map(|i: u8| i ^ 0xaa).collect();
                let said = if theirs.is_empty() {
                    "-".to_owned()
                } else {
                    hex(&theirs)
                };
                let setup = Setup::default();
                let pair = Pair::connect_saying(lab, guest, role, &setup, &ours, &said);
                assert_eq!(pair.told_xwarp, theirs, "{role:?}, {len} bytes");
                let told = if ours.is_empty() {
                    "-".to_owned()
                } else {
                    hex(&ours)
                };
                assert_eq!(pair.told_siw, told, "{role:?}, {len} bytes");
            }
        }
    });
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn siw_may_refuse_and_says_why() {
    with_guest(|lab, guest| {
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        let mut siw = Peer::start(guest);
        let address = guest.address();
        siw.ask(&format!("listen name=l address={address} port={PORT}"));
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                siw.ask("take listener=l name=s");
                siw.ask("reject name=s data=6e6f");
            });
            xwarp.connect(guest.at(PORT), b"please")
        });
        match outcome {
            Err(ConnectError::Rejected { private_data, .. }) => assert_eq!(private_data, b"no"),
            other => panic!("siw has refused: {other:?}"),
        }
        assert_eq!(xwarp.end.qp.state(), ::xwarp::QpState::Idle);
    });
}

#[test]
fn xwarp_may_refuse_and_says_why() {
    with_guest(|lab, guest| {
        let xwarp = Xwarp::open(lab, &Setup::default());
        let mut listener = xwarp.listen();
        let mut siw = Peer::start(guest);
        siw.ask(&format!(
            "resolve name=s address={XWARP_ADDRESS} port={PORT}"
        ));
        siw.ask("connect name=s data=706c65617365");
        let request = next_request(&mut listener);
        assert_eq!(request.private_data(), b"please");
        request.reject(b"no").expect("told");
        let told = siw.expect_event("s", "REJECTED");
        assert_eq!(told.text("data"), "6e6f");
    });
}

#[test]
fn siw_has_no_markers_and_says_so() {
    with_guest(|lab, guest| {
        let setup = Setup {
            mpa: MpaConfig::default().markers(true),
            ..Setup::default()
        };
        let mut xwarp = Xwarp::open(lab, &setup);
        let mut siw = Peer::start(guest);
        let address = guest.address();
        siw.ask(&format!("listen name=l address={address} port={PORT}"));
        let outcome = xwarp.connect(guest.at(PORT), b"");
        assert!(
            matches!(outcome, Err(ConnectError::Rejected { .. })),
            "{outcome:?}"
        );
    });
}

#[test]
fn depths_are_settled() {
    with_guest(|lab, guest| {
        for (ird, ord) in [(0, 0), (1, 1), (16, 4), (128, 128)] {
            let setup = Setup {
                qp: QpConfig::default().ird(ird).ord(ord),
                ..Setup::default()
            };
            for role in Role::BOTH {
                let pair = Pair::connect(lab, guest, role, &setup);
                let info = pair.xwarp.info();
                // As initiator siw asked for 16 of each.
                let limit = if role == Role::Responder { 16 } else { 128 };
                let expected = (ird.min(limit), ord.min(limit));
                assert_eq!((info.ird, info.ord), expected, "{role:?}");
            }
        }
    });
}

#[test]
fn rtr_opens_the_peer_to_peer_model() {
    with_guest(|lab, guest| {
        for (asked, sent) in [
            (RtrTypes::only(Rtr::Write), Rtr::Write),
            (RtrTypes::only(Rtr::Read), Rtr::Read),
            (RtrTypes::ALL, Rtr::Write),
        ] {
            let setup = Setup {
                qp: QpConfig::default().peer_to_peer(Some(PeerToPeer {
                    rtr: asked,
                    required: true,
                })),
                ..Setup::default()
            };
            let mut pair = Pair::connect(lab, guest, Role::Initiator, &setup);
            assert_eq!(pair.xwarp.info().rtr, Some(sent));
            // The responder speaks first.
            pair.exchange(Role::Responder, 1000);
        }
        guest.set_siw("peer_to_peer", 1);
        for (offer, rtr) in [(1, Rtr::Write), (2, Rtr::Read), (3, Rtr::Write)] {
            guest.set_siw("rtr_offer", offer);
            let setup = Setup {
                qp: QpConfig::default().peer_to_peer(Some(PeerToPeer {
                    rtr: RtrTypes::only(rtr),
                    required: true,
                })),
                ..Setup::default()
            };
            let mut pair = Pair::connect(lab, guest, Role::Responder, &setup);
            pair.exchange(Role::Initiator, 1000);
        }
    });
}

fn offering(rtr: Rtr, crc: bool) -> Setup {
    Setup {
        mpa: MpaConfig::default().crc(crc),
        qp: QpConfig::default().peer_to_peer(Some(PeerToPeer {
            rtr: RtrTypes::only(rtr),
            required: true,
        })),
        ..Setup::default()
    }
}

/// siw has no RTR that is a Send, and answers with another.
#[test]
fn rtr_that_siw_does_not_have_is_unacceptable_to_xwarp() {
    with_guest(|lab, guest| {
        let mut xwarp = Xwarp::open(lab, &offering(Rtr::Send, true));
        let mut siw = Peer::start(guest);
        let address = guest.address();
        siw.ask(&format!("listen name=l address={address} port={PORT}"));
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                siw.ask("take listener=l name=s");
                siw.ask("accept name=s");
            });
            xwarp.connect(guest.at(PORT), b"")
        });
        let unacceptable = matches!(outcome, Err(ConnectError::Unacceptable { .. }));
        assert!(unacceptable, "{outcome:?}");
        assert_eq!(xwarp.end.qp.state(), ::xwarp::QpState::Idle);
    });
}

#[test]
fn rtr_that_xwarp_does_not_have_is_unacceptable_to_siw() {
    with_guest(|lab, guest| {
        guest.set_siw("peer_to_peer", 1);
        for (offer, rtr) in [(1, Rtr::Read), (2, Rtr::Write), (3, Rtr::Send)] {
            guest.set_siw("rtr_offer", offer);
            let mut xwarp = Xwarp::open(lab, &offering(rtr, false));
            let mut listener = xwarp.listen();
            let mut siw = Peer::start(guest);
            siw.ask(&format!(
                "resolve name=s address={XWARP_ADDRESS} port={PORT}"
            ));
            siw.ask("connect name=s");
            let request = next_request(&mut listener);
            assert!(request.is_peer_to_peer());
            request.accept(&mut xwarp.end.qp, b"").expect("accepted");
            let told = siw.ask("event name=s");
            assert_eq!(told.text("event"), "CONNECT_ERROR", "{told:?}");
            // 2/0/07 in siw's spelling, without a header that would tell.
            let code = ::xwarp::error::TermCode::rdmap_operation(7);
            let told = xwarp.event();
            assert_eq!(
                told,
                ::xwarp::event::AsyncEventKind::TerminateReceived(code)
            );
        }
    });
}

/// The model without an RTR: what comes first may be anything.
#[test]
fn siw_that_offers_no_rtr_speaks_first() {
    with_guest(|lab, guest| {
        guest.set_siw("peer_to_peer", 1);
        guest.set_siw("rtr_offer", 0);
        let mut pair = Pair::connect(lab, guest, Role::Responder, &Setup::default());
        pair.exchange(Role::Responder, 1000);
    });
}
