//! Atomic Operations that may not be: at the peer (RFC 7306 §8.2), and because of this side's sink.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpState, RemoteAddress, SendRequest, Sge, Stag,
    WrId,
};
use xwarp_sim_tests::{Done, Host, KIB, Sim, SimEnd};
use xwarp_test_kit::cases;

use super::{LONG, completions, holding, number, post_add};
use crate::refused::{ACCESSES, Attempt, RefusedAccess, RemoteMemory, assert_refused_by_event, at};

const ATOMIC: Attempt = Attempt {
    len: 8,
    right: Access::REMOTE_ATOMIC,
};
const ATOMIC_ONLY: Access = Access::LOCAL_READ
    .union(Access::LOCAL_WRITE)
    .union(Access::REMOTE_ATOMIC);

fn sim() -> Sim {
    super::sim().expecting(&["drop_refused_segment", "drop_after_failure"])
}

/// Two atomics of which the first is refused with `code`.
fn assert_atomics_refused(case: &str, memory: fn(&Host, Attempt) -> RemoteMemory, code: TermCode) {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let memory = memory(b.host(), ATOMIC);
    let sink = a.target(8);
    b.post_recv(5, 100);
    let before = (a.host().memory(), b.host().memory());
    let request = SendRequest::fetch_add(WrId(1), 1, memory.address);
    a.post(request.result_into(sink.local(0, 8)));
    a.post(SendRequest::swap(WrId(2), 7, memory.address));
    sim.run_until_idle();
    assert_refused_by_event(case, &a, &b, code);
    let after = (a.host().memory(), b.host().memory());
    assert!(after == before, "{case}: memory has changed");
    let done = [
        Done::refused(1, Opcode::FetchAdd),
        Done::flushed(2, Opcode::CompareSwap),
    ];
    assert_eq!(a.sends(), done, "{case}");
    assert_eq!(b.receives(), [Done::flushed(5, Opcode::Receive)], "{case}");
    drop(memory.region);
}

/// wire.md rows 94 and 96.
#[test]
fn atomic_where_it_may_not_be_changes_nothing_and_ends_the_stream() {
    type Case = (&'static str, fn(&Host, Attempt) -> RemoteMemory, TermCode);
    let misaligned = TermCode::rdmap_operation(7);
    #[rustfmt::skip]
    let all: [Case; 4] = [
        ("misaligned by 1", |b, _| at(b.region(KIB, Access::all()), 1), misaligned),
        ("misaligned by 4", |b, _| at(b.region(KIB, Access::all()), 20), misaligned),
        ("misaligned by 7", |b, _| at(b.region(KIB, Access::all()), 1015), misaligned),
        ("misaligned and without right", |b, it| at(b.region(KIB, Access::all().difference(it.right)), 4), TermCode::rdmap_protection(2)),
    ];
    for RefusedAccess {
        case,
        memory,
        request,
        ..
    } in cases(ACCESSES)
    {
        assert_atomics_refused(case, memory, request);
    }
    for (case, memory, code) in cases(all) {
        assert_atomics_refused(case, memory, code);
    }
}

#[test]
fn right_to_atomics_is_neither_that_to_read_nor_that_to_write() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let region = b.region(KIB, ATOMIC_ONLY);
    post_add(&mut a, 1, 3, region.remote(1016));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::fetch_add(1)]);
    a.post_write(2, &[7; 8], region.remote(0));
    sim.run_until_idle();
    assert_refused_by_event("Write", &a, &b, TermCode::ddp_tagged(2));

    let (mut a, b) = sim.connected_pair();
    let region = b.region(KIB, ATOMIC_ONLY);
    let sink = a.target(8);
    a.post_read(1, sink.local(0, 8), region.remote(0));
    sim.run_until_idle();
    assert_refused_by_event("Read", &a, &b, TermCode::rdmap_protection(2));
}

#[test]
fn atomic_is_executed_only_as_long_as_the_queue_pair_allows_it() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    let allow = |b: &mut SimEnd, rights| {
        let change = QpChange::to(QpState::Rts).inbound(rights);
        b.qp.modify(change).unwrap();
    };
    allow(&mut b, Access::REMOTE_ATOMIC);
    post_add(&mut a, 1, 3, region.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::fetch_add(1)]);
    allow(&mut b, Access::REMOTE_READ | Access::REMOTE_WRITE);
    post_add(&mut a, 2, 3, region.remote(0));
    sim.run_until_idle();
    assert_refused_by_event("Atomic", &a, &b, TermCode::rdmap_protection(2));
}

