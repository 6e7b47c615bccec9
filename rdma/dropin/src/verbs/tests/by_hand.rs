//! Queue pairs that their programs bring up by Modify QP alone, as InfiniBand's programs do.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use xwarp_test_kit::{Side, TIMEOUT as IN_TIME, eventually};

use super::testbed::{Bed, Host, request};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT,
    IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR,
    IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UC, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_REM_ACCESS_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_SEND,
    IBV_WC_SUCCESS, IBV_WC_WITH_IMM, IBV_WC_WR_FLUSH_ERR, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};
use crate::abi::verbs::{Rdma, Target, ibv_gid, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_wc};
use crate::backend::connection_event::{ConnectRequest, ConnectionEvent, Terms};
use crate::rendezvous::hello::Hello;
use crate::verbs::qp::{ibv_modify_qp, ibv_query_qp};
use crate::verbs::testbed::queue_pair;

const INIT: u32 = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const RTR: u32 = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const RTS: u32 = IBV_QP_STATE
    | IBV_QP_SQ_PSN
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC;
/// What the peer may do.
const REMOTE: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
/// Local ACK Timeout of most programs: 67 ms.
const TIMEOUT: u8 = 14;

fn gid(side: Side) -> ibv_gid {
    let mapped = match side.address() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ibv_gid(Ipv6Addr::octets(&mapped))
}

fn number(qp: *mut ibv_qp) -> u32 {
    // SAFETY: the queue pair lives.
    unsafe { (*qp).qp_num }
}

/// The program of a side, with the address and numbers of its peer.
#[derive(Clone, Copy)]
struct Program<'a> {
    host: &'a Host,
    peer: Side,
    number: u32,
    send_psn: u32,
    recv_psn: u32,
}

impl Program<'_> {
    /// The programs of both sides, A's first.
    fn both(bed: &Bed) -> [Program<'_>; 2] {
        let (a, b) = (&bed.a, &bed.b);
        let program = |host, peer: &Host, side, [send_psn, recv_psn]: [u32; 2]| Program {
            host,
            peer: side,
            number: number(peer.qp),
            send_psn,
            recv_psn,
        };
        [
            program(a, b, Side::B, [0x11_1111, 0x22_2222]),
            program(b, a, Side::A, [0x22_2222, 0x11_1111]),
        ]
    }

    fn modify(&self, attr: &ibv_qp_attr, mask: u32) -> i32 {
        ibv_modify_qp(self.host.qp, Some(attr), mask.cast_signed())
    }

    fn to(&self, state: u32) -> i32 {
        let mut attr = ibv_qp_attr::zeroed();
        (attr.qp_state, attr.port_num) = (state, 1);
        attr.qp_access_flags = REMOTE;
        let mask = if state == IBV_QPS_INIT {
            INIT
        } else {
            IBV_QP_STATE
        };
        self.modify(&attr, mask)
    }

    fn rtr_attr(&self) -> ibv_qp_attr {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        (attr.path_mtu, attr.dest_qp_num, attr.rq_psn) = (3, self.number, self.recv_psn);
        (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (4, 12);
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, 1);
        attr.ah_attr.grh.dgid = gid(self.peer);
        attr
    }

    fn rts_attr(&self) -> ibv_qp_attr {
        let mut attr = ibv_qp_attr::zeroed();
        (attr.qp_state, attr.sq_psn, attr.timeout) = (IBV_QPS_RTS, self.send_psn, TIMEOUT);
        (attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic) = (7, 7, 4);
        attr
    }

    fn rtr(&self) {
        assert_eq!(self.to(IBV_QPS_INIT), 0);
        assert_eq!(self.modify(&self.rtr_attr(), RTR), 0);
    }

    fn rts(&self) {
        assert_eq!(self.modify(&self.rts_attr(), RTS), 0);
    }

    fn up(&self) {
        self.rtr();
        self.rts();
    }

    fn query(&self) -> ibv_qp_attr {
        let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
        let done = ibv_query_qp(self.host.qp, Some(&mut attr), 0, Some(&mut init));
        assert_eq!(done, 0);
        attr
    }

    fn state(&self) -> u32 {
        self.query().qp_state
    }

    /// Sends 5 bytes.
    fn send(&self, wr_id: u64, bytes: [u8; 5]) {
        self.host.write(0, &bytes);
        let mut piece = [self.host.sge(0, 5)];
        let mut wr = request(wr_id, IBV_WR_SEND, &mut piece);
        assert_eq!(self.host.post_send(&mut wr), 0);
    }

    fn completion(&self) -> (u64, u32) {
        let wc = self.host.completion();
        (wc.wr_id, wc.status)
    }

    fn has_no_completion(&self) -> bool {
        let mut wc = ibv_wc::zeroed();
        let poll = self.host.ops().poll_cq.expect("a slot");
        poll(self.host.cq, 1, &raw mut wc) == 0
    }
}

