//! The extended ways to post and to poll: one call for each part.

use std::ffi::c_void;
use std::ptr::{self, with_exposed_provenance_mut};
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use xwarp_test_kit::{Cable, eventually, thread_sleeps};

use super::testbed::{Bed, Host, qp_attr};
use super::windows::{self, REMOTE, Window};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_BIND_MW,
    IBV_QP_EX_WITH_LOCAL_INV, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_INV,
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_RC, IBV_SEND_SIGNALED,
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_FETCH_ADD,
    IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_SEND, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
};
use crate::abi::verbs::{
    ibv_cq_ex, ibv_cq_init_attr_ex, ibv_data_buf, ibv_poll_cq_attr, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex,
};
use crate::object::Object;
use crate::verbs::cq::{Cq, ibv_destroy_cq};
use crate::verbs::qp::{Qp, ibv_create_qp, ibv_destroy_qp};
use crate::verbs::qp_ex::ibv_qp_to_qp_ex;

const NOTHING: i32 = Errno::ENOENT as i32;
const OPERATIONS: u64 = IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_SEND_WITH_INV
    | IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

/// A queue that is polled in parts.
#[derive(Clone, Copy)]
struct Polled(*mut ibv_cq_ex);

impl Polled {
    fn of(host: &Host) -> Self {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = 64;
        let make = host.later().create_cq_ex.expect("a slot");
        Self(make(host.context, Some(&mut attr)))
    }

    /// The present struct.
    fn now(self) -> ibv_cq_ex {
        // SAFETY: the completion queue lives.
        unsafe { *self.0 }
    }

    fn start(self) -> i32 {
        let attr = ibv_poll_cq_attr::zeroed();
        self.now().start_poll.expect("a slot")(self.0, Some(&attr))
    }

    /// Begins a poll that must find a success.
    fn begin(self) {
        while self.start() == NOTHING {
            thread::yield_now();
        }
        assert_eq!(self.now().status, IBV_WC_SUCCESS);
    }

    fn next(self) -> i32 {
        self.now().next_poll.expect("a slot")(self.0)
    }

    fn end(self) {
        self.now().end_poll.expect("a slot")(self.0);
    }

    fn opcode(self) -> u32 {
        self.now().read_opcode.expect("a slot")(self.0)
    }

    /// Identifier and opcode of the next completion.
    fn take(self) -> (u64, u32) {
        self.begin();
        let taken = (self.now().wr_id, self.opcode());
        self.end();
        taken
    }
}

/// A queue pair that is posted to in parts.
#[derive(Clone, Copy)]
struct Posted(*mut ibv_qp_ex);

impl Posted {
    fn of(host: &Host, cq: Polled) -> Self {
        let mut init = attributes(host, cq);
        let make = host.later().create_qp_ex.expect("a slot");
        Self(ibv_qp_to_qp_ex(make(host.context, Some(&mut init))))
    }

    fn qp(self) -> *mut ibv_qp {
        self.0.cast()
    }

    fn slots(self) -> ibv_qp_ex {
        // SAFETY: the queue pair lives.
        unsafe { *self.0 }
    }

    fn start(self) {
        self.slots().wr_start.expect("a slot")(self.0);
    }

    fn name(self, wr_id: u64) {
        // SAFETY: the queue pair lives, and this field is the program's to set.
        unsafe { (*self.0).wr_id = wr_id };
        // SAFETY: as above.
        unsafe { (*self.0).wr_flags = IBV_SEND_SIGNALED };
    }

    /// An empty Send.
    fn send(self, wr_id: u64) {
        self.name(wr_id);
        self.slots().wr_send.expect("a slot")(self.0);
    }

    fn inline(self, bytes: &[u8]) {
        let set = self.slots().wr_set_inline_data.expect("a slot");
        set(self.0, bytes.as_ptr().cast(), bytes.len());
    }

    fn element(self, host: &Host, offset: usize, length: u32) {
        let place = host.sge(offset, length);
        let set = self.slots().wr_set_sge.expect("a slot");
        set(self.0, place.lkey, place.addr, length);
    }

