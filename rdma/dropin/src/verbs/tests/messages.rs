//! Messages of all kinds between two queue pairs.

use std::ffi::c_void;
use std::ptr::{self, with_exposed_provenance_mut};
use std::thread;

use nix::errno::Errno;

use super::testbed::{Bed, LEN, receive, request, rkey};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
    IBV_QP_STATE, IBV_QPS_ERR, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD,
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_SEND, IBV_WC_WITH_IMM,
    IBV_WC_WR_FLUSH_ERR, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};
use crate::abi::verbs::{
    Atomic, Rdma, Target, ibv_async_event, ibv_port_attr, ibv_qp_attr, ibv_sge, ibv_wc,
};
use crate::backend::limits;
use crate::verbs::async_events::{ibv_ack_async_event, ibv_get_async_event};
use crate::verbs::cq_events::{ibv_ack_cq_events, ibv_get_cq_event};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr};
use crate::verbs::qp::ibv_modify_qp;
use crate::verbs::query::query_port;

#[test]
fn send_of_several_pieces_arrives_in_one_buffer() {
    let bed = Bed::new();
    bed.a.write(0, b"one");
    bed.a.write(1000, b"two");
    bed.b.post_recv(7, bed.b.sge(64, 100));
    let mut pieces = [bed.a.sge(0, 3), bed.a.sge(1000, 3)];
    assert_eq!(
        bed.a.post_send(&mut request(1, IBV_WR_SEND, &mut pieces)),
        0
    );
    let sent = bed.a.success();
    assert_eq!((sent.wr_id, sent.opcode), (1, IBV_WC_SEND));
    let received = bed.b.success();
    assert_eq!((received.wr_id, received.opcode), (7, IBV_WC_RECV));
    assert_eq!((received.byte_len, &bed.b.read(64)), (6, b"onetwo"));
    bed.end();
}

/// libiscsi has its lists in packed structs.
#[test]
fn list_of_pieces_may_lie_at_any_address() {
    #[repr(C, packed)]
    struct Packed(u8, [ibv_sge; 2]);
    /// Places the list at an odd address.
    #[repr(C, align(8))]
    struct Odd(Packed);
    let bed = Bed::new();
    bed.a.write(0, b"odd");
    let mut sink = Odd(Packed(0, [bed.b.sge(64, 1), bed.b.sge(80, 2)]));
    let mut source = Odd(Packed(0, [bed.a.sge(0, 3), bed.a.sge(0, 0)]));
    let mut wr = receive(7, &mut []);
    (wr.sg_list, wr.num_sge) = ((&raw mut sink.0.1).cast(), 2);
    let post = bed.b.ops().post_recv.expect("a slot");
    assert_eq!(post(bed.b.qp, &raw mut wr, None), 0);
    let mut wr = request(1, IBV_WR_SEND, &mut []);
    (wr.sg_list, wr.num_sge) = ((&raw mut source.0.1).cast(), 1);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.a.success();
    assert_eq!(bed.b.success().byte_len, 3);
    assert_eq!((bed.b.read(64), &bed.b.read(80)), ([b'o'], b"dd"));
    bed.end();
}

#[test]
fn inline_data_need_no_registration() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let text = *b"inline";
    let start = text.as_ptr().expose_provenance() as u64;
    let place = |addr, length| ibv_sge {
        addr,
        length,
        lkey: 0,
    };
    let mut pieces = [place(start, 2), place(start + 2, 4)];
    let mut wr = request(1, IBV_WR_SEND, &mut pieces);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.b.success();
    assert_eq!(bed.b.read(0), text);
    let more_than_any = u32::try_from(limits().inline + 1).expect("a few");
    let mut too_much = [bed.a.sge(0, more_than_any)];
    let mut wr = request(2, IBV_WR_SEND, &mut too_much);
    wr.send_flags |= IBV_SEND_INLINE;
    assert_eq!(bed.a.post_send(&mut wr), Errno::EINVAL as i32);
    bed.end();
}

#[test]
fn write_and_read_reach_the_memory_of_the_peer() {
    let bed = Bed::new();
    bed.a.write(0, b"there and back");
    let mut piece = [bed.a.sge(0, 14)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut piece);
    wr.wr = bed.b.remote(512);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    assert_eq!(bed.a.success().opcode, IBV_WC_RDMA_WRITE);
    let mut sink = [bed.a.sge(2048, 14)];
    let mut wr = request(2, IBV_WR_RDMA_READ, &mut sink);
    (wr.wr, wr.send_flags) = (bed.b.remote(512), wr.send_flags | IBV_SEND_FENCE);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let read = bed.a.success();
    assert_eq!((read.opcode, read.wr_id), (IBV_WC_RDMA_READ, 2));
    assert_eq!(&bed.a.read(2048), b"there and back");
    bed.end();
}

