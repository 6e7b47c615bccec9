//! IRD and ORD (RFC 6581 §9.1).

use super::{
    CRC, ENHANCED, Initiating, LEFT_TO_ULP, Responding, connected, exchange, info, pair,
    with_depths,
};
use std::time::Duration;
use xwarp::cm::{Depth, MpaConfig};
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{CompletionStatus, Opcode, QpConfig, QpState, RemoteAddress, Stag};
use xwarp_sim_tests::wire::{
    Tagged, Untagged, enhanced, read_request, reply, request, terminate, ulpdus,
};
use xwarp_sim_tests::{Done, SimEnd};

fn default_pair() -> xwarp_sim_tests::Sim {
    pair(MpaConfig::default(), MpaConfig::default())
}

fn depths(end: &SimEnd) -> (u16, u16) {
    (end.qp.ird(), end.qp.ord())
}

#[test]
fn no_side_asks_for_more_reads_than_the_other_serves() {
    // IRD and ORD of the initiator, of the responder, and both afterwards
    for (a, b, a_after, b_after) in [
        ((32, 32), (32, 32), (32, 32), (32, 32)),
        ((4, 16), (8, 16), (4, 8), (8, 4)),
        ((16, 2), (32, 1), (16, 2), (2, 1)),
        ((0, 0), (32, 32), (0, 0), (0, 0)),
        ((32, 32), (0, 0), (32, 0), (0, 0)),
        ((1024, 1024), (1024, 1024), (1024, 1024), (1024, 1024)),
        ((1024, 1), (1, 1024), (1024, 1), (1, 1024)),
    ] {
        let mut sim = default_pair();
        let (mut near, mut far) =
            connected(&mut sim, &with_depths(a.0, a.1), &with_depths(b.0, b.1));
        assert_eq!(depths(&near), a_after, "{a:?} and {b:?}");
        assert_eq!(depths(&far), b_after, "{a:?} and {b:?}");
        let asked = info(&far).peer.unwrap();
        let expected = (Depth::Count(a.0), Depth::Count(a.1));
        assert_eq!((asked.ird, asked.ord), expected, "as it came");
        exchange(&mut sim, &mut near, &mut far);
    }
}

#[test]
fn reads_beyond_the_peers_ird_wait_where_they_would_end_a_stream_of_revision_1() {
    let mut sim = default_pair();
    let (mut a, b) = connected(&mut sim, &with_depths(32, 32), &with_depths(1, 0));
    let (sink, source) = (a.target(80), b.target(8));
    source.fill(b"one word");
    for i in 0..10 {
        a.post_read(
            i,
            sink.local(8 * usize::try_from(i).unwrap(), 8),
            source.remote(0),
        );
    }
    sim.run_until_idle();
    let done: Vec<Done> = (0..10).map(|i| Done::read(i, 8)).collect();
    assert_eq!(a.sends(), done);
    assert_eq!(sink.to_vec(), b"one word".repeat(10));
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn read_fails_here_if_the_peer_serves_none() {
    let mut sim = default_pair();
    let (mut a, b) = connected(&mut sim, &with_depths(32, 32), &with_depths(0, 0));
    let (sink, source) = (a.target(8), b.target(8));
    a.post_read(1, sink.local(0, 8), source.remote(0));
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Read, CompletionStatus::ZeroReadResources);
    assert_eq!(a.sends(), [failed]);
}

#[test]
fn next_connection_begins_with_what_was_asked_for() {
    let mut sim = default_pair();
    let (mut a, mut b) = connected(&mut sim, &with_depths(32, 32), &with_depths(1, 1));
    assert_eq!(depths(&a), (32, 1));
    exchange(&mut sim, &mut a, &mut b);
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Idle);
    let mut other = sim.b().end(&QpConfig::default());
    sim.connect_silently(&mut a, &mut other);
    assert_eq!(depths(&a), (32, 32));
}

#[test]
fn reply_says_what_is_in_force_here() {
    // IRD and ORD of the Request, of the queue pair; those of the Reply, and of the queue pair
    // afterwards
    #[rustfmt::skip]
    let cases = [
        ((4, 16), (8, 32), (8, 4), (8, 4)),
        ((0, 0), (8, 32), (0, 0), (0, 0)),
        ((100, 3), (8, 32), (3, 32), (3, 32)),
        ((0x3ffe, 0x3ffe), (8, 32), (8, 32), (8, 32)),
        ((LEFT_TO_ULP, 5), (8, 32), (5, LEFT_TO_ULP), (5, 32)),
        ((5, LEFT_TO_ULP), (8, 32), (LEFT_TO_ULP, 5), (8, 5)),
        ((LEFT_TO_ULP, LEFT_TO_ULP), (8, 32), (LEFT_TO_ULP, LEFT_TO_ULP), (8, 32)),
    ];
    for (asked, own, answered, in_force) in cases {
        let mut responding = Responding::new(MpaConfig::default());
        let frame = request(CRC | ENHANCED, 2, &enhanced(asked.0, asked.1));
        let (end, answer) = responding.accepted(&frame, &with_depths(own.0, own.1));
        let expected = reply(CRC | ENHANCED, 2, &enhanced(answered.0, answered.1));
        assert_eq!(answer, expected, "{asked:?}");
        assert_eq!(depths(&end), in_force, "{asked:?}");
    }
}

