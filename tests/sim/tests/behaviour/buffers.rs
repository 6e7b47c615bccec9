//! Exclusive buffers: whose they are while work requests have them, and how they come back (verbs draft §8.1.3.2, §8.2.4).

use std::time::Duration;

use xwarp::{
    Access, Buffer, BufferRequest, CompletionQueue, CompletionStatus, DestroyError, Opcode,
    PostError, PostListError, PostedBuffers, QpConfig, QpState, RnicUnavailable, SrqConfig,
    WorkCompletion, WrId,
};
use xwarp_netsim::Seed;
use xwarp_sim_tests::{Done, End, Host, Side, Sim, pattern};

fn sim() -> Sim {
    Sim::new(Seed(81)).one_way_delay(Duration::from_micros(50))
}

/// A pair whose queues have room for four work requests.
fn pair() -> (Sim, End, End) {
    let mut sim = sim().expecting(&["drop_no_flow", "drop_refused_segment"]);
    let config = QpConfig {
        send_depth: 4,
        recv_depth: 4,
        ..QpConfig::default()
    };
    let (a, b) = sim.connected_pair_with(&config);
    sim.run_until_idle();
    (sim, a, b)
}

fn buffers(host: &Host, count: usize, len: u32) -> Vec<Buffer> {
    host.pd().allocate_buffers(count, len).unwrap()
}

fn buffer(host: &Host, len: u32) -> Buffer {
    buffers(host, 1, len).pop().unwrap()
}

fn holding(host: &Host, bytes: &[u8]) -> Buffer {
    let mut buffer = buffer(host, u32::try_from(bytes.len()).unwrap());
    buffer.write(0, bytes).unwrap();
    buffer
}

/// Posts a buffer that holds `bytes` to the receive queue.
fn expect_into(posted: &mut PostedBuffers, end: &mut End, bytes: &[u8]) -> WrId {
    let buffer = holding(end.host(), bytes);
    posted.post_recv(&mut end.qp, buffer).unwrap()
}

fn all(cq: &mut CompletionQueue) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| cq.poll().unwrap()).collect()
}

/// What has completed, with the buffers that come back for it.
fn redeem(posted: &mut PostedBuffers, cq: &mut CompletionQueue) -> Vec<(Done, Buffer)> {
    let back = |done: WorkCompletion| (Done::from(done), posted.redeem(&done).unwrap());
    all(cq).into_iter().map(back).collect()
}

#[test]
fn message_goes_from_buffer_to_buffer_and_both_come_back() {
    let (mut sim, mut a, mut b) = pair();
    let (mut sent, mut expected) = (PostedBuffers::default(), PostedBuffers::default());
    let into = expect_into(&mut expected, &mut b, &[0xee; 100]);
    let request = BufferRequest::send(holding(a.host(), b"hello, world"), 5);
    let from = sent.post_send(&mut a.qp, request);
    sim.run_until_idle();
    assert_eq!((sent.len(), expected.len()), (1, 1), "not polled yet");
    let [(done, source)] = &redeem(&mut sent, a.send_cq())[..] else {
        panic!("one Send");
    };
    assert_eq!(*done, Done::send(from.unwrap().0, 5));
    assert_eq!(source.to_vec(), b"hello, world");
    let [(done, sink)] = &redeem(&mut expected, b.recv_cq())[..] else {
        panic!("one Receive");
    };
    assert_eq!(*done, Done::receive(into.0, 5));
    assert_eq!(sink.to_vec(), [&b"hello"[..], &[0xee; 95]].concat());
    assert!(sent.is_empty() && expected.is_empty());
}

#[test]
fn writes_take_buffers_too() {
    let (mut sim, mut a, mut b) = pair();
    let target = b.target(16);
    let mut posted = PostedBuffers::default();
    b.post_recv(1, 0);
    let first = holding(a.host(), b"8 bytes!");
    let second = holding(a.host(), b"eight of them");
    let mut list = vec![
        BufferRequest::write(first, 8, target.remote(0)),
        BufferRequest::write_immediate(second, 8, target.remote(8), [7; 8])
            .fenced()
            .solicited(),
    ];
    assert_eq!(posted.post_send_list(&mut a.qp, &mut list), Ok(2));
    assert!(list.is_empty());
    sim.run_until_idle();
    let back = redeem(&mut posted, a.send_cq());
    let kinds: Vec<_> = back
        .iter()
        .map(|(done, _)| (done.opcode, done.outcome))
        .collect();
    let expected = [(Opcode::Write, Ok(8)), (Opcode::WriteImmediate, Ok(8))];
    assert_eq!(kinds, expected);
    assert_eq!(target.to_vec(), b"8 bytes!eight of");
    let received = all(b.recv_cq());
    assert!(received[0].solicited && received[0].immediate == Some([7; 8]));
}

