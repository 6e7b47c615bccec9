//! Queues: resizing under load, order, solicited events, lists that fail in the middle, and
//! lengths.

use std::ffi::c_void;
use std::ptr;

use nix::errno::Errno;

use super::testbed::{Bed, Host, await_readable, is_readable, qp_attr, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SOLICITED, IBV_WC_SUCCESS, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_SEND,
};
use crate::abi::verbs::{ibv_recv_wr, ibv_send_wr, ibv_wc};
use crate::verbs::cq::{ibv_create_cq, ibv_resize_cq};
use crate::verbs::cq_events::{ibv_ack_cq_events, ibv_get_cq_event};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp};

/// Polls all completions; returns their identifiers.
fn taken(host: &Host) -> Vec<u64> {
    let mut places = [ibv_wc::zeroed(); 16];
    let taken = host.ops().poll_cq.expect("a slot")(host.cq, 16, places.as_mut_ptr());
    let taken = usize::try_from(taken).expect("no failure");
    let places = places.iter().take(taken);
    assert!(places.clone().all(|it| it.status == IBV_WC_SUCCESS));
    places.map(|it| it.wr_id).collect()
}

/// Sleeps until the completion queue has the event that it was armed for.
fn await_event(host: &Host) {
    await_readable(host.channel_fd());
    let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut::<c_void>());
    let got = ibv_get_cq_event(host.channel, Some(&mut cq), Some(&mut cq_context));
    assert_eq!((got, cq), (0, host.cq));
    ibv_ack_cq_events(cq, 1);
}

#[test]
fn completion_queue_is_resized_under_load_and_loses_nothing() {
    const WRITES: u64 = 2000;
    let bed = Bed::new();
    let (mut posted, mut completed) = (0, Vec::new());
    while completed.len() < 2000 {
        if posted < WRITES {
            let mut piece = [bed.a.sge(0, 8)];
            let mut wr = request(posted, IBV_WR_RDMA_WRITE, &mut piece);
            wr.wr = bed.b.remote(0);
            posted += u64::from(bed.a.post_send(&mut wr) == 0);
        }
        // There are 16 places in the send queue, so 32 completions always fit.
        let entries = 32 + i32::try_from(posted % 5).expect("a few") * 100;
        if posted % 7 == 0 {
            assert_eq!(ibv_resize_cq(bed.a.cq, entries), 0);
            // SAFETY: the completion queue lives.
            assert_eq!(unsafe { (*bed.a.cq).cqe }, entries);
        }
        completed.extend(taken(&bed.a));
    }
    assert!(completed.into_iter().eq(0..WRITES));
    bed.end();
}

#[test]
fn completion_queue_does_not_become_smaller_than_what_waits_in_it() {
    let bed = Bed::new();
    let notify = bed.b.ops().req_notify_cq.expect("a slot");
    assert_eq!(notify(bed.b.cq, 1), 0);
    for name in 0..4 {
        bed.b.post_recv(name, bed.b.sge(0, 100));
        let mut wr = request(name, IBV_WR_SEND, &mut []);
        if name == 3 {
            wr.send_flags |= IBV_SEND_SOLICITED;
        }
        assert_eq!(bed.a.post_send(&mut wr), 0);
    }
    // The event of the last one means that all four wait.
    await_event(&bed.b);
    for too_small in [3, 1, 0, -1] {
        let refused = ibv_resize_cq(bed.b.cq, too_small);
        assert_eq!(refused, Errno::EINVAL as i32, "{too_small}");
    }
    assert_eq!(ibv_resize_cq(bed.b.cq, 4), 0);
    assert_eq!(taken(&bed.b), [0, 1, 2, 3]);
    bed.end();
}

#[test]
fn completion_queue_without_entries_is_refused() {
    let bed = Bed::unconnected();
    for entries in [0, -1] {
        let nothing = ptr::null_mut();
        let cq = ibv_create_cq(bed.a.context, entries, nothing, ptr::null_mut(), 0);
        assert_eq!((cq, Errno::last()), (ptr::null_mut(), Errno::EINVAL));
    }
    let no_vector = ibv_create_cq(bed.a.context, 1, ptr::null_mut(), ptr::null_mut(), 1);
    assert_eq!((no_vector, Errno::last()), (ptr::null_mut(), Errno::EINVAL));
    bed.end();
}

#[test]
fn fenced_write_sends_what_the_read_before_it_has_brought() {
    const HALF: usize = 4096;
    let bed = Bed::new();
    bed.b.write(HALF - 4, b"back");
    let (mut sink, mut source) = ([bed.a.sge(0, 4096)], [bed.a.sge(HALF - 4, 4)]);
    let mut write = request(2, IBV_WR_RDMA_WRITE, &mut source);
    (write.wr, write.send_flags) = (bed.b.remote(HALF), write.send_flags | IBV_SEND_FENCE);
    let mut read = request(1, IBV_WR_RDMA_READ, &mut sink);
    (read.wr, read.next) = (bed.b.remote(0), &raw mut write);
    assert_eq!(bed.a.post_send(&mut read), 0);
    assert_eq!([bed.a.success().wr_id, bed.a.success().wr_id], [1, 2]);
    // Another Read follows the Write.
    let mut read = request(3, IBV_WR_RDMA_READ, &mut sink);
    read.wr = bed.b.remote(0);
    assert_eq!(bed.a.post_send(&mut read), 0);
    assert_eq!(bed.a.success().wr_id, 3);
    assert_eq!(&bed.b.read(HALF), b"back");
    bed.end();
}

