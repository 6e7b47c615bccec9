//! Catastrophic errors (verbs draft §8.3.3, figures 24 and 25). What cannot happen otherwise is
//! asked for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xwarp::attr::{QpChange, TerminateInfo, TerminateOrigin};
use xwarp::completion::Arm;
use xwarp::error::TermCode;
use xwarp::event::{AsyncEvent, AsyncEventKind, EventResource};
use xwarp::{Access, CompletionStatus, Opcode, QpConfig, QpState, SendRequest, SrqConfig, WrId};
use xwarp_sim_tests::{Done, Host, Sim, SimEnd};

use crate::work_queues::end_with_srq;

use super::{handler, sim, told};

/// 0/2/07: localized to the stream; without any header.
const STREAM: [u8; 4] = [0x02, 0x07, 0, 0];
/// 0/2/08: global.
const GLOBAL: [u8; 4] = [0x02, 0x08, 0, 0];

fn kept(end: &SimEnd) -> TerminateInfo {
    end.qp.query().unwrap().terminate.expect("a Terminate")
}

/// Asserts that `end` has sent its peer a Terminate with this header, and that both ends are in
/// Error.
fn assert_ended(end: &SimEnd, peer: &SimEnd, message: [u8; 4]) {
    let (sent, received) = (kept(end), kept(peer));
    assert_eq!(
        (sent.origin, received.origin),
        (TerminateOrigin::Local, TerminateOrigin::Peer)
    );
    assert_eq!(
        (&sent.message[..], &received.message[..]),
        (&message[..], &message[..])
    );
    assert_eq!(
        (end.state(), peer.state()),
        (QpState::Error, QpState::Error)
    );
    let code = TermCode::rdmap_operation(message[1]);
    assert_eq!(peer.events(), [AsyncEventKind::TerminateReceived(code)]);
}

fn inject(end: &SimEnd) {
    end.host().rnic().inject_qp_fault(end.qp.id()).unwrap();
}

fn event(resource: EventResource, kind: AsyncEventKind) -> AsyncEvent {
    AsyncEvent::new(resource, kind)
}

/// One work request of each operation type.
fn work(kind: Opcode, a: &mut SimEnd, b: &SimEnd) -> SendRequest {
    let (place, source) = (a.target(8), a.source(b"8 bytes!"));
    let (local, remote) = (place.local(0, 8), b.target(8).remote(0));
    let send = |solicited, invalidate| {
        let operation = xwarp::work::Operation::Send {
            payload: source.into(),
            solicited,
            invalidate,
        };
        SendRequest::new(WrId(1), operation)
    };
    match kind {
        Opcode::Send => send(false, None),
        Opcode::SendSolicited => send(true, None),
        Opcode::SendInvalidate => send(false, Some(remote.stag)),
        Opcode::SendSolicitedInvalidate => send(true, Some(remote.stag)),
        Opcode::Write => SendRequest::write(WrId(1), source, remote),
        Opcode::Read => SendRequest::read(WrId(1), local, remote),
        Opcode::ReadInvalidate => SendRequest::read(WrId(1), local, remote).invalidating_sink(),
        Opcode::Bind => {
            let region = a.va_region(64, Access::all(), 0x1000);
            let mut window = a.host().pd().allocate_window().unwrap();
            let bind = window.bind(region.remote(0), 64, Access::REMOTE_READ);
            SendRequest::bind(WrId(1), bind)
        }
        Opcode::FastRegister => {
            let mut stag = a.host().pd().allocate_stag(1, true).unwrap();
            let list = xwarp::memory::PhysicalList {
                entry_size: 4096,
                addresses: vec![0].into(),
                first_byte_offset: 0,
                len: 4096,
            };
            SendRequest::fast_register(WrId(1), stag.fast_register(list, Access::LOCAL_READ))
        }
        _ => SendRequest::invalidate(WrId(1), local.stag),
    }
}

