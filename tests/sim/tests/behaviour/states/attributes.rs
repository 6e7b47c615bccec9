//! Attributes of a queue pair: Query QP, and depths that change (verbs draft §6.5, §9.2.5.2,
//! §9.2.5.3).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{CapabilityError, InboundError, ModifyError};
use xwarp::event::AsyncEventKind;
use xwarp::{Opcode, QpConfig, QpState};
use xwarp_sim_tests::{Done, SimEnd};

use super::{pair_in, sim};

const READS: usize = 20;

fn read_all(sim: &mut xwarp_sim_tests::Sim, a: &mut SimEnd, b: &SimEnd) -> Vec<Done> {
    let (sink, source) = (a.target(1000 * READS), b.target(1000));
    for id in 0..READS {
        a.post_read(id as u64, sink.local(1000 * id, 1000), source.remote(0));
    }
    sim.run_until_idle();
    a.sends()
}

fn all_read() -> Vec<Done> {
    (0..READS).map(|id| Done::read(id as u64, 1000)).collect()
}

#[test]
fn query_tells_what_a_queue_pair_was_created_with() {
    let mut sim = sim();
    let config = QpConfig::default()
        .send_depth(7)
        .recv_depth(9)
        .ord(3)
        .ird(5)
        .inbound_write(false)
        .bind_windows(false)
        .send_sge(1)
        .write_sge(2)
        .recv_sge(3)
        .privileged(true);
    let mut end = sim.a().end(&config);
    let info = end.qp.query().unwrap();
    assert_eq!((info.id, info.state), (end.qp.id(), QpState::Idle));
    assert_eq!(info.pd, end.host().pd().id());
    assert_eq!(info.send_cq, end.send_cq().id());
    assert_eq!(info.recv_cq, end.recv_cq().id());
    assert_eq!((info.send_depth, info.recv_depth), (7, 9));
    assert_eq!((info.send_sge, info.write_sge, info.recv_sge), (1, 2, 3));
    assert_eq!(info.rq_limit, None, "no receive queue is shared");
    assert_eq!((info.ord, info.ird), (3, 5));
    assert!(info.privileged && info.inbound_read);
    assert!(!info.inbound_write && !info.bind_windows);
    assert_eq!((info.terminate, info.stream), (None, None));

    let closed = QpConfig::default().ird(0);
    let info = sim.a().end(&closed).qp.query().unwrap();
    assert!(!info.privileged && !info.inbound_read);
    assert!(info.inbound_write && info.bind_windows);
    sim.run_until_idle();
}

#[test]
fn connected_queue_pair_has_a_stream_that_no_other_has() {
    let mut sim = sim();
    let (a, _b) = sim.connected_pair();
    let (c, _d) = sim.connected_pair();
    let [a, c] = [&a, &c].map(|end| end.qp.query().unwrap());
    assert!(a.stream.is_some() && c.stream.is_some() && a.stream != c.stream);
    assert_eq!(a.state, QpState::Rts);
}

#[test]
fn depths_are_changed_in_idle_and_brought_to_the_next_connection() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Idle);
    let changed = a.qp.modify(QpChange::to(QpState::Idle).ord(3).ird(40));
    let depths = changed.unwrap();
    assert_eq!((depths.send_depth, depths.recv_depth), (128, 128));
    assert_eq!((depths.ord, depths.ird), (3, 40));
    let info = a.qp.query().unwrap();
    assert_eq!((info.ord, info.ird), (3, 40));
    sim.connect(&mut a, &mut b);
    assert_eq!((a.qp.ord(), a.qp.ird()), (3, 40));
    assert_eq!((b.qp.ord(), b.qp.ird()), (32, 3));
    assert_eq!(read_all(&mut sim, &mut a, &b), all_read());
}

#[test]
fn smaller_ord_keeps_to_a_smaller_ird() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    for depth in [5, 1] {
        a.qp.modify(QpChange::to(QpState::Rts).ord(depth)).unwrap();
        b.qp.modify(QpChange::to(QpState::Rts).ird(depth)).unwrap();
        assert_eq!((a.qp.ord(), b.qp.ird()), (depth, depth));
        assert_eq!(read_all(&mut sim, &mut a, &b), all_read());
    }
    for depth in [2, 100] {
        b.qp.modify(QpChange::to(QpState::Rts).ird(depth)).unwrap();
        a.qp.modify(QpChange::to(QpState::Rts).ord(depth)).unwrap();
        assert_eq!(read_all(&mut sim, &mut a, &b), all_read());
    }
    assert_eq!(a.qp.query().unwrap().ord, 100);
}

