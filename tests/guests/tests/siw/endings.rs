//! However a connection ends, both sides notice, and the next one works at once.

use ::xwarp::{CompletionStatus, QpState, SendRequest, WrId};
use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, TIMEOUT, eventually};

use crate::rping::serve;
use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

/// Bytes of a Write: what is posted takes a while.
const PIECE: u32 = 256 << 10;
const PIECES: u64 = 16;

fn large() -> Setup {
    Setup {
        bytes: 1 << 20,
        ..Setup::default()
    }
}

fn post_writes(pair: &mut Pair<'_>) {
    let remote = pair.remote;
    for id in 0..PIECES {
        let source = pair.xwarp.end.source.local(0, PIECE);
        pair.xwarp
            .end
            .post(SendRequest::write(WrId(id), source, remote));
    }
}

/// All work completes, as done or flushed, and the queue pair has ended.
fn assert_ended(pair: &mut Pair<'_>) {
    for id in 0..PIECES {
        let done = pair.xwarp.completion();
        assert_eq!(done.wr_id, WrId(id));
        let right = matches!(
            done.status,
            CompletionStatus::Success | CompletionStatus::Flushed
        );
        assert!(right, "{done:?}");
    }
    eventually("the queue pair's end", || {
        matches!(pair.xwarp.end.qp.state(), QpState::Error | QpState::Idle)
    });
}

#[test]
fn peer_on_siw_that_is_killed_is_noticed_and_comes_again() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &large());
            pair.exchange(role, 1000);
            post_writes(&mut pair);
            // Its end kills the process.
            let Pair {
                siw,
                xwarp,
                remote,
                told_xwarp,
                told_siw,
            } = pair;
            drop(siw);
            let siw = xwarp_guest_tests::siw::Peer::start(guest);
            let mut pair = Pair {
                xwarp,
                siw,
                remote,
                told_xwarp,
                told_siw,
            };
            assert_ended(&mut pair);
            drop(pair);
            let mut again = Pair::connect(lab, guest, role, &Setup::default());
            again.exchange(role, 1000);
        }
    });
}

#[test]
fn siw_may_disconnect_in_the_middle() {
    with_guest(|lab, guest| {
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &large());
        post_writes(&mut pair);
        pair.siw.ask("disconnect name=s");
        assert_ended(&mut pair);
        pair.siw.expect_event("s", "DISCONNECTED");
    });
}

#[test]
fn xwarp_may_disconnect_in_the_middle_and_sends_the_rest() {
    with_guest(|lab, guest| {
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &large());
        post_writes(&mut pair);
        pair.xwarp.end.qp.disconnect(TIMEOUT).expect("a close");
        for id in 0..PIECES {
            pair.xwarp.done(id, ::xwarp::Opcode::Write);
        }
        pair.siw.expect_event("s", "DISCONNECTED");
        let check = format!("check region=r offset=0 length={PIECE} seed=1");
        pair.siw.ask(&check);
    });
}

#[test]
fn either_side_may_disconnect_before_the_first_message() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &Setup::default());
            pair.siw.ask("disconnect name=s");
            eventually("the end", || pair.xwarp.end.qp.state() == QpState::Idle);
            pair.siw.expect_event("s", "DISCONNECTED");
            drop(pair);

            let mut pair = Pair::connect(lab, guest, role, &Setup::default());
            pair.xwarp.end.qp.disconnect(TIMEOUT).expect("a close");
            pair.siw.expect_event("s", "DISCONNECTED");
        }
    });
}

#[test]
fn xwarp_that_is_killed_leaves_nothing_and_comes_again() {
    with_guest(|lab, guest| {
        for _ in 0..2 {
            let address = guest.address();
            let server = serve(guest, 60_000);
            let ping = format!("ping {address} --dev {DEV} --count 1000000 --size 60000");
            let mut client = lab.xwarp.start(&ping);
            client.line("ping     5  verified");
            client.signal(Signal::SIGKILL);
            client.finish().killed_by(Signal::SIGKILL);
            assert_eq!(lab.xwarp.program(), None, "an XDP program is left");
            // rping notices only if it was about to send: siw has no keepalive.
            drop(server);
        }
    });
}
