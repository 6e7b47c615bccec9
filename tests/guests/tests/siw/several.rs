//! Several connections, and traffic both ways at once.

use std::time::Duration;

use ::xwarp::{Opcode, QpState, RecvRequest, SendRequest, Stag, WrId};
use xwarp_system_tests::check_nothing_dropped;

use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

#[test]
fn both_sides_work_at_once_in_either_role() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &Setup::with_bytes(4 << 20));
            work_at_once(&mut pair);
        }
    });
}

/// Writes one way while Reads of the same side and Sends of the other are under way.
fn work_at_once(pair: &mut Pair<'_>) {
    const PIECE: u32 = 32 << 10;
    const PIECES: u64 = 32;
    let remote = pair.remote;
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    let whole = PIECES * u64::from(PIECE);
    for id in 0..PIECES {
        let buffer = xwarp.end.sink.local(id * u64::from(PIECE), PIECE);
        let request = RecvRequest::new(WrId(1000 + id), buffer);
        xwarp.end.qp.post_recv(request).expect("room");
    }
    siw.ask(&format!(
        "fill region=r offset=3145728 length={whole} seed=6"
    ));
    let source = xwarp.end.source.remote(0);
    let Stag(stag) = source.stag;
    siw.begin(&format!(
        "send name=s id=500 region=r offset=3145728 length={PIECE} times={PIECES}"
    ));
    for id in 0..PIECES {
        let at = id * u64::from(PIECE);
        let to = ::xwarp::RemoteAddress {
            to: remote.to + at,
            ..remote
        };
        let piece = xwarp.end.source.local(at, PIECE);
        xwarp.end.post(SendRequest::write(WrId(id), piece, to));
    }
    siw.answer().expect("posted");
    siw.ask(&format!(
        "read name=s id=700 region=r offset=2097152 length={PIECE} stag={stag} to=0 times=8"
    ));
    let mut received = 0;
    let mut written = 0;
    while received < PIECES || written < PIECES {
        let done = xwarp.completion();
        assert!(done.is_success(), "{done:?}");
        match done.opcode {
            Opcode::Receive => received += 1,
            Opcode::Write => written += 1,
            other => panic!("{other:?}"),
        }
    }
    let done = siw.poll("s", 40);
    assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
    // A Write completes when TCP has it. The response to a Read behind it shows that it is placed.
    let into = xwarp.end.sink.local(whole, 8);
    xwarp
        .end
        .post(SendRequest::read(WrId(PIECES), into, remote));
    xwarp.done(PIECES, Opcode::Read);
    siw.ask(&format!("check region=r offset=0 length={whole} seed=1"));
    let read = 8 * PIECE;
    siw.ask(&format!(
        "check region=r offset=2097152 length={read} seed=1"
    ));
    xwarp.assert_received(usize::try_from(whole).expect("1 MiB"), 6);
    check_nothing_dropped(&xwarp.rnic);
}

#[test]
fn many_connections_end_in_order_from_either_side() {
    with_guest(|lab, guest| {
        for round in 0..10 {
            let role = Role::BOTH[round % 2];
            // A guest that answers a FIN late would answer its retransmission, too, after the
            // connection has gone.
            let setup = Setup {
                min_rto: Some(Duration::from_secs(1)),
                ..Setup::default()
            };
            let mut pair = Pair::connect(lab, guest, role, &setup);
            pair.exchange(role, 1000);
            if round < 5 {
                let limit = xwarp_system_tests::TIMEOUT;
                pair.xwarp.end.qp.disconnect(limit).expect("a close");
                pair.siw.expect_event("s", "DISCONNECTED");
            } else {
                pair.siw.ask("disconnect name=s");
                xwarp_system_tests::eventually("the end", || {
                    matches!(pair.xwarp.end.qp.state(), QpState::Idle | QpState::Error)
                });
                assert_eq!(pair.xwarp.end.qp.state(), QpState::Idle, "{role:?}");
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}