#[test]
fn work_request_of_any_type_that_finds_its_queue_pair_broken_says_so() {
    for kind in [
        Opcode::Send,
        Opcode::SendSolicited,
        Opcode::SendInvalidate,
        Opcode::SendSolicitedInvalidate,
        Opcode::Write,
        Opcode::Read,
        Opcode::ReadInvalidate,
        Opcode::Bind,
        Opcode::FastRegister,
        Opcode::Invalidate,
    ] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        sim.run_until_idle();
        let request = work(kind, &mut a, &b);
        inject(&a);
        a.post(request.unsignaled());
        a.post_send(2, b"never sent");
        sim.run_until_idle();
        let failed = Done::failed(1, kind, CompletionStatus::LocalCatastrophic);
        assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
        assert_ended(&a, &b, STREAM);
        assert_eq!(a.events(), [], "the completion tells");
    }
}

#[test]
fn message_that_finds_its_queue_pair_broken_fails_its_receive() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    b.post_recv(1, 8);
    b.post_recv(2, 8);
    inject(&b);
    a.post_send(3, b"8 bytes!");
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Receive, CompletionStatus::LocalCatastrophic);
    assert_eq!(b.receives(), [failed, Done::flushed(2, Opcode::Receive)]);
    assert_ended(&b, &a, STREAM);
    assert_eq!(b.events(), [], "the completion tells");
}

#[test]
fn broken_queue_pair_without_work_is_an_event() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    sim.run_until_idle();
    let calls = handler(b.host());
    let target = b.target(8);
    inject(&b);
    a.post_write(1, b"8 bytes!", target.remote(0));
    sim.run_until_idle();
    assert_ended(&b, &a, STREAM);
    let (event, info) = calls.try_recv().unwrap();
    assert_eq!(event.resource, EventResource::Qp(b.qp.id()));
    assert!(matches!(event.kind, AsyncEventKind::QpCatastrophic { .. }));
    assert!(info.unwrap().terminate.is_some());
    assert_eq!(calls.try_iter().count(), 0);
    b.qp.destroy().unwrap();
}

/// Another connection of the same two RNICs still works.
fn assert_unharmed(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd) {
    b.post_recv(90, 8);
    a.post_send(91, b"unharmed");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(90, 8)]);
    assert_eq!(a.sends(), [Done::send(91, 8)]);
}

#[test]
fn broken_shared_receive_queue_ends_each_queue_pair_that_needs_a_buffer_and_no_other() {
    let mut sim = sim().expecting(&["drop_after_failure"]);
    let mut srq = sim.b().pd().create_srq(SrqConfig::default()).unwrap();
    let config = QpConfig::default();
    let mut pairs = [0, 1, 2].map(|_| {
        let (mut a, mut b) = (sim.a().end(&config), end_with_srq(&sim.b(), &config, &srq));
        sim.connect(&mut a, &mut b);
        (a, b)
    });
    let (mut c, mut d) = sim.connected_pair();
    sim.run_until_idle();
    let calls = handler(&sim.b());
    let behind = pairs[2].1.recv_request(1, &[16]);
    srq.post_recv(behind).unwrap();
    sim.b().rnic().inject_srq_fault(srq.id()).unwrap();
    for (a, b) in &mut pairs[..2] {
        let (sink, source) = (b.target(8), a.target(8));
        b.post_read(2, sink.local(0, 8), source.remote(0));
        a.post_send(1, b"no buffer");
        sim.run_until_idle();
        assert_ended(b, a, STREAM);
        assert_eq!(b.sends(), [Done::flushed(2, Opcode::Read)]);
        assert_eq!(b.receives(), [], "no other buffer of it is trusted");
        let info = b.qp.query().unwrap();
        assert_eq!(info.srq, Some(srq.id()), "Query QP names it");
    }
    let [(_, first), (_, second), (_, idle)] = &pairs;
    let of = |end: &SimEnd| event(EventResource::Qp(end.qp.id()), AsyncEventKind::SrqError);
    let failed = event(EventResource::Srq(srq.id()), AsyncEventKind::SrqFailed);
    assert_eq!(
        told(&calls),
        [failed, of(first), of(second)],
        "the queue itself once"
    );
    assert_eq!(idle.state(), QpState::Rts, "it needs no buffer");
    assert_unharmed(&mut sim, &mut c, &mut d);
}

