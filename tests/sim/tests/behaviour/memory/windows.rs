//! Windows: bound by a work request, used by one peer (verbs draft §7.10).

use std::collections::BTreeMap;

use super::*;
use xwarp::QpConfig;
use xwarp::error::{DeallocateError, DestroyError};

#[test]
fn peer_reaches_exactly_the_bytes_of_its_window() {
    for zero_based in [false, true] {
        let mut sim = sim();
        let (mut a, mut b, region) = with_region(&mut sim);
        region.bytes().fill(0..4 * KIB, 0xee).unwrap();
        let mut window = b.host().pd().allocate_window().unwrap();
        let mut bind = window.bind(region.remote(1000), 100, READ | WRITE);
        if zero_based {
            bind = bind.zero_based();
        }
        b.post(SendRequest::bind(WrId(1), bind));
        settle(&mut sim, &mut b, &[Done::bind(1)]);
        let expected = if zero_based { 0 } else { VA + 1000 };
        assert_eq!(bind.remote(0).to, expected);

        let sink = a.target(100);
        a.post_write(2, &pattern(100), bind.remote(0));
        a.post_write(3, b"!", bind.remote(99));
        a.post_read(4, sink.local(0, 100), bind.remote(0));
        let done = [Done::write(2, 100), Done::write(3, 1), Done::read(4, 100)];
        settle(&mut sim, &mut a, &done);
        let written = [&pattern(99)[..], b"!"].concat();
        assert_eq!(sink.to_vec(), written);
        let memory = region.bytes().to_vec();
        assert_eq!(memory[1000..1100], written);
        let others = memory[..1000].iter().chain(&memory[1100..]);
        assert!(others.copied().all(|byte| byte == 0xee));
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
}

/// A bind of bytes 1000 to 1099 with these rights, then 100 bytes from `offset` on.
fn attempt_through_window(access: Access, right: Access, offset: i64) -> Option<TermCode> {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(1000), 100, access);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    let at = bind.remote(offset.cast_unsigned());
    attempt(&mut sim, &mut a, &b, right, at)
}

#[test]
fn one_byte_beyond_either_end_of_a_window_ends_the_stream() {
    for right in [READ, WRITE] {
        let ends = [-1, 0, 1].map(|offset| attempt_through_window(READ | WRITE, right, offset));
        assert_eq!(
            ends,
            [Some(outside(right)), None, Some(outside(right))],
            "{right:?}"
        );
    }
}

#[test]
fn window_grants_what_it_was_bound_with_and_no_more() {
    for (access, right, end) in [
        (READ, READ, None),
        (WRITE, WRITE, None),
        (READ, WRITE, Some(forbidden(WRITE))),
        (WRITE, READ, Some(forbidden(READ))),
    ] {
        let found = attempt_through_window(access, right, 0);
        assert_eq!(found, end, "{right:?} through {access:?}");
    }
}

#[test]
fn window_is_open_to_the_peer_of_its_queue_pair_alone() {
    for right in [READ, WRITE] {
        let mut sim = sim();
        let (mut a, mut b, region) = with_region(&mut sim);
        let (mut c, d) = sim.connected_pair();
        let mut window = b.host().pd().allocate_window().unwrap();
        let bind = window.bind(region.remote(0), 100, READ | WRITE);
        b.post(SendRequest::bind(WrId(1), bind));
        settle(&mut sim, &mut b, &[Done::bind(1)]);
        let stranger = attempt(&mut sim, &mut c, &d, right, bind.remote(0));
        assert_eq!(stranger, Some(not_associated(right)));
        let own = attempt(&mut sim, &mut a, &b, right, bind.remote(0));
        assert_eq!(own, None);
    }
}