    fn complete(self) -> i32 {
        self.slots().wr_complete.expect("a slot")(self.0)
    }
}

fn attributes(host: &Host, cq: Polled) -> ibv_qp_init_attr_ex {
    let (mut init, base) = (ibv_qp_init_attr_ex::zeroed(), qp_attr(cq.0.cast()));
    (init.send_cq, init.recv_cq, init.cap) = (base.send_cq, base.recv_cq, base.cap);
    (init.qp_type, init.pd) = (IBV_QPT_RC, host.pd);
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = OPERATIONS;
    init
}

/// Both of the first host, connected to the second.
fn connected(bed: &Bed) -> (Posted, Polled) {
    let cq = Polled::of(&bed.a);
    let qp = Posted::of(&bed.a, cq);
    bed.connect(qp.qp(), bed.b.qp);
    (qp, cq)
}

fn end(bed: Bed, (qp, cq): (Posted, Polled)) {
    let ends = [ibv_destroy_qp(qp.qp()), ibv_destroy_cq(cq.0.cast())];
    assert_eq!(ends, [0, 0]);
    bed.end();
}

#[test]
fn messages_are_put_together_and_posted_in_order() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    for (name, offset) in [(0, 0), (1, 64), (2, 128)] {
        bed.b.post_recv(name, bed.b.sge(offset, 64));
    }
    bed.a.write(0, b"first");
    qp.start();
    qp.send(1);
    qp.element(&bed.a, 0, 5);
    qp.send(2);
    qp.inline(b"second");
    qp.send(3);
    let parts = [&b"thi"[..], b"rd"].map(|part| ibv_data_buf {
        addr: part.as_ptr().cast_mut().cast::<c_void>(),
        length: part.len(),
    });
    qp.slots().wr_set_inline_data_list.expect("a slot")(qp.0, 2, parts.as_ptr());
    assert_eq!(qp.complete(), 0);
    for (name, length) in [(0, 5), (1, 6), (2, 5)] {
        let received = bed.b.success();
        assert_eq!((received.wr_id, received.byte_len), (name, length));
        assert_eq!(received.opcode, IBV_WC_RECV);
    }
    assert_eq!(&bed.b.read(0), b"first");
    assert_eq!(&bed.b.read(64), b"second");
    assert_eq!(&bed.b.read(128), b"third");
    assert_eq!([cq.take().0, cq.take().0, cq.take().0], [1, 2, 3]);
    end(bed, (qp, cq));
}

#[test]
fn operations_on_memory_of_the_peer_are_put_together() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let (key, place, slots) = (bed.b.key(), bed.b.sge(512, 0).addr, qp.slots());
    bed.a.write(0, &5_u64.to_ne_bytes());
    bed.b.post_recv(7, bed.b.sge(0, 0));
    qp.start();
    qp.name(1);
    slots.wr_rdma_write_imm.expect("a slot")(qp.0, key, place, 9);
    let element = bed.a.sge(0, 8);
    slots.wr_set_sge_list.expect("a slot")(qp.0, 1, &raw const element);
    qp.name(2);
    slots.wr_atomic_fetch_add.expect("a slot")(qp.0, key, place, 3);
    qp.element(&bed.a, 8, 8);
    qp.name(3);
    slots.wr_atomic_cmp_swp.expect("a slot")(qp.0, key, place, 8, 100);
    qp.element(&bed.a, 16, 8);
    qp.name(4);
    slots.wr_rdma_read.expect("a slot")(qp.0, key, place);
    qp.element(&bed.a, 24, 8);
    qp.name(5);
    slots.wr_rdma_write.expect("a slot")(qp.0, key, place);
    assert_eq!(qp.complete(), 0);
    let expected = [
        (1, IBV_WC_RDMA_WRITE),
        (2, IBV_WC_FETCH_ADD),
        (3, IBV_WC_COMP_SWAP),
        (4, IBV_WC_RDMA_READ),
        (5, IBV_WC_RDMA_WRITE),
    ];
    assert_eq!(expected.map(|_| cq.take()), expected);
    let number = |at| u64::from_ne_bytes(bed.a.read(at));
    assert_eq!([number(8), number(16), number(24)], [5, 8, 100]);
    assert_eq!(bed.b.success().imm_data, 9);
    end(bed, (qp, cq));
}

