//! Refusals by siw: accesses that xwarp must not make, in either role, and what both learn of them.

use std::time::Duration;

use ::xwarp::error::TermCode;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{CompletionStatus, RemoteAddress, SendRequest, WrId};
use xwarp_guest_tests::siw::{Guest, Lab};
use xwarp_system_tests::eventually;
use xwarp_system_tests::impair::Rule;
use xwarp_test_kit::netsim::Seed;

use crate::aims::{
    LEN, assert_siw_ends, further, invalidate, nowhere, region_of_siw, wrapping, wrong_key,
};
use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

const ALL: &str = "local-write,remote-read,remote-write";
const FLUSHED: &str = "work-request-flushed-error";

/// A connection that has been used, with receives left on either side: 50 here, 60 there.
fn connect<'a>(lab: &'a Lab, guest: &'a Guest<'a>, role: Role) -> Pair<'a> {
    let mut pair = Pair::connect(lab, guest, role, &Setup::default());
    pair.exchange(role, 1);
    pair.xwarp.end.post_recv(50, LEN);
    pair
}

/// siw has ended the connection with this code: everything is flushed on either side but `done`,
/// which xwarp had done before.
fn assert_refused(pair: &mut Pair<'_>, what: &str, code: TermCode, done: &[u64]) {
    let told = pair.xwarp.event();
    assert_eq!(told, AsyncEventKind::TerminateReceived(code), "{what}");
    loop {
        let completion = pair.xwarp.completion();
        let WrId(id) = completion.wr_id;
        let expected = if done.contains(&id) {
            CompletionStatus::Success
        } else {
            CompletionStatus::Flushed
        };
        assert_eq!(completion.status, expected, "{what}: {completion:?}");
        if id == 50 {
            break;
        }
    }
    eventually("the queue pair's end", || {
        pair.xwarp.end.qp.state() == ::xwarp::QpState::Error
    });
    pair.siw.expect_event("s", "DISCONNECTED");
    assert_siw_ends(&mut pair.siw);
}

/// siw's receive 60 comes back like this.
fn assert_receive(pair: &mut Pair<'_>, what: &str, status: &str) {
    let back = &pair.siw.poll("s", 1)[0];
    assert_eq!((back.id, back.status.as_str()), (60, status), "{what}");
}

/// Makes each of these mistakes in either role, with siw's receive 60 posted. `wrong` takes the
/// place, the expected outcome, and a name for messages of failures.
fn each<C: Copy>(cases: &[(&str, C)], wrong: impl Fn(&mut Pair<'_>, RemoteAddress, C, &str)) {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for (name, outcome) in cases {
                let mut pair = connect(lab, guest, role);
                let receive = format!("recv name=s id=60 region=r offset=100 length={LEN}");
                pair.siw.ask(&receive);
                let remote = place(&mut pair, name);
                wrong(&mut pair, remote, *outcome, &format!("{name}, {role:?}"));
            }
        }
    });
}

/// A place of siw's, by what is wrong with it.
fn place(pair: &mut Pair<'_>, wrong: &str) -> RemoteAddress {
    let bytes = pair.xwarp.end.sink.bytes().len() as u64;
    let (remote, siw) = (pair.remote, &mut pair.siw);
    match wrong {
        "unknown" => nowhere(),
        "wrong key" => wrong_key(remote),
        "beyond the end" => further(remote, bytes - u64::from(LEN) + 1),
        "below the base" => further(remote, u64::MAX),
        "wraps" => wrapping(remote),
        "no remote write" => region_of_siw(siw, "q", "local-write,remote-read", false),
        "no remote read" => region_of_siw(siw, "q", "local-write,remote-write", false),
        "foreign" => region_of_siw(siw, "q", ALL, true),
        "deregistered" => {
            let place = region_of_siw(siw, "q", ALL, false);
            siw.ask("dereg region=q");
            place
        }
        "invalidated" => {
            let place = region_of_siw(siw, "q", ALL, false);
            let request = invalidate(pair, 40, place.stag);
            pair.siw.ask(&format!(
                "recv name=s id=61 region=r offset=200 length={LEN}"
            ));
            pair.xwarp.end.post(request);
            pair.xwarp.done(40, ::xwarp::Opcode::SendInvalidate);
            // The older of the two receives.
            assert_receive(pair, "the invalidation", "success");
            place
        }
        other => panic!("{other}"),
    }
}

