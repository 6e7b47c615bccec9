//! The end of an RNIC with several engines: what befalls one befalls all.

use xwarp::QpState;
use xwarp::event::{AsyncEventKind, EventResource};
use xwarp_driver::net::InterfaceEnd;
use xwarp_sim_tests::Side;

use super::{pairs, sim};

#[test]
fn interface_that_is_gone_ends_the_connections_of_all_engines_and_is_told_once() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let pairs = pairs(&mut sim);
    sim.a()
        .end_interface(InterfaceEnd::Deleted("eth1".to_owned()));
    sim.run_until_idle();
    for (a, b) in &pairs {
        assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
    }
    let told = sim.a().other_events();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(matches!(told[0].kind, AsyncEventKind::Failed { .. }));
    assert_eq!(told[0].resource, EventResource::Rnic);
}

#[test]
fn engines_all_follow_the_interface() {
    let mut sim = sim();
    let mut pairs = pairs(&mut sim);
    sim.a().change_interface(|link| link.up = false);
    sim.run_for(std::time::Duration::from_secs(1));
    for (a, b) in &mut pairs {
        b.post_recv(1, 1);
        a.post_send(1, b"x");
    }
    sim.run_for(std::time::Duration::from_secs(1));
    assert!(pairs.iter_mut().all(|(_, b)| b.receives().is_empty()));
    sim.a().change_interface(|link| link.up = true);
    sim.run_until_idle();
    assert!(pairs.iter_mut().all(|(_, b)| b.receives().len() == 1));
}

#[test]
fn close_resets_the_connections_of_all_engines() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let pairs = pairs(&mut sim);
    sim.a().rnic().close().unwrap();
    sim.remove(Side::A);
    sim.run_until_idle();
    for (a, b) in &pairs {
        assert_eq!((a.state(), b.state()), (QpState::Error, QpState::Error));
        assert_eq!(b.events(), [AsyncEventKind::ConnectionReset]);
    }
}
