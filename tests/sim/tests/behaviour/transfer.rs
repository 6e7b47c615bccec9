//! Every byte arrives once, at its place, and every work request completes once, in order.

use std::time::Duration;

use xwarp::work::{Operation, Sgl};
use xwarp::{Access, Opcode, QpConfig, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{
    Done, KIB, MIB, Sim, SimEnd, TAGGED_PAYLOAD, Target, UNTAGGED_PAYLOAD, needs_link, pattern,
    pattern_of,
};
use xwarp_test_kit::netsim::{Direction, Seed};

fn sim() -> Sim {
    Sim::new(Seed(7)).one_way_delay(Duration::from_micros(50))
}

/// No byte, one, a segment's worth and its neighbours, several segments, more than the TCP window.
fn sizes(segment: usize) -> [usize; 8] {
    [
        0,
        1,
        segment - 1,
        segment,
        segment + 1,
        3 * segment,
        64 * KIB,
        MIB,
    ]
}

#[test]
fn writes_of_all_sizes_are_placed_and_complete_in_order() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let targets: Vec<Target> = sizes(TAGGED_PAYLOAD).map(|len| b.target(len)).into();
    let mut expected = Vec::new();
    for (i, (target, len)) in (1..).zip(targets.iter().zip(sizes(TAGGED_PAYLOAD))) {
        a.post_write(i, &pattern_of(i, len), target.remote(0));
        expected.push(Done::write(i, len));
    }
    sim.run_until_idle();
    assert_eq!(a.sends(), expected);
    for (i, (target, len)) in (1..).zip(targets.iter().zip(sizes(TAGGED_PAYLOAD))) {
        assert!(
            target.to_vec() == pattern_of(i, len),
            "the Write of {len} bytes"
        );
    }
    assert_eq!(
        (b.sends(), b.receives()),
        (vec![], vec![]),
        "a Write is not seen by the peer's application"
    );
}

#[test]
fn sends_of_all_sizes_are_received_in_order_with_their_length() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (i, len) in (1..).zip(sizes(UNTAGGED_PAYLOAD)) {
        // Room for one byte more than is sent: the length that completes is the message's.
        b.post_recv(i, len + 1);
        a.post_send(i, &pattern_of(i, len));
        sent.push(Done::send(i, len));
        received.push(Done::receive(i, len));
    }
    sim.run_until_idle();
    assert_eq!(a.sends(), sent);
    assert_eq!(b.receives(), received);
    for (i, len) in (1..).zip(sizes(UNTAGGED_PAYLOAD)) {
        let buffer = b.buffer(i);
        assert!(
            buffer[..len] == pattern_of(i, len),
            "the Send of {len} bytes"
        );
        assert_eq!(buffer[len..], [0], "the byte after the Send of {len} bytes");
    }
}

#[test]
fn reads_of_all_sizes_fetch_the_bytes_and_complete_in_order() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let mut expected = Vec::new();
    let mut pairs = Vec::new();
    for (i, len) in (1..).zip(sizes(TAGGED_PAYLOAD)) {
        let (source, sink) = (b.target(len), a.target(len));
        source.fill(&pattern_of(i, len));
        a.post_read(i, sink.local(0, len), source.remote(0));
        expected.push(Done::read(i, len));
        pairs.push((source, sink));
    }
    sim.run_until_idle();
    assert_eq!(a.sends(), expected);
    for (i, (source, sink)) in (1..).zip(&pairs) {
        assert!(sink.to_vec() == source.to_vec(), "Read {i}");
    }
}

#[test]
fn writes_whose_segments_are_full_fill_the_mtu_exactly() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(2 * TAGGED_PAYLOAD);
    let largest = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = std::rc::Rc::clone(&largest);
    sim.link().observe(move |sighting| {
        if sighting.direction == Direction::AToB {
            seen.set(sighting.frame.len().max(seen.get()));
        }
    });
    a.post_write(1, &pattern(2 * TAGGED_PAYLOAD), target.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, 2 * TAGGED_PAYLOAD)]);
    assert_eq!(largest.get(), 14 + 1500, "one full FPDU per TCP segment");
}

