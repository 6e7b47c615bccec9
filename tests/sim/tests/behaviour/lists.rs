//! Lists of work requests (verbs draft §8.2.1), and fences between them (§8.2.2.2).

use std::time::Duration;

use xwarp::error::{PostError, PostListError};
use xwarp::work::Sgl;
use xwarp::{
    Access, Opcode, QpConfig, QpState, RecvRequest, SendRequest, Sge, SrqConfig, Stag, WrId,
};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

fn pair(depth: usize) -> (Sim, SimEnd, SimEnd) {
    let mut sim = Sim::new(Seed(71)).one_way_delay(Duration::from_micros(50));
    let config = QpConfig::default()
        .send_depth(depth)
        .recv_depth(depth)
        .rfc7306(false);
    let (a, b) = sim.connected_pair_with(&config);
    sim.run_until_idle();
    (sim, a, b)
}

fn send(wr_id: u64) -> SendRequest {
    SendRequest::send(WrId(wr_id), Sgl::new())
}

fn buffer(wr_id: u64) -> RecvRequest {
    RecvRequest::new(WrId(wr_id), Sgl::new())
}

/// How many were posted, and why the next one was not.
fn refused(outcome: Result<usize, PostListError>) -> (usize, PostError) {
    let refused = outcome.expect_err("a request that cannot be posted");
    (refused.posted, refused.error)
}

#[test]
fn lists_are_posted_in_their_order_one_slot_each() {
    let (mut sim, mut a, mut b) = pair(16);
    assert_eq!(b.qp.post_recv_list((0..16).map(buffer)), Ok(16));
    let full = PostError::TooManyWorkRequests(16);
    assert_eq!(b.qp.post_recv(buffer(16)), Err(full));
    assert_eq!(a.qp.post_send_list((0..16).map(send)), Ok(16));
    assert_eq!(a.qp.post_send(send(16)), Err(full));
    sim.run_until_idle();
    assert!(a.sends().into_iter().eq((0..16).map(|i| Done::send(i, 0))));
    assert!(
        b.receives()
            .into_iter()
            .eq((0..16).map(|i| Done::receive(i, 0)))
    );
    assert_eq!(a.qp.post_send_list([]), Ok(0));
}

#[test]
fn list_of_different_work_completes_in_its_order() {
    let (mut sim, mut a, mut b) = pair(16);
    let (near, far) = (a.target(8), b.target(8));
    b.post_recv(1, 8);
    let sge = near.local(0, 8);
    let list = [
        SendRequest::read(WrId(1), sge, far.remote(0)),
        SendRequest::write(WrId(2), sge, far.remote(0)),
        SendRequest::send(WrId(3), sge),
        SendRequest::read(WrId(4), sge, far.remote(0)),
    ];
    assert_eq!(a.qp.post_send_list(list), Ok(4));
    sim.run_until_idle();
    let done = [
        Done::read(1, 8),
        Done::write(2, 8),
        Done::send(3, 8),
        Done::read(4, 8),
    ];
    assert_eq!(a.sends(), done);
}

#[test]
fn list_that_is_posted_as_a_whole_leaves_nothing_behind_if_it_fails() {
    let (mut sim, mut a, mut b) = pair(4);
    assert_eq!(b.qp.post_recv_list((0..4).map(buffer)), Ok(4));
    let (mut sends, _recvs) = a.qp.take_data_path().unwrap().split();
    let extension = vec![send(0), SendRequest::immediate(WrId(1), [0; 8])];
    assert_eq!(
        sends.post_all(extension),
        Err(PostError::ExtensionsDisabled)
    );
    let full = Err(PostError::TooManyWorkRequests(4));
    assert_eq!(sends.post_all((0..5).map(send).collect()), full);
    assert_eq!(sends.post_all((0..2).map(send).collect()), Ok(()));
    assert_eq!(sends.post_all((2..5).map(send).collect()), full);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(0, 0), Done::send(1, 0)]);
    // All four slots are free again, of which two were never taken.
    assert_eq!(sends.post_all((0..4).map(send).collect()), Ok(()));
    assert_eq!(sends.post_all(Vec::new()), Ok(()));
}

#[test]
fn list_ends_at_the_first_that_is_refused_and_those_before_it_are_done() {
    let (mut sim, mut a, mut b) = pair(4);
    assert_eq!(b.qp.post_recv_list((0..3).map(buffer)), Ok(3));
    let list = [
        send(0),
        send(1),
        SendRequest::immediate(WrId(2), [0; 8]),
        send(3),
    ];
    let error = PostError::ExtensionsDisabled;
    assert_eq!(refused(a.qp.post_send_list(list)), (2, error));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::send(0, 0), Done::send(1, 0)]);
    let huge = Sge {
        stag: Stag(1),
        to: 0,
        len: u32::MAX,
    };
    let too_long: Sgl = [huge; 2].into_iter().collect();
    let list = [buffer(3), RecvRequest::new(WrId(4), too_long), buffer(5)];
    assert_eq!(refused(b.qp.post_recv_list(list)), (1, PostError::TooLong));
    assert_eq!(b.receives().len(), 2);
    let full = PostError::TooManyWorkRequests(4);
    let posted = b.qp.post_recv_list((6..9).map(buffer));
    assert_eq!(refused(posted), (2, full));
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn shared_receive_queue_takes_lists_too() {
    let sim = Sim::new(Seed(72));
    let config = SrqConfig::default().depth(4);
    let mut srq = sim.b().pd().create_srq(config).unwrap();
    assert_eq!(srq.post_recv_list((0..3).map(buffer)), Ok(3));
    let full = PostError::TooManyWorkRequests(4);
    let posted = srq.post_recv_list((3..6).map(buffer));
    assert_eq!(refused(posted), (1, full));
}

