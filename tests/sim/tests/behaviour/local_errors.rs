//! Mistakes of this side's own application: the work request at fault says what was wrong, the rest
//! is flushed (verbs draft §8.3.2).

use std::time::Duration;

use xwarp::error::{PostError, TermCode};
use xwarp::event::{AsyncEventKind, ConnectionEnd};
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionStatus, Opcode, QpConfig, QpState, RecvRequest, RemoteAddress, SendRequest,
    Sge, Stag, WrId,
};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, TAGGED_PAYLOAD, needs_link, pattern};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(17)).one_way_delay(Duration::from_micros(50))
}

/// Asserts that both ends are in Error, and that the peer has received a Terminate for a local
/// error.
fn assert_ended(at_fault: &SimEnd, peer: &SimEnd) {
    assert_eq!(at_fault.events(), [], "the completion says it");
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(peer.events(), told);
    assert_eq!(
        (at_fault.state(), peer.state()),
        (QpState::Error, QpState::Error)
    );
    let why = at_fault.qp.why_ended();
    assert!(matches!(why, Some(ConnectionEnd::WorkFailed(_))), "{why:?}");
    let [terminated] = told;
    let end = ConnectionEnd::Event(terminated);
    assert_eq!(peer.qp.why_ended(), Some(end));
}

#[test]
fn source_that_cannot_be_used_fails_its_work_request_and_flushes_the_rest() {
    type Case = (&'static str, fn(&SimEnd) -> Sge, CompletionStatus);
    #[rustfmt::skip]
    let cases: [Case; 5] = [
        ("unknown", |_| sge(Stag(0x1234_5678), 0), CompletionStatus::InvalidStag),
        ("outside", |a| sge(readable(a), 1_000), CompletionStatus::BaseBounds),
        ("wrapping", |a| sge(readable(a), u64::MAX - 9), CompletionStatus::Wrap),
        ("no right", unreadable, CompletionStatus::AccessViolation),
        ("other domain", foreign, CompletionStatus::InvalidPd),
    ];
    for (case, source, status) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        b.post_recv(1, 100);
        b.post_recv(2, 100);
        a.post_recv(9, 100);
        a.post_send(1, b"fine");
        let bad = source(&a);
        a.post(SendRequest::send(WrId(2), bad));
        a.post_send(3, b"never sent");
        sim.run_until_idle();
        let failed = Done::failed(2, Opcode::Send, status);
        assert_eq!(
            a.sends(),
            [Done::send(1, 4), failed, Done::flushed(3, Opcode::Send)],
            "{case}"
        );
        assert_eq!(a.receives(), [Done::flushed(9, Opcode::Receive)], "{case}");
        assert_eq!(
            b.receives(),
            [Done::receive(1, 4), Done::flushed(2, Opcode::Receive)],
            "{case}"
        );
        assert_ended(&a, &b);
    }
}

fn sge(stag: Stag, to: u64) -> Sge {
    Sge { stag, to, len: 100 }
}

/// A region that lives as long as its host.
fn kept(end: &SimEnd, access: Access) -> Stag {
    let region = end.region(KIB, access);
    let stag = region.stag();
    std::mem::forget(region);
    stag
}

fn readable(end: &SimEnd) -> Stag {
    kept(end, Access::LOCAL_READ)
}

fn unreadable(end: &SimEnd) -> Sge {
    sge(kept(end, Access::LOCAL_WRITE), 0)
}

fn foreign(end: &SimEnd) -> Sge {
    let other = end.host().rnic().allocate_pd().unwrap();
    let region = end.host().region_in(&other, KIB, Access::all());
    let stag = region.stag();
    std::mem::forget(region);
    sge(stag, 0)
}

