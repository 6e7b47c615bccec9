//! Invalidation by either side (verbs draft §7.8, §7.10.4; RFC 5040 §5.3).

use super::*;
use xwarp::memory::RegionSpec;

use crate::refused::{RemoteMemory, deregistered, wrong_key};

/// B's window on bytes 0 to 99 of the region.
fn bound(
    sim: &mut Sim,
    b: &mut SimEnd,
    region: &MemoryRegion,
) -> (xwarp::MemoryWindow, xwarp::memory::Bind) {
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, READ | WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(sim, b, &[Done::bind(1)]);
    (window, bind)
}

#[test]
fn peer_gives_its_window_back() {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let (mut window, bind) = bound(&mut sim, &mut b, &region);
    b.post_recv(5, 10);
    a.post_write(1, &pattern(100), bind.remote(0));
    a.post(invalidation(2, bind.window));
    let received = sim.wait_for("the Send", || b.recv_cq().poll().unwrap());
    assert!(!window.query().unwrap().is_valid(), "at the completion");
    assert_eq!(received.invalidated, Some(bind.window));
    assert_eq!(region.bytes().to_vec()[..100], pattern(100));
    let info = window.query().unwrap();
    assert_eq!((info.key, info.access), (None, Access::empty()));
    assert_eq!(info.pd, b.host().pd().id());

    // It can be bound again, without a completion in between.
    let again = window.bind(region.remote(500), 10, READ);
    b.post(SendRequest::bind(WrId(2), again));
    settle(&mut sim, &mut b, &[Done::bind(2)]);
    let info = window.query().unwrap();
    assert_eq!((info.key, info.access), (Some(again.window.key()), READ));
    let stale = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(stale, Some(invalid(WRITE)));
}

#[test]
fn invalidation_by_the_peer_keeps_the_index_of_a_region() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    let before = region.query().unwrap();
    b.post_recv(5, 10);
    a.post(invalidation(5, region.stag()));
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(5, 0)]);
    let after = region.query().unwrap();
    assert!(!after.is_valid());
    let kept = (after.pd, after.entries, after.remote_access);
    assert_eq!(kept, (before.pd, before.entries, before.remote_access));
    let end = attempt(&mut sim, &mut a, &b, READ, region.remote(0));
    assert_eq!(end, Some(invalid(READ)));
    let stag = region.stag();
    let spec = RegionSpec::new(Access::all());
    let memory = region.bytes().clone();
    let region = region.reregister(b.host().pd(), memory, &spec).unwrap();
    assert_eq!(region.stag().index(), stag.index());
}

/// A full completion queue loses the completion that returns the `STag` to the application. The
/// invalidation takes effect before it is reported (RFC 5040 §5.3).
#[test]
fn invalidation_has_taken_effect_although_its_completion_is_lost() {
    let mut sim = sim().expecting(&["drop_cq_overflow"]);
    let config = xwarp::QpConfig::default();
    let mut a = sim.a().end(&config);
    let mut b = SimEnd::with_cqs(&sim.b(), &config, 4, 1);
    sim.connect(&mut a, &mut b);
    let region = b.region(KIB, Access::all());
    b.post_recv(5, 10);
    b.post_recv(6, 10);
    a.post_send(5, b"it is full");
    a.post(invalidation(6, region.stag()));
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(5, 10)]);
    assert_eq!(b.events(), [AsyncEventKind::RecvCqError]);
    assert!(!region.query().unwrap().is_valid());
}

/// RFC 5040 §7.2 wants the `STag` to be valid, where the verbs draft's §7.8 would let it pass.
#[test]
fn peer_may_not_invalidate_twice() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    for wr_id in [5, 6] {
        b.post_recv(wr_id, 10);
        a.post(invalidation(wr_id, region.stag()));
    }
    sim.run_until_idle();
    let refused = failed(6, Opcode::Receive, CompletionStatus::InvalidStag);
    assert_eq!(b.receives(), [Done::receive(5, 0), refused]);
    assert_refused("twice", &a, &b, TermCode::rdmap_protection(0));
}