/// An FPDU fills a segment, as long as its ULPDU has no more than 64,768 bytes (RFC 5044
/// section 3), which make 64,776 with framing.
#[test]
fn large_packets_are_filled_and_survive_losses() {
    for (mtu, largest_frame) in [(9000, 14 + 9000), (65_535, 14 + 52 + 64_776)] {
        let mut sim = Sim::with_mtu(Seed(11), mtu)
            .one_way_delay(Duration::from_micros(50))
            .loss(0.02);
        let (mut a, b) = sim.connected_pair();
        let (target, fetchable) = (b.target(4 * MIB), b.target(MIB));
        fetchable.fill(&pattern_of(2, MIB));
        let fetched = a.target(MIB);
        let largest = std::rc::Rc::new(std::cell::Cell::new(0));
        let seen = std::rc::Rc::clone(&largest);
        sim.link()
            .observe(move |sighting| seen.set(sighting.frame.len().max(seen.get())));
        a.post_write(1, &pattern(4 * MIB), target.remote(0));
        a.post_read(2, fetched.local(0, MIB), fetchable.remote(0));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::write(1, 4 * MIB), Done::read(2, MIB)]);
        assert!(target.to_vec() == pattern(4 * MIB), "MTU {mtu}");
        assert!(fetched.to_vec() == pattern_of(2, MIB), "MTU {mtu}");
        assert_eq!(largest.get(), largest_frame, "MTU {mtu}");
    }
}

#[test]
fn both_directions_at_once_do_not_disturb_each_other() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (at_a, at_b) = (a.target(MIB), b.target(MIB));
    let (fetched, fetchable) = (a.target(MIB), b.target(MIB));
    fetchable.fill(&pattern_of(3, MIB));
    a.post_write(1, &pattern_of(1, MIB), at_b.remote(0));
    b.post_write(1, &pattern_of(2, MIB), at_a.remote(0));
    a.post_read(2, fetched.local(0, MIB), fetchable.remote(0));
    b.post_recv(9, 100);
    a.post_send(3, b"last");
    sim.run_until_idle();
    assert_eq!(
        a.sends(),
        [Done::write(1, MIB), Done::read(2, MIB), Done::send(3, 4)]
    );
    assert_eq!(b.sends(), [Done::write(1, MIB)]);
    assert_eq!(b.receives(), [Done::receive(9, 4)]);
    assert!(at_b.to_vec() == pattern_of(1, MIB));
    assert!(at_a.to_vec() == pattern_of(2, MIB));
    assert!(fetched.to_vec() == pattern_of(3, MIB));
}

#[test]
fn eight_queue_pairs_keep_their_bytes_apart() {
    let mut sim = sim();
    let pairs: Vec<(SimEnd, SimEnd)> = (0..8).map(|_| sim.connected_pair()).collect();
    let mut work = Vec::new();
    for (which, (mut a, mut b)) in (0..).zip(pairs) {
        let targets: Vec<Target> = (0..10).map(|_| b.target(20_000)).collect();
        for (i, target) in (0..).zip(&targets) {
            a.post_write(
                2 * i,
                &pattern_of(100 * which + i, 20_000),
                target.remote(0),
            );
            b.post_recv(i, 5_000);
            a.post_send(2 * i + 1, &pattern_of(100 * which + i, 5_000));
        }
        work.push((a, b, targets));
    }
    sim.run_until_idle();
    for (which, (a, b, targets)) in (0..).zip(&mut work) {
        let sends =
            (0..10).flat_map(|i| [Done::write(2 * i, 20_000), Done::send(2 * i + 1, 5_000)]);
        assert_eq!(a.sends(), sends.collect::<Vec<Done>>());
        assert_eq!(
            b.receives(),
            (0..10)
                .map(|i| Done::receive(i, 5_000))
                .collect::<Vec<Done>>()
        );
        for (i, target) in (0..).zip(targets) {
            assert!(target.to_vec() == pattern_of(100 * which + i, 20_000));
            assert!(b.buffer(i) == pattern_of(100 * which + i, 5_000));
        }
    }
}

#[test]
fn lists_of_four_pieces_are_gathered_and_scattered_in_order() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let pieces = [700, 0, 3_000, 1];
    let message = pattern(3_701);
    let mut at = 0;
    let sources: Sgl = pieces
        .map(|len| {
            at += len;
            a.source(&message[at - len..at])
        })
        .into();
    let sinks = [1_500, 1, 2_000, 200].map(|len| (b.target(len), len));
    let scattered: Sgl = sinks
        .each_ref()
        .map(|(sink, len)| sink.local(0, *len))
        .into();
    let target = b.target(3_701);
    b.qp.post_recv(RecvRequest::new(WrId(1), scattered))
        .unwrap();
    a.post(SendRequest::send(WrId(1), sources.clone()));
    a.post(SendRequest::write(WrId(2), sources, target.remote(0)));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(1, 3_701), Done::write(2, 3_701)]);
    assert_eq!(b.receives(), [Done::receive(1, 3_701)]);
    assert!(target.to_vec() == message);
    let received: Vec<u8> = sinks.iter().flat_map(|(sink, _)| sink.to_vec()).collect();
    assert!(received == message);
}