/// At once after RTS, when there is no connection yet, and later.
#[test]
fn sends_carry_immediate_data_in_both_directions() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    for program in [&a, &b] {
        program.up();
        program.host.post_recv(1, program.host.sge(256, 5));
    }
    for (from, to, data) in [(a, b, 0x0102_0304_u32), (b, a, 0)] {
        from.host.write(0, b"hello");
        let mut piece = [from.host.sge(0, 5)];
        let mut wr = request(2, IBV_WR_SEND_WITH_IMM, &mut piece);
        wr.imm_data = data;
        assert_eq!(from.host.post_send(&mut wr), 0);
        let sent = from.host.completion();
        let is_sent = (sent.wr_id, sent.status, sent.opcode);
        assert_eq!(is_sent, (2, IBV_WC_SUCCESS, IBV_WC_SEND));
        let received = to.host.completion();
        let is_received = (received.wr_id, received.opcode, received.byte_len);
        assert_eq!(is_received, (1, IBV_WC_RECV, 5));
        let with = (received.wc_flags, received.imm_data);
        assert_eq!(with, (IBV_WC_WITH_IMM, data));
        assert_eq!(&to.host.read(256), b"hello");
    }
    bed.end();
}

/// NCCL takes it for the size of the message.
#[test]
fn write_with_immediate_data_reports_its_length() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    for program in [&a, &b] {
        program.up();
    }
    for len in [37, 0, 64] {
        bed.b.post_recv(1, bed.b.sge(0, 0));
        let mut piece = [bed.a.sge(0, len)];
        let mut wr = request(2, IBV_WR_RDMA_WRITE_WITH_IMM, &mut piece);
        let rdma = Rdma {
            remote_addr: bed.b.sge(128, 0).addr,
            rkey: bed.b.key(),
        };
        wr.wr = Target { rdma };
        assert_eq!(bed.a.post_send(&mut wr), 0);
        assert_eq!(a.completion(), (2, IBV_WC_SUCCESS));
        let received = bed.b.completion();
        let is = (received.opcode, received.status, received.byte_len);
        assert_eq!(is, (IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, len));
    }
    bed.end();
}

/// A message from one to the other arrives.
fn assert_sends(from: &Program<'_>, to: &Program<'_>, wr_id: u64) {
    to.host.post_recv(wr_id, to.host.sge(256, 5));
    from.send(wr_id, *b"hello");
    assert_eq!(from.completion(), (wr_id, IBV_WC_SUCCESS));
    assert_eq!(to.completion(), (wr_id, IBV_WC_SUCCESS));
    assert_eq!(&to.host.read(256), b"hello");
}

/// A side is brought up, and gets the message that the other one has sent it before.
fn assert_comes_late(late: &Program<'_>, early: &Program<'_>) {
    late.rtr();
    late.host.post_recv(8, late.host.sge(256, 5));
    late.rts();
    assert_eq!(early.completion(), (7, IBV_WC_SUCCESS));
    assert_eq!(late.completion(), (8, IBV_WC_SUCCESS));
}

fn assert_connected([a, b]: &[Program<'_>; 2]) {
    assert_sends(a, b, 1);
    assert_sends(b, a, 2);
}

#[test]
fn queue_pairs_find_each_other_whichever_program_is_first() {
    for first in [0, 1] {
        let bed = Bed::addressed();
        let programs = Program::both(&bed);
        programs[first].up();
        // The connecting side is refused meanwhile, or the other one waits.
        thread::sleep(Duration::from_millis(50));
        programs[1 - first].up();
        assert_connected(&programs);
        bed.end();
    }
}

#[test]
fn program_sees_its_own_states_and_attributes() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    a.rtr();
    assert_eq!(a.state(), IBV_QPS_RTR);
    a.rts();
    assert_eq!(a.state(), IBV_QPS_RTS, "its peer is not there yet");
    b.up();
    assert_connected(&[a, b]);
    let attr = a.query();
    assert_eq!((attr.qp_state, attr.path_mtu), (IBV_QPS_RTS, 3));
    assert_eq!((attr.dest_qp_num, attr.rq_psn), (a.number, a.recv_psn));
    assert_eq!((attr.sq_psn, attr.timeout), (a.send_psn, TIMEOUT));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
    assert_eq!(
        (attr.ah_attr.is_global, attr.ah_attr.grh.dgid),
        (1, gid(Side::B))
    );
    bed.end();
}