#[test]
fn send_invalidates_a_region_of_the_peer() {
    let (mut sim, mut a, mut b) = pair();
    let region = b.own_region(8, Access::all());
    b.post_recv(1, 8);
    let request = BufferRequest::send(buffer(a.host(), 8), 0).invalidating(region.stag());
    let mut posted = PostedBuffers::default();
    posted.post_send(&mut a.qp, request).unwrap();
    sim.run_until_idle();
    assert_eq!(all(b.recv_cq())[0].invalidated, Some(region.stag()));
    assert!(!region.query().unwrap().is_valid());
}

#[test]
fn only_its_own_completion_gives_a_buffer_back_and_only_once() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut b, &[0; 8]);
    b.post_recv(1, 8);
    a.post_send(1, b"8 bytes!");
    a.post_send(2, b"");
    sim.run_until_idle();
    let [first, other] = all(b.recv_cq())[..] else {
        panic!("two Receives");
    };
    let back = posted.redeem(&first).unwrap();
    assert_eq!(back.to_vec(), b"8 bytes!");
    let again = posted.post_recv(&mut b.qp, back).unwrap();
    assert_ne!(again, first.wr_id);
    for former in [first, other] {
        assert!(posted.redeem(&former).is_none(), "while it is posted again");
    }
    a.post_send(3, b"");
    sim.run_until_idle();
    assert!(posted.redeem(&all(b.recv_cq())[0]).is_some());
}

#[test]
fn refused_post_gives_its_buffer_back_at_once() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    for _ in 0..4 {
        let buffer = buffer(b.host(), 8);
        posted.post_recv(&mut b.qp, buffer).unwrap();
    }
    let mut refused = |qp: &mut xwarp::QueuePair, buffer: Buffer, expected: PostError| {
        let refused = posted.post_recv(qp, buffer).unwrap_err();
        assert_eq!((refused.error, posted.len()), (expected, 4));
        assert_eq!(refused.object.to_vec(), b"kept");
        *refused.object
    };
    let kept = holding(b.host(), b"kept");
    let kept = refused(&mut b.qp, kept, PostError::TooManyWorkRequests(4));
    let elsewhere = holding(a.host(), b"kept");
    refused(&mut b.qp, elsewhere, PostError::OtherRnic);
    let path = b.qp.take_data_path().unwrap();
    let kept = refused(&mut b.qp, kept, PostError::DataPathTaken);
    b.qp.return_data_path(path).unwrap();
    b.qp.abort().unwrap();
    let kept = refused(&mut b.qp, kept, PostError::InvalidState(QpState::Error));

    let beyond = BufferRequest::send(holding(a.host(), b"kept"), 5);
    let refused = PostedBuffers::default().post_send(&mut a.qp, beyond);
    let refused = refused.unwrap_err();
    assert!(matches!(refused.error, PostError::OutOfBounds(it) if (it.len, it.size) == (5, 4)));
    assert_eq!(refused.object.to_vec(), b"kept");
    drop(kept);
    sim.run_until_idle();
    assert!(a.sends().is_empty(), "nothing was posted");
}

