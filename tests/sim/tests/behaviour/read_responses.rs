//! Read Responses while they leave: revocation, the end of either side, and their turns (RFC 5040
//! §5.2, §4.8; wire.md §6.1, §6.4).

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpConfig, QpState, RecvRequest, SendRequest,
    Sge, Stag, WrId,
};
use xwarp_sim_tests::wire::{Untagged, read_request, terminate, ulpdus};
use xwarp_sim_tests::{
    Done, KIB, MIB, Side, Sim, SimEnd, TAGGED_PAYLOAD, Target, needs_link, pattern,
};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

const SINK: Stag = Stag(0x5566_7788);
const SINK_TO: u64 = 0x40;

fn sim() -> Sim {
    Sim::new(Seed(41)).one_way_delay(Duration::from_micros(50))
}

/// The request number `msn` for `len` bytes.
fn request(msn: u32, region: &MemoryRegion, to: u64, len: usize) -> Vec<u8> {
    let len = u32::try_from(len).unwrap();
    let header = read_request(SINK, SINK_TO, len, region.stag(), to);
    let place = Untagged {
        msn,
        ..Untagged::read_request()
    };
    place.fpdu(&header)
}

fn source(dut: &Dut, len: usize) -> MemoryRegion {
    let region = dut.end.region(len, Access::all());
    region.bytes().write(0, &pattern(len)).unwrap();
    region
}

/// Bytes of the response that a plain peer has; all must be right and follow each other.
fn response_bytes(ulpdus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for ulpdu in ulpdus {
        let to = SINK_TO + bytes.len() as u64;
        assert_eq!(ulpdu[2..6], [0x55, 0x66, 0x77, 0x88]);
        assert_eq!(ulpdu[6..14], to.to_be_bytes());
        bytes.extend(&ulpdu[14..]);
    }
    bytes
}

/// The Terminate returns the request as far as it is not answered (R5040-4.8-13), and nothing of
/// the region leaves after it has gone.
#[test]
fn revoked_source_stops_the_response_and_the_rest_is_returned() {
    for time in [52, 150, 400] {
        let drops = &["drop_after_failure"];
        let mut dut = Dut::new().expecting(drops);
        let region = source(&dut, MIB);
        let memory = region.bytes().clone();
        dut.peer.send(&request(1, &region, 8, MIB - 8));
        dut.sim.run_for(Duration::from_micros(time));
        drop(region);
        memory.fill(0..MIB, 0xee).unwrap();
        dut.sim.run_until("the FIN", || dut.peer.saw_fin());
        let mut stream = ulpdus(&dut.answer());
        let (code, captured) = terminate(&dut.answer());
        stream.pop();
        let sent = response_bytes(&stream);
        assert!(!sent.is_empty() && sent.len() < MIB - 8, "after {time} us");
        assert_eq!(sent.len() % TAGGED_PAYLOAD, 0, "whole segments");
        assert!(sent == pattern(MIB)[8..][..sent.len()]);
        assert_eq!(code, TermCode::rdmap_protection(0));
        let n = sent.len() as u64;
        let left = u32::try_from(MIB - 8 - sent.len()).unwrap();
        assert_eq!(captured[..2], [0xe0, 0], "M, D and R");
        assert_eq!(captured[2..4], [0, 46], "its ULPDU's length");
        assert_eq!(captured[4..6], [0x41, 0x41], "its DDP header");
        let rest = &captured[22..];
        assert_eq!(rest[..4], [0x55, 0x66, 0x77, 0x88]);
        assert_eq!(rest[4..12], (SINK_TO + n).to_be_bytes());
        assert_eq!(rest[12..16], left.to_be_bytes());
        assert_eq!(rest[20..], (8 + n).to_be_bytes());
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(dut.end.state(), QpState::Error);
    }
}

/// A region that is registered as soon as the other has gone is not read in its stead.
#[test]
fn region_registered_in_the_place_of_the_revoked_one_is_not_read() {
    let mut dut = Dut::new().expecting(&["drop_after_failure"]);
    let region = source(&dut, MIB);
    dut.peer.send(&request(1, &region, 0, MIB));
    dut.sim.run_for(Duration::from_micros(52));
    drop(region);
    let secret = dut.end.region(MIB, Access::all());
    secret.bytes().fill(0..MIB, 0x55).unwrap();
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let mut stream = ulpdus(&dut.answer());
    assert!(stream.pop().is_some());
    let sent = response_bytes(&stream);
    assert!(sent == pattern(MIB)[..sent.len()] && sent.len() < MIB);
    dut.peer.close();
    dut.sim.run_until_idle();
}

/// Two RNICs: `a` reads from `b`, and part of the response is here.
struct Midway {
    sim: Sim,
    a: SimEnd,
    b: SimEnd,
    sink: Target,
    _source: Target,
}