#[test]
fn read_fence_waits_for_reads_and_for_nothing_else() {
    let (mut sim, mut a, mut b) = pair(16);
    let (near, far, large) = (a.target(8), b.target(8), b.target(KIB));
    far.fill(b"8 bytes!");
    b.post_recv(1, 8);
    let source = a.source(&pattern(KIB));
    let list = [
        SendRequest::read(WrId(1), near.local(0, 8), far.remote(0)),
        SendRequest::write(WrId(2), source, large.remote(0)),
        SendRequest::send(WrId(3), near.local(0, 8)).fenced(),
    ];
    assert_eq!(a.qp.post_send_list(list), Ok(3));
    // There, not yet back: the Write is placed while the Read is not answered.
    sim.run_for(Duration::from_micros(60));
    assert!(large.to_vec() == pattern(KIB));
    assert_eq!((a.sends(), b.receives()), (vec![], vec![]));
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 8)]);
    assert_eq!(b.buffer(1), b"8 bytes!");
    assert_eq!(
        a.sends(),
        [Done::read(1, 8), Done::write(2, KIB), Done::send(3, 8)]
    );
}

/// Figure 27 has none for them.
#[test]
fn read_fence_holds_back_no_read_and_no_work_on_memory() {
    let (mut sim, mut a, b) = pair(16);
    let (near, far) = (a.target(16), b.target(8));
    let (sink, gone) = (a.region(8, Access::all()), a.region(8, Access::all()));
    far.fill(b"8 bytes!");
    let read = |id, sink| SendRequest::read(WrId(id), sink, far.remote(0));
    let list = [
        read(1, near.local(0, 8)),
        read(2, near.local(8, 8)).fenced(),
        read(3, sink.local(0, 8)).invalidating_sink().fenced(),
        SendRequest::invalidate(WrId(4), gone.stag()).fenced(),
    ];
    assert_eq!(a.qp.post_send_list(list), Ok(4));
    sim.run_for(Duration::from_micros(60));
    assert_eq!(a.sends(), [], "nothing is answered yet");
    assert!(!gone.query().unwrap().is_valid());
    // All are answered in one round trip.
    sim.run_for(Duration::from_micros(60));
    let done = a.sends();
    assert_eq!(done.len(), 4, "{done:?}");
    assert_eq!(near.to_vec(), b"8 bytes!8 bytes!");
}

#[test]
fn fences_one_after_the_other_hold_nothing_up_for_ever() {
    let (mut sim, mut a, mut b) = pair(16);
    let (near, far) = (a.target(8), b.target(8));
    let mut sent = 0;
    for round in 0..100_u64 {
        b.qp.post_recv_list((0..2).map(buffer)).unwrap();
        let write = SendRequest::write(WrId(round), near.local(0, 8), far.remote(0)).fenced();
        let list = [
            SendRequest::read(WrId(round), near.local(0, 8), far.remote(0)),
            send(round).fenced(),
            SendRequest::read(WrId(round), near.local(0, 8), far.remote(0)),
            write,
            send(round),
        ];
        assert_eq!(a.qp.post_send_list(list), Ok(5));
        sim.run_until_idle();
        sent += a.sends().len();
        assert_eq!(b.receives().len(), 2);
    }
    assert_eq!(sent, 500);
}

#[test]
fn read_of_nothing_is_an_end_to_end_fence() {
    let (mut sim, mut a, mut b) = pair(16);
    let far = b.region(8, Access::all());
    b.post_recv(1, 8);
    let nothing = Sge {
        stag: Stag(0xbad),
        to: 0,
        len: 0,
    };
    let nowhere = xwarp::RemoteAddress {
        stag: Stag(0xbad),
        to: 0,
    };
    let source = a.source(b"8 bytes!");
    let list = [
        SendRequest::write(WrId(1), source, far.remote(0)),
        SendRequest::read(WrId(2), nothing, nowhere),
        send(3).fenced(),
    ];
    assert_eq!(a.qp.post_send_list(list), Ok(3));
    sim.run_for(Duration::from_micros(60));
    assert_eq!(far.bytes().to_vec(), b"8 bytes!");
    assert_eq!(b.receives(), [], "the Send waits for the Read");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 0)]);
    assert_eq!(
        a.sends(),
        [Done::write(1, 8), Done::read(2, 0), Done::send(3, 0)]
    );
}

#[test]
fn reads_of_nothing_count_against_ord() {
    let mut sim = Sim::new(Seed(73)).one_way_delay(Duration::from_micros(50));
    let config = QpConfig::default().ord(1).ird(1);
    let (mut a, _b) = sim.connected_pair_with(&config);
    sim.run_until_idle();
    let nothing = Sge {
        stag: Stag(0xbad),
        to: 0,
        len: 0,
    };
    let nowhere = xwarp::RemoteAddress {
        stag: Stag(0xbad),
        to: 0,
    };
    let read = |id| SendRequest::read(WrId(id), nothing, nowhere);
    assert_eq!(a.qp.post_send_list((0..3).map(read)), Ok(3));
    for id in 0..3 {
        // One round trip each.
        sim.run_for(Duration::from_micros(110));
        assert_eq!(a.sends(), [Done::success(id, Opcode::Read, 0)]);
    }
}
