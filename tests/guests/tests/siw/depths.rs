//! More Reads outstanding than the other side takes: where depths are negotiated they wait, and
//! where not they end the connection.

use ::xwarp::cm::{MpaConfig, Revision};
use ::xwarp::error::TermCode;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{CompletionStatus, Opcode, QpState, SendRequest, Stag, WrId};
use xwarp_guest_tests::siw::{Completion, Guest};
use xwarp_system_tests::{check_nothing_dropped, eventually};

use crate::aims::{clear_log, siw_was_told};
use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

/// Bytes of a Read: more of them than the window holds, so that none is answered before the last
/// has come.
const PIECE: u32 = 256 << 10;
const PIECES: u64 = 16;
const REGION: usize = 4 << 20;

/// xwarp reads all of siw's region.
fn read_all(pair: &mut Pair<'_>) {
    for id in 0..PIECES {
        let at = id * u64::from(PIECE);
        let from = ::xwarp::RemoteAddress {
            to: pair.remote.to + at,
            ..pair.remote
        };
        let sink = pair.xwarp.end.sink.local(at, PIECE);
        pair.xwarp.end.post(SendRequest::read(WrId(id), sink, from));
    }
}

/// siw reads all of xwarp's source.
fn read_all_at_siw(pair: &mut Pair<'_>) {
    let Stag(stag) = pair.xwarp.end.source.stag();
    pair.siw.ask(&format!(
        "read name=s id=0 region=r offset=0 length={PIECE} stag={stag} to=0 times={PIECES}"
    ));
}

fn poll_all_at_siw(pair: &mut Pair<'_>) -> Vec<Completion> {
    let pieces = usize::try_from(PIECES).expect("a few");
    pair.siw.poll("s", pieces)
}

#[test]
fn reads_above_the_negotiated_depth_wait_for_their_turn() {
    with_guest(|lab, guest| {
        for depth in [1, 2] {
            for role in Role::BOTH {
                let setup = Setup {
                    bytes: REGION,
                    ..Setup::with_depths(depth, depth)
                };
                let mut pair = Pair::connect(lab, guest, role, &setup);
                let info = pair.xwarp.info();
                assert_eq!((info.ird, info.ord), (depth, depth), "{role:?}");
                pair.exchange(role, 1);
                pair.siw
                    .ask(&format!("fill region=r offset=0 length={REGION} seed=3"));
                read_all(&mut pair);
                for id in 0..PIECES {
                    pair.xwarp.done(id, Opcode::Read);
                }
                pair.xwarp.assert_received(REGION, 3);
                read_all_at_siw(&mut pair);
                let done = poll_all_at_siw(&mut pair);
                assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
                pair.siw
                    .ask(&format!("check region=r offset=0 length={REGION} seed=1"));
                check_nothing_dropped(&pair.xwarp.rnic);
            }
        }
    });
}

/// Revision 1 negotiates no depths.
fn connect_by_revision_1(guest: &Guest<'_>, ird: u16, siw: (u8, u8)) -> Setup {
    clear_log(guest);
    guest.set_siw("mpa_version", 1);
    Setup {
        bytes: REGION,
        siw_depths: Some(siw),
        mpa: MpaConfig::default().max_revision(Revision::One),
        ..Setup::with_depths(ird, 32)
    }
}

#[test]
fn siw_that_reads_more_than_xwarp_takes_is_told_so() {
    let cases = [
        (4, TermCode::ddp_untagged(3)),
        (0, TermCode::ddp_untagged(1)),
    ];
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for (ird, code) in cases {
                let what = format!("{role:?}, IRD {ird}");
                let setup = connect_by_revision_1(guest, ird, (16, 16));
                let mut pair = Pair::connect(lab, guest, role, &setup);
                pair.exchange(role, 1);
                pair.xwarp.end.post_recv(50, 1);
                read_all_at_siw(&mut pair);
                match pair.xwarp.event() {
                    AsyncEventKind::Terminated { code: told, .. } => {
                        assert_eq!(told, code, "{what}");
                    }
                    other => panic!("{what}: {other:?}"),
                }
                let flushed = pair.xwarp.completion();
                assert_eq!(flushed.status, CompletionStatus::Flushed, "{what}");
                pair.siw.expect_event("s", "DISCONNECTED");
                assert_cut_off(&poll_all_at_siw(&mut pair), &what);
                // It may be in the midst of closing.
                siw_was_told(guest, code, &what);
            }
        }
    });
}