/// The target goes between the request's arrival and its turn.
#[test]
fn atomic_whose_target_goes_while_it_waits_is_not_executed() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (source, sink) = (b.target(LONG), a.target(LONG));
    let region = b.region(8, Access::all());
    let memory = region.bytes().clone();
    a.post_read(1, sink.local(0, LONG), source.remote(0));
    post_add(&mut a, 2, 1, region.remote(0));
    sim.run_for(Duration::from_micros(60));
    drop(region);
    sim.run_until_idle();
    assert_refused_by_event("deregistered", &a, &b, TermCode::rdmap_protection(0));
    assert_eq!(memory.to_vec(), [0; 8]);
    let expected = [Done::read(1, LONG), Done::refused(2, Opcode::FetchAdd)];
    assert_eq!(a.sends(), expected);
}

fn sge(region: &MemoryRegion, to: u64, len: u32) -> Sge {
    Sge {
        stag: region.stag(),
        to,
        len,
    }
}

/// An atomic whose sink is refused here with `status`.
fn assert_sink_refused(
    case: &str,
    sink: fn(&SimEnd) -> (MemoryRegion, Sge),
    status: CompletionStatus,
) {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = holding(&b, 5);
    let (region, sink) = sink(&a);
    let request = SendRequest::fetch_add(WrId(1), 1, target.remote(0));
    a.post(request.result_into(sink));
    a.post_send(2, b"never sent");
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::FetchAdd, status);
    let expected = [failed, Done::flushed(2, Opcode::Send)];
    assert_eq!(a.sends(), expected, "{case}");
    assert_eq!(number(&target), 5, "{case}");
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(b.events(), told, "{case}");
    drop(region);
}

#[test]
fn sink_that_cannot_be_used_fails_its_work_request_before_the_peer_is_asked() {
    type Case = (
        &'static str,
        fn(&SimEnd) -> (MemoryRegion, Sge),
        CompletionStatus,
    );
    fn with(region: MemoryRegion, to: u64, len: u32) -> (MemoryRegion, Sge) {
        let sge = sge(&region, to, len);
        (region, sge)
    }
    fn unknown(a: &SimEnd, stag: fn(Stag) -> Stag) -> (MemoryRegion, Sge) {
        let (region, mut sge) = with(a.region(8, Access::all()), 0, 8);
        sge.stag = stag(sge.stag);
        (region, sge)
    }
    fn foreign(a: &SimEnd) -> (MemoryRegion, Sge) {
        let other = a.host().rnic().allocate_pd().unwrap();
        with(a.host().region_in(&other, 8, Access::all()), 0, 8)
    }
    #[rustfmt::skip]
    let all: [Case; 8] = [
        ("unknown", |a| unknown(a, |stag| Stag(stag.0 ^ 1)), CompletionStatus::InvalidStag),
        ("STag 0", |a| unknown(a, |_| Stag(0)), CompletionStatus::InvalidStag),
        ("no right", |a| with(a.region(8, Access::LOCAL_READ), 0, 8), CompletionStatus::AccessViolation),
        ("other domain", foreign, CompletionStatus::InvalidPd),
        ("outside", |a| with(a.region(8, Access::all()), 1, 8), CompletionStatus::BaseBounds),
        ("wrapping", |a| with(a.region(8, Access::all()), u64::MAX, 8), CompletionStatus::Wrap),
        ("too short", |a| with(a.region(16, Access::all()), 0, 7), CompletionStatus::BaseBounds),
        ("too long", |a| with(a.region(16, Access::all()), 0, 9), CompletionStatus::BaseBounds),
    ];
    for (case, sink, status) in cases(all) {
        assert_sink_refused(case, sink, status);
    }
}

#[test]
fn target_in_stag_zero_is_refused_here() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let zero = RemoteAddress {
        stag: Stag(0),
        to: 0,
    };
    post_add(&mut a, 1, 1, zero);
    sim.run_until_idle();
    let status = CompletionStatus::InvalidStag;
    assert_eq!(a.sends(), [Done::failed(1, Opcode::FetchAdd, status)]);
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(b.events(), told);
}

/// The responder executes all three operations. The completion names the one whose sink is gone.
#[test]
fn sink_that_goes_while_the_request_is_under_way_fails_its_own_work_request() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = holding(&b, 5);
    let sink = a.region(8, Access::all());
    let memory = sink.bytes().clone();
    post_add(&mut a, 1, 1, target.remote(0));
    let request = SendRequest::fetch_add(WrId(2), 1, target.remote(0));
    a.post(request.result_into(sink.local(0, 8)));
    post_add(&mut a, 3, 1, target.remote(0));
    sim.run_for(Duration::from_micros(60));
    drop(sink);
    sim.run_until_idle();
    let done: Vec<Done> = completions(&mut a).into_iter().map(Done::from).collect();
    #[rustfmt::skip]
    assert_eq!(done, [
        Done::fetch_add(1),
        Done::failed(2, Opcode::FetchAdd, CompletionStatus::InvalidStag),
        Done::flushed(3, Opcode::FetchAdd),
    ]);
    assert_eq!(memory.to_vec(), [0; 8]);
    assert_eq!(number(&target), 8);
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(b.events(), told);
}
