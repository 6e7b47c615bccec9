//! The Terminate state, and the Terminate Message that Query QP keeps (verbs draft §6.2.2.3,
//! §6.2.3, §8.3).

use std::time::Duration;

use xwarp::attr::{QpChange, TerminateInfo, TerminateOrigin};
use xwarp::error::{InboundError, ProtectionError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::{Access, CompletionStatus, Opcode, QpState, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_sim_tests::wire::{Tagged, Untagged};
use xwarp_sim_tests::{Done, Sim, SimEnd};

use super::{assert_usable, is_bad_close, pair_in, sim};
use crate::hostile::Dut;

/// Longer than a Terminate and the close after it may take.
const BOUND: Duration = Duration::from_secs(4);

const NOWHERE: RemoteAddress = RemoteAddress {
    stag: Stag(0x100),
    to: 0,
};

fn terminate(end: &SimEnd) -> TerminateInfo {
    end.qp.query().unwrap().terminate.expect("a Terminate")
}

/// Both ends know of the same Terminate, which `teller` sent.
fn assert_told(teller: &SimEnd, told: &SimEnd, code: TermCode) {
    let (sent, received) = (terminate(teller), terminate(told));
    assert_eq!((sent.code, received.code), (code, code));
    assert_eq!(sent.message, received.message);
    assert_eq!(
        (sent.origin, received.origin),
        (TerminateOrigin::Local, TerminateOrigin::Peer)
    );
}

#[test]
fn modify_to_terminate_tells_the_peer_flushes_and_ends_in_error() {
    let mut sim = sim().expecting(&["drop_after_failure"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    let (sink, source) = (a.target(8), b.target(8));
    a.post_recv(1, 10);
    b.post_recv(2, 10);
    a.post_read(3, sink.local(0, 8), source.remote(0));
    a.post_send(4, b"unsent");
    a.qp.modify(QpChange::to(QpState::Terminate)).unwrap();
    assert_eq!(a.state(), QpState::Terminate);
    assert_eq!(
        terminate(&a).message,
        [0; 4],
        "figure 12: 0x0000, HdrCt 000"
    );
    sim.run_until_idle();
    assert_told(&a, &b, TermCode::rdmap_local());
    for end in [&a, &b] {
        let info = end.qp.query().unwrap();
        assert_eq!((info.state, info.stream), (QpState::Error, None));
    }
    assert_eq!(a.events(), [], "the application knows what it did");
    assert_eq!(
        b.events(),
        [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())]
    );
    assert_eq!(
        a.sends(),
        [
            Done::flushed(3, Opcode::Read),
            Done::flushed(4, Opcode::Send)
        ]
    );
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(b.receives(), [Done::flushed(2, Opcode::Receive)]);
}

#[test]
fn after_a_terminate_both_ends_can_be_connected_again() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Terminate);
    sim.run_until_idle();
    for end in [&mut a, &mut b] {
        end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
        assert_eq!(end.qp.query().unwrap().terminate, None);
        end.events();
    }
    assert_usable(&mut sim, &mut a, &mut b);
}

/// Cuts the link, lets `fail` fail, and waits for Error.
fn events_without_link(
    sim: &mut Sim,
    a: &mut SimEnd,
    fail: impl FnOnce(&mut SimEnd),
) -> Vec<AsyncEventKind> {
    sim.cut_link();
    let began = sim.now();
    fail(a);
    sim.run_until("Error", || a.state() == QpState::Error);
    assert!(sim.now().saturating_sub(began) < BOUND);
    a.events()
}

#[test]
fn terminate_that_was_asked_for_and_cannot_be_sent_is_a_bad_close() {
    let mut sim = sim();
    let (mut a, _b) = pair_in(&mut sim, QpState::Rts);
    let events = events_without_link(&mut sim, &mut a, |a| {
        a.qp.modify(QpChange::to(QpState::Terminate)).unwrap();
    });
    assert!(is_bad_close(&events), "{events:?}");
    assert_eq!(
        terminate(&a).origin,
        TerminateOrigin::Local,
        "though nobody got it"
    );
}

#[test]
fn failed_work_request_is_no_event_unless_the_close_fails_too() {
    for cut in [false, true] {
        let mut sim = sim();
        let (mut a, b) = pair_in(&mut sim, QpState::Rts);
        let unreadable = a.region(8, Access::LOCAL_WRITE);
        let fail = |a: &mut SimEnd| a.post(SendRequest::send(WrId(1), unreadable.local(0, 8)));
        let events = if cut {
            events_without_link(&mut sim, &mut a, fail)
        } else {
            fail(&mut a);
            sim.run_until_idle();
            assert_told(&a, &b, TermCode::rdmap_local());
            a.events()
        };
        assert_eq!(is_bad_close(&events), cut, "{events:?}");
        assert_eq!(events.is_empty(), !cut);
        let status = CompletionStatus::AccessViolation;
        assert_eq!(a.sends(), [Done::failed(1, Opcode::Send, status)]);
    }
}

#[test]
fn failed_receive_is_no_event_either() {
    let mut sim = sim().expecting(&["drop_refused_segment"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    b.post_recv(1, 3);
    a.post_send(2, b"too long");
    sim.run_until_idle();
    assert_eq!(b.events(), []);
    assert_told(&b, &a, TermCode::ddp_untagged(5));
    let status = CompletionStatus::BaseBounds;
    assert_eq!(b.receives(), [Done::failed(1, Opcode::Receive, status)]);
}

#[test]
fn event_that_says_why_is_the_only_one_even_if_the_close_fails() {
    let mut sim = sim().expecting(&["drop_refused_segment"]);
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    a.post_write(1, b"nowhere", NOWHERE);
    sim.run_until("the refusal", || b.state() == QpState::Terminate);
    sim.cut_link();
    sim.run_until("Error", || b.state() == QpState::Error);
    let events = b.events();
    assert!(
        matches!(
            events[..],
            [AsyncEventKind::Terminated {
                error: InboundError::Tagged(ProtectionError::InvalidStag),
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn terminate_has_the_header_of_what_was_refused_until_idle() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    a.post_write(1, b"nowhere", NOWHERE);
    sim.run_until("the refusal", || b.state() == QpState::Terminate);
    let kept = terminate(&b);
    assert_eq!(kept.message[..6], [0x11, 0x00, 0xc0, 0x00, 0, 21]);
    assert_eq!(kept.message[8..], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    sim.run_until_idle();
    assert_eq!(terminate(&b), kept, "in Error, too");
    assert_told(&b, &a, TermCode::ddp_tagged(0));
    a.qp.modify(QpChange::to(QpState::Idle)).unwrap();
    assert_eq!(a.qp.query().unwrap().terminate, None);
}

#[test]
fn terminate_is_not_answered_by_one() {
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    dut.peer.send(&terminate.fpdu(&[0x01, 0x02, 0, 0]));
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    assert_eq!(dut.answer(), []);
    let kept = self::terminate(&dut.end);
    assert_eq!(
        (kept.origin, kept.message),
        (TerminateOrigin::Peer, vec![1, 2, 0, 0])
    );
    dut.peer.close();
    dut.sim.run_until_idle();
    let code = TermCode::rdmap_protection(2);
    assert_eq!(dut.end.events(), [AsyncEventKind::TerminateReceived(code)]);
}

#[test]
fn messages_of_the_peer_in_terminate_are_ignored() {
    let mut sim = sim().expecting(&["drop_after_failure"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    let target = a.target(100);
    a.post_recv(1, 100);
    b.post_write(2, &[7; 100], target.remote(0));
    b.post_send(3, b"unheard");
    a.qp.modify(QpChange::to(QpState::Terminate)).unwrap();
    sim.run_until_idle();
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(target.to_vec(), [0; 100]);
}

/// A queue pair in Terminate because of what the peer has sent, or at the application's wish.
fn terminating(sent: Option<Vec<u8>>) -> Dut {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    dut.sim.run_until_idle();
    if let Some(sent) = sent {
        dut.peer.send(&sent);
    } else {
        let asked = QpChange::to(QpState::Terminate);
        dut.end.qp.modify(asked).unwrap();
    }
    let end = &dut.end;
    (dut.sim).run_until("Terminate", || end.state() == QpState::Terminate);
    dut
}

#[test]
fn of_several_reasons_the_first_one_is_kept() {
    let on_queue = |rdmap, qn| Untagged {
        rdmap,
        qn,
        ..Untagged::default()
    };
    let told = on_queue(0x47, 2).fpdu(&[0x02, 0x07, 0, 0]);
    let no_region = Tagged::write(NOWHERE.stag, 0).fpdu(b"8 bytes!");
    let no_queue = on_queue(0x43, 9).fpdu(b"8 bytes!");
    let (ours, peers) = (TerminateOrigin::Local, TerminateOrigin::Peer);
    let cases = [
        (None, ours, [&no_region, &told]),
        (Some(&told), peers, [&no_region, &no_queue]),
        (Some(&no_region), ours, [&told, &no_queue]),
        (Some(&no_queue), ours, [&no_region, &told]),
    ];
    for (first, origin, later) in cases {
        // One more comes in the same segment.
        let sent = first.map(|first| [&first[..], &later[0][..]].concat());
        let mut dut = terminating(sent);
        let kept = terminate(&dut.end);
        assert_eq!(kept.origin, origin);
        for fpdu in later {
            dut.peer.send(fpdu);
            dut.sim.run_for(Duration::from_millis(1));
            assert_eq!(dut.end.state(), QpState::Terminate);
            assert_eq!(terminate(&dut.end), kept);
        }
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(dut.end.state(), QpState::Error);
        assert_eq!(terminate(&dut.end), kept);
        let events = dut.end.events();
        assert_eq!(events.len(), usize::from(first.is_some()), "{events:?}");
    }
}