#[test]
fn window_that_is_not_bound_is_no_valid_stag() {
    type Spoil = fn(&mut Sim, &mut SimEnd, Stag) -> Stag;
    let cases: BTreeMap<&str, Spoil> = BTreeMap::from([
        ("another key", (|_, _, Stag(stag)| Stag(stag ^ 1)) as Spoil),
        ("invalidated", |sim, b, stag| {
            b.post(SendRequest::invalidate(WrId(2), stag));
            settle(sim, b, &[Done::invalidate(2)]);
            stag
        }),
    ]);
    for right in [READ, WRITE] {
        for (case, spoil) in &cases {
            let mut sim = sim();
            let (mut a, mut b, region) = with_region(&mut sim);
            let mut window = b.host().pd().allocate_window().unwrap();
            let bind = window.bind(region.remote(0), 100, READ | WRITE);
            b.post(SendRequest::bind(WrId(1), bind));
            settle(&mut sim, &mut b, &[Done::bind(1)]);
            let stag = spoil(&mut sim, &mut b, bind.window);
            let at = RemoteAddress {
                stag,
                to: bind.remote(0).to,
            };
            let end = attempt(&mut sim, &mut a, &b, right, at);
            assert_eq!(end, Some(invalid(right)), "{case}");
        }
        let mut sim = sim();
        let (mut a, b, region) = with_region(&mut sim);
        let mut window = b.host().pd().allocate_window().unwrap();
        let never_posted = window.bind(region.remote(0), 100, READ | WRITE);
        let end = attempt(&mut sim, &mut a, &b, right, never_posted.remote(0));
        assert_eq!(end, Some(invalid(right)), "never bound");
    }
}

#[test]
fn window_bound_anew_is_closed_to_its_former_stag() {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let mut window = b.host().pd().allocate_window().unwrap();
    let first = window.bind(region.remote(0), 100, WRITE);
    let second = window.bind(region.remote(2000), 100, WRITE);
    assert_eq!(first.window.index(), second.window.index());
    assert_ne!(first.window, second.window);
    b.post(SendRequest::bind(WrId(1), first));
    b.post(SendRequest::invalidate(WrId(2), first.window).locally_fenced());
    b.post(SendRequest::bind(WrId(3), second));
    let done = [Done::bind(1), Done::invalidate(2), Done::bind(3)];
    settle(&mut sim, &mut b, &done);
    let fine = attempt(&mut sim, &mut a, &b, WRITE, second.remote(0));
    assert_eq!(fine, None);
    let stale = attempt(&mut sim, &mut a, &b, WRITE, first.remote(0));
    assert_eq!(stale, Some(invalid(WRITE)));
    assert_eq!(region.bytes().to_vec()[..100], [0; 100]);
    assert_eq!(region.bytes().to_vec()[2000..2100], pattern(100));
}

#[test]
fn windows_of_one_region_overlap_with_rights_of_their_own() {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let [mut reader, mut writer] = [(), ()].map(|()| b.host().pd().allocate_window().unwrap());
    let read = reader.bind(region.remote(0), 200, READ);
    let write = writer.bind(region.remote(100), 200, WRITE);
    b.post(SendRequest::bind(WrId(1), read));
    b.post(SendRequest::bind(WrId(2), write));
    settle(&mut sim, &mut b, &[Done::bind(1), Done::bind(2)]);
    let sink = a.target(200);
    a.post_write(3, &pattern(200), write.remote(0));
    a.post_read(4, sink.local(0, 200), read.remote(0));
    settle(&mut sim, &mut a, &[Done::write(3, 200), Done::read(4, 200)]);
    assert_eq!(sink.to_vec()[..100], [0; 100]);
    assert_eq!(sink.to_vec()[100..], pattern(200)[..100]);
    let refused = attempt(&mut sim, &mut a, &b, WRITE, read.remote(0));
    assert_eq!(refused, Some(forbidden(WRITE)));
}

#[test]
fn window_is_no_place_for_scatter_gather_lists() {
    for case in ["Send", "Write"] {
        let mut sim = sim();
        let (a, mut b, region) = with_region(&mut sim);
        let target = a.target(100);
        let sge = bound_sge(&mut sim, &mut b, &region);
        let (request, opcode) = match case {
            "Send" => (SendRequest::send(WrId(2), sge), Opcode::Send),
            _ => (
                SendRequest::write(WrId(2), sge, target.remote(0)),
                Opcode::Write,
            ),
        };
        b.post(request);
        let refused = failed(2, opcode, CompletionStatus::InvalidStag);
        settle(&mut sim, &mut b, &[refused]);
        assert_at_fault(case, &a, &b);
    }
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let sge = bound_sge(&mut sim, &mut b, &region);
    b.qp.post_recv(xwarp::RecvRequest::new(WrId(3), sge))
        .unwrap();
    a.post_send(1, b"nowhere");
    sim.run_until_idle();
    let refused = failed(3, Opcode::Receive, CompletionStatus::InvalidStag);
    assert_eq!(b.receives(), [refused]);
    assert_eq!(region.bytes().to_vec(), [0; 4 * KIB]);
    assert_ended("Receive", &a, &b);
}

