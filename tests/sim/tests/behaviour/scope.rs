//! Regions that are there for one stream, and regions that several share. (RFC 5041 §8.2, RFC 5040
//! §8.1.1): in all tests A and C are peers of B's queue pairs `b` and `d`, which are of one
//! protection domain.

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpConfig, QpState, RemoteAddress, SendRequest,
    WrId,
};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::refused::{assert_ended, assert_refused, invalidation};

fn sim() -> Sim {
    Sim::new(Seed(43))
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_refused_segment", "drop_after_failure"])
}

/// A's stream goes on: it can write, read, change and at last invalidate the region of `b`, which
/// holds nothing yet.
fn assert_usable(sim: &mut Sim, (a, b): (&mut SimEnd, &mut SimEnd), region: &MemoryRegion) {
    let sink = a.target(KIB);
    a.post_write(11, &pattern(KIB), region.remote(0));
    a.post_read(12, sink.local(0, KIB), region.remote(0));
    a.post(SendRequest::swap(WrId(13), 7, region.remote(8)));
    b.post_recv(14, 8);
    a.post(invalidation(15, region.stag()).fenced());
    sim.run_until_idle();
    let done = a.sends();
    assert_eq!(done[..2], [Done::write(11, KIB), Done::read(12, KIB)]);
    assert!(done.len() == 4 && done.iter().all(|done| done.outcome.is_ok()));
    assert_eq!(sink.to_vec(), pattern(KIB));
    assert_eq!(region.bytes().to_vec()[8..16], 7_u64.to_ne_bytes());
    let received = b.recv_cq().poll().unwrap().unwrap();
    assert_eq!(received.invalidated, Some(region.stag()));
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn region_of_one_stream_is_refused_to_another_of_the_same_domain() {
    type Case = (&'static str, fn(&mut SimEnd, RemoteAddress), TermCode, Done);
    let flushed = Done::flushed(5, Opcode::Receive);
    let no_invalidation = Done::failed(5, Opcode::Receive, CompletionStatus::InvalidateRefused);
    #[rustfmt::skip]
    let cases: [Case; 4] = [
        ("Write", |c, at| c.post_write(1, &pattern(100), at), TermCode::ddp_tagged(2), flushed),
        ("Read", |c, at| { let sink = c.target(100); c.post_read(1, sink.local(0, 100), at); std::mem::forget(sink); }, TermCode::rdmap_protection(3), flushed),
        ("Atomic", |c, at| c.post(SendRequest::fetch_add(WrId(1), 1, at)), TermCode::rdmap_protection(3), flushed),
        ("invalidation", |c, at| c.post(invalidation(1, at.stag)), TermCode::rdmap_protection(9), no_invalidation),
    ];
    for (case, attempt, code, receive) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let (mut c, mut d) = sim.connected_pair();
        let region = b.own_region(KIB, Access::all());
        d.post_recv(5, 100);
        attempt(&mut c, region.remote(0));
        let before = b.host().memory();
        sim.run_until_idle();
        assert_refused(case, &c, &d, code);
        assert!(b.host().memory() == before, "{case}: memory has changed");
        assert_eq!(d.receives(), [receive], "{case}");
        assert_usable(&mut sim, (&mut a, &mut b), &region);
    }
}

/// The requester itself refuses the Read, before it is asked for: the region that its work request
/// names is another stream's.
#[test]
fn read_response_is_not_placed_into_a_region_of_another_stream() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (c, mut d) = sim.connected_pair();
    let (region, source) = (b.own_region(KIB, Access::all()), c.target(KIB));
    source.fill(&pattern(KIB));
    d.post_read(
        1,
        region.local(0, u32::try_from(KIB).unwrap()),
        source.remote(0),
    );
    sim.run_until_idle();
    assert_ended("Read sink", &c, &d);
    let refused = Done::failed(1, Opcode::Read, CompletionStatus::InvalidPd);
    assert_eq!(d.sends(), [refused]);
    assert_eq!(region.bytes().to_vec(), [0; KIB]);
    assert_usable(&mut sim, (&mut a, &mut b), &region);
}

#[test]
fn local_work_cannot_use_a_region_of_another_stream() {
    let mut sim = sim();
    let (_a, b) = sim.connected_pair();
    let region = b.own_region(KIB, Access::all());
    let local = region.local(0, 8);
    let (_c, mut d) = sim.connected_pair();
    d.post(SendRequest::send(WrId(1), local));
    sim.run_until_idle();
    let refused = Done::failed(1, Opcode::Send, CompletionStatus::InvalidPd);
    assert_eq!(d.sends(), [refused]);

    let (mut c, mut d) = sim.connected_pair();
    d.qp.post_recv(xwarp::RecvRequest::new(WrId(2), local))
        .unwrap();
    c.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    let refused = Done::failed(2, Opcode::Receive, CompletionStatus::InvalidPd);
    assert_eq!(d.receives(), [refused]);
    assert_eq!(region.bytes().to_vec(), [0; KIB]);
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn region_that_streams_share_is_invalidated_by_none_of_them() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let (mut c, mut d) = sim.connected_pair();
    let shared = b.region(KIB, Access::all());
    d.post_recv(5, 100);
    c.post(invalidation(1, shared.stag()));
    sim.run_until_idle();
    assert_refused("shared", &c, &d, TermCode::rdmap_protection(9));
    let refused = Done::failed(5, Opcode::Receive, CompletionStatus::InvalidateRefused);
    assert_eq!(d.receives(), [refused]);
    a.post_write(1, &pattern(KIB), shared.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, KIB)]);
    assert_eq!(shared.bytes().to_vec(), pattern(KIB), "it is valid still");

    // Without `d`, `b` is alone in its domain, so the region is no longer shared. A failed queue
    // pair counts until it is dropped.
    drop(d);
    assert_usable(&mut sim, (&mut a, &mut b), &shared);
}

/// B's next queue pair has the place of the one before it in the engine.
#[test]
fn queue_pair_does_not_inherit_the_regions_of_one_that_was_dropped() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (a, b) = sim.connected_pair();
    let (region, number) = (b.own_region(KIB, Access::all()), b.qp.id());
    drop((a, b));
    sim.run_until_idle();
    let (mut c, d) = sim.connected_pair();
    assert_ne!(d.qp.id(), number);
    c.post_write(1, &pattern(100), region.remote(0));
    sim.run_until_idle();
    assert_refused("heir", &c, &d, TermCode::ddp_tagged(2));
    assert_eq!(region.bytes().to_vec(), [0; KIB]);
    let own = d.own_region(KIB, Access::all());
    assert_ne!(own.stag(), region.stag());
}

#[test]
fn region_made_before_its_stream_is_there_when_the_stream_is() {
    let mut sim = sim();
    let (mut a, mut b) = {
        let config = QpConfig::default();
        (sim.a().end(&config), sim.b().end(&config))
    };
    let region = b.own_region(KIB, Access::all());
    let _neighbour = sim.b().end(&QpConfig::default());
    sim.connect(&mut a, &mut b);
    assert_usable(&mut sim, (&mut a, &mut b), &region);
}
