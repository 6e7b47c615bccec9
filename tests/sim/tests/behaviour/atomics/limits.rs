//! Limits of outstanding requests: Reads and Atomic Operations share one credit (R7306-5.2-1).

use std::time::Duration;

use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::{PostError, TermCode};
use xwarp::event::AsyncEventKind;
use xwarp::{CompletionStatus, Opcode, QpConfig, QpState, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim};
use xwarp_test_kit::cases;
use xwarp_test_kit::netsim::Seed;

use super::{completions, holding, number, originals, post_add, sim};

fn depths(ord: u16, ird: u16) -> QpConfig {
    QpConfig::default().ord(ord).ird(ird)
}

/// The peer would end the connection if there were one more than its IRD.
#[test]
fn reads_and_atomics_beyond_ord_wait_for_each_other() {
    for depth in cases([1, 2, 3]) {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair_with(&depths(depth, depth));
        let (target, sink) = (b.target(8), a.target(8));
        for i in 0..20 {
            if i % 3 == 0 {
                a.post_read(i, sink.local(0, 8), target.remote(0));
            } else {
                post_add(&mut a, i, 1, target.remote(0));
            }
        }
        sim.run_until_idle();
        let done = completions(&mut a);
        assert_eq!(done.len(), 20);
        assert_eq!(originals(&done), (0..13).collect::<Vec<u64>>());
        assert_eq!(number(&target), 13);
        assert_eq!(b.state(), QpState::Rts);
    }
}

#[test]
fn more_than_the_peer_offers_end_the_stream() {
    let all = [
        (2, TermCode::ddp_untagged(3)),
        (0, TermCode::ddp_untagged(1)),
    ];
    for (ird, code) in cases(all) {
        // Revision 1: revision 2 would negotiate the depths, so that the requester keeps to B's
        // IRD.
        let mpa = MpaConfig::default().max_revision(Revision::One);
        let mut sim = Sim::with_mpa(Seed(31), mpa, mpa)
            .one_way_delay(Duration::from_micros(50))
            .expecting(&["drop_refused_segment", "drop_after_failure"]);
        let mut a = sim.a().end(&depths(8, 8));
        let mut b = sim.b().end(&depths(8, ird));
        sim.connect(&mut a, &mut b);
        let target = holding(&b, 5);
        for i in 0..8 {
            post_add(&mut a, i, 1, target.remote(0));
        }
        sim.run_until_idle();
        assert_eq!(a.events(), [AsyncEventKind::TerminateReceived(code)]);
        let done = a.sends();
        assert_eq!(done.len(), 8);
        assert_eq!(done[7], Done::flushed(7, Opcode::FetchAdd), "IRD {ird}");
        assert!(number(&target) <= 5 + u64::from(ird));
    }
}

#[test]
fn atomic_where_none_may_be_outstanding_fails() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair_with(&depths(0, 8));
    let target = holding(&b, 5);
    post_add(&mut a, 1, 1, target.remote(0));
    sim.run_until_idle();
    let status = CompletionStatus::ZeroReadResources;
    assert_eq!(a.sends(), [Done::failed(1, Opcode::FetchAdd, status)]);
    assert_eq!(number(&target), 5);
}

#[test]
fn queue_pair_without_the_extensions_takes_no_such_work() {
    let mut sim = sim();
    let config = QpConfig::default().rfc7306(false);
    let (mut a, b) = sim.connected_pair_with(&config);
    let target = b.target(8);
    let remote = target.remote(0);
    let requests = [
        SendRequest::fetch_add(WrId(1), 1, remote),
        SendRequest::swap(WrId(2), 1, remote),
        SendRequest::immediate(WrId(3), [0; 8]),
        SendRequest::write_immediate(WrId(4), xwarp::work::Sgl::new(), remote, [0; 8]),
    ];
    for request in requests {
        let refused = a.qp.post_send(request);
        assert_eq!(refused, Err(PostError::ExtensionsDisabled));
    }
    a.post_write(5, b"fine", remote);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(5, 4)]);
}
