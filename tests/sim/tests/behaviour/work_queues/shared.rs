//! Queue pairs with a shared receive queue: their send queue and the domain that counts stay the
//! same (verbs draft §6.3, §7.6.3).

use std::time::Duration;

use xwarp::work::Operation;
use xwarp::{
    Access, CompletionStatus, Opcode, ProtectionDomain, QpConfig, QpState, RecvRequest,
    SendRequest, SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_sim_tests::{Done, Sim, SimEnd};

use super::{end_with_srq, sim};

fn srq_of(pd: &ProtectionDomain) -> SharedReceiveQueue {
    pd.create_srq(SrqConfig::default()).unwrap()
}

/// B takes its buffers from `srq`; both can be reached by all rights.
fn pair(sim: &mut Sim, srq: &SharedReceiveQueue) -> (SimEnd, SimEnd) {
    let mut a = sim.a().end(&QpConfig::default());
    let mut b = end_with_srq(&sim.b(), &QpConfig::default(), srq);
    sim.connect(&mut a, &mut b);
    (a, b)
}

/// Of a region in the domain of the queue pair and of one in that of its shared receive queue: how
/// `attempt` ends.
fn in_either_domain(
    attempt: impl Fn(&mut Sim, &mut SimEnd, &mut SimEnd, &xwarp::MemoryRegion) -> bool,
) -> [bool; 2] {
    [true, false].map(|of_pair| {
        let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
        let pd = sim.b().rnic().allocate_pd().unwrap();
        let srq = srq_of(&pd);
        let (mut a, mut b) = pair(&mut sim, &srq);
        let region = if of_pair {
            b.region(8, Access::all())
        } else {
            b.host().region_in(&pd, 8, Access::all())
        };
        let done = attempt(&mut sim, &mut a, &mut b, &region);
        let state = if done { QpState::Rts } else { QpState::Error };
        assert_eq!(b.state(), state);
        done
    })
}

/// How the only work request of `end` has ended.
fn done(sim: &mut Sim, end: &mut SimEnd, refused: CompletionStatus) -> bool {
    sim.run_until_idle();
    let done = end.sends();
    assert_eq!(done.len(), 1, "{done:?}");
    let outcome = done[0].outcome;
    assert!([Ok(8), Err(refused)].contains(&outcome), "{outcome:?}");
    outcome.is_ok()
}

#[test]
fn all_but_its_buffers_is_of_the_queue_pairs_own_domain() {
    let invalid = CompletionStatus::InvalidPd;
    let sends = in_either_domain(|sim, a, b, region| {
        a.post_recv(1, 8);
        b.post(SendRequest::send(WrId(1), region.local(0, 8)));
        done(sim, b, invalid)
    });
    let writes = in_either_domain(|sim, a, b, region| {
        let target = a.target(8);
        b.post(SendRequest::write(
            WrId(1),
            region.local(0, 8),
            target.remote(0),
        ));
        done(sim, b, invalid)
    });
    let sinks = in_either_domain(|sim, a, b, region| {
        let source = a.target(8);
        b.post_read(1, region.local(0, 8), source.remote(0));
        done(sim, b, invalid)
    });
    // Of what comes in: a Write, a Read Request.
    let targets = in_either_domain(|sim, a, _, region| {
        a.post_write(1, b"8 bytes!", region.remote(0));
        sim.run_until_idle();
        let placed = region.bytes().to_vec() == b"8 bytes!";
        assert_eq!(placed, a.state() == QpState::Rts);
        placed
    });
    let sources = in_either_domain(|sim, a, _, region| {
        let sink = a.target(8);
        a.post_read(1, sink.local(0, 8), region.remote(0));
        done(sim, a, CompletionStatus::RemoteTermination)
    });
    assert_eq!([sends, writes, sinks, targets, sources], [[true, false]; 5]);
}

#[test]
fn buffers_stag_is_invalidated_only_if_both_are_of_one_domain() {
    for same in [true, false] {
        let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
        let (host, other) = (sim.b(), sim.b().rnic().allocate_pd().unwrap());
        let pd = if same { host.pd() } else { &other };
        let mut srq = srq_of(pd);
        let (mut a, mut b) = pair(&mut sim, &srq);
        let region = host.region_in(pd, 8, Access::all());
        let buffer = RecvRequest::new(WrId(1), region.local(0, 8));
        srq.post_recv(buffer).unwrap();
        let source = a.source(b"8 bytes!");
        let operation = Operation::Send {
            payload: source.into(),
            solicited: false,
            invalidate: Some(region.stag()),
        };
        a.post(SendRequest::new(WrId(1), operation));
        sim.run_until_idle();
        let refused = CompletionStatus::InvalidateRefused;
        let expected = if same {
            Done::receive(1, 8)
        } else {
            Done::failed(1, Opcode::Receive, refused)
        };
        assert_eq!(b.receives(), [expected]);
        assert_eq!(region.query().unwrap().is_valid(), !same);
    }
}

#[test]
fn buffers_of_a_queue_that_is_destroyed_are_never_used_again() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let host = sim.b();
    let mut srq = srq_of(host.pd());
    let (a, b) = pair(&mut sim, &srq);
    let gone = host.target(8);
    gone.fill(b"not used");
    for id in 0..4 {
        let buffer = RecvRequest::new(WrId(id), gone.local(0, 8));
        srq.post_recv(buffer).unwrap();
    }
    drop((a, b));
    assert!(srq.destroy().is_ok());
    // The next one has its place.
    let mut srq = srq_of(host.pd());
    let (mut a, mut b) = pair(&mut sim, &srq);
    let buffer = host.target(8);
    for id in 10..14 {
        let request = RecvRequest::new(WrId(id), buffer.local(0, 8));
        srq.post_recv(request).unwrap();
        a.post_send(id, b"8 bytes!");
        sim.run_for(Duration::from_millis(1));
        assert_eq!(b.receives(), [Done::receive(id, 8)]);
    }
    assert_eq!(
        (gone.to_vec(), buffer.to_vec()),
        (b"not used".to_vec(), b"8 bytes!".to_vec())
    );
}