#[test]
fn writes_to_where_they_may_not() {
    let codes = [
        ("unknown", TermCode::ddp_tagged(0)),
        ("wrong key", TermCode::ddp_tagged(0)),
        ("beyond the end", TermCode::ddp_tagged(1)),
        ("below the base", TermCode::ddp_tagged(1)),
        // siw finds no page for it.
        ("wraps", TermCode::ddp_local()),
        // The wire has no code for it (wire.md D5).
        ("no remote write", TermCode::ddp_tagged(0)),
        ("foreign", TermCode::ddp_tagged(2)),
        ("deregistered", TermCode::ddp_tagged(0)),
        ("invalidated", TermCode::ddp_tagged(0)),
    ];
    each(&codes, |pair, remote, code, what| {
        let bytes = pair.xwarp.end.sink.bytes().len();
        pair.siw
            .ask(&format!("fill region=r offset=0 length={bytes} seed=8"));
        let source = pair.xwarp.end.source.local(0, LEN);
        pair.xwarp
            .end
            .post(SendRequest::write(WrId(1), source, remote));
        assert_refused(pair, what, code, &[1]);
        let back = &pair.siw.poll("s", 1)[0];
        assert_eq!(back.status, FLUSHED, "{what}: {back:?}");
        pair.siw
            .ask(&format!("check region=r offset=0 length={bytes} seed=8"));
    });
}

#[test]
fn reads_from_where_they_may_not() {
    let codes = [
        ("unknown", TermCode::rdmap_protection(0)),
        ("wrong key", TermCode::rdmap_protection(0)),
        ("beyond the end", TermCode::rdmap_protection(1)),
        ("below the base", TermCode::rdmap_protection(1)),
        ("foreign", TermCode::rdmap_protection(3)),
        ("deregistered", TermCode::rdmap_protection(0)),
        ("invalidated", TermCode::rdmap_protection(0)),
    ];
    each(&codes, |pair, remote, code, what| {
        let before = pair.xwarp.end.sink.bytes().to_vec();
        let sink = pair.xwarp.end.sink.local(0, LEN);
        pair.xwarp
            .end
            .post(SendRequest::read(WrId(1), sink, remote));
        assert_refused(pair, what, code, &[]);
        let back = &pair.siw.poll("s", 1)[0];
        assert_eq!(back.status, FLUSHED, "{what}: {back:?}");
        assert!(pair.xwarp.end.sink.bytes().to_vec() == before, "{what}");
    });
}

/// siw takes it for one within its region, and finds no page for it when it has begun to answer.
#[test]
fn read_that_wraps_ends_the_connection() {
    each(&[("wraps", ())], |pair, remote, (), what| {
        let sink = pair.xwarp.end.sink.local(0, LEN);
        pair.xwarp
            .end
            .post(SendRequest::read(WrId(1), sink, remote));
        for id in [1, 50] {
            let done = pair.xwarp.completion();
            let expected = (WrId(id), CompletionStatus::Flushed);
            assert_eq!((done.wr_id, done.status), expected, "{what}");
        }
        match pair.xwarp.event() {
            AsyncEventKind::BadClose { .. }
            | AsyncEventKind::BadPeerClose { .. }
            | AsyncEventKind::ConnectionReset
            | AsyncEventKind::ConnectionLost { .. } => {}
            other => panic!("{what}: {other:?}"),
        }
        pair.siw.expect_event("s", "DISCONNECTED");
    });
}