#[test]
fn work_that_is_posted_before_the_peer_is_there_waits_for_it() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    a.up();
    a.send(7, *b"early");
    assert_comes_late(&b, &a);
    bed.end();
}

/// InfiniBand's receiver answers that it is not ready, and the sender tries again.
#[test]
fn message_waits_for_a_receive_that_is_posted_late() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    a.up();
    b.up();
    a.send(1, *b"hello");
    a.send(2, *b"hello");
    thread::sleep(Duration::from_millis(20));
    assert!(b.has_no_completion());
    for (wr_id, place) in [(3, 256), (4, 264)] {
        b.host.post_recv(wr_id, b.host.sge(place, 5));
        assert_eq!(b.completion(), (wr_id, IBV_WC_SUCCESS));
        assert_eq!(&b.host.read(place), b"hello");
    }
    assert_eq!(b.state(), IBV_QPS_RTS);
    bed.end();
}

/// A program that only receives need not go beyond RTR.
#[test]
fn side_that_stays_in_rtr_receives() {
    for receiver in [0, 1] {
        let bed = Bed::addressed();
        let programs = Program::both(&bed);
        programs[receiver].rtr();
        programs[1 - receiver].up();
        assert_sends(&programs[1 - receiver], &programs[receiver], 1);
        assert_eq!(programs[receiver].state(), IBV_QPS_RTR);
        bed.end();
    }
}

#[test]
fn reads_are_clipped_to_what_both_sides_allow() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    let mut attr = b.rtr_attr();
    attr.max_dest_rd_atomic = 1;
    assert_eq!(b.to(IBV_QPS_INIT), 0);
    assert_eq!(b.modify(&attr, RTR), 0);
    b.rts();
    a.up();
    bed.b.write(512, b"there");
    for wr_id in 0..4 {
        let mut piece = [bed.a.sge(1024, 5)];
        let mut wr = request(wr_id, IBV_WR_RDMA_READ, &mut piece);
        wr.wr = bed.b.remote(512);
        assert_eq!(bed.a.post_send(&mut wr), 0);
    }
    for wr_id in 0..4 {
        assert_eq!(
            a.completion(),
            (wr_id, IBV_WC_SUCCESS),
            "more would be refused"
        );
    }
    assert_eq!(&bed.a.read(1024), b"there");
    assert_eq!(a.query().max_rd_atomic, 4);
    bed.end();
}