/// Verbs draft section 6.4: the Terminate takes the place of the segment that cannot be sent.
#[test]
fn source_that_goes_midway_ends_its_message_between_two_segments() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = Sim::new(Seed(18)).rate(100_000_000);
    let (mut a, b) = sim.connected_pair();
    let target = b.region(MIB, Access::all());
    let source = a.region(MIB, Access::LOCAL_READ);
    source.bytes().write(0, &pattern(MIB)).unwrap();
    let all = source.local(0, u32::try_from(MIB).unwrap());
    a.post(SendRequest::write(WrId(1), all, target.remote(0)));
    a.post_send(2, b"never sent");
    sim.run_for(Duration::from_millis(20));
    drop(source);
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Write, CompletionStatus::InvalidStag);
    assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
    assert_ended(&a, &b);
    let placed = b.host().rnic().counters().unwrap().rdma.placed_bytes;
    let placed = usize::try_from(placed).unwrap();
    assert!(placed > 0 && placed < MIB, "{placed} bytes");
    assert_eq!(placed % TAGGED_PAYLOAD, 0, "whole segments");
    let bytes = target.bytes().to_vec();
    assert!(bytes[..placed] == pattern(MIB)[..placed]);
    assert!(bytes[placed..].iter().all(|byte| *byte == 0));
}

/// A segment that is sent again is the one that was sent, whatever its memory holds by then.
#[test]
fn source_that_changes_while_it_is_sent_breaks_no_segment() {
    let mut sim = Sim::new(Seed(19)).rate(100_000_000).loss(0.02);
    let (mut a, b) = sim.connected_pair();
    let target = b.region(MIB, Access::all());
    let source = a.region(MIB, Access::LOCAL_READ);
    let all = source.local(0, u32::try_from(MIB).unwrap());
    a.post(SendRequest::write(WrId(1), all, target.remote(0)));
    for byte in 1..=20 {
        sim.run_for(Duration::from_millis(5));
        source.bytes().fill(0..MIB, byte).unwrap();
    }
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    let placed = target.bytes().to_vec();
    assert!(placed.iter().all(|byte| *byte <= 20));
    assert!(
        placed.windows(2).any(|pair| pair[0] != pair[1]),
        "it has changed midway"
    );
}

#[test]
fn read_where_none_may_be_outstanding_fails() {
    let config = QpConfig::default().ord(0);
    for opcode in [Opcode::Read, Opcode::ReadInvalidate] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair_with(&config);
        let (source, sink) = (b.target(8), a.target(8));
        let read = SendRequest::read(WrId(1), sink.local(0, 8), source.remote(0));
        a.post(match opcode {
            Opcode::ReadInvalidate => read.invalidating_sink(),
            _ => read,
        });
        a.post_send(2, b"never sent");
        sim.run_until_idle();
        let failed = Done::failed(1, opcode, CompletionStatus::ZeroReadResources);
        assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
        assert_ended(&a, &b);
    }
}

#[test]
fn read_whose_sink_wraps_is_not_asked_for() {
    for opcode in [Opcode::Read, Opcode::ReadInvalidate] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        let (source, sink) = (b.target(8), a.region(8, Access::all()));
        let before = a.host().rnic().counters().unwrap().rdma;
        let read = SendRequest::read(WrId(1), sink.local(u64::MAX - 6, 8), source.remote(0));
        a.post(match opcode {
            Opcode::ReadInvalidate => read.invalidating_sink(),
            _ => read,
        });
        a.post_send(2, b"never sent");
        sim.run_until_idle();
        let failed = Done::failed(1, opcode, CompletionStatus::Wrap);
        assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
        assert_ended(&a, &b);
        let after = a.host().rnic().counters().unwrap().rdma;
        assert_eq!(after.terminates_out, before.terminates_out + 1);
        assert_eq!(after.fpdus_out - before.fpdus_out, 1, "the Terminate");
    }
}

/// FPDUs that an end has sent, and bytes that were placed at it.
fn sent_and_placed(end: &SimEnd) -> (u64, u64) {
    let rdma = end.host().rnic().counters().unwrap().rdma;
    (rdma.fpdus_out, rdma.placed_bytes)
}