/// siw looks at a region's rights for Writes only.
#[test]
fn siw_answers_reads_without_the_right() {
    each(&[("no remote read", ())], |pair, remote, (), _| {
        pair.siw
            .ask(&format!("fill region=q offset=0 length={LEN} seed=4"));
        let sink = pair.xwarp.end.sink.local(0, LEN);
        pair.xwarp
            .end
            .post(SendRequest::read(WrId(1), sink, remote));
        pair.xwarp.done(1, ::xwarp::Opcode::Read);
        pair.xwarp.assert_received(LEN as usize, 4);
    });
}

/// siw fails the receive and owes a Terminate, but goes on; the Terminate comes when the connection
/// ends for another reason.
#[test]
fn sends_that_ask_for_an_invalidation_that_may_not_be() {
    let codes = [
        ("unknown", TermCode::rdmap_operation(9)),
        ("foreign", TermCode::rdmap_protection(9)),
        ("deregistered", TermCode::rdmap_operation(9)),
    ];
    each(&codes, |pair, remote, code, what| {
        let request = invalidate(pair, 1, remote.stag);
        pair.xwarp.end.post(request);
        pair.xwarp.done(1, ::xwarp::Opcode::SendInvalidate);
        assert_receive(pair, what, "remote-invalid-request-error");
        pair.siw.ask("recv name=s id=60 region=r offset=0 length=8");
        pair.xwarp.send(2, LEN);
        pair.xwarp.done(2, ::xwarp::Opcode::Send);
        assert_receive(pair, what, "success");
        pair.siw.ask("disconnect name=s");
        assert_refused(pair, what, code, &[]);
    });
}

/// An `STag` may be invalid already, and siw does not look at the key, nor at the region's rights.
#[test]
fn siw_invalidates_more_than_it_needs_to() {
    each(
        &[("invalidated", ()), ("no remote write", ())],
        |pair, remote, (), _| {
            let request = invalidate(pair, 1, wrong_key(remote).stag);
            pair.xwarp.end.post(request);
            pair.xwarp.done(1, ::xwarp::Opcode::SendInvalidate);
            assert_eq!(pair.siw.poll("s", 1)[0].status, "success");
        },
    );
}

#[test]
fn sends_without_a_buffer_and_too_long_ones() {
    // RFC 5041 §7.2 has a code of its own for what is too long, 5, which siw does not use.
    let code = TermCode::ddp_untagged(2);
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for buffer in [None, Some(LEN - 1)] {
                let what = format!("{role:?}, a buffer of {buffer:?}");
                let mut pair = connect(lab, guest, role);
                if let Some(len) = buffer {
                    let receive = format!("recv name=s id=60 region=r offset=0 length={len}");
                    pair.siw.ask(&receive);
                }
                pair.xwarp.send(1, LEN);
                assert_refused(&mut pair, &what, code, &[1]);
                if buffer.is_some() {
                    assert_receive(&mut pair, &what, "local-length-error");
                }
            }
        }
    });
}

/// siw reads into a region of its own without the local right to write: it finds out when the
/// answer comes. It sends no Terminate before its Read Request is sent (SIW.md), so the link delays
/// the answer.
#[test]
fn answers_to_a_read_whose_sink_siw_may_not_write() {
    let late = Rule {
        reorder: 1.0,
        delay: Duration::from_millis(100),
        ..Rule::new(Seed(1))
    };
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = connect(lab, guest, role);
            let _late = lab.impair(&late);
            region_of_siw(&mut pair.siw, "q", "remote-read", false);
            let ::xwarp::Stag(stag) = pair.xwarp.end.source.stag();
            pair.siw.ask(&format!(
                "read name=s id=1 region=q offset=0 length={LEN} stag={stag} to=0"
            ));
            let code = TermCode::ddp_tagged(0);
            assert_refused(&mut pair, "an answer", code, &[]);
            let back = &pair.siw.poll("s", 1)[0];
            assert_eq!(back.status, "local-protection-error", "{back:?}");
        }
    });
}
