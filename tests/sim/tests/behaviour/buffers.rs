//! Exclusive buffers: whose they are while work requests have them, and how they come back (verbs
//! draft §8.1.3.2, §8.2.4).

use std::time::Duration;

use xwarp::buffers::{Buffer, BufferRequest, PostedBuffers};
use xwarp::error::{DestroyError, PostError, RnicUnavailable};
use xwarp::{
    Access, CompletionQueue, CompletionStatus, Opcode, QpConfig, QpState, SrqConfig,
    WorkCompletion, WrId,
};
use xwarp_sim_tests::{Done, Host, Side, Sim, SimEnd, needs_link, pattern};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(81)).one_way_delay(Duration::from_micros(50))
}

/// A pair whose queues have room for four work requests.
fn pair() -> (Sim, SimEnd, SimEnd) {
    let mut sim = sim().expecting(&["drop_no_flow", "drop_refused_segment"]);
    let config = QpConfig::default().send_depth(4).recv_depth(4);
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

/// A work request ID that the test does not check.
const ANY: WrId = WrId(0);

/// Buffers with names from 0 on, as a list of receives.
fn named(buffers: Vec<Buffer>) -> Vec<(WrId, Buffer)> {
    (0..).map(WrId).zip(buffers).collect()
}

/// Posts a buffer that holds `bytes` to the receive queue.
fn expect_into(posted: &mut PostedBuffers, end: &mut SimEnd, bytes: &[u8]) {
    let buffer = holding(end.host(), bytes);
    posted.post_recv(&mut end.qp, ANY, buffer).unwrap();
}

fn all(cq: &mut CompletionQueue) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| cq.poll().unwrap()).collect()
}

/// What has completed, with the buffers that come back for it.
fn take(posted: &mut PostedBuffers, cq: &mut CompletionQueue) -> Vec<(Done, Buffer)> {
    let back = |mut done: WorkCompletion| {
        let buffer = posted.take(&mut done).unwrap();
        (Done::from(done), buffer)
    };
    all(cq).into_iter().map(back).collect()
}

#[test]
fn message_goes_from_buffer_to_buffer_and_both_come_back() {
    let (mut sim, mut a, mut b) = pair();
    let (mut sent, mut expected) = (PostedBuffers::default(), PostedBuffers::default());
    let into = holding(b.host(), &[0xee; 100]);
    expected.post_recv(&mut b.qp, WrId(21), into).unwrap();
    let from = holding(a.host(), b"hello, world");
    let request = BufferRequest::send(WrId(11), from, 5);
    sent.post_send(&mut a.qp, request).unwrap();
    sim.run_until_idle();
    assert_eq!((sent.len(), expected.len()), (1, 1), "not polled yet");
    let [(done, source)] = &take(&mut sent, a.send_cq())[..] else {
        panic!("one Send");
    };
    assert_eq!(*done, Done::send(11, 5));
    assert_eq!(source.to_vec(), b"hello, world");
    let [(done, sink)] = &take(&mut expected, b.recv_cq())[..] else {
        panic!("one Receive");
    };
    assert_eq!(*done, Done::receive(21, 5));
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
        BufferRequest::write(ANY, first, 8, target.remote(0)),
        BufferRequest::write_immediate(ANY, second, 8, target.remote(8), [7; 8])
            .fenced()
            .solicited(),
    ];
    assert_eq!(posted.post_send_list(&mut a.qp, &mut list), Ok(2));
    assert!(list.is_empty());
    sim.run_until_idle();
    let back = take(&mut posted, a.send_cq());
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
    let request = BufferRequest::send(ANY, buffer(a.host(), 8), 0).invalidating(region.stag());
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
    let mut taken = first;
    let back = posted.take(&mut taken).unwrap();
    assert_eq!(back.to_vec(), b"8 bytes!");
    posted.post_recv(&mut b.qp, ANY, back).unwrap();
    for mut former in [first, taken, other] {
        let before = former.wr_id;
        assert!(posted.take(&mut former).is_none(), "posted again");
        assert_eq!(former.wr_id, before);
    }
    a.post_send(3, b"");
    sim.run_until_idle();
    assert!(posted.take(&mut all(b.recv_cq())[0]).is_some());
}