#[test]
fn peer_with_another_number_or_psn_is_not_found_until_the_program_is_right() {
    type Wrong = fn(&mut Program<'_>);
    let wrongs: [Wrong; 3] = [
        |program| program.recv_psn += 1,
        |program| program.number += 1,
        |program| program.send_psn += 1,
    ];
    for wrong in wrongs {
        let bed = Bed::addressed();
        let [a, b] = Program::both(&bed);
        let mut mistaken = b;
        wrong(&mut mistaken);
        // Before RTS the other direction is not known, and may be any.
        mistaken.up();
        a.up();
        a.send(7, *b"hello");
        thread::sleep(Duration::from_millis(100));
        assert!(a.has_no_completion(), "it has not arrived");
        assert_eq!(b.to(IBV_QPS_RESET), 0);
        assert_comes_late(&b, &a);
        bed.end();
    }
}

#[test]
fn both_sides_are_reset_and_brought_up_again() {
    let bed = Bed::addressed();
    let programs = Program::both(&bed);
    for _ in 0..3 {
        programs.iter().for_each(Program::up);
        assert_connected(&programs);
        for side in &programs {
            assert_eq!(side.to(IBV_QPS_RESET), 0);
        }
    }
    bed.end();
}

/// Over rdma_cm it succeeds, and the error is an event. The program resets a queue pair at once,
/// which may still wait for its peer to close.
#[test]
fn write_that_the_peer_refuses_fails_and_both_sides_are_brought_up_again() {
    let bed = Bed::addressed();
    let programs = Program::both(&bed);
    let [a, b] = &programs;
    for _ in 0..3 {
        programs.iter().for_each(Program::up);
        assert_connected(&programs);
        let mut piece = [bed.a.sge(0, 64)];
        let mut wr = request(8, IBV_WR_RDMA_WRITE, &mut piece);
        let rdma = Rdma {
            remote_addr: bed.b.sge(0, 0).addr,
            rkey: bed.b.key() ^ 1 << 12,
        };
        wr.wr = Target { rdma };
        assert_eq!(bed.a.post_send(&mut wr), 0);
        assert_eq!(a.completion(), (8, IBV_WC_REM_ACCESS_ERR));
        for side in [b, a] {
            assert_eq!(side.to(IBV_QPS_RESET), 0);
        }
    }
    bed.end();
}

/// Whether or not it may read, too: that a Write has been handled is confirmed.
#[test]
fn peer_does_what_the_access_flags_allow() {
    let all = [
        (IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ),
    ];
    for (opcode, flag) in all {
        for (flags, status) in [
            (flag, IBV_WC_SUCCESS),
            (REMOTE & !flag, IBV_WC_REM_ACCESS_ERR),
            (0, IBV_WC_REM_ACCESS_ERR),
        ] {
            let bed = Bed::addressed();
            let programs = Program::both(&bed);
            programs.iter().for_each(Program::rtr);
            let mut rts = programs[1].rts_attr();
            rts.qp_access_flags = flags;
            assert_eq!(programs[1].modify(&rts, RTS | IBV_QP_ACCESS_FLAGS), 0);
            programs[0].rts();
            let mut piece = [bed.a.sge(0, 64)];
            let mut wr = request(8, opcode, &mut piece);
            let rdma = Rdma {
                remote_addr: bed.b.sge(0, 0).addr,
                rkey: bed.b.key(),
            };
            wr.wr = Target { rdma };
            assert_eq!(bed.a.post_send(&mut wr), 0);
            assert_eq!(programs[0].completion(), (8, status), "{opcode} {flags}");
            bed.end();
        }
    }
}

/// InfiniBand does not notice that a peer is gone until something is sent to it.
#[test]
fn peer_that_is_destroyed_is_no_error_until_one_sends_to_it() {
    for gone in [0, 1] {
        let bed = Bed::addressed();
        let programs = Program::both(&bed);
        programs.iter().for_each(Program::up);
        assert_connected(&programs);
        let (ending, left) = (&programs[gone], &programs[1 - gone]);
        left.host.post_recv(5, left.host.sge(256, 5));
        ending.host.end();
        thread::sleep(Duration::from_millis(200));
        assert!(left.has_no_completion(), "the receive stays posted");
        assert_eq!(left.state(), IBV_QPS_RTS);
        left.host.expect_no_event();
        left.send(6, *b"hello");
        left.send(7, *b"hello");
        let mut ends = [left.completion(), left.completion(), left.completion()];
        ends.sort_unstable();
        let flushed = IBV_WC_WR_FLUSH_ERR;
        assert_eq!(
            ends,
            [(5, flushed), (6, IBV_WC_RETRY_EXC_ERR), (7, flushed)]
        );
        assert_eq!(left.state(), IBV_QPS_ERR);
        left.host.end();
    }
}

/// Of the Reads that the peer has answered before its reset there may be any number.
#[test]
fn oldest_read_that_a_peer_does_not_answer_is_reported_and_later_ones_are_flushed() {
    const READS: u64 = 16;
    for _ in 0..20 {
        let bed = Bed::addressed();
        let [a, b] = Program::both(&bed);
        a.up();
        b.up();
        assert_connected(&[a, b]);
        for wr_id in 0..READS {
            let mut piece = [bed.a.sge(0, 8192)];
            let mut wr = request(wr_id, IBV_WR_RDMA_READ, &mut piece);
            wr.wr = bed.b.remote(0);
            assert_eq!(bed.a.post_send(&mut wr), 0);
        }
        assert_eq!(b.to(IBV_QPS_RESET), 0);
        let ends: Vec<_> = (0..READS).map(|_| a.completion()).collect();
        let answered = ends
            .iter()
            .take_while(|(_, status)| *status == IBV_WC_SUCCESS);
        let expected = |wr_id: u64| match wr_id.cmp(&(answered.clone().count() as u64)) {
            Ordering::Less => IBV_WC_SUCCESS,
            Ordering::Equal => IBV_WC_RETRY_EXC_ERR,
            Ordering::Greater => IBV_WC_WR_FLUSH_ERR,
        };
        let expected: Vec<_> = (0..READS).map(|wr_id| (wr_id, expected(wr_id))).collect();
        assert_eq!(ends, expected);
        bed.end();
    }
}

#[test]
fn program_that_gives_up_flushes_its_work_itself() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    a.up();
    a.send(1, *b"hello");
    assert_eq!(a.to(IBV_QPS_ERR), 0);
    assert_eq!(a.completion(), (1, IBV_WC_WR_FLUSH_ERR));
    // The peer is refused from now on.
    b.up();
    b.send(2, *b"hello");
    thread::sleep(Duration::from_millis(50));
    assert!(b.has_no_completion());
    bed.end();
}