/// All of a window that is bound, as an element of a list.
fn bound_sge(sim: &mut Sim, b: &mut SimEnd, region: &MemoryRegion) -> xwarp::Sge {
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, READ | WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(sim, b, &[Done::bind(1)]);
    std::mem::forget(window);
    let RemoteAddress { stag, to } = bind.remote(0);
    xwarp::Sge { stag, to, len: 100 }
}

#[test]
fn read_may_have_a_window_as_its_sink() {
    let mut sim = sim();
    let (a, mut b, region) = with_region(&mut sim);
    let source = a.target(100);
    source.fill(&pattern(100));
    let sge = bound_sge(&mut sim, &mut b, &region);
    b.post_read(2, sge, source.remote(0));
    settle(&mut sim, &mut b, &[Done::read(2, 100)]);
    assert_eq!(region.bytes().to_vec()[..100], pattern(100));
}

#[test]
fn region_and_a_queue_pair_with_windows_stay_until_those_are_gone() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, mut b, region) = with_region(&mut sim);
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);

    let refused = region.deallocate().unwrap_err();
    assert_eq!(refused.error, DeallocateError::WindowsBound);
    let region = *refused.object;
    assert!(region.query().unwrap().is_valid());
    let spare = b.host().end(&QpConfig::default()).qp;
    let refused = std::mem::replace(&mut b.qp, spare).destroy();
    let refused = refused.unwrap_err();
    assert_eq!(refused.error, DestroyError::WindowsBound);
    b.qp = *refused.object;
    assert_eq!(b.state(), QpState::Rts);
    let fine = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(fine, None);

    b.post(SendRequest::invalidate(WrId(2), bind.window));
    settle(&mut sim, &mut b, &[Done::invalidate(2)]);
    assert!(!window.query().unwrap().is_valid());
    region.deallocate().unwrap();
    b.qp.destroy().unwrap();
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Error, "its peer is gone");
}

#[test]
fn region_that_is_dropped_takes_its_windows_along() {
    let mut sim = sim();
    let (mut a, mut b, region) = with_region(&mut sim);
    let memory = region.bytes().clone();
    let mut window = b.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    drop(region);
    assert!(!window.query().unwrap().is_valid());
    let end = attempt(&mut sim, &mut a, &b, WRITE, bind.remote(0));
    assert_eq!(end, Some(invalid(WRITE)));
    assert_eq!(memory.to_vec(), [0; 4 * KIB]);
}

#[test]
fn queue_pair_that_is_dropped_leaves_its_windows_to_others() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (a, mut b, region) = with_region(&mut sim);
    let (mut c, mut d) = sim.connected_pair();
    let mut window = d.host().pd().allocate_window().unwrap();
    let bind = window.bind(region.remote(0), 100, WRITE);
    b.post(SendRequest::bind(WrId(1), bind));
    settle(&mut sim, &mut b, &[Done::bind(1)]);
    drop((a, b));
    assert!(!window.query().unwrap().is_valid());
    let again = window.bind(region.remote(0), 100, WRITE);
    d.post(SendRequest::bind(WrId(2), again));
    settle(&mut sim, &mut d, &[Done::bind(2)]);
    let end = attempt(&mut sim, &mut c, &d, WRITE, again.remote(0));
    assert_eq!(end, None);
    window.deallocate().unwrap();
    region.deallocate().unwrap();
}

/// Nothing is placed once the application knows that the window is gone, whatever is on its way.
#[test]
fn window_that_goes_while_the_peer_writes_stops_the_write() {
    for by_work in [false, true] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair();
        let len = 1 << 20;
        let region = b.va_region(len, FOR_WINDOWS, VA);
        let mut window = b.host().pd().allocate_window().unwrap();
        let bind = window.bind(region.remote(0), len as u64, WRITE);
        b.post(SendRequest::bind(WrId(1), bind));
        settle(&mut sim, &mut b, &[Done::bind(1)]);
        a.post_write(1, &pattern(len), bind.remote(0));
        sim.run_for(Duration::from_micros(120));
        if by_work {
            b.post(SendRequest::invalidate(WrId(2), bind.window));
            let done = sim.wait_for("the completion", || b.send_cq().poll().unwrap());
            assert!(done.is_success());
        } else {
            window.deallocate().unwrap();
        }
        let at_that_time = region.bytes().to_vec();
        assert!(at_that_time != vec![0; len], "nothing was placed before");
        assert!(at_that_time != pattern(len), "everything was placed before");
        sim.run_until_idle();
        assert!(region.bytes().to_vec() == at_that_time);
        assert_refused("gone", &a, &b, TermCode::ddp_tagged(0));
    }
}