#[test]
fn of_a_list_the_posted_leave_and_the_refused_stay() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    let mut list = buffers(b.host(), 6, 8);
    for (number, buffer) in (0..).zip(&mut list) {
        buffer.fill(0..8, number).unwrap();
    }
    let full = PostListError {
        posted: 4,
        error: PostError::TooManyWorkRequests(4),
    };
    assert_eq!(posted.post_recv_list(&mut b.qp, &mut list), Err(full));
    let kept: Vec<_> = list.iter().map(Buffer::to_vec).collect();
    assert_eq!(kept, [[4; 8], [5; 8]]);
    let source = buffers(a.host(), 3, 8).into_iter();
    let mut sends: Vec<_> = source
        .zip([8, 9, 8])
        .map(|(it, len)| BufferRequest::send(it, len))
        .collect();
    let sent = PostedBuffers::default().post_send_list(&mut a.qp, &mut sends);
    let sent = sent.unwrap_err();
    assert_eq!((sent.posted, sends.len()), (1, 2));
    assert!(matches!(sent.error, PostError::OutOfBounds(_)));
    sim.run_until_idle();
    let back = redeem(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), [0; 8], "the first one of the list");
}

#[test]
fn flushed_buffer_comes_back_as_it_was() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut b, b"untouched");
    a.post_send(1, b"on its way");
    b.qp.abort().unwrap();
    let [(done, buffer)] = &redeem(&mut posted, b.recv_cq())[..] else {
        panic!("one Receive");
    };
    assert_eq!(done.outcome, Err(CompletionStatus::Flushed));
    sim.run_until_idle();
    assert_eq!(buffer.to_vec(), b"untouched");
}

#[test]
fn message_that_is_too_long_never_reaches_the_buffer_beside() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    let mut pieces = buffers(b.host(), 3, 8);
    let (last, middle) = (pieces.pop().unwrap(), pieces.pop().unwrap());
    let name = posted.post_recv(&mut b.qp, middle).unwrap();
    a.post_send(1, b"nine bytes, or more!");
    sim.run_until_idle();
    let back = redeem(&mut posted, b.recv_cq());
    assert_eq!(back[0].0.wr_id, name.0);
    assert!(back[0].0.outcome.is_err());
    assert_eq!(
        (pieces[0].to_vec(), last.to_vec()),
        (vec![0; 8], vec![0; 8])
    );
}

#[test]
fn buffer_that_can_have_no_completion_any_more_is_reclaimed() {
    let (mut sim, mut a, b) = pair();
    let (mut c, _d) = sim.connected_pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut a, b"first");
    a.qp.abort().unwrap();
    expect_into(&mut posted, &mut c, b"other");
    assert!(posted.reclaim().is_empty(), "all queue pairs are there");
    let (host, completions) = (a.host().clone(), all(a.recv_cq()));
    assert!(a.qp.destroy().is_ok());
    let back = posted.reclaim();
    assert_eq!((back.len(), back[0].to_vec()), (1, b"first".to_vec()));
    assert!(
        posted.redeem(&completions[0]).is_none(),
        "it is back already"
    );
    assert_eq!(posted.len(), 1);

    host.rnic().close().unwrap();
    sim.remove(Side::A);
    let closed = PostError::Unavailable(RnicUnavailable::Closed);
    let refused = posted
        .post_recv(&mut c.qp, back.into_iter().next().unwrap())
        .unwrap_err();
    assert_eq!(refused.error, closed);
    let back = posted.reclaim();
    assert_eq!((back.len(), back[0].to_vec()), (1, b"other".to_vec()));
    assert!(posted.is_empty());
    drop(b);
}

#[test]
fn queues_of_two_rnics_are_not_taken_for_each_other() {
    let (mut sim, mut a, mut b) = pair();
    assert_eq!(a.qp.id(), b.qp.id(), "each RNIC's first");
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut a, b"of A");
    expect_into(&mut posted, &mut b, b"of B");
    assert!(a.qp.destroy().is_ok());
    let back = posted.reclaim();
    assert_eq!((back.len(), back[0].to_vec()), (1, b"of A".to_vec()));
    sim.run_until_idle();
    let back = redeem(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), b"of B");
}