/// A message may have as many bytes as a 32-bit length can express. None that exceeds its region is
/// sent.
#[test]
fn source_or_sink_that_leaves_its_region_is_a_local_protection_error() {
    let most = u32::MAX;
    for (opcode, length) in [
        (IBV_WR_RDMA_WRITE, most),
        (IBV_WR_SEND, most),
        (IBV_WR_RDMA_READ, 2000),
    ] {
        let bed = Bed::new();
        bed.a.write(LEN - 1000, &[7; 1000]);
        let mut piece = [bed.a.sge(LEN - 1000, length)];
        let mut wr = request(1, opcode, &mut piece);
        wr.wr = bed.b.remote(0);
        assert_eq!(bed.a.post_send(&mut wr), 0);
        let failed = bed.a.completion();
        assert_eq!((failed.wr_id, failed.status), (1, IBV_WC_LOC_PROT_ERR));
        bed.b.expect_event(bed.b.qp.cast(), IBV_EVENT_QP_FATAL);
        assert_eq!(bed.b.read::<LEN>(0), [0; LEN]);
        bed.end();
    }
    let bed = Bed::unconnected();
    let mut port = ibv_port_attr::zeroed();
    let room = (&raw mut port).cast();
    assert_eq!(
        query_port(bed.a.context, 1, room, size_of::<ibv_port_attr>()),
        0
    );
    assert_eq!(port.max_msg_sz, most);
    // One byte more, in two pieces.
    let mut pieces = [bed.a.sge(0, most), bed.a.sge(0, 1)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut pieces);
    assert_eq!(bed.a.post_send(&mut wr), Errno::EINVAL as i32);
    bed.end();
}

#[test]
fn read_needs_no_remote_right_to_its_sink_and_gives_none() {
    let bed = Bed::new();
    let local = IBV_ACCESS_LOCAL_WRITE.cast_signed();
    let mr = ibv_reg_mr(bed.a.pd, bed.a.memory.cast(), 64, local);
    bed.b.write(512, b"there");
    let mut sink = [bed.a.sge(0, 5)];
    sink[0].lkey = rkey(mr);
    let mut wr = request(1, IBV_WR_RDMA_READ, &mut sink);
    wr.wr = bed.b.remote(512);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.a.success();
    assert_eq!(&bed.a.read(0), b"there");
    let mut wr = request(2, IBV_WR_RDMA_WRITE, &mut []);
    let (remote_addr, mut piece) = (bed.a.sge(0, 0).addr, [bed.b.sge(0, 5)]);
    (wr.sg_list, wr.num_sge) = (piece.as_mut_ptr(), 1);
    wr.wr = Target {
        rdma: Rdma {
            remote_addr,
            rkey: rkey(mr),
        },
    };
    assert_eq!(bed.b.post_send(&mut wr), 0);
    bed.a.expect_event(bed.a.qp.cast(), IBV_EVENT_QP_ACCESS_ERR);
    assert_eq!(&bed.a.read(0), b"there");
    assert_eq!(ibv_dereg_mr(mr), 0);
    bed.end();
}

#[test]
fn write_with_immediate_data_completes_a_receive() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let mut piece = [bed.a.sge(0, 14)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &mut piece);
    (wr.wr, wr.imm_data) = (bed.b.remote(512), 0x0102_0304);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let received = bed.b.success();
    assert_eq!(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    let told = (received.imm_data, received.wc_flags);
    assert_eq!(told, (0x0102_0304, IBV_WC_WITH_IMM));
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    assert_eq!(bed.a.post_send(&mut wr), Errno::EOPNOTSUPP as i32);
    bed.a.success();
    bed.end();
}

#[test]
fn atomic_operations_return_what_was_there() {
    let bed = Bed::new();
    bed.b.write(512, &5_u64.to_ne_bytes());
    let Rdma { remote_addr, rkey } = Rdma {
        remote_addr: bed.b.sge(512, 8).addr,
        rkey: bed.b.key(),
    };
    let steps = [
        (IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0, 5, IBV_WC_FETCH_ADD),
        (IBV_WR_ATOMIC_CMP_AND_SWP, 8, 100, 8, IBV_WC_COMP_SWAP),
    ];
    for (opcode, compare_add, swap, before, completed) in steps {
        let mut sink = [bed.a.sge(0, 8)];
        let mut wr = request(1, opcode, &mut sink);
        wr.wr = Target {
            atomic: Atomic {
                remote_addr,
                compare_add,
                swap,
                rkey,
            },
        };
        assert_eq!(bed.a.post_send(&mut wr), 0);
        assert_eq!(bed.a.success().opcode, completed);
        assert_eq!(u64::from_ne_bytes(bed.a.read(0)), before);
    }
    assert_eq!(u64::from_ne_bytes(bed.b.read(512)), 100);
    bed.end();
}

#[test]
fn completion_event_wakes_who_reads_the_channel() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let notify = bed.b.ops().req_notify_cq.expect("a slot");
    assert_eq!(notify(bed.b.cq, 0), 0);
    let mut piece = [bed.a.sge(0, 4)];
    assert_eq!(bed.a.post_send(&mut request(1, IBV_WR_SEND, &mut piece)), 0);
    let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::dangling_mut::<c_void>());
    let taken = ibv_get_cq_event(bed.b.channel, Some(&mut cq), Some(&mut cq_context));
    assert_eq!((taken, cq, cq_context), (0, bed.b.cq, ptr::null_mut()));
    ibv_ack_cq_events(cq, 1);
    bed.b.success();
    bed.end();
}

