//! Queue pairs that move to the engine where a connection has come.

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::AcceptError;
use xwarp::stream::Framing;
use xwarp::{Access, CompletionQueue, QpConfig, QpState, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{Sim, SimEnd};

use super::{PAIRS, engine_of, engines, sim};

const TIMEOUT: Duration = Duration::from_secs(5);

/// What was posted in Idle is taken and sent by the engine that the connection has come to. The
/// first word is the responder's peer's.
#[test]
fn what_was_posted_before_a_queue_pair_moves_is_done_where_it_is_then() {
    let mut sim = sim();
    let mut ends = Vec::new();
    for _ in 0..PAIRS {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        for i in 0..3 {
            a.post_recv(i, 2);
            b.post_recv(i, 2);
            a.post_send(10 + i, b"ab");
            b.post_send(10 + i, b"ba");
        }
        sim.connect_silently(&mut a, &mut b);
        sim.run_until_idle();
        assert_eq!((a.receives().len(), b.receives().len()), (3, 3));
        assert_eq!((a.sends().len(), b.sends().len()), (3, 3));
        assert_eq!((a.buffer(2), b.buffer(2)), (b"ba".to_vec(), b"ab".to_vec()));
        ends.push((a, b));
    }
    // They were created on all engines in turn, and connections come as a hash chooses.
    assert_eq!(engines(ends.iter().map(|(_, b)| b)).len(), super::ENGINES);
}

#[test]
fn queue_pair_that_is_connected_does_not_move() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair();
    let at = b.host().at(sim.new_port());
    let mut listener = b.host().rnic().listen(at).unwrap();
    let mut others = Vec::new();
    for _ in 0..PAIRS {
        let mut other = sim.a().end(&QpConfig::default());
        let connecting = other.qp.begin_connect(at, b"", TIMEOUT).unwrap();
        let request = sim.wait_for("a request", || listener.try_accept().unwrap());
        let refused = request.accept(&mut b.qp, b"");
        assert_eq!(refused, Err(AcceptError::InvalidState(QpState::Rts)));
        others.push((other, connecting));
    }
    b.post_recv(1, 1);
    a.post_send(1, b"x");
    sim.run_until_idle();
    assert_eq!(b.receives().len(), 1);
}

/// Streams come to any engine, and take their queue pairs there.
#[test]
fn stream_is_handed_over_on_the_engine_that_has_it() {
    let mut sim = sim();
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let mut ends = Vec::new();
    for _ in 0..PAIRS {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let mut connecting = sim.a().rnic().begin_connect_stream(at, TIMEOUT).unwrap();
        let mut near = sim
            .wait_for("a stream", || connecting.try_finish())
            .unwrap();
        let mut far = sim.wait_for("a stream", || listener.try_accept().unwrap());
        near.write(b"hello").unwrap();
        sim.run_until_idle();
        let mut heard = [0; 9];
        assert_eq!(far.read(&mut heard).unwrap(), 5);
        b.post_recv(1, 1);
        b.qp.modify(QpChange::start(&far, Framing::default()))
            .unwrap();
        a.qp.modify(QpChange::start(&near, Framing::default()))
            .unwrap();
        a.post_send(1, b"x");
        sim.run_until_idle();
        assert_eq!((a.sends().len(), b.receives().len()), (1, 1));
        assert_eq!(
            (engine_of(&a), engine_of(&b)),
            (near.id().engine(), far.id().engine())
        );
        ends.push((a, b));
    }
    assert_eq!(engines(ends.iter().map(|(a, _)| a)).len(), super::ENGINES);
    assert_eq!(engines(ends.iter().map(|(_, b)| b)).len(), super::ENGINES);
}

/// B's queue pair, on a completion queue that others use, too.
fn reused(sim: &Sim, cq: &CompletionQueue) -> SimEnd {
    let mut end = sim.b().end(&QpConfig::default());
    end.qp = sim
        .b()
        .pd()
        .create_qp(&QpConfig::default(), cq, cq)
        .unwrap();
    end
}

/// Connects a new peer to B's queue pair, which takes messages from there on and then fails.
fn connect_and_abort(sim: &mut Sim, b: &mut SimEnd, next: &mut u64) -> usize {
    let mut a = sim.a().end(&QpConfig::default());
    let buffer = b.region(8, Access::LOCAL_WRITE);
    let mut post = |b: &mut SimEnd| {
        let sge = buffer.local(0, 1);
        b.qp.post_recv(RecvRequest::new(WrId(*next), sge)).unwrap();
        *next += 1;
    };
    (0..3).for_each(|_| post(b));
    sim.connect_silently(&mut a, b);
    let engine = engine_of(b);
    a.post(SendRequest::send(WrId(0), xwarp::work::Sgl::new()));
    sim.run_until_idle();
    b.qp.abort().unwrap();
    b.qp.modify(QpChange::to(QpState::Idle)).unwrap();
    sim.run_until_idle();
    engine
}

#[test]
fn completions_of_a_queue_pair_that_has_moved_come_in_the_order_of_posting() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let mut cq = sim.b().rnic().create_cq(1000).unwrap();
    let mut ends = [(); 3].map(|()| (reused(&sim, &cq), 0, Vec::new()));
    for _ in 0..10 {
        for (end, next, engines) in &mut ends {
            engines.push(connect_and_abort(&mut sim, end, next));
        }
    }
    let moves = |engines: &Vec<usize>| engines.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(ends.iter().all(|(.., engines)| moves(engines) > 2));
    let polled: Vec<_> = std::iter::from_fn(|| cq.poll().unwrap()).collect();
    for (end, next, _) in &ends {
        let its = polled.iter().filter(|it| it.qp == end.qp.id());
        let ids: Vec<u64> = its.map(|it| it.wr_id.0).collect();
        assert_eq!(ids, (0..*next).collect::<Vec<_>>());
    }
}
