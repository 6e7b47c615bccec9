//! Each end of a connection has one event where the application asks for that.

use std::panic::{AssertUnwindSafe, catch_unwind};

use xwarp::attr::QpChange;
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind::{self, Closed, ConnectionReset, Ended, TerminateReceived};
use xwarp::{QpConfig, QpState, SendRequest, Sge, Stag, WrId};
use xwarp_sim_tests::{Sim, SimEnd};

use super::sim;

/// A peer's Terminate for an error of its own.
const LOCAL: AsyncEventKind = TerminateReceived(TermCode::rdmap_local());
/// The same for a message that is too long (RFC 5041 §7.2).
const TOO_LONG: AsyncEventKind = TerminateReceived(TermCode::ddp_untagged(5));

/// Two ends that ask for an event of each end of a connection.
fn connected(sim: &mut Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default().report_ends(true);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect(&mut a, &mut b);
    b.post_recv(1, 4);
    sim.run_until_idle();
    (a, b)
}

fn modify(end: &mut SimEnd, next: QpState) {
    end.qp.modify(QpChange::to(next)).unwrap();
}

fn post_unknown_source(end: &mut SimEnd) {
    let (stag, to, len) = (Stag(0x1234_5678), 0, 100);
    end.post(SendRequest::send(WrId(1), Sge { stag, to, len }));
}

#[test]
fn every_way_out_of_rts_is_one_event() {
    type Case = (
        &'static str,
        fn(&mut SimEnd),
        AsyncEventKind,
        AsyncEventKind,
    );
    #[rustfmt::skip]
    let cases: [Case; 7] = [
        ("source", post_unknown_source, Ended, LOCAL),
        ("too long", |a| a.post_send(1, b"too long"), TOO_LONG, Ended),
        ("Terminate", |a| modify(a, QpState::Terminate), Ended, LOCAL),
        ("Error", |a| modify(a, QpState::Error), Ended, ConnectionReset),
        ("abort", |a| a.qp.abort().unwrap(), Ended, ConnectionReset),
        ("close", |a| a.qp.begin_disconnect().unwrap(), Closed, Closed),
        ("Closing", |a| modify(a, QpState::Closing), Closed, Closed),
    ];
    for (case, end, at_a, at_b) in cases {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_refused_segment"]);
        let (mut a, b) = connected(&mut sim);
        end(&mut a);
        sim.run_until_idle();
        assert_eq!((a.events(), b.events()), (vec![at_a], vec![at_b]), "{case}");
        a.qp.abort().unwrap();
        assert_eq!(a.events(), [], "{case}: it has ended before");
    }
}

#[test]
fn connection_that_ends_with_its_rnic_is_an_event() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (a, _b) = connected(&mut sim);
    let panicked = catch_unwind(AssertUnwindSafe(|| a.host().rnic().inject_panic()));
    assert!(panicked.is_err(), "a manual engine's panic goes on");
    assert_eq!(a.events(), [Ended]);
}