#[test]
fn write_without_a_right_fails_at_both_ends() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let mut piece = [bed.a.sge(0, 14)];
    let mut wr = request(1, IBV_WR_RDMA_WRITE, &mut piece);
    wr.wr = bed.b.remote(super::testbed::LEN);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    // A Write completes when TCP has it, so the Terminate may refer to the next request.
    let first = bed.a.completion();
    assert!(
        first.status == 0 || first.status == IBV_WC_REM_ACCESS_ERR,
        "{}",
        first.status
    );
    assert_eq!(bed.b.completion().status, IBV_WC_WR_FLUSH_ERR);
    let mut event = ibv_async_event::zeroed();
    assert_eq!(ibv_get_async_event(bed.a.context, Some(&mut event)), 0);
    assert_eq!(event.element, bed.a.qp.cast());
    assert_eq!(event.event_type, IBV_EVENT_QP_FATAL);
    ibv_ack_async_event(Some(&event));
    bed.end();
}

#[test]
fn send_that_finds_no_buffer_ends_the_connection_at_both_ends() {
    let bed = Bed::new();
    let mut piece = [bed.a.sge(0, 14)];
    assert_eq!(bed.a.post_send(&mut request(1, IBV_WR_SEND, &mut piece)), 0);
    bed.b.expect_event(bed.b.qp.cast(), IBV_EVENT_QP_REQ_ERR);
    bed.a.expect_event(bed.a.qp.cast(), IBV_EVENT_QP_FATAL);
    // Later requests are flushed.
    bed.b.post_recv(7, bed.b.sge(0, 100));
    let flushed = bed.b.completion();
    assert_eq!((flushed.wr_id, flushed.status), (7, IBV_WC_WR_FLUSH_ERR));
    bed.end();
}

#[test]
fn message_longer_than_its_buffer_fails_at_both_ends() {
    let bed = Bed::new();
    bed.b.post_recv(7, bed.b.sge(0, 4));
    let mut piece = [bed.a.sge(0, 14)];
    assert_eq!(bed.a.post_send(&mut request(1, IBV_WR_SEND, &mut piece)), 0);
    let failed = bed.b.completion();
    assert_eq!((failed.wr_id, failed.status), (7, IBV_WC_LOC_LEN_ERR));
    bed.a.expect_event(bed.a.qp.cast(), IBV_EVENT_QP_FATAL);
    bed.end();
}

#[test]
fn request_completes_in_silence_unless_it_asks_for_more() {
    let bed = Bed::new();
    for name in 1..=3 {
        let mut wr = request(name, IBV_WR_RDMA_WRITE, &mut []);
        wr.wr = bed.b.remote(0);
        if name < 3 {
            wr.send_flags = 0;
        }
        assert_eq!(bed.a.post_send(&mut wr), 0);
    }
    assert_eq!(bed.a.success().wr_id, 3);
    bed.end();
}

#[test]
fn threads_share_a_queue_pair_and_a_completion_queue() {
    const EACH: u64 = 200;
    let bed = Bed::new();
    // Handles of C are shared by threads as addresses.
    let (qp, cq) = (bed.a.qp.expose_provenance(), bed.a.cq.expose_provenance());
    let (ops, piece) = (bed.a.ops(), bed.a.sge(0, 8));
    let target = bed.b.remote(0);
    let (post, poll) = (ops.post_send.expect("a slot"), ops.poll_cq.expect("a slot"));
    let completed: u64 = thread::scope(|scope| {
        let threads = [0, 1, 2].map(|_| {
            scope.spawn(move || {
                let (qp, cq) = (
                    with_exposed_provenance_mut(qp),
                    with_exposed_provenance_mut(cq),
                );
                let (mut posted, mut completed) = (0, 0);
                let mut places = [ibv_wc::zeroed(); 4];
                while posted < EACH {
                    let mut pieces = [piece];
                    let mut wr = request(posted, IBV_WR_RDMA_WRITE, &mut pieces);
                    wr.wr = target;
                    posted += u64::from(post(qp, &raw mut wr, None) == 0);
                    let taken = poll(cq, 4, places.as_mut_ptr());
                    completed += u64::try_from(taken).expect("no failure");
                }
                completed
            })
        });
        threads.map(|it| it.join().expect("no panic")).iter().sum()
    });
    for _ in completed..3 * EACH {
        assert_eq!(bed.a.success().opcode, IBV_WC_RDMA_WRITE);
    }
    bed.end();
}

#[test]
fn modify_to_error_flushes_receives() {
    let bed = Bed::new();
    bed.a.post_recv(7, bed.a.sge(0, 100));
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    let mask = IBV_QP_STATE.cast_signed();
    assert_eq!(ibv_modify_qp(bed.a.qp, Some(&attr), mask), 0);
    let flushed = bed.a.completion();
    assert_eq!((flushed.wr_id, flushed.status), (7, IBV_WC_WR_FLUSH_ERR));
    bed.end();
}