/// All of a source is looked at before the first of its segments is sent.
#[test]
fn nothing_is_sent_of_a_message_whose_source_leaves_its_region() {
    type Make = fn(Sgl, RemoteAddress) -> SendRequest;
    let long = u32::try_from(MIB).unwrap();
    let makes: [(Opcode, Make); 2] = [
        (Opcode::Write, |source, to| {
            SendRequest::write(WrId(1), source, to)
        }),
        (Opcode::Send, |source, _| SendRequest::send(WrId(1), source)),
    ];
    for (opcode, make) in makes {
        for (case, len, status) in [
            ("a byte more", long + 1, CompletionStatus::BaseBounds),
            (
                "all that can be said",
                u32::MAX,
                CompletionStatus::BaseBounds,
            ),
            ("a bad second piece", long, CompletionStatus::InvalidStag),
        ] {
            let mut sim = sim();
            let (mut a, mut b) = sim.connected_pair();
            let (target, source) = (b.target(MIB), a.region(MIB, Access::LOCAL_READ));
            b.post_recv(7, 2 * MIB);
            let mut pieces = vec![source.local(0, len)];
            if status == CompletionStatus::InvalidStag {
                pieces.push(sge(Stag(0x1234_5678), 0));
            }
            let before = [&a, &b].map(sent_and_placed);
            a.post(make(pieces.into_iter().collect(), target.remote(0)));
            sim.run_until_idle();
            let failed = Done::failed(1, opcode, status);
            assert_eq!(a.sends(), [failed], "{case}");
            assert_ended(&a, &b);
            let after = [&a, &b].map(sent_and_placed);
            assert_eq!(after[0].0, before[0].0 + 1, "{case}: the Terminate alone");
            assert_eq!(after[1].1, before[1].1, "{case}");
        }
    }
}

#[test]
fn read_whose_sink_cannot_be_written_is_not_asked_for() {
    type Case = (&'static str, fn(&SimEnd) -> Sge, CompletionStatus);
    #[rustfmt::skip]
    let cases: [Case; 5] = [
        ("unknown", |_| sge(Stag(0x1234_5678), 0), CompletionStatus::InvalidStag),
        ("too short", |a| sge(kept(a, Access::all()), KIB as u64 - 99), CompletionStatus::BaseBounds),
        ("no right", |a| sge(readable(a), 0), CompletionStatus::AccessViolation),
        ("no remote right", |a| sge(kept(a, Access::LOCAL_WRITE), 0), CompletionStatus::AccessViolation),
        ("other domain", foreign, CompletionStatus::InvalidPd),
    ];
    for (case, sink, status) in cases {
        // The second is not of a run of Reads.
        for fenced in [false, true] {
            let mut sim = sim();
            let (mut a, b) = sim.connected_pair();
            let (source, sink) = (b.target(100), sink(&a));
            let (before, _) = sent_and_placed(&a);
            let mut read = SendRequest::read(WrId(1), sink, source.remote(0));
            read.read_fence = fenced;
            a.post(read);
            a.post_send(2, b"never sent");
            sim.run_until_idle();
            let failed = Done::failed(1, Opcode::Read, status);
            assert_eq!(
                a.sends(),
                [failed, Done::flushed(2, Opcode::Send)],
                "{case}"
            );
            assert_ended(&a, &b);
            assert_eq!(sent_and_placed(&a).0, before + 1, "{case}: the Terminate");
        }
    }
}

/// Verbs draft section 8.1.3.2.1.
#[test]
fn stag_zero_is_no_place_that_a_peer_may_name() {
    let zero = RemoteAddress {
        stag: Stag(0),
        to: 0,
    };
    for case in ["Read sink", "Read source", "Write target"] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        let (source, sink) = (b.target(100), a.target(100));
        let opcode = match case {
            "Read sink" => {
                a.post_read(1, sge(Stag(0), 0), source.remote(0));
                Opcode::Read
            }
            "Read source" => {
                a.post_read(1, sink.local(0, 100), zero);
                Opcode::Read
            }
            _ => {
                a.post_write(1, &[7; 100], zero);
                Opcode::Write
            }
        };
        sim.run_until_idle();
        assert_eq!(
            a.sends(),
            [Done::failed(1, opcode, CompletionStatus::InvalidStag)],
            "{case}"
        );
        assert_ended(&a, &b);
    }
}