/// Row 19.
#[test]
fn reply_lowers_the_ord_and_0x3fff_leaves_it() {
    for (answered, in_force) in [
        ((2, 1), (8, 2)),
        ((0, 0), (8, 0)),
        ((0x3ffe, 8), (8, 16)),
        ((LEFT_TO_ULP, LEFT_TO_ULP), (8, 16)),
        ((LEFT_TO_ULP, 3), (8, 16)),
        ((3, LEFT_TO_ULP), (8, 3)),
    ] {
        let mut initiating = Initiating::new(MpaConfig::default(), &with_depths(8, 16));
        assert_eq!(initiating.request[20..], enhanced(8, 16));
        let frame = reply(
            CRC | ENHANCED,
            2,
            &[enhanced(answered.0, answered.1), b"ulp".to_vec()].concat(),
        );
        assert_eq!(initiating.answered(&frame).unwrap(), b"ulp");
        assert_eq!(depths(&initiating.end), in_force, "{answered:?}");
        let raw = |depth| match depth {
            LEFT_TO_ULP => Depth::LeftToUlp,
            count => Depth::Count(count),
        };
        let peer = info(&initiating.end).peer.unwrap();
        assert_eq!((peer.ird, peer.ord), (raw(answered.0), raw(answered.1)));
    }
}

/// Row 20.
#[test]
fn reply_that_demands_more_than_our_ird_is_terminated() {
    let initiating = Initiating::new(MpaConfig::default(), &with_depths(8, 16));
    initiating.assert_unacceptable(&reply(CRC | ENHANCED, 2, &enhanced(16, 9)), 6);
}

/// Row 85.
#[test]
fn settled_ird_is_the_one_that_is_enforced() {
    let mut responding = Responding::new(MpaConfig::default()).expecting(&["drop_refused_segment"]);
    let frame = request(CRC | ENHANCED, 2, &enhanced(4, 2));
    let (end, answer) = responding.accepted(&frame, &with_depths(8, 8));
    let read = read_request(Stag(1), 0, 0, Stag(1), 0);
    let reads: Vec<u8> = (1..=3)
        .flat_map(|msn| {
            let header = Untagged {
                msn,
                ..Untagged::read_request()
            };
            header.fpdu(&read)
        })
        .collect();
    responding.peer.send(&reads);
    let peer = responding.peer.clone();
    responding.sim.run_until("the FIN", || peer.saw_fin());
    let sent = peer.received().split_off(answer.len());
    let code = TermCode::ddp_untagged(3);
    assert_eq!(terminate(&sent).0, code);
    let events = end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
        "{events:?}"
    );
    peer.close();
    responding.sim.run_for(Duration::from_secs(1));
}

/// Read Requests among what a plain peer has of an RNIC.
fn requests(stream: &[u8]) -> usize {
    let segments = ulpdus(stream);
    segments.iter().filter(|ulpdu| ulpdu[1] == 0x41).count()
}

/// The peer's Read number `msn`.
fn read_of_8_bytes(msn: u32, RemoteAddress { stag, to }: RemoteAddress) -> Vec<u8> {
    let header = Untagged {
        msn,
        ..Untagged::read_request()
    };
    header.fpdu(&read_request(Stag(1), 0, 8, stag, to))
}

/// Both depths are there to the last Read (R5040-6.1-4): the peer has as many outstanding as IRD
/// says, and this side as many as ORD.
#[test]
fn as_many_reads_as_were_settled_are_outstanding_in_either_direction() {
    let mut responding = Responding::new(MpaConfig::default());
    let frame = request(CRC | ENHANCED, 2, &enhanced(4, 3));
    let (mut end, answer) = responding.accepted(&frame, &with_depths(8, 8));
    assert_eq!(depths(&end), (3, 4));
    let source = end.target(8);
    source.fill(b"one word");
    let asked: Vec<u8> = (1..=3)
        .flat_map(|msn| read_of_8_bytes(msn, source.remote(0)))
        .collect();
    responding.peer.send_pieces(&asked, asked.len());
    responding.sim.run_until_idle();
    let sent = responding.peer.received().split_off(answer.len());
    let responses = ulpdus(&sent);
    assert_eq!(responses.len(), 3);
    assert!(
        responses
            .iter()
            .all(|it| it[1] == 0x42 && it[14..] == *b"one word")
    );

    let sink = end.target(8);
    let (stag, to) = (Stag(1), 0);
    let nowhere = RemoteAddress { stag, to };
    (0..6).for_each(|id| end.post_read(id, sink.local(0, 8), nowhere));
    responding.sim.run_until_idle();
    let received = || responding.peer.received().split_off(answer.len());
    assert_eq!(requests(&received()), 4, "and two wait");
    let RemoteAddress { stag, to } = sink.remote(0);
    let response = Tagged::read_response(stag, to).fpdu(b"an answer"[..8].as_ref());
    responding.peer.send(&response);
    responding.sim.run_until_idle();
    assert_eq!(requests(&received()), 5, "one that was answered makes room");
    assert_eq!(end.sends(), [Done::read(0, 8)]);
}
