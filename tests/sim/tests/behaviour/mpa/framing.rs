//! CRC and markers, as start-up has settled them for each direction.

use super::{
    CRC, Initiating, MARKERS, Responding, connected, exchange, info, pair, up_to, without_nudge,
};
use std::time::Duration;
use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{QpConfig, QpState, Stag};
use xwarp_iwarp::mpa::{Deframer, Framer};
use xwarp_sim_tests::wire::{Tagged, Untagged, deframed, framed, reply, request, terminate};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, Target, for_each_seed, pattern, pattern_of};
use xwarp_test_kit::netsim::Seed;

fn crc(on: bool, highest: Revision) -> MpaConfig {
    up_to(highest).crc(on)
}

fn markers(on: bool) -> MpaConfig {
    MpaConfig::default().markers(on)
}

#[test]
fn crcs_are_off_only_if_neither_side_wants_them() {
    for highest in [Revision::One, Revision::Two] {
        for (near, far) in [(true, true), (true, false), (false, true), (false, false)] {
            let mut sim = pair(crc(near, highest), crc(far, highest));
            let default = QpConfig::default();
            let (mut a, mut b) = connected(&mut sim, &default, &default);
            let expected = near || far;
            assert_eq!((a.qp.crc(), b.qp.crc()), (expected, expected));
            exchange(&mut sim, &mut a, &mut b);
        }
    }
}

/// Row 33.
#[test]
fn crc_field_is_not_read_without_crcs() {
    let mut responding = Responding::new(crc(false, Revision::Two));
    let (mut end, answer) = responding.accepted(&request(0, 1, b""), &QpConfig::default());
    assert_eq!(answer, reply(0, 1, b""));
    end.post_recv(1, 10);
    let mut fpdu = Untagged::default().fpdu(b"any CRC");
    let last = fpdu.len() - 1;
    fpdu[last] ^= 0xff;
    responding.peer.send(&fpdu);
    responding.sim.run_until_idle();
    assert_eq!(end.receives(), [Done::receive(1, 7)]);
    end.post_send(2, b"none");
    responding.sim.run_until_idle();
    let sent = responding.peer.received().split_off(answer.len());
    assert_eq!(sent[sent.len() - 4..], [0; 4]);
}

/// Row 34.
#[test]
fn zero_crc_is_refused_if_one_side_wants_crcs() {
    // our wish, the Request's C bit
    for (own, theirs) in [(true, 0), (false, CRC)] {
        let responding = Responding::new(crc(own, Revision::Two));
        let mut responding = responding.expecting(&["drop_bad_fpdu", "drop_after_failure"]);
        let (end, answer) = responding.accepted(&request(theirs, 1, b""), &QpConfig::default());
        assert_eq!(answer, reply(CRC, 1, b""), "the outcome, not only our wish");
        assert!(end.qp.crc());
        let write = Tagged::write(Stag(1), 0);
        let mut fpdus = write.fpdu(b"");
        let mut zero = write.fpdu(b"");
        let crc_at = zero.len() - 4;
        zero[crc_at..].fill(0);
        fpdus.extend(zero);
        responding.peer.send(&fpdus);
        let peer = responding.peer.clone();
        responding.sim.run_until("the FIN", || peer.saw_fin());
        let events = end.events();
        let code = TermCode::mpa(2);
        assert!(
            matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
            "{events:?}"
        );
        peer.close();
        responding.sim.run_until_idle();
    }
}

#[test]
fn initiator_checks_crcs_that_only_the_reply_asks_for() {
    for (flags, checked) in [(CRC, true), (0, false)] {
        let mut initiating = Initiating::new(crc(false, Revision::One), &QpConfig::default());
        initiating = initiating.expecting(&["drop_bad_fpdu", "drop_after_failure"]);
        assert_eq!(initiating.request[16] & CRC, 0);
        initiating.answered(&reply(flags, 1, b"")).unwrap();
        assert_eq!(initiating.end.qp.crc(), checked);
        initiating.end.post_recv(1, 10);
        let mut fpdu = Untagged::default().fpdu(b"bad CRC");
        let last = fpdu.len() - 1;
        fpdu[last] ^= 0xff;
        let (peer, end) = (initiating.peer.clone(), &mut initiating.end);
        peer.send(&fpdu);
        if !checked {
            initiating.sim.run_until_idle();
            assert_eq!(end.receives(), [Done::receive(1, 7)]);
            continue;
        }
        initiating.sim.run_until("the FIN", || peer.saw_fin());
        peer.close();
        initiating.sim.run_until_idle();
        let flushed = Done::flushed(1, xwarp::Opcode::Receive);
        assert_eq!(end.receives(), [flushed]);
        assert_eq!(end.ended_with(), Some(TermCode::mpa(2)));
        assert_eq!(terminate(&initiating.sent()).0, TermCode::mpa(2));
    }
}