impl Midway {
    fn new() -> Self {
        let mut sim = sim().expecting(&["drop_no_flow", "drop_after_failure"]);
        let (mut a, b) = sim.connected_pair();
        let (source, sink) = (b.target(MIB), a.target(MIB));
        source.fill(&pattern(MIB));
        a.post_read(1, sink.local(0, MIB), source.remote(0));
        a.post_read(2, sink.local(0, 8), source.remote(0));
        let placed = || a.host().rnic().counters().unwrap().rdma.placed_bytes;
        sim.run_until("the begin of the response", || placed() > 0);
        assert!(placed() < MIB as u64);
        Self {
            sim,
            a,
            b,
            sink,
            _source: source,
        }
    }

    /// Both Reads are flushed, and a beginning of the first is all that has come.
    fn assert_cut(&mut self) {
        let expected = [1, 2].map(|i| Done::flushed(i, Opcode::Read));
        assert_eq!(self.a.sends(), expected);
        self.assert_sink_is_cut();
    }

    fn assert_sink_is_cut(&self) {
        assert_eq!(self.a.state(), QpState::Error);
        let here = self.sink.to_vec();
        let right = pattern(MIB);
        let n = here.iter().zip(&right).take_while(|(a, b)| a == b).count();
        assert!(n > 0 && n < MIB);
        let whole = n - n % TAGGED_PAYLOAD;
        assert!(
            here[whole + TAGGED_PAYLOAD..].iter().all(|byte| *byte == 0),
            "the response stops for good"
        );
    }

    /// The hosts are as able as before.
    fn assert_others_go_on(&mut self) {
        let (mut c, d) = self.sim.connected_pair();
        let (source, sink) = (d.target(64 * KIB), c.target(64 * KIB));
        source.fill(&pattern(64 * KIB));
        c.post_read(1, sink.local(0, 64 * KIB), source.remote(0));
        self.sim.run_until_idle();
        assert_eq!(c.sends(), [Done::read(1, 64 * KIB)]);
        assert!(sink.to_vec() == pattern(64 * KIB));
    }
}

/// No place at all.
fn nowhere() -> Sge {
    Sge {
        stag: Stag(0x1234_5600),
        to: 0,
        len: 8,
    }
}

fn assert_reset(end: &SimEnd) {
    assert_eq!(end.events(), [AsyncEventKind::ConnectionReset]);
}

#[test]
fn responder_that_is_destroyed_midway_sends_nothing_more() {
    let mut midway = Midway::new();
    let host = midway.b.host().clone();
    let other = host.end(&xwarp::QpConfig::default());
    drop(std::mem::replace(&mut midway.b, other));
    midway.sim.run_until_idle();
    midway.assert_cut();
    assert_reset(&midway.a);
    midway.assert_others_go_on();
}

#[test]
fn responder_that_aborts_midway_sends_nothing_more() {
    let mut midway = Midway::new();
    midway.b.qp.abort().unwrap();
    midway.sim.run_until_idle();
    midway.assert_cut();
    assert_reset(&midway.a);
    midway.assert_others_go_on();
}

#[test]
fn requester_that_is_destroyed_midway_leaves_the_responder_free() {
    let mut midway = Midway::new();
    let host = midway.a.host().clone();
    let other = host.end(&xwarp::QpConfig::default());
    drop(std::mem::replace(&mut midway.a, other));
    let at_that_time = midway.sink.to_vec();
    midway.sim.run_until_idle();
    assert_reset(&midway.b);
    assert_eq!(midway.b.state(), QpState::Error);
    assert!(midway.sink.to_vec() == at_that_time);
    midway.assert_others_go_on();
}

/// A receive buffer turns out to be unusable while the response leaves: the Terminate cuts it at
/// the border of a segment (wire.md §6.4).
#[test]
fn responders_own_error_cuts_the_response() {
    let mut midway = Midway::new();
    let buffer = RecvRequest::new(WrId(9), nowhere());
    midway.b.qp.post_recv(buffer).unwrap();
    midway.a.post_send(3, b"nowhere");
    midway.sim.run_until_idle();
    let status = CompletionStatus::InvalidStag;
    let failed = Done::failed(9, Opcode::Receive, status);
    assert_eq!(midway.b.receives(), [failed]);
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(midway.a.events(), told);
    let mut done = midway.a.sends();
    assert!(done.pop().is_some_and(|send| send.wr_id == 3));
    assert_eq!(done, [1, 2].map(|i| Done::flushed(i, Opcode::Read)));
    midway.assert_sink_is_cut();
}

/// A work request that cannot be sent has its turn behind the response, which is whole, and before
/// the next one.
#[test]
fn responders_bad_work_request_ends_the_responses_behind_it() {
    let mut midway = Midway::new();
    midway.b.post(SendRequest::send(WrId(1), nowhere()));
    midway.sim.run_until_idle();
    let failed = Done::failed(1, Opcode::Send, CompletionStatus::InvalidStag);
    assert_eq!(midway.b.sends(), [failed]);
    let expected = [Done::read(1, MIB), Done::flushed(2, Opcode::Read)];
    assert_eq!(midway.a.sends(), expected);
    assert!(midway.sink.to_vec() == pattern(MIB));
    let told = [AsyncEventKind::TerminateReceived(TermCode::rdmap_local())];
    assert_eq!(midway.a.events(), told);
}

