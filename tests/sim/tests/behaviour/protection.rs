//! Protection of memory from the peer (RFC 5041 §7, RFC 5040 §7): a refused access changes not a byte, and both sides learn why.

use std::time::Duration;

use xwarp::{
    Access, CompletionStatus, MpaConfig, Opcode, QpConfig, QpState, RemoteAddress, Revision, Stag,
    TermCode,
};
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Done, Host, KIB, MIB, Sim, pattern};

use crate::refused::{
    RemoteMemory, assert_refused, at, deregistered, invalidation, other_pd, wrong_key,
};

const ALL_BUT_REMOTE_WRITE: Access = Access::LOCAL_READ
    .union(Access::LOCAL_WRITE)
    .union(Access::REMOTE_READ);
const ALL_BUT_REMOTE_READ: Access = Access::LOCAL_READ
    .union(Access::LOCAL_WRITE)
    .union(Access::REMOTE_WRITE);

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
    type Case = (&'static str, fn(&Host) -> RemoteMemory, TermCode);
    #[rustfmt::skip]
    let cases: [Case; 8] = [
        ("wrong key", wrong_key, TermCode::ddp_tagged(0)),
        ("deregistered", deregistered, TermCode::ddp_tagged(0)),
        ("last byte outside", |b| at(b.region(KIB, Access::all()), 925), TermCode::ddp_tagged(1)),
        ("beyond the end", |b| at(b.region(KIB, Access::all()), 1 << 40), TermCode::ddp_tagged(1)),
        ("wrapping", |b| at(b.region(KIB, Access::all()), u64::MAX - 50), TermCode::ddp_tagged(3)),
        ("other domain", other_pd, TermCode::ddp_tagged(2)),
        ("no right", |b| at(b.region(KIB, ALL_BUT_REMOTE_WRITE), 0), TermCode::ddp_tagged(2)),
        ("local only", |b| at(b.region(KIB, Access::LOCAL_WRITE), 0), TermCode::ddp_tagged(2)),
    ];
    for (case, memory, code) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let memory = memory(b.host());
        let sink = a.target(8);
        b.post_recv(5, 100);
        a.post_recv(6, 100);
        a.post_write(1, &pattern(100), memory.address);
        a.post_read(2, sink.local(0, 8), memory.address);
        let before = b.host().memory();
        sim.run_until_idle();
        assert_refused(case, &a, &b, code);
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
fn empty_write_looks_at_no_region() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let nowhere = RemoteAddress {
        stag: Stag(0xdead_beef),
        to: u64::MAX,
    };
    a.post_write(1, b"", nowhere);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, 0)]);
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn read_from_where_it_may_not_returns_nothing_and_ends_the_stream() {
    type Case = (&'static str, fn(&Host) -> RemoteMemory, TermCode);
    #[rustfmt::skip]
    let cases: [Case; 7] = [
        ("wrong key", wrong_key, TermCode::rdmap_protection(0)),
        ("deregistered", deregistered, TermCode::rdmap_protection(0)),
        ("last byte outside", |b| at(b.region(KIB, Access::all()), 925), TermCode::rdmap_protection(1)),
        ("no right", |b| at(b.region(KIB, ALL_BUT_REMOTE_READ), 0), TermCode::rdmap_protection(2)),
        ("local only", |b| at(b.region(KIB, Access::LOCAL_READ), 0), TermCode::rdmap_protection(2)),
        ("other domain", other_pd, TermCode::rdmap_protection(3)),
        ("wrapping", |b| at(b.region(KIB, Access::all()), u64::MAX - 50), TermCode::rdmap_protection(4)),
    ];
    for (case, memory, code) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let memory = memory(b.host());
        let sink = a.region(100, Access::all());
        b.post_recv(5, 100);
        let before = (a.host().memory(), b.host().memory());
        a.post_read(1, sink.local(0, 100), memory.address);
        a.post_read(2, sink.local(0, 100), memory.address);
        sim.run_until_idle();
        assert_refused(case, &a, &b, code);
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
fn read_into_a_region_without_the_right_ends_the_stream_when_the_response_comes() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let source = b.target(100);
    let sink = a.region(100, ALL_BUT_REMOTE_WRITE);
    a.post_read(1, sink.local(0, 100), source.remote(0));
    sim.run_until_idle();
    // Here it is the requester that refuses (verbs draft section 7.4.2).
    assert_refused("Read Response", &b, &a, TermCode::ddp_tagged(2));
    assert_eq!(a.sends(), [Done::flushed(1, Opcode::Read)]);
    assert_eq!(sink.bytes().to_vec(), [0; 100]);
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

#[test]
fn more_reads_than_the_peer_offers_end_the_stream() {
    for (ird, code) in [
        (2, TermCode::ddp_untagged(3)),
        (0, TermCode::ddp_untagged(1)),
    ] {
        // Revision 2 would have told the peer.
        let mut sim = sim_of(MpaConfig {
            highest: Revision::One,
            ..MpaConfig::default()
        });
        let offers = |ird| QpConfig {
            ird,
            ..QpConfig::default()
        };
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
fn send_may_invalidate_only_what_the_peer_may_touch() {
    type Case = (
        &'static str,
        fn(&Host) -> RemoteMemory,
        u8,
        CompletionStatus,
    );
    #[rustfmt::skip]
    let cases: [Case; 4] = [
        ("wrong key", wrong_key, 0, CompletionStatus::InvalidStag),
        ("deregistered", deregistered, 0, CompletionStatus::InvalidStag),
        ("other domain", other_pd, 9, CompletionStatus::InvalidateRefused),
        ("local only", |b| at(b.region(KIB, Access::LOCAL_READ), 0), 2, CompletionStatus::InvalidateRefused),
    ];
    for (case, memory, code, status) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let memory = memory(b.host());
        b.post_recv(1, 100);
        let sgl = a.source(b"take it away").into();
        let invalidate = xwarp::Operation::Send {
            payload: sgl,
            solicited: false,
            invalidate: Some(memory.address.stag),
        };
        a.post(xwarp::SendRequest::new(xwarp::WrId(1), invalidate));
        sim.run_until_idle();
        assert_refused(case, &a, &b, TermCode::rdmap_protection(code));
        let failed = Done::failed(1, Opcode::Receive, status);
        assert_eq!(b.receives(), [failed], "{case}");
        drop(memory.region);
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
