//! Calls of the C interface, as an unmodified program makes them by the inline functions of the
//! header.

use std::hint::black_box;
use std::ptr;

use xwarp::Listener;
use xwarp::sim::{Instant, Wire};
use xwarp_dropin::abi::Zeroed;
use xwarp_dropin::abi::numbers::{
    IBV_QP_STATE, IBV_QPS_ERR, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE,
};
use xwarp_dropin::abi::verbs::{Rdma, Target, ibv_qp_attr, ibv_recv_wr, ibv_send_wr, ibv_wc};
use xwarp_dropin::verbs::qp::ibv_modify_qp;
use xwarp_test_kit::{Side, carry};

use crate::calls::{Caller, Fate, LEN, Round, calls, counted};
use crate::hosts::{BURST, BURST_LEN, HALF_TRIP, Host, Manner, PAUSE, TIMEOUT, open, responder_at};

/// Turns within which the work of a round has completed.
const TURNS: usize = 40;
/// Entries of a work queue: [`BURST`].
const DEPTH: u16 = 64;
const _: () = assert!(DEPTH as usize == BURST);

/// A program whose calls are counted, and its peer.
pub(crate) struct Program {
    requester: xwarp_dropin::Program,
    wire: Wire,
    peer: Host,
    now: Instant,
    /// A Write of [`LEN`] bytes, and what it writes.
    request: ibv_send_wr,
    /// As many of them, linked to a list.
    list: Box<[ibv_send_wr; BURST]>,
    /// A buffer for a message.
    buffer: ibv_recv_wr,
    /// Places for completions.
    done: [ibv_wc; BURST],
}

/// Where the program writes to.
fn remote(peer: &Host) -> Rdma {
    let place = peer.region.remote(0);
    Rdma {
        remote_addr: place.to,
        rkey: place.stag.0,
    }
}

fn names() -> impl Iterator<Item = u64> {
    0..BURST as u64
}

#[inline]
fn write(caller: &mut Program) {
    let host = caller.requester.host();
    let post = host.ops().post_send.expect("a slot");
    let mut bad = ptr::null_mut();
    for name in names() {
        caller.request.wr_id = name;
        let failed = post(host.qp, black_box(&raw mut caller.request), Some(&mut bad));
        assert_eq!(failed, 0);
    }
}

#[inline]
fn list(caller: &mut Program) {
    let host = caller.requester.host();
    let post = host.ops().post_send.expect("a slot");
    for (name, request) in names().zip(&mut *caller.list) {
        request.wr_id = name;
    }
    let mut bad = ptr::null_mut();
    let first = black_box(caller.list.as_mut_ptr());
    assert_eq!(post(host.qp, first, Some(&mut bad)), 0);
}

/// A Write by one function for each part of it.
#[inline]
fn parts(caller: &mut Program) {
    let host = caller.requester.host();
    let qp = host.qp.cast();
    let abi = host.qp_ex();
    let start = abi.wr_start.expect("a slot");
    let write = abi.wr_rdma_write.expect("a slot");
    let set_sge = abi.wr_set_sge.expect("a slot");
    let complete = abi.wr_complete.expect("a slot");
    let (local, remote) = (host.sge(0, LEN), remote(&caller.peer));
    for name in names() {
        start(qp);
        host.name_next(name);
        write(qp, remote.rkey, remote.remote_addr);
        set_sge(qp, local.lkey, local.addr, local.length);
        assert_eq!(complete(qp), 0);
    }
}

#[inline]
fn receive(caller: &mut Program) {
    let host = caller.requester.host();
    let post = host.ops().post_recv.expect("a slot");
    let mut bad = ptr::null_mut();
    for name in names() {
        caller.buffer.wr_id = name;
        let failed = post(host.qp, black_box(&raw mut caller.buffer), Some(&mut bad));
        assert_eq!(failed, 0);
    }
}

#[inline]
fn poll(caller: &mut Program, is_success: bool) {
    let host = caller.requester.host();
    let poll = host.ops().poll_cq.expect("a slot");
    let mut wc = ibv_wc::zeroed();
    for _ in 0..BURST {
        assert_eq!(poll(host.cq, 1, black_box(&raw mut wc)), 1);
        assert!((wc.status == IBV_WC_SUCCESS) == is_success);
    }
}

#[inline]
fn success(caller: &mut Program) {
    poll(caller, true);
}

#[inline]
fn flushed(caller: &mut Program) {
    poll(caller, false);
}