#[test]
fn windows_are_bound_and_taken_away_in_parts() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let [theirs, own] = [windows::bound(&bed, REMOTE), Window::of(&bed.a)];
    let bind = own.bind(&bed.a, bed.a.mr, 0, REMOTE);
    bed.b.post_recv(7, bed.b.sge(0, 8));
    let slots = qp.slots();
    qp.start();
    qp.name(1);
    slots.wr_bind_mw.expect("a slot")(qp.0, own.mw, own.key, Some(&bind.bind_info));
    qp.name(2);
    slots.wr_local_inv.expect("a slot")(qp.0, own.key);
    qp.name(3);
    slots.wr_send_inv.expect("a slot")(qp.0, theirs.key);
    assert_eq!(qp.complete(), 0);
    let expected = [(1, IBV_WC_BIND_MW), (2, IBV_WC_LOCAL_INV), (3, IBV_WC_SEND)];
    assert_eq!(expected.map(|_| cq.take()), expected);
    assert_eq!(bed.b.success().imm_data, theirs.key);
    own.end(&bed.a);
    theirs.end(&bed.b);
    end(bed, (qp, cq));
}

#[test]
fn batch_that_fails_posts_nothing_at_all() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    // More than the queue's 16, and more pieces than the queue pair's 4.
    qp.start();
    (0..17).for_each(|name| qp.send(name));
    assert_eq!(qp.complete(), Errno::ENOMEM as i32);
    qp.start();
    qp.send(1);
    qp.send(2);
    let pieces = [bed.a.sge(0, 1); 5];
    qp.slots().wr_set_sge_list.expect("a slot")(qp.0, 5, pieces.as_ptr());
    assert_eq!(qp.complete(), Errno::EINVAL as i32);
    qp.start();
    qp.send(3);
    qp.slots().wr_set_sge_list.expect("a slot")(qp.0, 5, ptr::null());
    qp.send(4);
    assert_eq!(qp.complete(), Errno::EINVAL as i32);
    // There is room for as many as the queue takes, so nothing was posted.
    (0..16).for_each(|at| bed.b.post_recv(at, bed.b.sge(0, 8)));
    qp.start();
    (100..116).for_each(|name| qp.send(name));
    assert_eq!(qp.complete(), 0);
    assert!((100..116).all(|name| cq.take() == (name, IBV_WC_SEND)));
    assert_eq!(cq.start(), NOTHING);
    end(bed, (qp, cq));
}

#[test]
fn batch_that_is_aborted_posts_nothing_and_ends_the_turn() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    qp.start();
    qp.send(1);
    qp.slots().wr_abort.expect("a slot")(qp.0);
    assert_eq!(qp.complete(), Errno::EINVAL as i32);
    bed.b.post_recv(0, bed.b.sge(0, 8));
    qp.start();
    qp.send(2);
    assert_eq!(qp.complete(), 0);
    assert_eq!(cq.take(), (2, IBV_WC_SEND));
    end(bed, (qp, cq));
}

#[test]
fn all_that_a_completion_tells_is_read() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let post = bed.a.ops().post_recv.expect("a slot");
    for name in 0..2 {
        let mut places = [bed.a.sge(0, 64)];
        let mut wr = super::testbed::receive(name, &mut places);
        assert_eq!(post(qp.qp(), &raw mut wr, None), 0);
    }
    bed.b.write_with_immediate(&bed.a, 0x0102_0304);
    bed.b.write_with_immediate(&bed.a, 0x0506_0708);
    cq.begin();
    let now = cq.now();
    let read = |slot: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>| slot.expect("a slot")(cq.0);
    assert_eq!((now.wr_id, cq.opcode()), (0, IBV_WC_RECV_RDMA_WITH_IMM));
    // The message that completes the receive follows the Write, and does not carry its length.
    assert_eq!(read(now.read_byte_len), 0);
    assert_eq!(read(now.read_imm_data), 0x0102_0304);
    assert_eq!(read(now.read_wc_flags), IBV_WC_WITH_IMM);
    // SAFETY: the queue pair lives.
    assert_eq!(read(now.read_qp_num), unsafe { (*qp.qp()).qp_num });
    let none = [now.read_vendor_err, now.read_src_qp, now.read_slid].map(read);
    assert_eq!(none, [0; 3]);
    assert_eq!(now.read_sl.expect("a slot")(cq.0), 0);
    assert_eq!(now.read_dlid_path_bits.expect("a slot")(cq.0), 0);
    assert!(now.read_completion_wallclock_ns.expect("a slot")(cq.0) > 0);
    while cq.next() == NOTHING {
        thread::yield_now();
    }
    assert_eq!((cq.now().wr_id, read(now.read_imm_data)), (1, 0x0506_0708));
    assert_eq!(cq.next(), NOTHING);
    cq.end();
    end(bed, (qp, cq));
}

