//! What either side may not do, and what both are told of it.

use ::xwarp::{AsyncEventKind, CompletionStatus, RemoteAddress, SendRequest, Stag, TermCode, WrId};

use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

/// xwarp does something that siw refuses with this code: a Terminate comes, and the work that waits for an answer is flushed.
fn siw_refuses(what: &str, wrong: impl Fn(&mut Pair<'_>), code: TermCode) {
    with_guest(|lab, guest| {
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &Setup::default());
        pair.xwarp.expect(50, 10);
        wrong(&mut pair);
        let told = pair.xwarp.event();
        assert_eq!(told, AsyncEventKind::TerminateReceived(code), "{what}");
        let flushed = loop {
            let done = pair.xwarp.completion();
            if done.wr_id == WrId(50) {
                break done;
            }
        };
        assert_eq!(flushed.status, CompletionStatus::Flushed, "{what}");
        pair.siw.expect_event("s", "DISCONNECTED");
    });
}

fn nowhere() -> RemoteAddress {
    RemoteAddress {
        stag: Stag(0x0bad_0100),
        to: 0,
    }
}

fn write(pair: &mut Pair<'_>, len: u32, remote: RemoteAddress) {
    let source = pair.xwarp.source.local(0, len);
    pair.xwarp.post(SendRequest::write(WrId(1), source, remote));
}

fn read(pair: &mut Pair<'_>, len: u32, remote: RemoteAddress) {
    let sink = pair.xwarp.sink.local(0, len);
    pair.xwarp.post(SendRequest::read(WrId(1), sink, remote));
}

fn beyond(pair: &Pair<'_>) -> RemoteAddress {
    let len = pair.xwarp.sink.bytes().len() as u64;
    RemoteAddress {
        to: pair.remote.to + len - 7,
        ..pair.remote
    }
}

#[test]
fn siw_refuses_a_write_to_nowhere() {
    let wrong = |pair: &mut Pair<'_>| write(pair, 8, nowhere());
    siw_refuses("a Write to nowhere", wrong, TermCode::ddp_tagged(0));
}

#[test]
fn siw_refuses_a_write_beyond_the_end() {
    let wrong = |pair: &mut Pair<'_>| write(pair, 8, beyond(pair));
    siw_refuses("a Write beyond the end", wrong, TermCode::ddp_tagged(1));
}

#[test]
fn siw_refuses_a_read_from_nowhere_and_beyond_the_end() {
    let wrong = |pair: &mut Pair<'_>| read(pair, 8, nowhere());
    siw_refuses("a Read from nowhere", wrong, TermCode::rdmap_protection(0));
    let wrong = |pair: &mut Pair<'_>| read(pair, 8, beyond(pair));
    siw_refuses("a Read beyond", wrong, TermCode::rdmap_protection(1));
}

#[test]
fn siw_refuses_a_send_without_a_buffer_and_one_too_long() {
    let wrong = |pair: &mut Pair<'_>| pair.xwarp.send(1, 8);
    siw_refuses("a Send without a buffer", wrong, TermCode::ddp_untagged(2));
    let wrong = |pair: &mut Pair<'_>| {
        let short = "recv name=s id=1 region=r offset=0 length=7";
        pair.siw.ask(short);
        pair.xwarp.send(1, 8);
    };
    // RFC 5041 §8.2 has a code of its own for this, 5, which siw does not use.
    siw_refuses("a Send too long", wrong, TermCode::ddp_untagged(2));
}

/// siw does something that xwarp refuses with this code; siw's connection ends.
fn xwarp_refuses(what: &str, wrong: impl Fn(&mut Pair<'_>), code: TermCode) {
    with_guest(|lab, guest| {
        let mut pair = Pair::connect(lab, guest, Role::Responder, &Setup::default());
        wrong(&mut pair);
        match pair.xwarp.event() {
            AsyncEventKind::Terminated { code: told, .. } => assert_eq!(told, code, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        pair.siw.expect_event("s", "DISCONNECTED");
        let state = pair.siw.ask("state name=s");
        assert_ne!(state.text("state"), "rts", "{what}");
    });
}

/// What is wrong with a place, the place, and what siw is told.
type Case = (&'static str, fn(&Pair<'_>) -> RemoteAddress, TermCode);

/// siw writes or reads 8 octets there.
fn siw_does(pair: &mut Pair<'_>, verb: &str, remote: RemoteAddress) {
    let (Stag(stag), to) = (remote.stag, remote.to);
    pair.siw.ask(&format!(
        "{verb} name=s id=1 region=r offset=0 length=8 stag={stag} to={to}"
    ));
}

#[test]
fn xwarp_refuses_writes_that_may_not_be() {
    let cases: [Case; 4] = [
        ("to nowhere", |_| nowhere(), TermCode::ddp_tagged(0)),
        (
            "of a wrong key",
            |pair| wrong_key(pair.xwarp.sink.remote(0)),
            TermCode::ddp_tagged(0),
        ),
        (
            "beyond the end",
            |pair| end_of(pair.xwarp.sink.remote(0), pair),
            TermCode::ddp_tagged(1),
        ),
        (
            "without the right",
            |pair| pair.xwarp.source.remote(0),
            TermCode::ddp_tagged(2),
        ),
    ];
    for (what, remote, code) in cases {
        let wrong = |pair: &mut Pair<'_>| {
            let remote = remote(pair);
            siw_does(pair, "write", remote);
        };
        xwarp_refuses(what, wrong, code);
    }
}

#[test]
fn xwarp_refuses_reads_that_may_not_be() {
    let cases: [Case; 2] = [
        ("from nowhere", |_| nowhere(), TermCode::rdmap_protection(0)),
        (
            "beyond the end",
            |pair| end_of(pair.xwarp.source.remote(0), pair),
            TermCode::rdmap_protection(1),
        ),
    ];
    for (what, remote, code) in cases {
        let wrong = |pair: &mut Pair<'_>| {
            let remote = remote(pair);
            siw_does(pair, "read", remote);
        };
        xwarp_refuses(what, wrong, code);
    }
}

fn wrong_key(remote: RemoteAddress) -> RemoteAddress {
    let Stag(stag) = remote.stag;
    RemoteAddress {
        stag: Stag(stag ^ 1),
        ..remote
    }
}

fn end_of(remote: RemoteAddress, pair: &Pair<'_>) -> RemoteAddress {
    let len = pair.xwarp.sink.bytes().len() as u64;
    RemoteAddress {
        to: remote.to + len - 7,
        ..remote
    }
}

#[test]
fn xwarp_refuses_sends_without_a_buffer_and_too_long_ones() {
    let send = "send name=s id=1 region=r offset=0 length=8";
    let wrong = |pair: &mut Pair<'_>| drop(pair.siw.ask(send));
    xwarp_refuses("without a buffer", wrong, TermCode::ddp_untagged(2));
    let wrong = |pair: &mut Pair<'_>| {
        pair.xwarp.expect(1, 7);
        pair.siw.ask(send);
    };
    xwarp_refuses("too long", wrong, TermCode::ddp_untagged(5));
}