#[test]
fn receive_buffer_that_cannot_be_used_fails_when_a_message_comes_for_it() {
    type Case = (&'static str, fn(&SimEnd) -> Sge, CompletionStatus);
    #[rustfmt::skip]
    let cases: [Case; 5] = [
        ("unknown", |_| sge(Stag(0x1234_5678), 0), CompletionStatus::InvalidStag),
        ("outside", |b| sge(kept(b, Access::LOCAL_WRITE), KIB as u64 - 12), CompletionStatus::BaseBounds),
        ("wrapping", |b| sge(kept(b, Access::LOCAL_WRITE), u64::MAX - 9), CompletionStatus::Wrap),
        ("no right", |b| sge(readable(b), 0), CompletionStatus::AccessViolation),
        ("other domain", foreign, CompletionStatus::InvalidPd),
    ];
    for (case, buffer, status) in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let bad = buffer(&b);
        b.qp.post_recv(RecvRequest::new(WrId(1), bad)).unwrap();
        b.post_recv(2, 100);
        let before = b.host().memory();
        a.post_send(1, b"nowhere to go");
        sim.run_until_idle();
        let failed = Done::failed(1, Opcode::Receive, status);
        assert_eq!(
            b.receives(),
            [failed, Done::flushed(2, Opcode::Receive)],
            "{case}"
        );
        assert_eq!(
            (a.state(), b.state()),
            (QpState::Error, QpState::Error),
            "{case}"
        );
        assert_eq!(
            a.events(),
            [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())],
            "{case}"
        );
        assert!(b.host().memory() == before, "{case}");
    }
}

/// A message that ends before the flaw is received as into any other buffer; one byte more, and the
/// Receive fails.
#[test]
fn receive_list_is_judged_by_what_is_placed_into_it() {
    type Case = (&'static str, fn(&SimEnd) -> Sge, u32, CompletionStatus);
    #[rustfmt::skip]
    let cases: [Case; 4] = [
        ("unknown", |_| sge(Stag(0x1234_5678), 0), 0, CompletionStatus::InvalidStag),
        ("half outside", |b| sge(kept(b, Access::LOCAL_WRITE), KIB as u64 - 50), 50, CompletionStatus::BaseBounds),
        ("no right", |b| sge(readable(b), 0), 0, CompletionStatus::AccessViolation),
        ("other domain", foreign, 0, CompletionStatus::InvalidPd),
    ];
    for (case, flawed, sound, status) in cases {
        for beyond in [0, 1] {
            let mut sim = sim();
            let (mut a, mut b) = sim.connected_pair();
            let first = sge(kept(&b, Access::LOCAL_WRITE), 0);
            let list = Sgl::from_iter([first, flawed(&b)]);
            b.qp.post_recv(RecvRequest::new(WrId(1), list)).unwrap();
            let len = usize::try_from(first.len + sound + beyond).unwrap();
            a.post_send(1, &pattern(len));
            sim.run_until_idle();
            let done = match beyond {
                0 => Done::receive(1, len),
                _ => Done::failed(1, Opcode::Receive, status),
            };
            assert_eq!(b.receives(), [done], "{case}");
        }
    }
}

#[test]
fn unsignaled_work_that_fails_is_reported_all_the_same() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    a.post(SendRequest::send(WrId(1), sge(Stag(0x1234_5678), 0)).unsignaled());
    let fine = a.source(b"never sent");
    a.post(SendRequest::send(WrId(2), fine).unsignaled());
    sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    assert_eq!(a.sends(), [failed, Done::flushed(2, Opcode::Send)]);
    assert_ended(&a, &b);
}

#[test]
fn full_queue_refuses_work_and_forgets_nothing() {
    let mut sim = sim();
    let config = QpConfig::default().send_depth(4).recv_depth(4);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    for i in 0..4 {
        a.post_send(i, b"x");
        b.post_recv(i, 1);
    }
    let source = a.source(b"x");
    let full = Err(PostError::TooManyWorkRequests(4));
    assert_eq!(a.qp.post_send(SendRequest::send(WrId(4), source)), full);
    assert_eq!(b.qp.post_recv(RecvRequest::new(WrId(4), source)), full);
    sim.connect_silently(&mut a, &mut b);
    sim.run_until_idle();
    assert_eq!(a.sends(), [0, 1, 2, 3].map(|i| Done::send(i, 1)));
    assert_eq!(b.receives(), [0, 1, 2, 3].map(|i| Done::receive(i, 1)));
}

