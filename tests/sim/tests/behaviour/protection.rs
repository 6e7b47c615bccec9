//! Protection of memory from the peer (RFC 5041 §7, RFC 5040 §7): a refused access changes not a
//! byte, and both sides learn why.

use std::time::Duration;

use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::TermCode;
use xwarp::{Access, CompletionStatus, Opcode, QpConfig, SrqConfig};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::refused::{ACCESSES, Attempt, RefusedAccess, assert_refused, invalidation};
use crate::work_queues::end_with_srq;

const WRITE: Attempt = Attempt {
    len: 100,
    right: Access::REMOTE_WRITE,
};
const READ: Attempt = Attempt {
    len: 100,
    right: Access::REMOTE_READ,
};

fn sim() -> Sim {
    sim_of(MpaConfig::default())
}

fn sim_of(mpa: MpaConfig) -> Sim {
    Sim::with_mpa(Seed(13), mpa, mpa)
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_refused_segment", "drop_after_failure"])
}

#[test]
fn write_to_where_it_may_not_changes_nothing_and_ends_the_stream() {
    for RefusedAccess {
        case,
        memory,
        tagged,
        ..
    } in ACCESSES
    {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let memory = memory(b.host(), WRITE);
        let sink = a.target(8);
        b.post_recv(5, 100);
        a.post_recv(6, 100);
        a.post_write(1, &pattern(100), memory.address);
        a.post_read(2, sink.local(0, 8), memory.address);
        let before = b.host().memory();
        sim.run_until_idle();
        assert_refused(case, &a, &b, tagged);
        assert!(b.host().memory() == before, "{case}: memory has changed");
        assert_eq!(
            a.sends(),
            [Done::write(1, 100), Done::flushed(2, Opcode::Read)],
            "{case}"
        );
        assert_eq!(a.receives(), [Done::flushed(6, Opcode::Receive)], "{case}");
        assert_eq!(b.receives(), [Done::flushed(5, Opcode::Receive)], "{case}");
        assert_eq!(b.host().drops()["drop_refused_segment"], 1, "{case}");
        assert_eq!(b.host().rnic().counters().unwrap().rdma.terminates_out, 1);
        assert_eq!(a.host().rnic().counters().unwrap().rdma.terminates_in, 1);
        drop(memory.region);
    }
}

#[test]
fn write_that_fits_exactly_is_placed() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    a.post_write(1, &pattern(100), region.remote(924));
    a.post_write(2, &pattern(KIB), region.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, 100), Done::write(2, KIB)]);
}

#[test]
fn read_from_where_it_may_not_returns_nothing_and_ends_the_stream() {
    for RefusedAccess {
        case,
        memory,
        request,
        ..
    } in ACCESSES
    {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let memory = memory(b.host(), READ);
        let sink = a.region(100, Access::all());
        b.post_recv(5, 100);
        let before = (a.host().memory(), b.host().memory());
        a.post_read(1, sink.local(0, 100), memory.address);
        a.post_read(2, sink.local(0, 100), memory.address);
        sim.run_until_idle();
        assert_refused(case, &a, &b, request);
        assert!(
            (a.host().memory(), b.host().memory()) == before,
            "{case}: memory has changed"
        );
        let done = [
            Done::refused(1, Opcode::Read),
            Done::flushed(2, Opcode::Read),
        ];
        assert_eq!(a.sends(), done, "{case}");
        assert_eq!(b.receives(), [Done::flushed(5, Opcode::Receive)], "{case}");
        drop(memory.region);
    }
}

#[test]
fn region_that_is_deregistered_while_the_peer_writes_is_left_alone_from_then_on() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let region = b.region(MIB, Access::all());
    let memory = region.bytes().clone();
    a.post_write(1, &pattern(MIB), region.remote(0));
    sim.run_for(Duration::from_micros(120));
    drop(region);
    let at_that_time = memory.to_vec();
    assert!(at_that_time != vec![0; MIB], "nothing was placed before");
    assert!(at_that_time != pattern(MIB), "everything was placed before");
    sim.run_until_idle();
    assert!(memory.to_vec() == at_that_time);
    assert_refused("Write", &a, &b, TermCode::ddp_tagged(0));
    assert_eq!(a.sends(), [Done::refused(1, Opcode::Write)]);
}

#[test]
fn region_that_is_deregistered_while_the_peer_reads_ends_the_stream() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (region, sink) = (b.region(MIB, Access::all()), a.target(MIB));
    region.bytes().write(0, &pattern(MIB)).unwrap();
    a.post_read(1, sink.local(0, MIB), region.remote(0));
    sim.run_for(Duration::from_micros(220));
    let placed = a.host().rnic().counters().unwrap().rdma.placed_bytes;
    assert!(
        placed > 0 && placed < MIB as u64,
        "{placed} bytes were placed before"
    );
    drop(region);
    sim.run_until_idle();
    assert_refused("Read", &a, &b, TermCode::rdmap_protection(0));
    assert_eq!(a.sends(), [Done::refused(1, Opcode::Read)]);
    let fetched = sink.to_vec();
    let right = |(byte, sent): (&u8, &u8)| byte == sent || *byte == 0;
    assert!(
        fetched.iter().zip(&pattern(MIB)).all(right),
        "nothing but the region was sent"
    );
}