#[test]
fn peer_may_not_invalidate_what_is_needed_or_not_its_own() {
    let cases = ["region with a window", "shared region", "window of another"];
    for case in cases {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let region = b.va_region(4 * KIB, Access::all(), VA);
        let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
        let stag = match case {
            "region with a window" => {
                kept.push(Box::new(bound(&mut sim, &mut b, &region)));
                region.stag()
            }
            "shared region" => {
                let spec = RegionSpec::new(LOCAL);
                let shared = region.share(b.host().pd(), &spec).unwrap();
                kept.push(Box::new(shared));
                region.stag()
            }
            _ => {
                let (c, mut d) = sim.connected_pair();
                let (window, bind) = bound(&mut sim, &mut d, &region);
                kept.push(Box::new((window, c.qp, d.qp)));
                bind.window
            }
        };
        b.post_recv(5, 100);
        let source = a.source(b"never mind");
        let send = Operation::Send {
            payload: source.into(),
            solicited: false,
            invalidate: Some(stag),
        };
        a.post(SendRequest::new(WrId(1), send));
        sim.run_until_idle();
        let refused = failed(5, Opcode::Receive, CompletionStatus::InvalidateRefused);
        assert_eq!(b.receives(), [refused], "{case}");
        assert_refused(case, &a, &b, TermCode::rdmap_protection(9));
        assert!(region.query().unwrap().is_valid(), "{case}");
    }
}

/// An `STag`, and what keeps it.
type Kept = (Stag, Box<dyn std::any::Any>);

fn kept(region: MemoryRegion) -> Kept {
    (region.stag(), Box::new(region))
}

fn named(memory: RemoteMemory) -> Kept {
    (memory.address.stag, Box::new(memory.region))
}

fn other_domains(b: &SimEnd, access: Access) -> Kept {
    let other = b.host().rnic().allocate_pd().unwrap();
    let region = b.host().region_in(&other, KIB, access);
    (region.stag(), Box::new((region, other)))
}

fn other_pairs(sim: &mut Sim, access: Access) -> Kept {
    let (c, d) = sim.connected_pair();
    let region = d.own_region(KIB, access);
    (region.stag(), Box::new((region, c, d)))
}

/// Makes what a peer wants to invalidate.
type Make = fn(&mut Sim, &mut SimEnd) -> Kept;

/// What a peer may not invalidate, and the code that refuses it.
#[rustfmt::skip]
const REFUSED_INVALIDATIONS: [(&str, u8, Make); 14] = [
    ("zero", 0x00, |_, _| (Stag(0), Box::new(()))),
    ("wrong key", 0x00, |_, b| named(wrong_key(b.host()))),
    ("deregistered", 0x00, |_, b| named(deregistered(b.host()))),
    ("Invalid region", 0x00, |_, b| {
        let allocated = b.host().pd().allocate_stag(4, true).unwrap();
        (allocated.stag(), Box::new(allocated))
    }),
    ("Invalid region of another domain", 0x09, |_, b| {
        let other = b.host().rnic().allocate_pd().unwrap();
        let allocated = other.allocate_stag(4, true).unwrap();
        (allocated.stag(), Box::new((allocated, other)))
    }),
    ("region without the right", 0x02, |_, b| kept(b.region(KIB, LOCAL))),
    ("own region without the right", 0x02, |_, b| kept(b.own_region(KIB, LOCAL))),
    ("region of another domain", 0x09, |_, b| other_domains(b, Access::all())),
    ("region of another domain, without the right", 0x09, |_, b| other_domains(b, LOCAL)),
    ("region of another queue pair", 0x09, |sim, _| other_pairs(sim, Access::all())),
    ("region of another queue pair, without the right", 0x09, |sim, _| other_pairs(sim, LOCAL)),
    ("region that streams share", 0x09, |sim, b| {
        let region = b.region(KIB, Access::all());
        (region.stag(), Box::new((region, sim.connected_pair())))
    }),
    ("shared region without the right", 0x09, |_, b| {
        let region = b.region(KIB, LOCAL);
        let shared = region.share(b.host().pd(), &RegionSpec::new(LOCAL)).unwrap();
        (region.stag(), Box::new((region, shared)))
    }),
    ("window that was bound and is not any more", 0x00, |sim, b| {
        let region = b.va_region(4 * KIB, FOR_WINDOWS, VA);
        let (window, bind) = bound(sim, b, &region);
        b.post(SendRequest::invalidate(WrId(2), bind.window));
        settle(sim, b, &[Done::invalidate(2)]);
        (bind.window, Box::new((window, region)))
    }),
];