#[test]
fn markers_are_settled_for_each_direction_by_its_receiver() {
    for (near, far) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut sim = pair(markers(near), markers(far));
        let default = QpConfig::default();
        let (mut a, mut b) = connected(&mut sim, &default, &default);
        let of = |end| (info(end).receive_markers, info(end).send_markers);
        assert_eq!((of(&a), of(&b)), ((near, far), (far, near)));
        exchange(&mut sim, &mut a, &mut b);
    }
}

#[test]
fn large_transfers_with_markers_survive_any_link() {
    for_each_seed(|seed| {
        for (near, far) in [(true, false), (false, true), (true, true)] {
            let sim = Sim::with_mpa(seed, markers(near), markers(far));
            let mut sim = sim
                .one_way_delay(Duration::from_micros(200))
                .loss(0.01)
                .reorder(0.01);
            transfer_both_ways(&mut sim);
        }
    });
}

/// A Write, a Read and a Send of many segments in either direction at once.
fn transfer_both_ways(sim: &mut Sim) {
    const LEN: usize = 100 * KIB + 13;
    let (mut a, mut b) = sim.connected_pair();
    let checks = [
        post_all(&mut a, &mut b, 0, LEN),
        post_all(&mut b, &mut a, 10, LEN),
    ];
    sim.run_until_idle();
    for (target, which) in checks.into_iter().flatten() {
        assert!(target.to_vec() == pattern_of(which, LEN), "pattern {which}");
    }
    for (side, end) in [(0, &mut a), (10, &mut b)] {
        let done = [
            Done::write(side + 1, LEN),
            Done::read(side + 2, LEN),
            Done::send(side + 3, LEN),
        ];
        assert_eq!(end.sends(), done);
        assert_eq!(end.state(), QpState::Rts);
    }
    assert_eq!(b.receives(), [Done::receive(3, LEN)]);
    assert!(b.buffer(3) == pattern_of(3, LEN));
    assert_eq!(a.receives(), [Done::receive(13, LEN)]);
    assert!(a.buffer(13) == pattern_of(13, LEN));
}

/// Where which pattern must be afterwards.
fn post_all(from: &mut SimEnd, to: &mut SimEnd, side: u64, len: usize) -> [(Target, u64); 3] {
    let (written, source, sink) = (to.target(len), to.target(len), from.target(len));
    from.post_write(side + 1, &pattern_of(side + 1, len), written.remote(0));
    source.fill(&pattern_of(side + 2, len));
    from.post_read(side + 2, sink.local(0, len), source.remote(0));
    to.post_recv(side + 3, len);
    from.post_send(side + 3, &pattern_of(side + 3, len));
    [(written, side + 1), (sink, side + 2), (source, side + 2)]
}

#[test]
fn peer_that_asks_for_markers_gets_them_at_every_512th_byte() {
    for highest in [Revision::One, Revision::Two] {
        let mut responding = Responding::new(up_to(highest));
        let frame = request(MARKERS | CRC, 1, b"");
        let (mut end, answer) = responding.accepted(&frame, &QpConfig::default());
        assert_eq!(answer, reply(CRC, 1, b""), "we want none");
        responding.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
        let bytes = pattern(5_000);
        end.post_send(1, &bytes);
        responding.sim.run_until_idle();
        let sent = responding.peer.received().split_off(answer.len());
        assert_eq!(sent[..4], [0; 4], "the first marker, before the first FPDU");
        let payload: Vec<u8> = deframed(Deframer::new(true, true), &sent)
            .iter()
            .flat_map(|ulpdu| ulpdu[18..].to_vec())
            .collect();
        assert!(payload == bytes);
    }
}

/// Row 23.
#[test]
fn reply_that_asks_for_markers_is_obeyed() {
    let mut initiating = Initiating::new(without_nudge(), &QpConfig::default());
    initiating.end.post_send(1, &[7; 1_200]);
    initiating.answered(&reply(MARKERS | CRC, 1, b"")).unwrap();
    initiating.sim.run_until_idle();
    let sent = deframed(Deframer::new(true, true), &initiating.sent());
    assert_eq!(sent, [Untagged::default().ulpdu(&[7; 1_200])]);
    let info = info(&initiating.end);
    assert!(info.send_markers && !info.receive_markers);
}