#[test]
fn send_without_a_posted_receive_ends_the_stream() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 100);
    let before = b.host().memory();
    a.post_send(1, b"");
    a.post_send(2, b"one too many");
    a.post_recv(3, 100);
    sim.run_until_idle();
    assert_refused("no receive", &a, &b, TermCode::ddp_untagged(2));
    assert_eq!(b.receives(), [Done::receive(1, 0)]);
    assert_eq!(a.sends(), [Done::send(1, 0), Done::send(2, 12)]);
    assert_eq!(a.receives(), [Done::flushed(3, Opcode::Receive)]);
    assert!(b.host().memory() == before);
}

#[test]
fn send_longer_than_its_buffer_ends_the_stream_and_fails_the_receive() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 99);
    b.post_recv(2, 100);
    let before = b.host().memory();
    a.post_send(1, &pattern(100));
    sim.run_until_idle();
    assert_refused("too long", &a, &b, TermCode::ddp_untagged(5));
    let too_short = Done::failed(1, Opcode::Receive, CompletionStatus::BaseBounds);
    assert_eq!(b.receives(), [too_short, Done::flushed(2, Opcode::Receive)]);
    assert!(b.host().memory() == before);
}

/// Buffers of one or several pieces, for messages of one segment or several.
const BUFFERS: [&[usize]; 6] = [
    &[99],
    &[50, 49],
    &[0, 98, 0, 1],
    &[33; 3],
    &[3000],
    &[1; 16],
];

/// Sends a message into a buffer of these pieces, behind one that fits, without markers in the
/// stream or with them.
fn send_into(pieces: &[usize], len: usize, markers: bool) -> (Sim, SimEnd, SimEnd) {
    let mut sim = sim_of(MpaConfig::default().markers(markers));
    let (mut a, mut b) = sim.connected_pair();
    b.post_recv(1, 8);
    let buffer = b.recv_request(2, pieces);
    b.qp.post_recv(buffer).unwrap();
    a.post_send(1, b"8 bytes!");
    a.post_send(2, &pattern(len));
    sim.run_until_idle();
    (sim, a, b)
}

/// A buffer lies in a region that goes on around it. The list of pieces bounds the message, not the
/// region.
#[test]
fn send_that_is_one_byte_too_long_leaves_the_region_around_its_buffer_alone() {
    for (pieces, markers) in BUFFERS.into_iter().zip([false, true].into_iter().cycle()) {
        let room = pieces.iter().sum();
        let (_sim, _a, mut b) = send_into(pieces, room, markers);
        let received = [Done::receive(1, 8), Done::receive(2, room)];
        assert_eq!(b.receives(), received, "{pieces:?}");
        assert!(b.buffer(2) == pattern(room), "{pieces:?}");

        let (_sim, a, mut b) = send_into(pieces, room + 1, markers);
        assert_refused("too long", &a, &b, TermCode::ddp_untagged(5));
        let too_short = Done::failed(2, Opcode::Receive, CompletionStatus::BaseBounds);
        assert_eq!(b.receives(), [Done::receive(1, 8), too_short], "{pieces:?}");
        assert_eq!(b.buffer(2).len(), room);
    }
}

/// The same with a shared receive queue.
#[test]
fn send_that_is_too_long_for_a_shared_buffer_leaves_the_region_around_it_alone() {
    for pieces in BUFFERS {
        let mut sim = sim();
        let (host, config) = (sim.b(), QpConfig::default());
        let mut srq = host.pd().create_srq(SrqConfig::default()).unwrap();
        let (mut a, mut b) = (sim.a().end(&config), end_with_srq(&host, &config, &srq));
        sim.connect(&mut a, &mut b);
        let room = pieces.iter().sum();
        for (name, len) in [(1, room), (2, room + 1)] {
            let buffer = b.recv_request(name, pieces);
            srq.post_recv(buffer).unwrap();
            a.post_send(name, &pattern(len));
        }
        sim.run_until_idle();
        let too_short = Done::failed(2, Opcode::Receive, CompletionStatus::BaseBounds);
        assert_eq!(b.receives(), [Done::receive(1, room), too_short]);
        assert!(b.buffer(1) == pattern(room), "{pieces:?}");
        assert_eq!(b.buffer(2).len(), room);
    }
}

#[test]
fn more_reads_than_the_peer_offers_end_the_stream() {
    for (ird, code) in [
        (2, TermCode::ddp_untagged(3)),
        (0, TermCode::ddp_untagged(1)),
    ] {
        // Revision 1: revision 2 would negotiate the depths, so that A keeps to B's IRD.
        let mut sim = sim_of(MpaConfig::default().max_revision(Revision::One));
        let offers = |ird| QpConfig::default().ird(ird);
        let (mut a, mut b) = (sim.a().end(&offers(32)), sim.b().end(&offers(ird)));
        sim.connect(&mut a, &mut b);
        let (sink, source) = (a.target(8), b.target(8));
        for i in 0..8 {
            a.post_read(i, sink.local(0, 8), source.remote(0));
        }
        sim.run_until_idle();
        assert_refused(&format!("IRD {ird}"), &a, &b, code);
        let sends = a.sends();
        assert_eq!(sends.len(), 8);
        assert_eq!(sends[7], Done::flushed(7, Opcode::Read), "IRD {ird}");
    }
}

#[test]
fn invalidated_region_cannot_be_written_any_more() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    b.post_recv(1, 100);
    a.post(invalidation(1, region.stag()));
    a.post_write(2, b"too late", region.remote(0));
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 0)]);
    assert_refused("invalidated", &a, &b, TermCode::ddp_tagged(0));
    assert_eq!(region.bytes().to_vec(), [0; KIB]);
}