/// A change to the attributes of RTR, and what it is about.
type Change = (&'static str, fn(&mut ibv_qp_attr));

#[test]
fn steps_without_an_attribute_or_with_an_impossible_one_are_refused() {
    let bed = Bed::addressed();
    let [a, _] = Program::both(&bed);
    let invalid = Errno::EINVAL as i32;
    assert_eq!(a.modify(&a.rtr_attr(), RTR), invalid, "from Reset");
    assert_eq!(a.to(IBV_QPS_INIT), 0);
    for bit in 0..32 {
        let mask = RTR & !(1 << bit);
        if mask != RTR && mask & IBV_QP_STATE != 0 {
            assert_eq!(a.modify(&a.rtr_attr(), mask), invalid, "without bit {bit}");
        }
    }
    let changes: [Change; 8] = [
        ("LID", |it| it.ah_attr.is_global = 0),
        ("port", |it| it.ah_attr.port_num = 2),
        ("GID of no row", |it| it.ah_attr.grh.sgid_index = 9),
        ("no GID", |it| it.ah_attr.grh.dgid = ibv_gid([0; 16])),
        ("GID of IPv6", |it| it.ah_attr.grh.dgid.0[0] = 0xfd),
        ("MTU", |it| it.path_mtu = 6),
        ("number", |it| it.dest_qp_num = 1 << 24),
        ("depth", |it| it.max_dest_rd_atomic = 255),
    ];
    for (what, change) in changes {
        let mut attr = a.rtr_attr();
        change(&mut attr);
        assert_eq!(a.modify(&attr, RTR), invalid, "{what}");
        assert_eq!(a.state(), IBV_QPS_INIT, "{what}");
    }
    assert_eq!(a.modify(&a.rtr_attr(), RTR), 0);
    for bit in 1..32 {
        let mask = RTS & !(1 << bit);
        if mask != RTS {
            assert_eq!(a.modify(&a.rts_attr(), mask), invalid, "without bit {bit}");
        }
    }
    let late = IBV_QP_STATE | IBV_QP_DEST_QPN;
    assert_eq!(a.modify(&a.rts_attr(), RTS | late), invalid);
    assert_eq!(a.state(), IBV_QPS_RTR);
    a.rts();
    bed.end();
}

#[test]
fn unreliable_connection_takes_fewer_attributes_and_is_reliable() {
    let bed = Bed::addressed_with(IBV_QPT_UC);
    let programs = Program::both(&bed);
    let names = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    for side in &programs {
        assert_eq!(side.to(IBV_QPS_INIT), 0);
        let lacking = IBV_QP_STATE | names & !IBV_QP_RQ_PSN;
        assert_eq!(side.modify(&side.rtr_attr(), lacking), Errno::EINVAL as i32);
        assert_eq!(side.modify(&side.rtr_attr(), IBV_QP_STATE | names), 0);
        let psn = IBV_QP_STATE | IBV_QP_SQ_PSN;
        assert_eq!(side.modify(&side.rts_attr(), psn), 0);
    }
    assert_connected(&programs);
    bed.end();
}

/// The program of A, whose queue pair names itself.
fn alone(bed: &Bed) -> Program<'_> {
    let [_, b] = Program::both(bed);
    Program {
        host: &bed.a,
        peer: Side::A,
        number: number(bed.a.qp),
        recv_psn: b.send_psn,
        ..b
    }
}