#[test]
fn names_are_the_applications_and_may_be_equal() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    for name in [7, u64::MAX, 7] {
        let buffer = holding(b.host(), &[0; 8]);
        posted.post_recv(&mut b.qp, WrId(name), buffer).unwrap();
    }
    b.post_recv(7, 8);
    let request = BufferRequest::send(WrId(1 << 63), holding(a.host(), b"message0"), 8);
    posted.post_send(&mut a.qp, request).unwrap();
    for text in [b"message1", b"message2", b"message3"] {
        a.post_send(7, text);
    }
    sim.run_until_idle();
    let mut received = all(b.recv_cq());
    let mut other = received.pop().unwrap();
    assert!(posted.take(&mut other).is_none());
    assert_eq!(other.wr_id, WrId(7), "no buffer's");
    let names = [7, u64::MAX, 7];
    for ((mut done, name), number) in received.into_iter().zip(names).zip(0..) {
        let buffer = posted.take(&mut done).unwrap();
        let text = format!("message{number}").into_bytes();
        assert_eq!((done.wr_id, buffer.to_vec()), (WrId(name), text));
    }
    let mut sent = all(a.send_cq());
    assert!(posted.take(&mut sent[0]).is_some());
    assert_eq!(sent[0].wr_id, WrId(1 << 63));
    assert!(posted.take(&mut sent[1]).is_none() && posted.is_empty());
}

#[test]
fn refused_post_gives_its_buffer_back_at_once() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    for _ in 0..4 {
        let buffer = buffer(b.host(), 8);
        posted.post_recv(&mut b.qp, ANY, buffer).unwrap();
    }
    let mut refused = |qp: &mut xwarp::QueuePair, buffer: Buffer, expected: PostError| {
        let refused = posted.post_recv(qp, ANY, buffer).unwrap_err();
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

    let beyond = BufferRequest::send(ANY, holding(a.host(), b"kept"), 5);
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
    let mut list = named(buffers(b.host(), 6, 8));
    for (number, (_, buffer)) in (0..).zip(&mut list) {
        buffer.fill(0..8, number).unwrap();
    }
    let refused = posted.post_recv_list(&mut b.qp, &mut list).unwrap_err();
    let full = PostError::TooManyWorkRequests(4);
    assert_eq!((refused.posted, refused.error), (4, full));
    let kept: Vec<_> = list
        .iter()
        .map(|(name, it)| (name.0, it.to_vec()))
        .collect();
    assert_eq!(kept, [(4, vec![4; 8]), (5, vec![5; 8])]);
    let source = buffers(a.host(), 3, 8).into_iter();
    let mut sends: Vec<_> = source
        .zip([8, 9, 8])
        .map(|(it, len)| BufferRequest::send(ANY, it, len))
        .collect();
    let sent = PostedBuffers::default().post_send_list(&mut a.qp, &mut sends);
    let sent = sent.unwrap_err();
    assert_eq!((sent.posted, sends.len()), (1, 2));
    assert!(matches!(sent.error, PostError::OutOfBounds(_)));
    sim.run_until_idle();
    let back = take(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), [0; 8], "the first one of the list");
}

