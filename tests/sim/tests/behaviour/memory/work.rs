//! Memory work requests as work requests: their order, fences, completions and errors (verbs draft
//! §8.1.2.3, §8.2.2).

use super::*;
use xwarp::QpConfig;
use xwarp::error::PostError;
use xwarp::memory::Bind;

/// B's window, not bound, and a Bind of bytes 0 to 99 of the region.
fn window(b: &SimEnd, region: &MemoryRegion) -> (xwarp::MemoryWindow, Bind) {
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, READ | WRITE);
    (window, bind)
}

#[test]
fn nothing_of_a_bind_or_an_invalidation_is_on_the_wire() {
    let mut sim = sim();
    let (_a, mut b, region) = with_region(&mut sim);
    sim.run_until_idle();
    let sent = |end: &SimEnd| end.host().rnic().counters().unwrap().rdma.fpdus_out;
    let before = sent(&b);
    let frames = sim.now();
    let (_window, bind) = window(&b, &region);
    b.post(SendRequest::bind(WrId(1), bind));
    b.post(SendRequest::invalidate(WrId(2), bind.window).unsignaled());
    b.post(SendRequest::invalidate(WrId(3), bind.window).locally_fenced());
    settle(&mut sim, &mut b, &[Done::bind(1), Done::invalidate(3)]);
    assert_eq!(sent(&b), before);
    assert_eq!(sim.now(), frames, "no frame was on its way");
}

/// Bind, tell the peer, have it write, take the window away: in a loop, with all of it posted
/// beforehand.
#[test]
fn windows_are_granted_and_taken_without_polling_in_between() {
    const ROUNDS: u64 = 40;
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let mut window = b.host().pd().allocate_window().unwrap();
    let source = a.target(100);
    let mut binds = Vec::new();
    for round in 0..ROUNDS {
        source.fill(&pattern(100));
        let bind = window.bind(region.remote(round * 100), 100, WRITE);
        b.post(SendRequest::bind(WrId(round), bind).unsignaled());
        let sink = RemoteAddress {
            stag: bind.window,
            to: bind.remote(0).to,
        };
        let sge = xwarp::Sge {
            stag: sink.stag,
            to: sink.to,
            len: 100,
        };
        b.post(SendRequest::read(WrId(100 + round), sge, source.remote(0)).unsignaled());
        b.post(SendRequest::invalidate(WrId(200 + round), bind.window).locally_fenced());
        binds.push(bind);
    }
    let done: Vec<Done> = (0..ROUNDS).map(|i| Done::invalidate(200 + i)).collect();
    settle(&mut sim, &mut b, &done);
    for at in (0..4000).step_by(100) {
        assert_eq!(region.bytes().to_vec()[at..at + 100], pattern(100));
    }
    let late = attempt(&mut sim, &mut a, &b, WRITE, binds[39].remote(0));
    assert_eq!(late, Some(invalid(WRITE)));
}

#[test]
fn invalidation_takes_effect_before_what_is_posted_behind_it() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    a.post_recv(1, 100);
    let region = b.region(KIB, LOCAL);
    b.post(SendRequest::send(WrId(1), region.local(0, 8)));
    b.post(SendRequest::invalidate(WrId(2), region.stag()));
    b.post(SendRequest::send(WrId(3), region.local(0, 8)));
    let done = [
        Done::send(1, 8),
        Done::invalidate(2),
        failed(3, Opcode::Send, CompletionStatus::InvalidStag),
    ];
    settle(&mut sim, &mut b, &done);
    assert_eq!(a.receives(), [Done::receive(1, 8)]);
    assert_at_fault("Send behind it", &a, &b);
}

