//! Permissive mode: a peer of the RDMA Consortium, MPA revision 0, DDP and RDMAP version 0
//! (RFC 5044, appendix C).

use super::{CRC, Initiating, MARKERS, Responding, connected, exchange, info, pair, up_to};
use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{CompletionStatus, QpConfig, QpState, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_iwarp::mpa::{Deframer, Framer};
use xwarp_sim_tests::wire::{Untagged, deframed, framed, reply, request};
use xwarp_sim_tests::{Done, PlainPeer, Sim, SimEnd};

fn permissive() -> MpaConfig {
    MpaConfig::default().allow_revision_0(true)
}

/// A Send of version 0.
fn send(msn: u32) -> Untagged {
    Untagged {
        control: 0x40,
        rdmap: 0x03,
        msn,
        ..Untagged::default()
    }
}

/// A message to `end`, one back from it, and then an FPDU whose CRC is wrong: all in version 0 and
/// with markers both ways. `sent`: bytes of start-up.
fn converse(sim: &mut Sim, peer: &PlainPeer, end: &mut SimEnd, sent: usize) {
    let mut framer = Framer::new(true, true);
    end.post_recv(1, 1_000);
    end.post_recv(2, 1_000);
    end.post_send(3, &[9; 900]);
    peer.send(&framed(&mut framer, &send(1).ulpdu(&[1; 700])));
    sim.run_until_idle();
    assert_eq!(end.receives(), [Done::receive(1, 700)]);
    assert_eq!(end.sends(), [Done::send(3, 900)]);
    let back = |peer: &PlainPeer| {
        let stream = peer.received().split_off(sent);
        deframed(Deframer::new(true, true), &stream)
    };
    assert_eq!(back(peer), [send(1).ulpdu(&[9; 900])]);

    let mut wrong = framed(&mut framer, &send(2).ulpdu(b"wrong"));
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    peer.send(&wrong);
    sim.run_until("the FIN", || peer.saw_fin());
    let terminate = Untagged {
        control: 0x40,
        rdmap: 0x07,
        qn: 2,
        ..Untagged::default()
    };
    let [_, last] = &back(peer)[..] else {
        panic!("a Terminate after the Send");
    };
    assert_eq!(*last, terminate.ulpdu(&[0x20, 2, 0, 0]));
    peer.close();
    sim.run_until_idle();
    let events = end.events();
    let code = TermCode::mpa(2);
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
        "{events:?}"
    );
}

fn assert_rdmac(end: &SimEnd) {
    let info = info(end);
    assert_eq!((info.revision, info.peer), (0, None));
    assert!(info.crc && info.send_markers && info.receive_markers);
}

#[test]
fn permissive_responder_answers_revision_0_with_markers_and_crcs() {
    let mut responding =
        Responding::new(permissive()).expecting(&["drop_bad_fpdu", "drop_after_failure"]);
    let asked = request(MARKERS | CRC, 0, b"old");
    let (mut end, answer) = responding.accepted(&asked, &QpConfig::default());
    assert_eq!(answer, reply(MARKERS | CRC, 0, b""));
    assert_rdmac(&end);
    let peer = responding.peer.clone();
    converse(&mut responding.sim, &peer, &mut end, answer.len());
}

#[test]
fn permissive_initiator_takes_a_reply_of_revision_0() {
    for highest in [Revision::One, Revision::Two] {
        let mpa = permissive().max_revision(highest);
        let initiating = Initiating::new(mpa, &QpConfig::default());
        let mut initiating = initiating.expecting(&["drop_bad_fpdu", "drop_after_failure"]);
        let answer = reply(MARKERS | CRC, 0, b"old");
        assert_eq!(initiating.answered(&answer).unwrap(), b"old");
        assert_rdmac(&initiating.end);
        let (peer, sent) = (initiating.peer.clone(), initiating.request.len());
        converse(&mut initiating.sim, &peer, &mut initiating.end, sent);
    }
}

/// Row 8.
#[test]
fn revision_0_is_closed_upon_without_permission() {
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_startup"]);
    responding.assert_dropped(&request(MARKERS | CRC, 0, b""));
    let initiating = Initiating::new(MpaConfig::default(), &QpConfig::default());
    let mut initiating = initiating.expecting(&["drop_startup"]);
    assert!(initiating.answered(&reply(MARKERS | CRC, 0, b"")).is_err());
    assert_eq!(initiating.end.state(), QpState::Idle);
}

#[test]
fn permission_changes_nothing_between_peers_of_the_ietf() {
    for (a, b) in [
        (permissive(), permissive()),
        (permissive(), MpaConfig::default()),
        (up_to(Revision::One), permissive()),
    ] {
        let mut sim = pair(a, b);
        let default = QpConfig::default();
        let (mut near, mut far) = connected(&mut sim, &default, &default);
        assert!(info(&near).revision > 0);
        assert!(!info(&near).send_markers);
        exchange(&mut sim, &mut near, &mut far);
    }
}

#[test]
fn work_that_version_0_lacks_is_refused_here_and_not_sent() {
    let remote = RemoteAddress {
        stag: Stag(7),
        to: 0,
    };
    for request in [
        SendRequest::immediate(WrId(1), *b"8 bytes!"),
        SendRequest::fetch_add(WrId(1), 1, remote),
    ] {
        let mut initiating = Initiating::new(permissive(), &QpConfig::default());
        let answer = reply(MARKERS | CRC, 0, b"");
        initiating.answered(&answer).unwrap();
        initiating.end.qp.post_send(request).unwrap();
        initiating
            .sim
            .run_until("the FIN", || initiating.peer.saw_fin());
        let sent = deframed(Deframer::new(true, true), &initiating.sent());
        let [terminate] = &sent[..] else {
            panic!("only a Terminate is sent, not {sent:?}");
        };
        assert_eq!(terminate[1] & 0x0f, 7, "{terminate:?}");
        let completion = initiating.end.send_cq().poll().unwrap().unwrap();
        assert_eq!(completion.status, CompletionStatus::NotInVersion);
    }
}
