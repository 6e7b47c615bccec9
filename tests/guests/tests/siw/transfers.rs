//! Either side closes in the midst of a transfer, of any kind and in either role: all work comes
//! back, and the next one works.

use ::xwarp::error::PostError;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{CompletionStatus, QpState, RecvRequest, SendRequest, Stag, WrId};
use xwarp_guest_tests::siw::Completion;
use xwarp_system_tests::{TIMEOUT, eventually};

use crate::aims::nowhere;
use crate::pair::assert_works;
use crate::xwarp::{Setup, Xwarp};
use crate::{Pair, Role, with_guest};

/// Bytes of a message, and messages: more than is on its way at once.
const PIECE: u32 = 128 << 10;
const PIECES: u64 = 16;
/// siw's messages lie one after the other.
const REGION: usize = 2 << 20;
/// The first number of receives.
const RECEIVES: u64 = 100;

/// Who does what.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    XwarpWrites,
    XwarpSends,
    XwarpReads,
    SiwWrites,
    SiwSends,
    SiwReads,
}

const TRANSFERS: [Transfer; 6] = [
    Transfer::XwarpWrites,
    Transfer::XwarpSends,
    Transfer::XwarpReads,
    Transfer::SiwWrites,
    Transfer::SiwSends,
    Transfer::SiwReads,
];

impl Transfer {
    /// Completions that xwarp and siw owe for it.
    fn owed(self) -> [u64; 2] {
        match self {
            Self::XwarpWrites | Self::XwarpReads => [PIECES, 0],
            Self::XwarpSends | Self::SiwSends => [PIECES, PIECES],
            Self::SiwWrites | Self::SiwReads => [0, PIECES],
        }
    }

    fn begin(self, pair: &mut Pair<'_>) {
        let remote = pair.remote;
        let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
        let (Stag(source), Stag(sink)) = (xwarp.end.source.stag(), xwarp.end.sink.stag());
        let (ours, theirs) = (
            xwarp.end.source.local(0, PIECE),
            xwarp.end.sink.local(0, PIECE),
        );
        let what = format!("name=s region=r offset=0 length={PIECE}");
        match self {
            Self::XwarpWrites | Self::XwarpSends | Self::XwarpReads => {
                if matches!(self, Self::XwarpSends) {
                    siw.ask(&format!("recv {what} id={RECEIVES} times={PIECES}"));
                }
                for id in 0..PIECES {
                    let id = WrId(id);
                    xwarp.end.post(match self {
                        Self::XwarpWrites => SendRequest::write(id, ours, remote),
                        Self::XwarpSends => SendRequest::send(id, ours),
                        _ => SendRequest::read(id, theirs, remote),
                    });
                }
            }
            Self::SiwSends => {
                for id in 0..PIECES {
                    let request = RecvRequest::new(WrId(RECEIVES + id), theirs);
                    xwarp.end.qp.post_recv(request).expect("room");
                }
                siw.ask(&format!("send {what} id=0 times={PIECES}"));
            }
            Self::SiwWrites => {
                let to = format!("stag={sink} to=0");
                siw.ask(&format!("write {what} id=0 times={PIECES} {to}"));
            }
            Self::SiwReads => {
                let to = format!("stag={source} to=0");
                siw.ask(&format!("read {what} id=0 times={PIECES} {to}"));
            }
        }
    }
}

fn setup() -> Setup {
    Setup::with_bytes(REGION)
}

/// Everything owed comes back, in order: some of it done, then nothing but undone.
fn assert_all_back(pair: &mut Pair<'_>, [ours, theirs]: [u64; 2], what: &str) {
    let mut ended = false;
    for _ in 0..ours {
        let done = pair.xwarp.completion();
        assert!(
            done.is_success() || done.status == CompletionStatus::Flushed,
            "{what}: {done:?}"
        );
        assert!(
            !(ended && done.is_success()),
            "{what}: done after undone, {done:?}"
        );
        ended |= !done.is_success();
    }
    let theirs = usize::try_from(theirs).expect("a few");
    assert_then_undone(&pair.siw.poll("s", theirs), what);
    assert_ended(pair);
}

/// What is done comes before what is not.
fn assert_then_undone(completions: &[Completion], what: &str) {
    let mut undone = completions
        .iter()
        .skip_while(|done| done.status == "success");
    assert!(
        undone.all(|done| done.status != "success"),
        "{what}: {completions:?}"
    );
}

fn assert_ended(pair: &mut Pair<'_>) {
    eventually("the end", || {
        matches!(pair.xwarp.end.qp.state(), QpState::Idle | QpState::Error)
    });
    pair.siw.expect_event("s", "DISCONNECTED");
}

#[test]
fn siw_disconnects_during_a_transfer() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for transfer in TRANSFERS {
                let mut pair = Pair::connect(lab, guest, role, &setup());
                pair.exchange(role, 1);
                transfer.begin(&mut pair);
                pair.siw.ask("disconnect name=s");
                let what = format!("{transfer:?}, {role:?}");
                let [ours, theirs] = transfer.owed();
                if let Transfer::SiwReads | Transfer::SiwSends | Transfer::SiwWrites = transfer {
                    // siw forgets Reads of its own that wait for their answer, and what is posted
                    // behind what fails now.
                    let theirs = usize::try_from(theirs).expect("a few");
                    assert_then_undone(&pair.siw.poll_up_to("s", theirs), &what);
                    assert_all_back(&mut pair, [ours, 0], &what);
                } else {
                    assert_all_back(&mut pair, [ours, theirs], &what);
                }
            }
        }
        assert_works(lab, guest);
    });
}

