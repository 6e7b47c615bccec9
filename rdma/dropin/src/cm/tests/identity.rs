//! Queue pairs and connections in turn: an event of one never reaches the next.

use crate::abi::cm::rdma_cm_id;
use crate::abi::numbers::{IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS};
use crate::cm::connecting::rdma_disconnect;
use crate::cm::id::put;
use crate::cm::life::rdma_destroy_id;
use crate::cm::numbers::EventKind::{Disconnected, Established};
use crate::cm::qp::rdma_destroy_qp;
use crate::cm::testbed::{Bed, await_state, exchange, found, modify, shown, state};
use crate::verbs::qp::ibv_destroy_qp;

#[test]
fn connections_that_come_and_go_have_no_end_but_their_own() {
    const CONNECTIONS: usize = 400;
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let mut last = None;
    for number in 0..CONNECTIONS {
        let ends = bed.connect(listener);
        assert!(bed.a.is_quiet() && state(ends.a) == IBV_QPS_RTS, "{number}");
        // The former connection of B has ended meanwhile. B's event is reported before or after it
        // is destroyed.
        if number % 2 == 0 {
            assert_eq!(rdma_disconnect(ends.a), 0);
        }
        rdma_destroy_qp(ends.a);
        assert_eq!(rdma_destroy_id(ends.a), 0);
        bed.b.expect(Disconnected, ends.b);
        if let Some(former) = last.replace(ends.b) {
            rdma_destroy_qp(former);
            assert_eq!(rdma_destroy_id(former), 0);
        }
    }
}

/// Programs also destroy the queue pair of an identifier by the verb.
#[test]
fn identifier_whose_queue_pair_is_gone_leaves_the_next_one_alone() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let first = bed.connect(listener);
    assert_eq!(ibv_destroy_qp(shown(first.a, |it| it.qp)), 0);
    bed.a.expect(Disconnected, first.a);
    bed.b.expect(Disconnected, first.b);
    let second = bed.connect(listener);
    assert_eq!(rdma_disconnect(first.a), 0, "it has ended already");
    assert_eq!(rdma_destroy_id(first.a), 0);
    exchange(second);
    assert!(bed.a.is_quiet() && bed.b.is_quiet());
}

/// The memory of a queue pair becomes that of another one.
#[test]
fn state_is_shown_in_the_struct_of_the_connection_that_has_it() {
    let bed = Bed::new();
    let listener = bed.b.listening(8);
    let (first, second) = (bed.connect(listener), bed.connect(listener));
    let own = shown(first.a, |it| it.qp);
    let other = shown(second.a, |it| it.qp);
    put!(found(first.a), qp, other);
    assert_eq!(ibv_destroy_qp(own), 0);
    bed.a.expect(Disconnected, first.a);
    // SAFETY: the queue pair lives.
    assert_eq!(unsafe { (*other).state }, IBV_QPS_RTS);
    exchange(second);
}

/// A queue pair has its next connection before the end of the first is reported.
#[test]
fn end_of_a_former_connection_spares_the_next_one_of_the_queue_pair() {
    let ends: [fn(*mut rdma_cm_id); 2] = [
        |a| assert_eq!(rdma_disconnect(a), 0),
        |a| {
            modify(a, IBV_QPS_ERR);
            modify(a, IBV_QPS_RESET);
        },
    ];
    for end in ends {
        let bed = Bed::new();
        let listener = bed.b.listening(8);
        let first = bed.connect(listener);
        let held = bed.hold_up_a();
        end(first.a);
        bed.b.expect(Disconnected, first.b);
        let second = bed.a.connecting_by(first.a);
        let b = bed.b.requested(listener);
        bed.b.accept(b);
        await_state(first.a, IBV_QPS_RTS);
        drop(held);
        bed.a.expect(Disconnected, first.a);
        bed.a.expect(Established, second);
        assert_eq!(state(first.a), IBV_QPS_RTS);
        assert!(bed.a.is_quiet() && bed.b.is_quiet());
    }
}
