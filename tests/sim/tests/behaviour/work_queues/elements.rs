//! Scatter/gather elements: how many a list may have, as each queue was created (verbs draft
//! §8.1.3.2, §9.2.4.1, §9.2.5.1).

use xwarp::error::PostError;
use xwarp::work::{MAX_SGE, Sgl};
use xwarp::{Access, QpConfig, RecvRequest, RemoteAddress, SendRequest, Sge, SrqConfig, WrId};
use xwarp_sim_tests::{Done, SimEnd, pattern};

use super::{end_with_srq, sim};

const LEN: usize = 10;

fn config(send_sge: usize, write_sge: usize, recv_sge: usize) -> QpConfig {
    QpConfig::default()
        .send_sge(send_sge)
        .write_sge(write_sge)
        .recv_sge(recv_sge)
}

/// Elements of a region of its host, one after the other.
fn pieces(end: &mut SimEnd, n: usize) -> Sgl {
    (pattern(LEN * n).chunks(LEN).map(|it| end.source(it))).collect()
}

fn too_many(elements: usize, max: usize) -> Result<(), PostError> {
    Err(PostError::TooManyElements { elements, max })
}

/// Posts Sends and Writes of every list that is longer than these two numbers of elements.
fn assert_longer_lists_refused(a: &mut SimEnd, [send, write]: [usize; 2], to: RemoteAddress) {
    let before = a.qp.query().unwrap();
    for n in 1..=MAX_SGE {
        let list = pieces(a, n);
        let immediate = SendRequest::write_immediate(WrId(9), list.clone(), to, [0; 8]);
        let requests = [
            (send, SendRequest::send(WrId(9), list.clone())),
            (send, SendRequest::send(WrId(9), list.clone()).solicited()),
            (write, SendRequest::write(WrId(9), list, to)),
            (write, immediate),
        ];
        for (max, request) in requests {
            if n > max {
                assert_eq!(a.qp.post_send(request), too_many(n, max));
            }
        }
    }
    assert_eq!(a.qp.query().unwrap(), before);
}

#[test]
fn list_may_have_as_many_elements_as_its_queue_was_created_for_and_no_more() {
    for [send, write, recv] in [[0, 1, 2], [1, 2, 3], [2, 4, 5], [5, 16, 0], [16, 0, 15]] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair_with(&config(send, write, recv));
        let info = a.qp.query().unwrap();
        let told = [info.send_sge, info.write_sge, info.recv_sge];
        assert_eq!(told, [send, write, recv]);
        let target = b.target(LEN * MAX_SGE);
        let sinks = |n| -> Sgl { (0..n).map(|i| target.local(LEN * i, LEN)).collect() };
        assert_longer_lists_refused(&mut a, [send, write], target.remote(0));
        for n in recv + 1..=MAX_SGE {
            let refused = b.qp.post_recv(RecvRequest::new(WrId(9), sinks(n)));
            assert_eq!(refused, too_many(n, recv));
        }
        let text = pattern(LEN * send.min(recv));
        b.qp.post_recv(RecvRequest::new(WrId(1), sinks(recv)))
            .unwrap();
        let list: Sgl = pieces(&mut a, send)[..send.min(recv)].into();
        a.post(SendRequest::send(WrId(1), list));
        sim.run_until_idle();
        assert_eq!(target.to_vec()[..text.len()], text);
        let list = pieces(&mut a, write);
        a.post(SendRequest::write(WrId(2), list, target.remote(0)));
        sim.run_until_idle();
        assert_eq!(target.to_vec()[..LEN * write], pattern(LEN * write));
        let done = [Done::send(1, text.len()), Done::write(2, LEN * write)];
        assert_eq!(a.sends(), done, "nothing of what was refused");
        assert_eq!(b.receives(), [Done::receive(1, text.len())]);
    }
}

#[test]
fn work_without_a_list_needs_no_elements() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair_with(&config(0, 0, 0));
    let (sink, source) = (a.target(8), b.target(8));
    source.fill(b"8 bytes!");
    b.qp.post_recv(RecvRequest::new(WrId(1), Sgl::new()))
        .unwrap();
    a.post_read(1, sink.local(0, 8), source.remote(0));
    a.post(SendRequest::immediate(WrId(2), [0; 8]));
    a.post(SendRequest::fetch_add(WrId(3), 0, source.remote(0)));
    sim.run_until_idle();
    let done = [Done::read(1, 8), Done::immediate(2), Done::fetch_add(3)];
    assert_eq!(a.sends(), done);
    assert_eq!(sink.to_vec(), b"8 bytes!");
}

#[test]
fn list_of_requests_ends_where_one_has_too_many_elements() {
    let mut sim = sim();
    let (mut a, mut b) = sim.connected_pair_with(&config(2, 4, 4));
    (0..4).for_each(|id| b.post_recv(id, 100));
    let requests: Vec<SendRequest> = [1, 2, 3, 1]
        .map(|n| SendRequest::send(WrId(n as u64), pieces(&mut a, n)))
        .into();
    let refused = a.qp.post_send_list(requests).unwrap_err();
    assert_eq!((refused.posted, Err(refused.error)), (2, too_many(3, 2)));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(1, LEN), Done::send(2, 2 * LEN)]);
}

#[test]
fn shared_receive_queue_has_a_maximum_of_its_own() {
    for sge in 0..=MAX_SGE {
        let mut sim = sim();
        let config = SrqConfig::default().sge(sge);
        let mut srq = sim.b().pd().create_srq(config).unwrap();
        assert_eq!(srq.query().unwrap().sge, sge);
        // That of the queue pair is not looked at.
        let takes = QpConfig::default().recv_sge(MAX_SGE + 1);
        let mut a = sim.a().end(&QpConfig::default());
        let mut b = end_with_srq(&sim.b(), &takes, &srq);
        assert_eq!(b.qp.query().unwrap().recv_sge, 0);
        sim.connect(&mut a, &mut b);
        let region = sim.b().region(LEN * MAX_SGE, Access::LOCAL_WRITE);
        let piece = |i: usize| -> Sge { region.local((LEN * i) as u64, 10) };
        let sinks = |n| RecvRequest::new(WrId(1), (0..n).map(piece).collect::<Sgl>());
        for n in sge + 1..=MAX_SGE {
            assert_eq!(srq.post_recv(sinks(n)), too_many(n, sge));
        }
        srq.post_recv(sinks(sge)).unwrap();
        let (list, bytes) = (pieces(&mut a, sge), LEN * sge);
        a.post(SendRequest::send(WrId(1), list));
        sim.run_until_idle();
        assert_eq!(b.receives(), [Done::receive(1, bytes)]);
        assert_eq!(region.bytes().to_vec()[..bytes], pattern(bytes));
    }
}