/// As programs of InfiniBand's verbs have it, which post a last request to learn that all before it
/// have completed.
#[test]
fn failed_queue_pair_flushes_late_work_in_order_if_it_is_made_to() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let config = QpConfig::default().flush_late_posts(true).send_depth(4);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    b.post_recv(1, 1);
    sim.run_until_idle();
    b.qp.abort().unwrap();
    for i in 2..4 {
        b.post_send(i, b"x");
        b.post_recv(i, 1);
    }
    sim.run_until_idle();
    assert_eq!(b.sends(), [2, 3].map(|i| Done::flushed(i, Opcode::Send)));
    let flushed = |i| Done::flushed(i, Opcode::Receive);
    assert_eq!(b.receives(), [1, 2, 3].map(flushed));
    // Slots come back with the completions.
    for round in 0..3 {
        (0..4).for_each(|i| b.post_send(i, b"x"));
        sim.run_until_idle();
        assert_eq!(b.sends().len(), 4, "round {round}");
    }
    drop(b.qp);
}

/// Programs post a buffer for each that they take, whenever the connection begins to close.
#[test]
fn closing_queue_pair_takes_buffers_if_it_is_made_to() {
    for made_to in [true, false] {
        let mut sim = sim();
        let config = QpConfig::default().flush_late_posts(made_to);
        let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
        sim.connect(&mut a, &mut b);
        b.qp.begin_disconnect().unwrap();
        assert_eq!(b.qp.state(), QpState::Closing);
        let source = b.source(b"x");
        let closing = Err(PostError::InvalidState(QpState::Closing));
        assert_eq!(b.qp.post_send(SendRequest::send(WrId(1), source)), closing);
        if !made_to {
            assert_eq!(b.qp.post_recv(RecvRequest::new(WrId(1), source)), closing);
            continue;
        }
        b.post_recv(1, 1);
        b.post_recv(2, 1);
        a.post_send(3, b"x");
        sim.run_until_idle();
        let late = [Done::receive(1, 1), Done::flushed(2, Opcode::Receive)];
        assert_eq!(
            b.receives(),
            late,
            "what the peer has sent before its close comes in"
        );
        assert_eq!(b.qp.state(), QpState::Idle);
    }
}

#[test]
fn failed_queue_pair_takes_no_work() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, _b) = sim.connected_pair();
    a.qp.abort().unwrap();
    sim.run_until_idle();
    let source = a.source(b"x");
    let failed = Err(PostError::InvalidState(QpState::Error));
    assert_eq!(a.qp.post_send(SendRequest::send(WrId(1), source)), failed);
    assert_eq!(a.qp.post_recv(RecvRequest::new(WrId(1), source)), failed);
}

/// What a newcomer forgets: the peer's response to a Read names the sink, and so needs its remote
/// right.
#[test]
fn read_into_a_sink_without_its_right_leads_to_the_cause() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, b) = sim.connected_pair();
    let (sink, source) = (a.region(100, Access::LOCAL_WRITE), b.target(100));
    a.post_read(1, sink.local(0, 100), source.remote(0));
    sim.run_until_idle();
    let [read] = &a.sends()[..] else {
        panic!("one completion");
    };
    assert_ne!(*read, Done::read(1, 100));
    let why = a.qp.why_ended().expect("it has ended").to_string();
    assert!(why.contains("access right"), "{why}");
}

#[test]
fn end_that_the_application_asked_for_is_reported_until_the_next_connection() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, b) = sim.connected_pair();
    assert_eq!((a.qp.why_ended(), b.qp.why_ended()), (None, None));
    a.post_recv(1, 100);
    a.qp.abort().unwrap();
    assert_eq!(a.receives(), [Done::flushed(1, Opcode::Receive)]);
    assert_eq!(a.qp.why_ended(), Some(ConnectionEnd::Application));
    sim.run_until_idle();
    let reset = ConnectionEnd::Event(AsyncEventKind::ConnectionReset);
    assert_eq!(b.qp.why_ended(), Some(reset));
}