#[inline]
fn polls(caller: &mut Program) {
    let host = caller.requester.host();
    let poll = host.ops().poll_cq.expect("a slot");
    let polled = poll(host.cq, DEPTH.into(), black_box(caller.done.as_mut_ptr()));
    assert_eq!(polled, i32::from(DEPTH));
    assert!(caller.done.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
}

fn inline(caller: &mut Program) {
    caller.request.send_flags |= IBV_SEND_INLINE;
    write(caller);
    caller.request.send_flags &= !IBV_SEND_INLINE;
}

counted! { Program:
    call_c_write = write;
    call_c_inline = inline;
    call_c_list = list;
    call_c_parts = parts;
    call_c_receive = receive;
    call_c_success = success;
    call_c_flushed = flushed;
    call_c_polls = polls;
}

impl Caller for Program {
    const ROUNDS: &'static [Round<Self>] = &[
        Round {
            fate: Fate::Done,
            post: calls!(call_c_write = write),
            poll: calls!(call_c_success = success),
        },
        Round {
            fate: Fate::Done,
            post: calls!(call_c_inline = inline),
            poll: calls!(call_c_polls = polls),
        },
        Round {
            fate: Fate::Done,
            post: calls!(call_c_list = list),
            poll: calls!(polls),
        },
        Round {
            fate: Fate::Done,
            post: calls!(call_c_parts = parts),
            poll: calls!(polls),
        },
        Round {
            fate: Fate::Received,
            post: calls!(call_c_receive = receive),
            poll: calls!(polls),
        },
        Round {
            fate: Fate::Flushed,
            post: calls!(receive),
            poll: calls!(call_c_flushed = flushed),
        },
    ];

    fn new() -> Self {
        let region = BURST * BURST_LEN;
        let (rnic, wire) = open(Side::A, Manner::PLAIN, region);
        let peer = Host::new(Side::B, Manner::PLAIN, DEPTH, region);
        let program = xwarp_dropin::Program::on(rnic, DEPTH.into());
        let (request, buffer) = requests(&program, &peer);
        let mut listener = peer.rnic.listen(responder_at()).expect("a free port");
        let mut caller = Self {
            requester: program,
            wire,
            peer,
            now: Instant::ORIGIN,
            request,
            list: linked(request),
            buffer,
            done: [ibv_wc::zeroed(); BURST],
        };
        caller.connect(&mut listener);
        caller
    }

    fn settle(&mut self, fate: Fate) {
        match fate {
            Fate::Done => {}
            Fate::Received => self.peer.send_burst(LEN),
            Fate::Flushed => self.fail(),
        }
        for _ in 0..TURNS {
            if self.turn() == 0 {
                break;
            }
        }
        if fate == Fate::Received {
            self.peer.take_burst();
        }
        self.now = self.now + PAUSE;
    }
}

/// A Write of [`LEN`] bytes, and a buffer for as many.
fn requests(program: &xwarp_dropin::Program, peer: &Host) -> (ibv_send_wr, ibv_recv_wr) {
    let sge = Box::leak(Box::new(program.host().sge(0, LEN)));
    let mut write = ibv_send_wr::zeroed();
    (write.opcode, write.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
    (write.sg_list, write.num_sge) = (&raw mut *sge, 1);
    write.wr = Target { rdma: remote(peer) };
    let mut buffer = ibv_recv_wr::zeroed();
    (buffer.sg_list, buffer.num_sge) = (&raw mut *sge, 1);
    (write, buffer)
}

/// A list of work requests like this one.
fn linked(request: ibv_send_wr) -> Box<[ibv_send_wr; BURST]> {
    let mut list = Box::new([request; BURST]);
    let first = list.as_mut_ptr();
    for (next, request) in (1..BURST).zip(list.iter_mut()) {
        request.next = first.wrapping_add(next);
    }
    list
}

impl Program {
    fn connect(&mut self, listener: &mut Listener) {
        self.peer.create_qp();
        let mut connecting = self.requester.begin_connect(responder_at(), TIMEOUT);
        let request = loop {
            self.turn();
            if let Some(request) = listener.try_accept().expect("an open RNIC") {
                break request;
            }
        };
        let accepted = request.accept(&mut self.peer.qps[0], b"");
        accepted.expect("a waiting connection");
        let answer = loop {
            self.turn();
            if let Some(answer) = connecting.try_finish() {
                break answer;
            }
        };
        answer.expect("a connection");
    }

    /// Ends the connection: from now on all work is flushed.
    fn fail(&self) {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_ERR;
        let mask = IBV_QP_STATE.cast_signed();
        let failed = ibv_modify_qp(self.requester.host().qp, Some(&attr), mask);
        assert_eq!(failed, 0);
    }

    /// Lets both engines turn, and carries frames; how many.
    fn turn(&mut self) -> usize {
        self.requester.rnic().step_at(self.now);
        self.now = self.now + HALF_TRIP;
        let forth = carry(&self.wire, &self.peer.wire);
        self.peer.rnic.step_at(self.now);
        self.now = self.now + HALF_TRIP;
        forth + carry(&self.peer.wire, &self.wire)
    }
}