/// More than the connection began with.
#[test]
fn larger_ord_lets_as_many_reads_be_outstanding_at_once() {
    let mut sim = sim().one_way_delay(Duration::from_millis(1));
    let few = QpConfig::default().ord(1);
    let (mut a, mut b) = (sim.a().end(&few), sim.b().end(&QpConfig::default()));
    sim.connect(&mut a, &mut b);
    a.qp.modify(QpChange::to(QpState::Rts).ord(9)).unwrap();
    b.qp.modify(QpChange::to(QpState::Rts).ird(9)).unwrap();
    let (sink, source) = (a.target(9), b.target(9));
    source.fill(b"nine read");
    let requests = |b: &SimEnd| b.host().rnic().counters().unwrap().rdma.fpdus_in;
    let before = requests(&b);
    for i in 0..9 {
        let at = usize::try_from(i).unwrap();
        a.post_read(i, sink.local(at, 1), source.remote(at));
    }
    sim.run_for(Duration::from_micros(1100));
    assert_eq!(
        requests(&b) - before,
        9,
        "before the first response is here"
    );
    sim.run_until_idle();
    let done: Vec<Done> = (0..9).map(|i| Done::read(i, 1)).collect();
    assert_eq!(a.sends(), done);
    assert_eq!(sink.to_vec(), b"nine read");
}

#[test]
fn more_reads_than_a_smaller_ird_end_the_connection() {
    let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (mut a, mut b) = pair_in(&mut sim, QpState::Rts);
    let (mut c, d) = sim.connected_pair();
    b.qp.modify(QpChange::to(QpState::Rts).ird(1)).unwrap();
    read_all(&mut sim, &mut a, &b);
    let events = b.events();
    assert!(
        matches!(
            events[..],
            [AsyncEventKind::Terminated { error: InboundError::TooManyRequests, code, .. }]
                if (code.layer(), code.etype(), code.code()) == (1, 2, 3)
        ),
        "{events:?}"
    );
    assert_eq!(
        read_all(&mut sim, &mut c, &d),
        all_read(),
        "others do not notice"
    );
}

#[test]
fn ord_of_none_fails_a_read() {
    let mut sim = sim();
    let (mut a, b) = pair_in(&mut sim, QpState::Rts);
    a.qp.modify(QpChange::to(QpState::Rts).ord(0)).unwrap();
    let done = read_all(&mut sim, &mut a, &b);
    let status = xwarp::CompletionStatus::ZeroReadResources;
    assert_eq!(done[0], Done::failed(0, Opcode::Read, status));
    let flushed = |id| Done::flushed(id as u64, Opcode::Read);
    assert_eq!(done[1..], (1..READS).map(flushed).collect::<Vec<Done>>());
    assert_eq!(a.ended_with(), Some(xwarp::error::TermCode::rdmap_local()));
}

#[test]
fn one_attribute_that_cannot_be_changed_leaves_all_as_they_were() {
    let closed = QpConfig::default().ird(0);
    let mut sim = sim();
    let mut ends = [sim.a().end(&closed), pair_in(&mut sim, QpState::Rts).0];
    for end in &mut ends {
        let before = end.qp.query().unwrap();
        let change = QpChange::to(before.state).ord(1);
        let capability = |what| {
            ModifyError::Capability(CapabilityError::check(what, 1025, 0, 1024).unwrap_err())
        };
        let refused = |end: &mut SimEnd, change| end.qp.modify(change).unwrap_err();
        assert_eq!(refused(end, change.clone().ird(1025)), capability("IRD"));
        assert_eq!(
            refused(end, change.clone().ird(1).ord(1025)),
            capability("ORD")
        );
        if before.ird == 0 {
            let error = refused(end, change.ird(1));
            assert!(matches!(error, ModifyError::CannotChange(_)), "{error}");
        }
        assert_eq!(end.qp.query().unwrap(), before);
    }
}

#[test]
fn depths_cannot_be_changed_while_a_connection_is_made() {
    let mut sim = sim();
    let (mut a, mut b) = pair_in(&mut sim, QpState::Idle);
    let at = b.host().at(sim.new_port());
    let mut listener = b.host().rnic().listen(at).unwrap();
    let limit = std::time::Duration::from_secs(10);
    let mut connecting = a.qp.begin_connect(at, b"", limit).unwrap();
    let change = QpChange::to(QpState::Idle).ord(1);
    assert_eq!(a.qp.modify(change), Err(ModifyError::Connecting));
    let request = sim.wait_for("a request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, b"").unwrap();
    sim.wait_for("the answer", || connecting.try_finish())
        .unwrap();
    assert_eq!(a.qp.ord(), 32);
}