#[test]
fn xwarp_disconnects_during_a_transfer() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for transfer in TRANSFERS {
                let what = format!("{transfer:?}, {role:?}");
                let mut pair = Pair::connect(lab, guest, role, &setup());
                pair.exchange(role, 1);
                transfer.begin(&mut pair);
                let closed = pair.xwarp.end.qp.disconnect(TIMEOUT);
                // What xwarp has posted is done before it closes; what siw has still to send is
                // not.
                if let Transfer::XwarpWrites | Transfer::XwarpSends | Transfer::XwarpReads =
                    transfer
                {
                    assert!(closed.is_ok(), "{what}: {closed:?}");
                }
                assert_all_back(&mut pair, transfer.owed(), &what);
            }
        }
        assert_works(lab, guest);
    });
}

#[test]
fn either_side_is_killed_during_a_transfer() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for transfer in TRANSFERS {
                let mut pair = Pair::connect(lab, guest, role, &setup());
                pair.exchange(role, 1);
                transfer.begin(&mut pair);
                let Pair { mut xwarp, siw, .. } = pair;
                drop(siw);
                for _ in 0..transfer.owed()[0] {
                    xwarp.completion();
                }
                eventually("xwarp's end", || {
                    matches!(xwarp.end.qp.state(), QpState::Idle | QpState::Error)
                });
                drop(xwarp);

                let mut pair = Pair::connect(lab, guest, role, &setup());
                pair.exchange(role, 1);
                transfer.begin(&mut pair);
                let Pair { xwarp, mut siw, .. } = pair;
                drop(xwarp);
                siw.expect_event("s", "DISCONNECTED");
                siw.poll("s", usize::try_from(transfer.owed()[1]).expect("a few"));
            }
        }
        assert_works(lab, guest);
    });
}

/// What happens while a Terminate is on its way.
#[derive(Clone, Copy, Debug)]
enum Crossing {
    SiwErrsAndCloses,
    SiwErrsAndXwarpCloses,
    XwarpErrsAndCloses,
    XwarpErrsAndAborts,
    XwarpErrsAndSiwCloses,
    BothErr,
}

#[test]
fn terminate_that_is_on_its_way_meets_a_close_or_another() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for crossing in [
                Crossing::SiwErrsAndCloses,
                Crossing::SiwErrsAndXwarpCloses,
                Crossing::XwarpErrsAndCloses,
                Crossing::XwarpErrsAndAborts,
                Crossing::XwarpErrsAndSiwCloses,
                Crossing::BothErr,
            ] {
                let mut pair = Pair::connect(lab, guest, role, &Setup::default());
                pair.exchange(role, 1);
                pair.xwarp.end.post_recv(50, 1);
                cross(&mut pair, crossing);
                let flushed = loop {
                    let done = pair.xwarp.completion();
                    if done.wr_id == WrId(50) {
                        break done;
                    }
                };
                let what = format!("{crossing:?}, {role:?}");
                assert_eq!(flushed.status, CompletionStatus::Flushed, "{what}");
                eventually("the end", || {
                    matches!(pair.xwarp.end.qp.state(), QpState::Idle | QpState::Error)
                });
                pair.siw.expect_event("s", "DISCONNECTED");
                assert_told(&pair, crossing, &what);
            }
        }
        assert_works(lab, guest);
    });
}

fn cross(pair: &mut Pair<'_>, crossing: Crossing) {
    let Stag(stag) = nowhere().stag;
    let wrong = format!("write name=s id=1 region=r offset=0 length=8 stag={stag} to=0");
    let ours = SendRequest::write(WrId(1), pair.xwarp.end.source.local(0, 8), nowhere());
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    match crossing {
        Crossing::SiwErrsAndCloses => {
            siw.ask(&wrong);
            siw.ask("disconnect name=s");
        }
        Crossing::SiwErrsAndXwarpCloses => {
            siw.begin(&wrong);
            xwarp.end.qp.begin_disconnect().expect("an engine");
            siw.answer().expect("posted");
        }
        Crossing::XwarpErrsAndCloses => {
            xwarp.end.post(ours);
            xwarp.end.qp.begin_disconnect().expect("an engine");
        }
        Crossing::XwarpErrsAndAborts => {
            xwarp.end.post(ours);
            xwarp.end.qp.abort().expect("an engine");
        }
        Crossing::XwarpErrsAndSiwCloses => {
            siw.begin("disconnect name=s");
            post_if_in_time(xwarp, ours);
            siw.answer().expect("closed");
        }
        Crossing::BothErr => {
            siw.begin(&wrong);
            post_if_in_time(xwarp, ours);
            siw.answer().expect("posted");
        }
    }
}

/// Posts what siw may have made impossible just before.
fn post_if_in_time(xwarp: &mut Xwarp<'_>, request: SendRequest) {
    match xwarp.end.qp.post_send(request) {
        Ok(()) | Err(PostError::InvalidState(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Where only one thing can have happened first, xwarp says that.
fn assert_told(pair: &Pair<'_>, crossing: Crossing, what: &str) {
    let told = pair
        .xwarp
        .rnic
        .events()
        .try_next()
        .ok()
        .flatten()
        .map(|event| event.kind);
    let right = match crossing {
        Crossing::SiwErrsAndCloses => matches!(told, Some(AsyncEventKind::Terminated { .. })),
        // The Terminate may come before the abort.
        Crossing::XwarpErrsAndAborts => {
            matches!(told, None | Some(AsyncEventKind::TerminateReceived(_)))
        }
        Crossing::XwarpErrsAndCloses => matches!(
            told,
            Some(AsyncEventKind::TerminateReceived(_) | AsyncEventKind::Closed)
        ),
        Crossing::SiwErrsAndXwarpCloses | Crossing::XwarpErrsAndSiwCloses | Crossing::BothErr => {
            told.is_some()
        }
    };
    assert!(right, "{what}: {told:?}");
}
