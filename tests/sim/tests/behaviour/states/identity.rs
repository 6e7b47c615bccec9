//! Identities of queue pairs (verbs draft §6.1.1, §6.1.4, verbs.md A38).

use std::collections::HashSet;

use xwarp::{Opcode, QpConfig, QpState};
use xwarp_sim_tests::Done;

use super::{pair_in, sim};

#[test]
fn no_queue_pair_ever_has_the_id_of_another() {
    let sim = sim();
    let config = QpConfig::default();
    let mut ids = HashSet::new();
    for _ in 0..100 {
        let ends = [sim.a().end(&config), sim.a().end(&config)];
        for end in ends {
            assert!(ids.insert(end.qp.id()));
            assert_eq!(end.qp.query().unwrap().id, end.qp.id());
        }
    }
}

#[test]
fn completion_that_is_read_late_names_its_own_queue_pair() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let (mut a, _b) = pair_in(&mut sim, QpState::Rts);
    a.post_recv(1, 10);
    a.qp.abort().unwrap();
    let (host, old) = (a.host().clone(), a.qp.id());
    let config = QpConfig::default();
    let (pd, rnic) = (host.pd(), host.rnic());
    let cq = rnic.create_cq(4).unwrap();
    let gone = std::mem::replace(&mut a.qp, pd.create_qp(&config, &cq, &cq).unwrap());
    drop(gone);
    let next = host.end(&config);
    let late = a.recv_cq().poll().unwrap().unwrap();
    assert_eq!(late.qp, old);
    assert!(old != a.qp.id() && old != next.qp.id());
    assert_eq!(Done::from(late), Done::flushed(1, Opcode::Receive));
}

#[test]
fn queue_pair_numbers_have_24_bits_and_do_not_come_back_soon() {
    let sim = sim();
    let config = QpConfig::default();
    let mut numbers = HashSet::new();
    for _ in 0..1000 {
        let number = sim.a().end(&config).qp.id().number();
        assert!((2..1 << 24).contains(&number), "{number}");
        assert!(numbers.insert(number), "{number} came back");
    }
}