#[test]
fn unsignaled_work_reports_nothing_and_is_done_before_what_follows() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(3 * KIB);
    for (i, at) in (0..3).zip([0, KIB, 2 * KIB]) {
        let source = a.source(&pattern_of(i, KIB));
        let write = SendRequest::write(WrId(i), source, target.remote(at));
        a.post(if i < 2 { write.unsignaled() } else { write });
    }
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(2, KIB)]);
    assert!(target.to_vec() == [0, 1, 2].map(|i| pattern_of(i, KIB)).concat());
}

#[test]
fn read_fence_holds_later_work_back_until_the_read_is_done() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (source, sink) = (b.target(8), a.target(8));
    source.fill(b"8 bytes!");
    b.post_recv(1, 100);
    a.post_read(1, sink.local(0, 8), source.remote(0));
    // Sent from where the Read places: without the fence it would send what was there before.
    a.post(SendRequest::send(WrId(2), sink.local(0, 8)).fenced());
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::read(1, 8), Done::send(2, 8)]);
    assert_eq!(b.buffer(1)[..8], *b"8 bytes!");
}

#[test]
fn hundred_reads_wait_for_their_turn_where_four_may_be_outstanding() {
    let mut sim = sim();
    let config = QpConfig::default().ord(4).ird(4);
    let (mut a, b) = sim.connected_pair_with(&config);
    let (source, sink) = (b.target(100 * KIB), a.target(100 * KIB));
    source.fill(&pattern(100 * KIB));
    for (i, at) in (0..100).zip((0..).step_by(KIB)) {
        a.post_read(i, sink.local(at, KIB), source.remote(at));
    }
    sim.run_until_idle();
    assert_eq!(
        a.sends(),
        (0..100).map(|i| Done::read(i, KIB)).collect::<Vec<Done>>()
    );
    assert!(sink.to_vec() == pattern(100 * KIB));
}

#[test]
fn work_posted_before_the_connection_is_done_after_it() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let target = b.target(KIB);
    b.post_recv(1, 100);
    a.post_write(1, &pattern(KIB), target.remote(0));
    a.post_send(2, b"early");
    sim.run_until_idle();
    assert_eq!((a.sends(), b.receives()), (vec![], vec![]));
    sim.connect_silently(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, KIB), Done::send(2, 5)]);
    assert_eq!(b.receives(), [Done::receive(1, 5)]);
    assert!(target.to_vec() == pattern(KIB));
}

#[test]
fn responder_sends_nothing_before_the_initiator_has_spoken() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect_silently(&mut a, &mut b);
    a.post_recv(1, 100);
    b.post_recv(1, 100);
    b.post_send(1, b"me first");
    sim.run_until_idle();
    assert_eq!(
        (a.receives(), b.sends()),
        (vec![], vec![]),
        "RFC 5044 section 7.1.2"
    );
    a.post_send(2, b"go ahead");
    sim.run_until_idle();
    assert_eq!(a.receives(), [Done::receive(1, 8)]);
    assert_eq!(b.sends(), [Done::send(1, 8)]);
}

#[test]
fn send_with_invalidate_takes_the_region_away_and_says_which() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(100, Access::all());
    b.post_recv(1, 100);
    let sgl = a.source(b"done with it").into();
    let invalidate = Operation::Send {
        payload: sgl,
        solicited: true,
        invalidate: Some(region.stag()),
    };
    a.post(SendRequest::new(WrId(1), invalidate));
    sim.run_until_idle();
    let completion = b.recv_cq().poll().unwrap().unwrap();
    assert!(completion.is_success() && completion.solicited);
    assert_eq!(
        (completion.opcode, completion.byte_len),
        (Opcode::Receive, 12)
    );
    assert_eq!(completion.invalidated, Some(region.stag()));
}

#[test]
fn slow_link_with_a_short_queue_loses_frames_but_no_bytes() {
    const QUEUE: usize = if cfg!(miri) { 8 } else { 50 };
    const LEN: usize = if cfg!(miri) { 32 * KIB } else { MIB };
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim().rate(100_000_000);
    sim.link().change(|conditions| conditions.queue = QUEUE);
    let (mut a, b) = sim.connected_pair();
    let target = b.target(LEN);
    a.post_write(1, &pattern(LEN), target.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, LEN)]);
    assert!(target.to_vec() == pattern(LEN));
    assert!(
        sim.link().counters(Direction::AToB).queue_full > 0,
        "the queue was long enough"
    );
}