#[test]
fn flushed_buffer_comes_back_as_it_was() {
    let (mut sim, mut a, mut b) = pair();
    let mut posted = PostedBuffers::default();
    expect_into(&mut posted, &mut b, b"untouched");
    a.post_send(1, b"on its way");
    b.qp.abort().unwrap();
    let [(done, buffer)] = &take(&mut posted, b.recv_cq())[..] else {
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
    posted.post_recv(&mut b.qp, WrId(22), middle).unwrap();
    // It leaves its buffer, and not the region that all three are in.
    a.post_send(1, b"nine bytes");
    sim.run_until_idle();
    let back = take(&mut posted, b.recv_cq());
    assert_eq!(back[0].0.wr_id, 22);
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
    let first = holding(a.host(), b"first");
    posted.post_recv(&mut a.qp, WrId(3), first).unwrap();
    a.qp.abort().unwrap();
    expect_into(&mut posted, &mut c, b"other");
    assert!(posted.reclaim().is_empty(), "all queue pairs are there");
    let (host, mut completions) = (a.host().clone(), all(a.recv_cq()));
    assert!(a.qp.destroy().is_ok());
    let back = posted.reclaim();
    assert_eq!((back.len(), back[0].1.to_vec()), (1, b"first".to_vec()));
    assert!(
        posted.take(&mut completions[0]).is_none(),
        "it is back already"
    );
    assert_eq!(posted.len(), 1);

    host.rnic().close().unwrap();
    sim.remove(Side::A);
    let closed = PostError::Unavailable(RnicUnavailable::Closed);
    let (name, buffer) = back.into_iter().next().unwrap();
    assert_eq!(name, WrId(3));
    let refused = posted.post_recv(&mut c.qp, name, buffer).unwrap_err();
    assert_eq!(refused.error, closed);
    let back = posted.reclaim();
    assert_eq!((back.len(), back[0].1.to_vec()), (1, b"other".to_vec()));
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
    assert_eq!((back.len(), back[0].1.to_vec()), (1, b"of A".to_vec()));
    sim.run_until_idle();
    let back = take(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), b"of B");
}

/// A pair whose end at B takes its receives from `srq`.
fn pair_with_srq(sim: &mut Sim, srq: &xwarp::SharedReceiveQueue) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let (send_cq, recv_cq) = b.cqs();
    let host = sim.b();
    let qp = (host.pd()).create_qp_with_srq(&config, send_cq, recv_cq, srq);
    b.qp = qp.unwrap();
    sim.connect(&mut a, &mut b);
    (a, b)
}

#[test]
fn buffers_of_a_shared_receive_queue_come_back_whoever_takes_them() {
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let host = sim.b();
    let config = SrqConfig::default().depth(8);
    let mut srq = host.pd().create_srq(config).unwrap();
    let mut ends = [0; 2].map(|_| pair_with_srq(&mut sim, &srq));
    let (mut posted, mut list) = (PostedBuffers::default(), named(buffers(&host, 5, 8)));
    assert_eq!(posted.post_recv_list(&mut srq, &mut list), Ok(5));
    for ((a, _), text) in ends.iter_mut().zip([b"to first", b"to other"]) {
        a.post_send(1, text);
        sim.run_until_idle();
    }
    let [(_, first), (_, other)] = &mut ends;
    let to_other = take(&mut posted, other.recv_cq());
    let to_first = take(&mut posted, first.recv_cq());
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
    posted.post_recv(&mut b.qp, ANY, last).unwrap();
    a.post_send(1, b"8 bytes!");
    sim.run_until_idle();
    let back = take(&mut posted, b.recv_cq());
    assert_eq!(back[0].1.to_vec(), b"8 bytes!");
}

/// A Write that takes several windows, and a Send behind it. What is lost is sent again after both
/// have completed.
#[test]
fn completed_work_reads_its_memory_no_more() {
    const LEN: usize = if cfg!(miri) { 30_000 } else { 1_000_000 };
    const LOSS: f64 = if cfg!(miri) { 0.2 } else { 0.05 };
    needs_link!("it counts segments of a link's MTU");
    let (sim, mut a, mut b) = pair();
    let mut sim = sim.loss(LOSS);
    let (target, bytes) = (b.target(LEN), pattern(LEN));
    let (mut sent, mut expected) = (PostedBuffers::default(), PostedBuffers::default());
    expect_into(&mut expected, &mut b, &[0; 1000]);
    let mut list = vec![
        BufferRequest::write(
            ANY,
            holding(a.host(), &bytes),
            u32::try_from(LEN).unwrap(),
            target.remote(0),
        ),
        BufferRequest::send(ANY, holding(a.host(), &bytes[..1000]), 1000),
    ];
    assert_eq!(sent.post_send_list(&mut a.qp, &mut list), Ok(2));
    for gone in [false, true] {
        let mut done = sim.wait_for("a completion", || a.send_cq().poll().unwrap());
        let mut buffer = sent.take(&mut done).unwrap();
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
    let received = take(&mut expected, b.recv_cq());
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
    let (_, mut buffer) = take(&mut posted, b.recv_cq()).pop().unwrap();
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