#[test]
fn buffers_of_a_shared_receive_queue_come_back_whoever_takes_them() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let host = sim.b();
    let config = SrqConfig {
        depth: 8,
        ..SrqConfig::default()
    };
    let mut srq = host.pd().create_srq(config).unwrap();
    let mut ends = [0; 2].map(|_| {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            host.end(&QpConfig::default()),
        );
        let (send_cq, recv_cq) = b.cqs();
        let config = QpConfig::default();
        let qp = host
            .pd()
            .create_qp_with_srq(&config, send_cq, recv_cq, &srq);
        b.qp = qp.unwrap();
        sim.connect(&mut a, &mut b);
        (a, b)
    });
    let (mut posted, mut list) = (PostedBuffers::default(), buffers(&host, 5, 8));
    assert_eq!(posted.post_recv_list(&mut srq, &mut list), Ok(5));
    for ((a, _), text) in ends.iter_mut().zip([b"to first", b"to other"]) {
        a.post_send(1, text);
        sim.run_until_idle();
    }
    let [(_, first), (_, other)] = &mut ends;
    let to_other = redeem(&mut posted, other.recv_cq());
    let to_first = redeem(&mut posted, first.recv_cq());
    assert_eq!(to_other[0].1.to_vec(), b"to other");
    assert_eq!(to_first[0].1.to_vec(), b"to first");

    let srq = srq.destroy().unwrap_err();
    assert_eq!(srq.error, DestroyError::InUse);
    assert!(posted.reclaim().is_empty());
    let [(_, first), (_, other)] = ends;
    assert!(first.qp.destroy().is_ok());
    drop(srq);
    assert!(posted.reclaim().is_empty(), "one may still take them");
    assert!(other.qp.destroy().is_ok());
    assert_eq!(posted.reclaim().len(), 3);
    sim.run_until_idle();
}

#[test]
fn buffer_dropped_while_it_is_posted_is_no_place_any_more() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut b, &[0; 8]);
    drop(posted);
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    let received = all(b.recv_cq());
    assert_eq!(received[0].status, CompletionStatus::InvalidStag);
    assert_eq!(b.state(), QpState::Error);
}

#[test]
fn buffer_keeps_the_region_of_those_that_were_dropped() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    let last = buffers(b.host(), 3, 8).pop().unwrap();
    posted.post_recv(&mut b.qp, last).unwrap();
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    let back = redeem(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), b"8 bytes!");
}

/// A Write that takes several windows, and a Send behind it. What is lost is sent again after both have completed.
#[test]
fn completed_work_reads_its_memory_no_more() {
    const LEN: usize = 1_000_000;
    let (sim, mut a, mut b) = pair();
    let mut sim = sim.loss(0.05);
    let (target, bytes) = (b.target(LEN), pattern(LEN));
    let (mut sent, mut expected) = (PostedBuffers::default(), PostedBuffers::default());
    expect_into(&mut expected, &mut b, &[0; 1000]);
    let mut list = vec![
        BufferRequest::write(
            holding(a.host(), &bytes),
            u32::try_from(LEN).unwrap(),
            target.remote(0),
        ),
        BufferRequest::send(holding(a.host(), &bytes[..1000]), 1000),
    ];
    assert_eq!(sent.post_send_list(&mut a.qp, &mut list), Ok(2));
    for gone in [false, true] {
        let done = sim.wait_for("a completion", || a.send_cq().poll().unwrap());
        let mut buffer = sent.redeem(&done).unwrap();
        buffer.fill(0..buffer.len(), 0xdb).unwrap();
        if gone {
            drop(buffer); // and its region with it
        }
    }
    assert!(
        b.recv_cq().poll().unwrap().is_none(),
        "it is still on its way"
    );
    sim.run_until_idle();
    let received = redeem(&mut expected, b.recv_cq());
    assert_eq!(received[0].1.to_vec(), bytes[..1000]);
    assert!(target.to_vec() == bytes);
    let again = a.host().rnic().counters().unwrap().tcp.retransmissions;
    assert!(again > 0, "nothing was lost");
}

#[test]
fn completed_work_writes_its_memory_no_more() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut b, &[0; 8]);
    b.post_recv(1, 8);
    sim = sim.duplicate(1.0);
    a.post_send(1, b"for once");
    sim.run_until_idle();
    let (_, mut buffer) = redeem(&mut posted, b.recv_cq()).pop().unwrap();
    buffer.fill(0..8, b'-').unwrap();
    a.post_send(2, b"and anew");
    sim.run_until_idle();
    b.qp.abort().unwrap();
    sim.run_until_idle();
    assert_eq!(
        (buffer.to_vec(), b.buffer(1)),
        (vec![b'-'; 8], b"and anew".to_vec())
    );
}