/// Refused invalidations, each with its code. RFC 5040 §5.3 asks for the stream's association, §7.2
/// for validity, the verbs draft's §8.3.2 for rights.
#[test]
fn refused_invalidation_says_which_rule_it_broke() {
    for (case, code, choose) in REFUSED_INVALIDATIONS {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let (stag, _kept) = choose(&mut sim, &mut b);
        b.post_recv(5, 10);
        a.post(invalidation(1, stag));
        sim.run_until_idle();
        let status = match code {
            0x00 => CompletionStatus::InvalidStag,
            _ => CompletionStatus::InvalidateRefused,
        };
        assert_eq!(b.receives(), [failed(5, Opcode::Receive, status)], "{case}");
        assert_refused(case, &a, &b, TermCode::rdmap_protection(code));
    }
}

/// An Invalidate of what `choose` names, which is refused with `status`.
fn assert_local_invalidation_refused(
    case: &str,
    choose: fn(&mut Sim, &mut SimEnd, &MemoryRegion) -> Stag,
    status: CompletionStatus,
) {
    let mut sim = sim();
    let (a, mut b, region) = with_region(&mut sim);
    let stag = choose(&mut sim, &mut b, &region);
    b.post(SendRequest::invalidate(WrId(7), stag));
    b.post_send(8, b"never sent");
    let done = [
        failed(7, Opcode::Invalidate, status),
        Done::flushed(8, Opcode::Send),
    ];
    settle(&mut sim, &mut b, &done);
    assert_at_fault(case, &a, &b);
    assert!(region.query().unwrap().is_valid(), "{case}");
}

#[test]
fn local_invalidation_that_is_refused_ends_the_stream_and_changes_nothing() {
    type Choose = fn(&mut Sim, &mut SimEnd, &MemoryRegion) -> Stag;
    #[rustfmt::skip]
    let cases: [(&str, Choose, CompletionStatus); 6] = [
        ("unknown", |_, _, _| Stag(0x1234_5678), CompletionStatus::InvalidStag),
        ("another key", |_, _, region| Stag(region.stag().0 ^ 1), CompletionStatus::InvalidStag),
        ("shared", |_, b, region| {
            std::mem::forget(region.share(b.host().pd(), &RegionSpec::new(LOCAL)).unwrap());
            region.stag()
        }, CompletionStatus::InvalidStag),
        ("region with a window", |sim, b, region| {
            std::mem::forget(bound(sim, b, region));
            region.stag()
        }, CompletionStatus::InvalidStag),
        ("window of another", |sim, _, region| {
            let (c, mut d) = sim.connected_pair();
            let (window, bind) = bound(sim, &mut d, region);
            std::mem::forget((window, c, d));
            bind.window
        }, CompletionStatus::InvalidPd),
        ("other domain", |_, b, _| {
            let other = b.host().rnic().allocate_pd().unwrap();
            let region = other.allocate(8, LOCAL).unwrap();
            let stag = region.stag();
            std::mem::forget((region, other));
            stag
        }, CompletionStatus::InvalidPd),
    ];
    for (case, choose, status) in cases {
        assert_local_invalidation_refused(case, choose, status);
    }
}