/// As UCX and NIXL name it for messages of a process to itself.
#[test]
fn queue_pair_is_its_own_peer() {
    let bed = Bed::addressed();
    let own = alone(&bed);
    for _ in 0..3 {
        own.up();
        assert_sends(&own, &own, 1);
        for (opcode, key, status) in [
            (IBV_WR_RDMA_WRITE, bed.a.key(), IBV_WC_SUCCESS),
            (IBV_WR_RDMA_READ, bed.a.key(), IBV_WC_SUCCESS),
            (
                IBV_WR_RDMA_WRITE,
                bed.a.key() ^ 1 << 12,
                IBV_WC_REM_ACCESS_ERR,
            ),
        ] {
            let mut piece = [bed.a.sge(0, 64)];
            let mut wr = request(2, opcode, &mut piece);
            let rdma = Rdma {
                remote_addr: bed.a.sge(128, 0).addr,
                rkey: key,
            };
            wr.wr = Target { rdma };
            assert_eq!(bed.a.post_send(&mut wr), 0);
            assert_eq!(own.completion(), (2, status), "{opcode}");
        }
        assert_eq!(own.state(), IBV_QPS_ERR);
        assert_eq!(own.to(IBV_QPS_RESET), 0);
    }
    bed.end();
}

#[test]
fn queue_pair_that_expects_other_psns_than_its_own_reaches_no_peer() {
    let bed = Bed::addressed();
    let own = Program {
        send_psn: 7,
        ..alone(&bed)
    };
    own.up();
    own.send(1, *b"hello");
    thread::sleep(Duration::from_millis(100));
    assert!(own.has_no_completion());
    bed.end();
}

/// Destroying a queue pair does not wait for a peer that is gone.
#[test]
fn destroyed_at_once_while_its_peer_is_not_there() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    a.up();
    b.rtr();
    bed.end();
}

/// The rendezvous of B.
fn rendezvous() -> SocketAddr {
    SocketAddr::new(Side::B.address(), 4792)
}

/// Has A connect to the rendezvous of B, and returns whether it is accepted.
fn is_accepted(bed: &Bed, private_data: &[u8]) -> bool {
    let request = ConnectRequest {
        local: SocketAddr::new(Side::A.address(), 0),
        remote: rendezvous(),
        terms: Terms::default(),
        private_data: private_data.to_vec(),
        patience: Duration::ZERO,
    };
    let (sender, outcome) = mpsc::channel();
    let callback = move |event| {
        // The end of the connection is reported, too.
        let is_made = matches!(event, ConnectionEvent::Connected { .. });
        let _: Result<(), _> = sender.send(is_made);
    };
    let qp = queue_pair(bed.a.qp);
    qp.connect(request, Arc::new(callback)).expect("an attempt");
    outcome.recv_timeout(IN_TIME).expect("an outcome")
}

#[test]
fn stranger_at_the_rendezvous_is_rejected() {
    let bed = Bed::addressed();
    let [a, b] = Program::both(&bed);
    b.up();
    let right = Hello {
        from: b.number,
        to: a.number,
        send_psn: Some(a.send_psn),
        recv_psn: a.recv_psn,
    };
    let wrongs = [
        Hello { from: 77, ..right },
        Hello { to: 77, ..right },
        Hello {
            send_psn: Some(1),
            ..right
        },
        Hello {
            recv_psn: 1,
            ..right
        },
    ];
    for data in [&b""[..], b"hello", &[0xff; 24], &[0; 500]] {
        assert!(!is_accepted(&bed, data), "{data:?}");
    }
    for wrong in wrongs {
        assert!(!is_accepted(&bed, &wrong.to_bytes()), "{wrong:?}");
    }
    eventually("it no longer refuses its peer", || {
        is_accepted(&bed, &right.to_bytes())
    });
    bed.end();
}

/// The side that connects recognises its peer, too.
#[test]
fn stranger_that_accepts_is_no_peer() {
    let other = Hello {
        from: 77,
        to: 77,
        send_psn: Some(1),
        recv_psn: 1,
    };
    for answer in [&b""[..], b"lies", &other.to_bytes()] {
        let bed = Bed::addressed();
        let [a, _] = Program::both(&bed);
        let (port, _) = bed
            .backend_of_b()
            .bind(rendezvous(), false)
            .expect("a free port");
        let (qp, answer) = (queue_pair(bed.b.qp), answer.to_vec());
        let accept = move |event| {
            if let ConnectionEvent::Request(request) = event {
                let terms = Terms::default();
                let accepted = qp.accept(&request.peer, terms, &answer, Arc::new(|_end| {}));
                assert_eq!(accepted, Ok(()));
            }
        };
        port.listen(Arc::new(accept)).expect("a free port");
        a.up();
        eventually("it is failed", || a.state() == IBV_QPS_ERR);
        a.send(1, *b"hello");
        assert_eq!(a.completion(), (1, IBV_WC_RETRY_EXC_ERR));
        port.unbind().expect("it listens");
        bed.end();
    }
}