#[test]
fn local_fence_waits_for_earlier_reads_and_without_it_they_may_fail() {
    for fence in [true, false] {
        let mut sim = sim();
        let (a, mut b) = sim.connected_pair();
        let (source, sink) = (a.target(100), b.region(100, Access::all()));
        source.fill(&pattern(100));
        b.post_read(1, sink.local(0, 100), source.remote(0));
        let request = SendRequest::invalidate(WrId(2), sink.stag());
        b.post(if fence {
            request.locally_fenced()
        } else {
            request
        });
        let nothing = Sgl::new();
        b.post(SendRequest::write(WrId(3), nothing, source.remote(0)));
        sim.run_until_idle();
        if fence {
            let done = [Done::read(1, 100), Done::invalidate(2), Done::write(3, 0)];
            assert_eq!(b.sends(), done);
            assert_eq!(sink.bytes().to_vec(), pattern(100));
        } else {
            let done = [
                Done::flushed(1, Opcode::Read),
                Done::invalidate(2),
                Done::write(3, 0),
            ];
            assert_eq!(b.sends(), done);
            assert_eq!(sink.bytes().to_vec(), [0; 100]);
            assert_refused("no fence", &a, &b, TermCode::ddp_tagged(0));
        }
    }
}

#[test]
fn local_fence_opens_at_once_where_nothing_is_under_way() {
    let mut sim = sim();
    let (_a, mut b) = sim.connected_pair();
    let region = b.region(8, LOCAL);
    b.post(SendRequest::invalidate(WrId(1), region.stag()).locally_fenced());
    b.post(SendRequest::invalidate(WrId(2), region.stag()).locally_fenced());
    settle(
        &mut sim,
        &mut b,
        &[Done::invalidate(1), Done::invalidate(2)],
    );
}

#[test]
fn bind_that_is_refused_fails_its_work_request_and_flushes_the_rest() {
    type Spoil = fn(&SimEnd, &mut Bind);
    #[rustfmt::skip]
    let cases: [(&str, Spoil, CompletionStatus); 8] = [
        ("no window", |_, it| it.window = Stag(0x1234_5678), CompletionStatus::InvalidWindow),
        ("region as window", |_, it| it.window = it.region, CompletionStatus::InvalidWindow),
        ("no region", |_, it| it.region = Stag(0x1234_5678), CompletionStatus::InvalidRegion),
        ("region's other key", |_, it| it.region = Stag(it.region.0 ^ 1), CompletionStatus::InvalidRegion),
        ("outside", |_, it| it.len = 4 * KIB as u64 + 1, CompletionStatus::BaseBounds),
        ("wrapping", |_, it| it.to = u64::MAX, CompletionStatus::Wrap),
        ("no rights", |_, it| it.access = Access::empty(), CompletionStatus::AccessViolation),
        ("other domain", |b, it| {
            let pd = b.host().rnic().allocate_pd().unwrap();
            let window = pd.allocate_window().unwrap();
            it.window = window.stag();
            std::mem::forget((window, pd));
        }, CompletionStatus::InvalidPd),
    ];
    for (case, spoil, status) in cases {
        let mut sim = sim();
        let (a, mut b, region) = with_region(&mut sim);
        let (window, mut bind) = window(&b, &region);
        spoil(&b, &mut bind);
        b.post_recv(9, 8);
        b.post(SendRequest::bind(WrId(1), bind));
        b.post_send(2, b"never sent");
        let done = [
            failed(1, Opcode::Bind, status),
            Done::flushed(2, Opcode::Send),
        ];
        settle(&mut sim, &mut b, &done);
        assert_eq!(b.receives(), [Done::flushed(9, Opcode::Receive)], "{case}");
        assert_at_fault(case, &a, &b);
        assert!(!window.query().unwrap().is_valid(), "{case}");
    }
}

#[test]
fn second_bind_of_a_bound_window_fails_even_unsignaled() {
    let mut sim = sim();
    let (a, mut b, region) = with_region(&mut sim);
    let (window, bind) = window(&b, &region);
    b.post(SendRequest::bind(WrId(1), bind).unsignaled());
    b.post(SendRequest::bind(WrId(2), bind).unsignaled());
    let refused = failed(2, Opcode::Bind, CompletionStatus::StagNotInvalid);
    settle(&mut sim, &mut b, &[refused]);
    assert_at_fault("second", &a, &b);
    assert!(window.query().unwrap().is_valid(), "the first one stays");
}