/// An end at A that has asked its peer, the initiator, for markers and CRCs.
fn wanting_markers() -> (Responding, SimEnd, usize) {
    let mut responding = Responding::new(markers(true));
    let (end, answer) = responding.accepted(&request(CRC, 1, b""), &QpConfig::default());
    assert_eq!(answer, reply(MARKERS | CRC, 1, b""));
    (responding, end, answer.len())
}

#[test]
fn markers_that_we_asked_for_are_taken_out_however_the_stream_is_cut() {
    for piece in [1, 7, 512, 1_024] {
        let (mut responding, end, _) = wanting_markers();
        let target = end.target(3_000);
        let place = target.remote(0);
        let mut framer = Framer::new(true, true);
        let mut stream = Vec::new();
        for at in [0, 1_000, 2_000] {
            let header = Tagged::write(place.stag, place.to + at);
            let which = usize::try_from(at).unwrap();
            let ulpdu = header.ulpdu(&pattern(3_000)[which..which + 1_000]);
            stream.extend(framed(&mut framer, &ulpdu));
        }
        responding.peer.send_pieces(&stream, piece);
        responding.sim.run_until_idle();
        assert!(target.to_vec() == pattern(3_000), "pieces of {piece}");
        assert_eq!(end.state(), QpState::Rts);
    }
}

/// Rows 43 and 46.
#[test]
fn markers_that_are_wrong_or_missing_end_the_stream() {
    let mut wrong = framed(
        &mut Framer::new(true, true),
        &Tagged::write(Stag(1), 0).ulpdu(b""),
    );
    wrong[3] = 8; // FPDUPTR: the FPDU began 8 bytes ago
    let covered = wrong.len() - 4;
    let sum = xwarp_iwarp::crc::crc32c(&wrong[..covered]).to_le_bytes();
    wrong[covered..].copy_from_slice(&sum);
    let missing = Tagged::write(Stag(1), 0).fpdu(b"");
    for (what, stream, code) in [("wrong", wrong, 3), ("missing", missing.repeat(40), 2)] {
        let (responding, mut end, answered) = wanting_markers();
        let mut responding = responding.expecting(&["drop_bad_fpdu", "drop_after_failure"]);
        let mut opening = framed(
            &mut Framer::new(true, true),
            &Tagged::write(Stag(1), 0).ulpdu(b""),
        );
        if what == "wrong" {
            opening.clear(); // its marker is the first
        }
        end.post_send(1, b"never sent");
        responding.peer.send(&[opening, stream].concat());
        let peer = responding.peer.clone();
        responding.sim.run_for(Duration::from_secs(5));
        let events = end.events();
        let expected = TermCode::mpa(code);
        assert!(
            matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == expected),
            "{what}: {events:?}"
        );
        assert!(peer.received().len() > answered || what == "wrong");
        assert_eq!(end.state(), QpState::Error);
    }
}

/// Row 45.
#[test]
fn markers_that_nobody_asked_for_end_the_stream() {
    let mut responding = Responding::new(markers(false)).expecting(&[
        "drop_bad_fpdu",
        "drop_refused_segment",
        "drop_after_failure",
    ]);
    let (end, answer) = responding.accepted(&request(CRC, 1, b""), &QpConfig::default());
    responding.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
    let ulpdu = Tagged::write(Stag(1), 0).ulpdu(b"");
    let marked = framed(&mut Framer::new(true, true), &ulpdu);
    responding.peer.send(&marked);
    let peer = responding.peer.clone();
    responding.sim.run_until("the FIN", || peer.saw_fin());
    let sent = peer.received().split_off(answer.len());
    assert_eq!(xwarp_sim_tests::wire::terminate(&sent).0, TermCode::mpa(2));
    assert_eq!(end.state(), QpState::Terminate);
    peer.close();
    responding.sim.run_until_idle();
}

#[test]
fn markers_and_crcs_off_go_together() {
    let both = MpaConfig::default().crc(false).markers(true);
    let mut sim = Sim::with_mpa(Seed(5), both, both).one_way_delay(Duration::from_millis(1));
    transfer_both_ways(&mut sim);
}