/// Some Reads at first may have been answered, and the others come back undone.
fn assert_cut_off(done: &[Completion], what: &str) {
    let answered = done.iter().take_while(|done| done.status == "success");
    let answered = answered.count();
    let rest = &done[answered..];
    let flushed = |done: &&Completion| done.status == "work-request-flushed-error";
    assert!(!rest.is_empty(), "{what}: all have been answered");
    // The Read whose response was cut off may have a status other than Flushed.
    let undone = rest.iter().skip(1).filter(flushed).count();
    assert_eq!(undone, rest.len() - 1, "{what}: {done:?}");
    assert_ne!(rest[0].status, "success", "{what}: {done:?}");
}

#[test]
fn xwarp_that_reads_where_siw_takes_no_reads_is_told_so() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let setup = connect_by_revision_1(guest, 32, (0, 16));
            let mut pair = Pair::connect(lab, guest, role, &setup);
            pair.exchange(role, 1);
            let sink = pair.xwarp.end.sink.local(0, 8);
            let remote = pair.remote;
            pair.xwarp
                .end
                .post(SendRequest::read(WrId(1), sink, remote));
            let told = pair.xwarp.event();
            let code = TermCode::rdmap_operation(7);
            assert_eq!(told, AsyncEventKind::TerminateReceived(code), "{role:?}");
            let done = pair.xwarp.completion();
            let refused = CompletionStatus::RemoteTermination;
            assert_eq!(done.status, refused, "{role:?}");
            pair.siw.expect_event("s", "DISCONNECTED");
        }
    });
}

/// siw owes a Terminate, but sends none if it is in the midst of an answer: then it just closes.
#[test]
fn xwarp_that_reads_more_than_siw_takes_is_cut_off() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let setup = connect_by_revision_1(guest, 32, (2, 16));
            let mut pair = Pair::connect(lab, guest, role, &setup);
            pair.exchange(role, 1);
            read_all(&mut pair);
            let (mut answered, mut refused) = (0, 0);
            for id in 0..PIECES {
                let done = pair.xwarp.completion();
                assert_eq!(done.wr_id, WrId(id), "{role:?}");
                if done.is_success() {
                    assert_eq!(answered, id, "{role:?}: {done:?}");
                    answered += 1;
                } else if done.status == CompletionStatus::RemoteTermination {
                    refused += 1;
                } else {
                    assert_eq!(done.status, CompletionStatus::Flushed, "{role:?}");
                }
            }
            assert!(answered < PIECES, "{role:?}");
            match pair.xwarp.event() {
                AsyncEventKind::BadClose { .. }
                | AsyncEventKind::BadPeerClose { .. }
                | AsyncEventKind::ConnectionReset
                | AsyncEventKind::ConnectionLost { .. } => {}
                AsyncEventKind::TerminateReceived(code) => {
                    assert_eq!(code, TermCode::rdmap_operation(7), "{role:?}");
                    assert!(refused <= 1, "{role:?}: one Read at most is to blame");
                    refused = 0;
                }
                other => panic!("{role:?}: {other:?}"),
            }
            assert_eq!(refused, 0, "{role:?}: refused without a Terminate");
            eventually("the end", || pair.xwarp.end.qp.state() == QpState::Error);
            pair.siw.expect_event("s", "DISCONNECTED");
        }
    });
}