#[test]
fn thread_that_polls_in_parts_is_not_disturbed_by_another() {
    const EACH: u64 = 500;
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let address = cq.0.expose_provenance();
    let write = qp.slots().wr_rdma_write.expect("a slot");
    let (key, place) = (bed.b.key(), bed.b.sge(0, 0).addr);
    let names: Vec<u64> = thread::scope(|scope| {
        let pollers = [0, 1].map(|_| {
            scope.spawn(move || {
                let cq = Polled(with_exposed_provenance_mut(address));
                (0..EACH).map(|_| cq.take().0).collect::<Vec<_>>()
            })
        });
        let mut posted = 0;
        while posted < 2 * EACH {
            qp.start();
            qp.name(posted);
            write(qp.0, key, place);
            posted += u64::from(qp.complete() == 0);
        }
        pollers
            .into_iter()
            .flat_map(|it| it.join().expect("no panic"))
            .collect()
    });
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..2 * EACH), "{names:?}");
    end(bed, (qp, cq));
}

/// Makes two threads wait while another thread has the turn, and then destroys the object.
fn destroyed_while_two_wait(
    wait: impl Fn() + Copy + Send + 'static,
    destroy: impl FnOnce() -> i32,
) {
    let waiting = [0, 1].map(|_| {
        let (number, has_begun) = mpsc::channel();
        let waiter = thread::spawn(move || {
            number.send(nix::unistd::gettid()).expect("the test waits");
            wait();
        });
        let number = has_begun.recv().expect("a thread");
        eventually("it waits", || thread_sleeps(number));
        waiter
    });
    assert_eq!(destroy(), 0);
    let all_have_ended = || waiting.iter().all(thread::JoinHandle::is_finished);
    eventually("no thread waits", all_have_ended);
    for waiter in waiting {
        waiter.join().expect("no panic");
    }
}

/// The thread that has the turn cannot end it: the handle is no longer valid.
#[test]
fn threads_that_wait_for_an_object_in_use_go_on_when_it_is_destroyed() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let [of_qp, of_cq] = [qp.0.expose_provenance(), cq.0.expose_provenance()];
    let kept = (
        Object::<Qp>::find(qp.qp()).expect("it lives"),
        Object::<Cq>::find(cq.0.cast()).expect("it lives"),
    );
    bed.b.post_recv(0, bed.b.sge(0, 8));
    qp.start();
    qp.send(1);
    assert_eq!(qp.complete(), 0);
    cq.begin();
    qp.start();
    let (start, start_poll) = (qp.slots().wr_start, cq.now().start_poll);
    let (start, start_poll) = (start.expect("a slot"), start_poll.expect("a slot"));
    destroyed_while_two_wait(
        move || start(with_exposed_provenance_mut(of_qp)),
        || ibv_destroy_qp(qp.qp()),
    );
    destroyed_while_two_wait(
        move || {
            let attr = ibv_poll_cq_attr::zeroed();
            let started = start_poll(with_exposed_provenance_mut(of_cq), Some(&attr));
            assert_eq!(started, Errno::EINVAL as i32);
        },
        || ibv_destroy_cq(cq.0.cast()),
    );
    drop(kept);
    bed.end();
}