/// A pair, the second of which receives where a handler panics.
fn pair_with_a_bad_handler(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let rnic = b.host().clone();
    let bad = rnic
        .rnic()
        .add_completion_handler(|_| panic!("a handler that cannot bear it"));
    let cq = rnic.rnic().create_cq_with(64, bad.unwrap()).unwrap();
    b.qp = b.host().pd().create_qp(&config, &cq, &cq).unwrap();
    *b.recv_cq() = cq;
    sim.connect(&mut a, &mut b);
    (a, b)
}

#[test]
fn completion_handler_that_panics_is_an_error_of_its_queue_and_of_no_queue_pair() {
    let mut sim = sim();
    let (mut a, mut b) = pair_with_a_bad_handler(&mut sim);
    sim.run_until_idle();
    let calls = handler(b.host());
    let failed = event(
        EventResource::Cq(b.recv_cq().id()),
        AsyncEventKind::CqFailed,
    );
    for (wr_id, events) in [(0, vec![failed]), (1, vec![])] {
        b.post_recv(wr_id, 8);
        b.recv_cq().arm(Arm::Next).unwrap();
        a.post_send(wr_id, b"8 bytes!");
        sim.run_until_idle();
        assert_eq!(told(&calls), events, "it is not called again");
        assert_eq!(b.receives(), [Done::receive(wr_id, 8)]);
    }
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}

/// The engine of a host panics, which a manual engine lets its caller know.
fn panic(host: &Host) {
    let panicked = catch_unwind(AssertUnwindSafe(|| host.rnic().inject_panic()));
    assert!(panicked.is_err());
}

#[test]
fn panic_of_the_engine_ends_all_connections_with_the_global_error() {
    let mut sim = sim();
    let mut pairs = [0, 1, 2].map(|_| sim.connected_pair());
    let idle = sim.a().end(&QpConfig::default());
    let (mut ended, _gone) = sim.connected_pair();
    sim.run_until_idle();
    ended.qp.modify(QpChange::to(QpState::Terminate)).unwrap();
    let calls = handler(&sim.a());
    for (a, b) in &mut pairs {
        a.post_recv(1, 8);
        b.post_recv(2, 8);
    }
    panic(&sim.a());
    let events = told(&calls);
    let [AsyncEvent { resource, kind, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*resource, EventResource::Rnic, "and nothing else");
    assert!(matches!(kind, AsyncEventKind::Failed { .. }));
    sim.run_until_idle();
    for (a, b) in &mut pairs {
        assert_ended(a, b, GLOBAL);
        assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
        assert_eq!(b.receives(), [Done::flushed(2, Opcode::Receive)]);
    }
    assert_eq!(told(&calls), []);
    assert_eq!(
        (idle.state(), ended.state()),
        (QpState::Idle, QpState::Error)
    );
    assert_eq!(
        kept(&ended).code,
        TermCode::rdmap_local(),
        "the first one stays"
    );
}

#[test]
fn after_a_second_panic_nothing_is_done_any_more_but_to_close() {
    let mut sim = sim();
    let (a, mut b) = sim.connected_pair();
    sim.run_until_idle();
    panic(&sim.a());
    panic(&sim.a());
    let sent = sim.a().rnic().counters().unwrap().tcp.segments_out;
    sim.run_until_idle();
    assert_eq!(sim.a().rnic().counters().unwrap().tcp.segments_out, sent);
    assert_eq!(sim.a().rnic().close(), Ok(()));
    assert_eq!(a.state(), QpState::Error);
    b.qp.modify(QpChange::to(QpState::Error)).unwrap();
    // Dropping `sim` would read the counters and the clock, which a closed RNIC no longer has.
    std::mem::forget(sim);
}