#[test]
fn solicited_event_is_asked_for_and_only_that_is_told() {
    let bed = Bed::new();
    bed.b.post_recv(1, bed.b.sge(0, 100));
    bed.b.post_recv(2, bed.b.sge(0, 100));
    let notify = bed.b.ops().req_notify_cq.expect("a slot");
    assert_eq!(notify(bed.b.cq, 1), 0);
    let mut piece = [bed.a.sge(0, 4)];
    let mut wr = request(1, IBV_WR_SEND, &mut piece);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    assert_eq!(bed.b.success().wr_id, 1);
    assert!(!is_readable(bed.b.channel_fd()));
    wr.send_flags |= IBV_SEND_SOLICITED;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    await_event(&bed.b);
    assert_eq!(bed.b.success().wr_id, 2);
    bed.end();
}

/// libfabric frees an endpoint when it has destroyed the queue pair, and then polls.
#[test]
fn what_a_destroyed_queue_pair_has_completed_is_not_polled_any_more() {
    let bed = Bed::new();
    let [gone, peer] =
        [&bed.a, &bed.b].map(|host| ibv_create_qp(host.pd, Some(&mut qp_attr(host.cq))));
    bed.connect(gone, peer);
    let notify = bed.a.ops().req_notify_cq.expect("a slot");
    let post = bed.a.ops().post_send.expect("a slot");
    for (wr_id, qp) in [(1, gone), (2, bed.a.qp), (3, gone)] {
        assert_eq!(notify(bed.a.cq, 0), 0);
        let mut piece = [bed.a.sge(0, 8)];
        let mut wr = request(wr_id, IBV_WR_RDMA_WRITE, &mut piece);
        wr.wr = bed.b.remote(0);
        assert_eq!(post(qp, &raw mut wr, None), 0);
        await_event(&bed.a);
    }
    assert_eq!([ibv_destroy_qp(gone), ibv_destroy_qp(peer)], [0; 2]);
    assert_eq!(taken(&bed.a), [2]);
    assert!(taken(&bed.a).is_empty());
    bed.end();
}

#[test]
fn list_that_fails_in_the_middle_is_posted_up_to_there() {
    let bed = Bed::new();
    let mut pieces = [bed.a.sge(0, 4); 5];
    // The queue pair takes 4 pieces.
    let mut last = request(3, IBV_WR_SEND, &mut []);
    let mut middle = request(2, IBV_WR_SEND, &mut pieces);
    middle.next = &raw mut last;
    let mut first = request(1, IBV_WR_RDMA_WRITE, &mut []);
    (first.wr, first.next) = (bed.b.remote(0), &raw mut middle);
    let mut bad = ptr::null_mut();
    let post = bed.a.ops().post_send.expect("a slot");
    let failed = post(bed.a.qp, &raw mut first, Some(&mut bad));
    assert_eq!((failed, bad), (Errno::EINVAL as i32, &raw mut middle));
    let mut next = request(4, IBV_WR_RDMA_WRITE, &mut []);
    next.wr = bed.b.remote(0);
    assert_eq!(bed.a.post_send(&mut next), 0);
    assert_eq!([bed.a.success().wr_id, bed.a.success().wr_id], [1, 4]);
    bed.end();
}

#[test]
fn queues_that_are_full_refuse_what_comes_next() {
    const FULL: i32 = Errno::ENOMEM as i32;
    let bed = Bed::unconnected();
    for _ in 0..16 {
        bed.a.post_recv(1, bed.a.sge(0, 4));
        let wr = &mut request(1, IBV_WR_SEND, &mut []);
        assert_eq!(bed.a.post_send(wr), 0);
    }
    let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), ptr::null_mut());
    let post = bed.a.ops().post_recv.expect("a slot");
    assert_eq!(post(bed.a.qp, &raw mut wr, Some(&mut bad)), FULL);
    assert_eq!(bad, &raw mut wr);
    assert_eq!(bed.a.post_send(&mut request(1, IBV_WR_SEND, &mut [])), FULL);
    bed.end();
}

#[test]
fn buffer_that_is_used_again_at_once_was_sent_inline() {
    let bed = Bed::new();
    bed.b.post_recv(1, bed.b.sge(0, 100));
    let mut text = *b"as it was when it was posted";
    let length = u32::try_from(text.len()).expect("a few");
    let mut piece = [bed.a.sge(0, length)];
    piece[0].addr = text.as_ptr().expose_provenance() as u64;
    let mut wr: ibv_send_wr = request(1, IBV_WR_SEND, &mut piece);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    text.fill(0);
    assert_eq!(bed.b.success().byte_len, length);
    assert_eq!(&bed.b.read(0), b"as it was when it was posted");
    bed.end();
}