#[test]
fn queue_pair_that_may_bind_nothing_does_not() {
    let mut sim = sim();
    let config = QpConfig::default().bind_windows(false);
    let (a, mut b) = sim.connected_pair_with(&config);
    let region = b.va_region(KIB, FOR_WINDOWS, VA);
    let (_window, bind) = window(&b, &region);
    b.post(SendRequest::bind(WrId(1), bind));
    let refused = failed(1, Opcode::Bind, CompletionStatus::AccessViolation);
    settle(&mut sim, &mut b, &[refused]);
    assert_at_fault("no binding", &a, &b);
}

#[test]
fn memory_work_on_stag_zero_is_not_even_posted() {
    let mut sim = sim();
    let config = QpConfig::default().privileged(true);
    let (_a, mut b) = sim.connected_pair_with(&config);
    let region = b.va_region(KIB, FOR_WINDOWS, VA);
    let (window, bind) = window(&b, &region);
    let mut stag = b.host().pd().allocate_stag(1, false).unwrap();
    let list = xwarp::memory::PhysicalList {
        entry_size: 4096,
        addresses: vec![0].into(),
        first_byte_offset: 0,
        len: 1,
    };
    let fast = stag.fast_register(list, LOCAL);
    for key in [0, 7] {
        let zero = Stag(0).with_key(key);
        let (mut window_zero, mut region_zero, mut fast_zero) = (bind, bind, fast.clone());
        window_zero.window = zero;
        region_zero.region = zero;
        fast_zero.stag = zero;
        let requests = [
            SendRequest::bind(WrId(1), window_zero),
            SendRequest::bind(WrId(2), region_zero),
            SendRequest::invalidate(WrId(3), zero),
            SendRequest::fast_register(WrId(4), fast_zero),
        ];
        for request in requests {
            assert_eq!(b.qp.post_send(request), Err(PostError::StagZero));
        }
    }
    settle(&mut sim, &mut b, &[]);
    assert_eq!(b.state(), QpState::Rts);
    assert!(!window.query().unwrap().is_valid());
}

#[test]
fn memory_work_posted_in_idle_is_done_when_the_connection_is_there() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let region = a.va_region(KIB, FOR_WINDOWS, VA);
    let (window, bind) = window(&a, &region);
    a.post(SendRequest::bind(WrId(1), bind));
    assert!(!window.query().unwrap().is_valid());
    sim.connect(&mut a, &mut b);
    settle(&mut sim, &mut a, &[Done::bind(1)]);
    assert!(window.query().unwrap().is_valid());
}

/// A responder may not send before the peer has spoken (RFC 5044 §7.1.2), but what the peer speaks
/// about has to be there.
#[test]
fn responders_memory_work_is_done_before_the_first_fpdu_of_the_peer() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let region = b.va_region(KIB, FOR_WINDOWS, VA);
    let (_window, bind) = window(&b, &region);
    b.post(SendRequest::bind(WrId(1), bind));
    b.post_send(2, b"not yet");
    sim.connect_silently(&mut a, &mut b);
    sim.run_for(Duration::from_millis(1));
    assert_eq!(b.sends(), [Done::bind(1)]);
    assert_eq!(b.host().rnic().counters().unwrap().rdma.fpdus_out, 0);
    a.post_recv(3, 10);
    a.post_write(4, &pattern(100), bind.remote(0));
    settle(&mut sim, &mut a, &[Done::write(4, 100)]);
    assert_eq!(a.receives(), [Done::receive(3, 7)]);
    assert_eq!(b.sends(), [Done::send(2, 7)]);
    assert_eq!(region.bytes().to_vec()[..100], pattern(100));
}

#[test]
fn memory_work_of_a_responder_that_fails_ends_the_connection_before_the_peer_has_spoken() {
    let mut sim = sim();
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    b.post(SendRequest::invalidate(WrId(1), Stag(0x1234_5678)));
    sim.connect_silently(&mut a, &mut b);
    let refused = failed(1, Opcode::Invalidate, CompletionStatus::InvalidStag);
    settle(&mut sim, &mut b, &[refused]);
    assert_eq!(b.state(), QpState::Error);
    assert_ne!(a.state(), QpState::Rts);
    assert_eq!(b.host().rnic().counters().unwrap().rdma.fpdus_out, 0);
}