#[test]
fn what_a_queue_cannot_tell_is_refused_when_it_is_created() {
    let bed = Bed::unconnected();
    let make = bed.a.later().create_cq_ex.expect("a slot");
    let refused = |change: fn(&mut ibv_cq_init_attr_ex), errno| {
        let mut attr = ibv_cq_init_attr_ex::zeroed();
        attr.cqe = 8;
        change(&mut attr);
        let cq = make(bed.a.context, Some(&mut attr));
        assert_eq!((cq, Errno::last()), (ptr::null_mut(), errno));
    };
    let timestamps = |attr: &mut ibv_cq_init_attr_ex| {
        attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    };
    refused(timestamps, Errno::EOPNOTSUPP);
    refused(|attr| attr.comp_mask = 1 << 5, Errno::EOPNOTSUPP);
    refused(
        |attr| (attr.comp_mask, attr.flags) = (1, 2),
        Errno::EOPNOTSUPP,
    );
    refused(|attr| attr.comp_vector = 1, Errno::EINVAL);
    refused(|attr| attr.cqe = 0, Errno::EINVAL);
    assert!(make(bed.a.context, None).is_null());
    let attr = ibv_poll_cq_attr { comp_mask: 1 };
    let cq = Polled::of(&bed.a);
    let start = cq.now().start_poll.expect("a slot");
    assert_eq!(start(cq.0, Some(&attr)), Errno::EINVAL as i32);
    assert_eq!(cq.next(), Errno::EINVAL as i32);
    assert_eq!(ibv_destroy_cq(cq.0.cast()), 0);
    bed.end();
}

/// A queue whose completions have times.
fn timed_queue(host: &Host) -> Polled {
    let mut attr = ibv_cq_init_attr_ex::zeroed();
    (attr.cqe, attr.wc_flags) = (64, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    let make = host.later().create_cq_ex.expect("a slot");
    Polled(make(host.context, Some(&mut attr)))
}

#[test]
fn completion_tells_when_the_nic_received_it() {
    let bed = Bed::timed();
    let cq = timed_queue(&bed.b);
    let qp = Posted::of(&bed.b, cq);
    bed.connect(bed.a.qp, qp.qp());
    let receiving = Host {
        qp: qp.qp(),
        ..bed.b
    };
    let mut times = Vec::new();
    for number in 0..3 {
        receiving.post_recv(number, bed.b.sge(0, 64));
        bed.a.write_with_immediate(&bed.b, 7);
        cq.begin();
        assert_eq!(cq.now().wr_id, number);
        times.push(cq.now().read_completion_ts.expect("a slot")(cq.0));
        cq.end();
        bed.a.success();
    }
    let first = u64::try_from(Cable::FIRST_ARRIVAL.as_nanos()).expect("a time");
    assert!(
        times[0] > first && times.is_sorted_by(|a, b| a < b),
        "{times:?}"
    );
    // No frame arrives for a Write.
    qp.start();
    qp.name(9);
    qp.slots().wr_rdma_write.expect("a slot")(qp.0, bed.a.key(), bed.a.sge(0, 0).addr);
    assert_eq!(qp.complete(), 0);
    cq.begin();
    assert_eq!(cq.now().wr_id, 9);
    assert_eq!(cq.now().read_completion_ts.expect("a slot")(cq.0), 0);
    cq.end();
    end(bed, (qp, cq));
}

#[test]
fn what_a_queue_pair_cannot_do_is_refused_when_it_is_created() {
    let bed = Bed::unconnected();
    let (make, cq) = (
        bed.a.later().create_qp_ex.expect("a slot"),
        Polled::of(&bed.a),
    );
    let refused = |change: fn(&mut ibv_qp_init_attr_ex), errno| {
        let mut init = attributes(&bed.a, cq);
        change(&mut init);
        let qp = make(bed.a.context, Some(&mut init));
        assert_eq!((qp, Errno::last()), (ptr::null_mut(), errno));
    };
    // Segmentation, and an unknown operation.
    refused(|init| init.send_ops_flags |= 1 << 10, Errno::EOPNOTSUPP);
    refused(|init| init.send_ops_flags |= 1 << 40, Errno::EOPNOTSUPP);
    // An XRC domain, a table of work queues.
    refused(|init| init.comp_mask |= 1 << 1, Errno::EOPNOTSUPP);
    refused(|init| init.comp_mask |= 1 << 4, Errno::EOPNOTSUPP);
    refused(|init| init.comp_mask &= !IBV_QP_INIT_ATTR_PD, Errno::EINVAL);
    assert!(make(bed.a.context, None).is_null());
    assert_eq!(ibv_destroy_cq(cq.0.cast()), 0);
    bed.end();
}

#[test]
fn queue_pair_without_operations_has_no_such_functions() {
    let bed = Bed::unconnected();
    assert_eq!(ibv_qp_to_qp_ex(bed.a.qp), ptr::null_mut());
    // UD, raw packets, and XRC's two.
    for kind in [4, 8, 9, 10] {
        let mut other = qp_attr(bed.a.cq);
        other.qp_type = kind;
        assert!(ibv_create_qp(bed.a.pd, Some(&mut other)).is_null());
        assert_eq!(Errno::last(), Errno::EOPNOTSUPP);
    }
    bed.end();
}

#[test]
fn lists_at_odd_addresses_are_read() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let slots = qp.slots();
    bed.a.write(0, b"memory");
    bed.b.post_recv(0, bed.b.sge(0, 8));
    bed.b.post_recv(1, bed.b.sge(64, 8));
    let (element, data) = (bed.a.sge(0, 6), b"inline");
    let addr = ptr::from_ref(data).cast_mut().cast();
    let piece = ibv_data_buf { addr, length: 6 };
    let (element, piece) = (Odd::new(element), Odd::new(piece));
    qp.start();
    qp.name(1);
    slots.wr_send.expect("a slot")(qp.0);
    slots.wr_set_sge_list.expect("a slot")(qp.0, 1, element.at());
    qp.name(2);
    slots.wr_send.expect("a slot")(qp.0);
    slots.wr_set_inline_data_list.expect("a slot")(qp.0, 1, piece.at());
    assert_eq!(qp.complete(), 0);
    assert_eq!([cq.take().0, cq.take().0], [1, 2]);
    assert_eq!([bed.b.success().wr_id, bed.b.success().wr_id], [0, 1]);
    assert_eq!((&bed.b.read(0), &bed.b.read(64)), (b"memory", b"inline"));
    end(bed, (qp, cq));
}