/// What the peer does wrong while its response leaves ends that, too.
#[test]
fn violation_of_the_requesters_cuts_the_response() {
    let drops = &["drop_refused_segment", "drop_after_failure"];
    let mut dut = Dut::new().expecting(drops);
    let region = source(&dut, MIB);
    dut.peer.send(&request(1, &region, 0, MIB));
    dut.sim.run_for(Duration::from_micros(120));
    dut.peer
        .send(&Untagged::default().fpdu(b"no buffer for it"));
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let mut stream = ulpdus(&dut.answer());
    let (code, _) = terminate(&dut.answer());
    assert_eq!(code, TermCode::ddp_untagged(2));
    stream.pop();
    let sent = response_bytes(&stream);
    assert!(!sent.is_empty() && sent.len() < MIB);
    assert_eq!(sent.len() % TAGGED_PAYLOAD, 0, "whole segments");
    assert!(sent == pattern(MIB)[..sent.len()]);
    dut.peer.close();
    dut.sim.run_until_idle();
}

/// A host that dies midway: TCP gives up in the end, and nothing is left behind.
#[test]
fn response_to_a_peer_that_has_gone_is_given_up() {
    let mut midway = Midway::new();
    midway.sim.remove(Side::A);
    midway.b.post_send(5, b"to nobody");
    midway.sim.run_until_idle();
    assert_eq!(midway.b.sends(), [Done::flushed(5, Opcode::Send)]);
    let events = midway.b.events();
    assert!(
        matches!(events[..], [AsyncEventKind::ConnectionLost { .. }]),
        "{events:?}"
    );
    assert_eq!(midway.b.state(), QpState::Error);
}

/// A peer that reads, but takes nothing, holds no more than its response: its reset ends that.
#[test]
fn response_into_a_closed_window_ends_with_the_connection() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.sim.run_until_idle();
    dut.peer.set_reading(false);
    let region = source(&dut, MIB);
    dut.peer.send(&request(1, &region, 0, MIB));
    dut.sim.run_for(Duration::from_mins(1));
    assert_eq!(dut.end.state(), QpState::Rts, "the window is probed");
    dut.peer.abort();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.state(), QpState::Error);
    assert_reset(&dut.end);
}

/// Which message a ULPDU belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Response,
    Send,
}

/// Where both wait they alternate, however many there are, and none is cut by the other.
#[test]
fn responses_and_own_messages_take_turns_at_the_borders_of_messages() {
    // More segments than may be in flight: the first response is under way when the first Send is
    // posted.
    const EACH: usize = 512 * KIB;
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    let region = source(&dut, EACH);
    let requests: Vec<u8> = (1..=4)
        .flat_map(|msn| request(msn, &region, 0, EACH))
        .collect();
    dut.peer.send(&requests);
    dut.sim.run_for(Duration::from_micros(55));
    for i in 1..=4 {
        dut.end.post_send(i, &pattern(EACH));
    }
    dut.sim.run_until_idle();
    let mut messages = Vec::new();
    let mut open = None;
    for ulpdu in ulpdus(&dut.answer()) {
        let who = match ulpdu[1] {
            0x42 => Who::Response,
            0x43 => Who::Send,
            other => panic!("opcode {other:#x}"),
        };
        assert!(open.is_none_or(|open| open == who), "a message is cut");
        let last = ulpdu[0] & 0x40 != 0;
        open = (!last).then_some(who);
        if last {
            messages.push(who);
        }
    }
    assert_eq!(messages, [Who::Response, Who::Send].repeat(4));
    assert_eq!(dut.end.sends().len(), 4);
}

/// Posts `reads` Reads of 64 KiB. The memory is theirs as long as it is kept.
fn post_reads(a: &mut SimEnd, b: &SimEnd, reads: u64) -> (Target, Target) {
    let (source, sink) = (b.target(64 * KIB), a.target(64 * KIB));
    for i in 0..reads {
        a.post_read(i, sink.local(0, 64 * KIB), source.remote(0));
    }
    (source, sink)
}

/// Thirty queue pairs have 128 Reads outstanding each, of a quarter of a gigabyte; one asks for
/// 64 KiB.
#[test]
fn small_read_does_not_wait_for_all_reads_of_greedy_queue_pairs() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim().rate(1_000_000_000);
    let config = QpConfig::default().ord(128).ird(128);
    let (mut a, b) = sim.connected_pair();
    let connect = |_| sim.connected_pair_with(&config);
    let mut greedy: Vec<(SimEnd, SimEnd)> = (0..30).map(connect).collect();
    let all = greedy.iter_mut().map(|(a, b)| post_reads(a, b, 128));
    let _memory: Vec<(Target, Target)> = all.collect();
    // All Requests are there. What thirty connections that begin at once have lost in the link's
    // queue has been sent again.
    sim.run_for(Duration::from_millis(500));
    let began = sim.now();
    let _small = post_reads(&mut a, &b, 1);
    sim.run_until("the small Read", || a.sends() == [Done::read(0, 64 * KIB)]);
    let took = sim.now().saturating_sub(began);
    // Its share of the link is 16 ms.
    assert!(took < Duration::from_millis(64), "{took:?}");
}
