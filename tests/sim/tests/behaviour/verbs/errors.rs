//! Work that is refused, and work that fails (verbs draft §9.3, §9.5).

use xwarp::error::{PostError, TermCode};
use xwarp::work::{Operation, Sgl};
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpConfig, QpState, RecvRequest, RemoteAddress,
    SendRequest, Sge, Stag, WrId,
};
use xwarp_sim_tests::{Done, SimEnd};

use super::{opcode_of, received, send_of, sim};

#[test]
fn post_that_is_refused_leaves_the_queue_pair_in_idle_and_usable() {
    let mut sim = sim();
    let config = QpConfig::default().rfc7306(false);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let half = Sge {
        stag: Stag(0x100),
        to: 0,
        len: 1 << 31,
    };
    let huge = || Sgl::from_iter([half, half]);
    let before = a.qp.query().unwrap();
    let refused = a.qp.post_send(SendRequest::send(WrId(1), huge()));
    assert_eq!(refused, Err(PostError::TooLong));
    let refused = a.qp.post_send(SendRequest::immediate(WrId(1), [0; 8]));
    assert_eq!(refused, Err(PostError::ExtensionsDisabled));
    let refused = a.qp.post_send(SendRequest::invalidate(WrId(1), Stag(0)));
    assert_eq!(refused, Err(PostError::StagZero));
    let refused = a.qp.post_recv(RecvRequest::new(WrId(1), huge()));
    assert_eq!(refused, Err(PostError::TooLong));
    assert_eq!(a.qp.query().unwrap(), before);
    assert_eq!(a.state(), QpState::Idle);
    a.post_send(2, b"8 bytes!");
    b.post_recv(3, 8);
    sim.connect(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(2, 8)]);
    assert_eq!(
        (b.receives(), a.receives()),
        (vec![Done::receive(3, 8)], vec![])
    );
}

#[test]
fn of_two_work_requests_at_fault_the_first_says_so_and_the_second_is_flushed() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let nowhere = Sge {
        stag: Stag(0x1234_5678),
        to: 0,
        len: 8,
    };
    for id in [1, 2] {
        a.post(SendRequest::send(WrId(id), nowhere));
    }
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
    assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
}

/// Regions, and an element that is refused with `status` as a source.
fn bad_source(a: &SimEnd, status: CompletionStatus) -> ([MemoryRegion; 3], Sge) {
    let other = a.host().rnic().allocate_pd().unwrap();
    let readable = a.region(100, Access::LOCAL_READ);
    let unreadable = a.region(100, Access::LOCAL_WRITE);
    let foreign = a.host().region_in(&other, 100, Access::all());
    let bad = match status {
        CompletionStatus::BaseBounds => readable.local(1, 100),
        CompletionStatus::Wrap => readable.local(u64::MAX - 9, 100),
        CompletionStatus::AccessViolation => unreadable.local(0, 100),
        CompletionStatus::InvalidPd => foreign.local(0, 100),
        _ => Sge {
            stag: Stag(0x1234_5678),
            ..readable.local(0, 100)
        },
    };
    ([readable, unreadable, foreign], bad)
}

/// The completion reports the error. The Terminate says only that the error is local (§8.3.2).
#[test]
fn source_that_cannot_be_used_fails_a_send_of_each_type_and_a_write_alike() {
    let kinds: [fn(Sge, RemoteAddress) -> Operation; 5] = [
        |it, _| send_of(it, false, None),
        |it, _| send_of(it, true, None),
        |it, to| send_of(it, false, Some(to.stag)),
        |it, to| send_of(it, true, Some(to.stag)),
        |it, remote| Operation::Write {
            payload: it.into(),
            remote,
        },
    ];
    #[rustfmt::skip]
    let statuses = [
        CompletionStatus::InvalidStag, CompletionStatus::BaseBounds, CompletionStatus::Wrap,
        CompletionStatus::AccessViolation, CompletionStatus::InvalidPd,
    ];
    for kind in kinds {
        for status in statuses {
            let mut sim = sim();
            let (mut a, mut b) = sim.connected_pair();
            let target = b.own_region(100, Access::all());
            b.post_recv(9, 100);
            let (_regions, bad) = bad_source(&a, status);
            let request = SendRequest::new(WrId(1), kind(bad, target.remote(0)));
            let opcode = opcode_of(&request.operation);
            a.post(request);
            a.post_send(2, b"never sent");
            sim.run_until_idle();
            let failed = Done::failed(1, opcode, status);
            assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
            assert_eq!(a.state(), QpState::Error);
            let kept = b.qp.query().unwrap().terminate.unwrap();
            assert_eq!(kept.code, TermCode::rdmap_local());
            assert!(target.query().unwrap().is_valid());
            assert_eq!(target.bytes().to_vec(), [0; 100]);
        }
    }
}

/// Verbs draft §6.2.4: completions of a queue keep the order of posting, whichever request has
/// failed.
#[test]
fn failed_work_may_come_behind_flushed_and_completed_work() {
    let mut sim = sim().expecting(&["drop_after_failure"]);
    let (mut a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    let (sink, far) = (a.target(8), b.target(8));
    let nowhere = Sge {
        stag: Stag(0x1234_5678),
        to: 0,
        len: 8,
    };
    b.post_recv(9, 8);
    a.post_write(1, b"8 bytes!", far.remote(0));
    a.post_read(2, sink.local(0, 8), far.remote(0));
    a.post_send(3, b"8 bytes!");
    a.post(SendRequest::send(WrId(4), nowhere));
    a.post_send(5, b"never sent");
    sim.run_until_idle();
    let done = [
        Done::write(1, 8),
        Done::flushed(2, Opcode::Read),
        Done::send(3, 8),
        Done::failed(4, Opcode::Send, CompletionStatus::InvalidStag),
        Done::flushed(5, Opcode::Send),
    ];
    assert_eq!(a.sends(), done);
    assert_eq!(b.receives(), [Done::receive(9, 8)]);
}

#[test]
fn completion_that_failed_names_its_work_and_tells_nothing_of_a_message() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, mut b) = sim.connected_pair();
    let source = a.source(b"8 bytes!");
    b.post_recv(1, 8);
    b.post_recv(2, 8);
    let refused = send_of(source, true, Some(Stag(0x1234_5678)));
    a.post(SendRequest::new(WrId(3), refused));
    sim.run_until_idle();
    let statuses = [CompletionStatus::InvalidStag, CompletionStatus::Flushed];
    let told = received(&mut b);
    assert_eq!(told.len(), 2);
    for ((wr_id, status), told) in (1..).zip(statuses).zip(told) {
        assert_eq!((told.wr_id, told.qp), (WrId(wr_id), b.qp.id()));
        assert_eq!((told.opcode, told.status), (Opcode::Receive, status));
        assert!(!told.is_success() && !told.solicited);
        assert_eq!((told.invalidated, told.immediate), (None, None));
    }
}