#[test]
fn lists_and_data_that_cannot_be_so_long_are_refused() {
    let bed = Bed::unconnected();
    let (qp, cq) = connected(&bed);
    let slots = qp.slots();
    let element = bed.a.sge(0, 8);
    let addr = ptr::from_ref(&element).cast_mut().cast();
    let piece = ibv_data_buf { addr, length: 8 };
    let endless = ibv_data_buf {
        addr,
        length: usize::MAX,
    };
    let send = || slots.wr_send.expect("a slot")(qp.0);
    let set_sges = slots.wr_set_sge_list.expect("a slot");
    let set_inline = slots.wr_set_inline_data.expect("a slot");
    let set_pieces = slots.wr_set_inline_data_list.expect("a slot");
    let tries: [&dyn Fn(); 5] = [
        &|| set_sges(qp.0, usize::MAX, &raw const element),
        &|| set_pieces(qp.0, usize::MAX, &raw const piece),
        &|| set_pieces(qp.0, 1, &raw const endless),
        &|| set_pieces(qp.0, 1, ptr::null()),
        &|| set_inline(qp.0, addr, usize::MAX),
    ];
    for attempt in tries {
        qp.start();
        send();
        attempt();
        assert_eq!(qp.complete(), Errno::EINVAL as i32);
    }
    assert_eq!(cq.start(), NOTHING);
    end(bed, (qp, cq));
}

/// A struct of C at an odd address.
#[repr(C, align(8))]
struct Odd<T>(Behind<T>);

#[repr(C, packed)]
struct Behind<T> {
    byte: u8,
    value: T,
}

impl<T> Odd<T> {
    fn new(value: T) -> Self {
        Self(Behind { byte: 0, value })
    }

    fn at(&self) -> *const T {
        &raw const self.0.value
    }
}