#[test]
fn read_with_invalidate_leaves_its_sink_invalid_when_it_completes() {
    for through_window in [false, true] {
        let mut sim = sim();
        let (a, mut b) = sim.connected_pair();
        let region = b.va_region(4 * KIB, Access::all(), VA);
        let source = a.target(100);
        source.fill(&pattern(100));
        let window = through_window.then(|| bound(&mut sim, &mut b, &region));
        let place = window
            .as_ref()
            .map_or(region.remote(0), |(_, bind)| bind.remote(0));
        let sink = xwarp::Sge {
            stag: place.stag,
            to: place.to,
            len: 100,
        };
        let read = SendRequest::read(WrId(2), sink, source.remote(0)).invalidating_sink();
        sim.run_until_idle();
        let sent = |b: &SimEnd| b.host().rnic().counters().unwrap().rdma.fpdus_out;
        let before = sent(&b);
        b.post(read);
        b.post(SendRequest::write(WrId(3), Sgl::new(), source.remote(0)));
        sim.run_for(Duration::from_micros(20));
        assert_eq!(sent(&b) - before, 2, "the Write has not waited");
        let first = sim.wait_for("a completion", || b.send_cq().poll().unwrap());
        assert_eq!(
            Done::from(first),
            Done::success(2, Opcode::ReadInvalidate, 100)
        );
        let valid = match &window {
            Some((window, _)) => window.query().unwrap().is_valid(),
            None => region.query().unwrap().is_valid(),
        };
        assert!(!valid, "at the completion");
        settle(&mut sim, &mut b, &[Done::write(3, 0)]);
        assert_eq!(region.bytes().to_vec()[..100], pattern(100));
        assert_eq!(b.state(), QpState::Rts);
    }
}

/// A Read Type is a Read Type (verbs draft §8.2.2): also one of nothing is asked for, and a fence
/// waits for it.
#[test]
fn read_with_invalidate_of_nothing_is_answered_and_fenced_like_any_read() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let region = b.region(8, Access::all());
    let nowhere = RemoteAddress {
        stag: Stag(0xdead_be00),
        to: u64::MAX,
    };
    sim.run_until_idle();
    a.post_recv(1, 0);
    b.post(SendRequest::read(WrId(2), region.local(0, 0), nowhere).invalidating_sink());
    b.post(SendRequest::send(WrId(3), Sgl::new()).fenced());
    // The Read Request is there, its response not back.
    sim.run_for(Duration::from_micros(60));
    assert_eq!((b.sends(), a.receives()), (vec![], vec![]));
    assert!(region.query().unwrap().is_valid());
    let read = Done::success(2, Opcode::ReadInvalidate, 0);
    settle(&mut sim, &mut b, &[read, Done::send(3, 0)]);
    assert_eq!(a.receives(), [Done::receive(1, 0)]);
    assert!(!region.query().unwrap().is_valid());
}

#[test]
fn read_whose_sink_may_not_be_invalidated_fails_after_the_data_is_there() {
    let mut sim = sim();
    let (a, mut b) = sim.connected_pair();
    let region = b.va_region(4 * KIB, Access::all(), VA);
    let _shared = region
        .share(b.host().pd(), &RegionSpec::new(LOCAL))
        .unwrap();
    let source = a.target(100);
    source.fill(&pattern(100));
    let sink = region.local(0, 100);
    b.post(SendRequest::read(WrId(2), sink, source.remote(0)).invalidating_sink());
    b.post(SendRequest::read(WrId(3), sink, source.remote(0)));
    sim.run_until_idle();
    let done = [
        failed(2, Opcode::ReadInvalidate, CompletionStatus::InvalidStag),
        Done::flushed(3, Opcode::Read),
    ];
    assert_eq!(b.sends(), done);
    assert_eq!(region.bytes().to_vec()[..100], pattern(100));
    assert!(region.query().unwrap().is_valid());
    assert_at_fault("shared sink", &a, &b);
}

/// Nothing is placed once the application knows that the region is Invalid, whatever is on its way.
#[test]
fn region_that_is_invalidated_while_the_peer_writes_is_left_alone() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let len = 1 << 20;
    let region = b.region(len, Access::all());
    a.post_write(1, &pattern(len), region.remote(0));
    sim.run_for(Duration::from_micros(120));
    b.post(SendRequest::invalidate(WrId(2), region.stag()));
    let done = sim.wait_for("the completion", || b.send_cq().poll().unwrap());
    assert!(done.is_success());
    let at_that_time = region.bytes().to_vec();
    assert!(at_that_time != vec![0; len], "nothing was placed before");
    assert!(at_that_time != pattern(len), "everything was placed before");
    sim.run_until_idle();
    assert!(region.bytes().to_vec() == at_that_time);
    assert_refused("invalid", &a, &b, TermCode::ddp_tagged(0));
}
