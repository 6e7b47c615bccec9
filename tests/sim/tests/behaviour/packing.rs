//! Packing: messages that are posted already share TCP segments, whole FPDUs only, and nothing
//! waits for company.

use std::time::Duration;

use xwarp::cm::MpaConfig;
use xwarp::work::Payload;
use xwarp::{
    CompletionStatus, Opcode, QpConfig, QpState, RemoteAddress, SendRequest, Sge, Stag, WrId,
};
use xwarp_iwarp::mpa::{Deframer, Step, fpdu_len};
use xwarp_sim_tests::wire::{Untagged, terminate};
use xwarp_sim_tests::{
    Done, KIB, MIB, Sim, SimEnd, Target, for_each_seed, needs_link, pattern, pattern_of,
};
use xwarp_test_kit::netsim::{Direction, Rng, Seed};

use crate::hostile::Dut;
use crate::segments::{Seen, fpdus_of, frames, ports, segment};

/// Bytes of a message.
const LEN: usize = 64;
/// Bytes of the headers in front of a segment's payload, TCP's timestamps included: IPv4, IPv6.
const HEADERS: [usize; 2] = [52, 72];
/// Bytes of the ULPDUs of a round: Write, Send, Read Request, Atomic Request, Immediate Data, Write
/// and Immediate Data.
const ROUND: [usize; 7] = [
    14 + LEN,
    18 + LEN,
    18 + 28,
    18 + 52,
    18 + 8,
    14 + LEN,
    18 + 8,
];
const NOWHERE: RemoteAddress = RemoteAddress {
    stag: Stag(0x0bad_0000),
    to: 0,
};

fn config() -> QpConfig {
    QpConfig::default().send_depth(2048).recv_depth(2048)
}

fn mpa(crc: bool, markers: bool) -> MpaConfig {
    let mut mpa = MpaConfig::default();
    (mpa.crc, mpa.markers) = (crc, markers);
    mpa
}

/// Posts `rounds` rounds of messages at `a` at once, and checks their effects and completions.
fn exchange(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd, rounds: usize) {
    let bytes = pattern(rounds * LEN);
    let (source, sink) = (a.source(&bytes), a.target(rounds * LEN));
    let (written, again, counter) = (b.target(rounds * LEN), b.target(rounds * LEN), b.target(8));
    let far = b.target(rounds * LEN);
    far.fill(&bytes);
    let mut list = Vec::new();
    for i in 0..rounds {
        let (name, at) = (WrId(i as u64), i * LEN);
        let piece = Sge {
            to: source.to + at as u64,
            len: 64,
            ..source
        };
        list.extend([
            SendRequest::write(name, piece, written.remote(at)),
            SendRequest::send(name, piece),
            SendRequest::read(name, sink.local(at, LEN), far.remote(at)),
            SendRequest::fetch_add(name, 1, counter.remote(0)),
            SendRequest::immediate(name, [7; 8]),
            SendRequest::write_immediate(name, piece, again.remote(at), [8; 8]),
        ]);
        // A Send and two pieces of Immediate Data a round.
        (0..3).for_each(|k| b.post_recv((3 * i + k) as u64, LEN));
    }
    a.qp.post_send_list(list).unwrap();
    sim.run_until_idle();
    assert!(written.to_vec() == bytes && again.to_vec() == bytes && sink.to_vec() == bytes);
    assert_eq!(counter.to_vec(), (rounds as u64).to_ne_bytes());
    let done = a.sends();
    assert_eq!(done.len(), 6 * rounds);
    assert!(done.iter().all(|done| done.outcome.is_ok()), "{done:?}");
    assert_eq!(b.receives().len(), 3 * rounds);
    for i in 0..rounds {
        let sent = &bytes[i * LEN..][..LEN];
        assert!(b.buffer(3 * i as u64) == sent, "Send {i}");
    }
}

/// FPDUs of each segment, if a new one is only begun where the next FPDU has no room.
fn as_full_as_can_be(rounds: usize, emss: usize) -> Vec<usize> {
    let (mut counts, mut len) = (Vec::new(), emss);
    for ulpdu in ROUND.repeat(rounds) {
        let fpdu = fpdu_len(ulpdu);
        if len + fpdu > emss {
            counts.push(0);
            len = 0;
        }
        len += fpdu;
        *counts.last_mut().unwrap() += 1;
    }
    counts
}

/// Rounds that fit the initial window, and ORD.
fn rounds(mtu: usize) -> usize {
    if mtu < 1500 { 5 } else { 12 }
}

fn check_packed(mut sim: Sim, mpa: MpaConfig, emss: usize, rounds: usize) {
    let what = format!("{mpa:?}, EMSS {emss}");
    let seen = frames(&mut sim);
    let (mut a, mut b) = sim.connected_pair_with(&config());
    sim.run_until_idle();
    let count = |way| fpdus_of(&seen, way, Deframer::new(mpa.crc, mpa.markers));
    // B is silent, and A wakes it several times.
    let before = count(Direction::AToB).len();
    exchange(&mut sim, &mut a, &mut b, rounds);
    let sent = count(Direction::AToB).split_off(before);
    if mpa.markers {
        assert_eq!(sent.iter().sum::<usize>(), ROUND.len() * rounds, "{what}");
        let least = as_full_as_can_be(rounds, emss).len();
        // A marker of 4 bytes is due every 512.
        assert!(sent.len() <= least + 1, "{what}: {sent:?}");
    } else {
        assert_eq!(sent, as_full_as_can_be(rounds, emss), "{what}");
    }
    let answered = count(Direction::BToA);
    assert_eq!(answered.iter().sum::<usize>(), 2 * rounds, "{what}");
    assert!(
        answered.iter().any(|fpdus| *fpdus > 1),
        "{what}: {answered:?}"
    );
}

#[test]
fn messages_of_all_kinds_share_segments_at_any_mtu_with_and_without_crc_and_markers() {
    for mtu in [600, 1500, 3500, 9000] {
        for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
            let mpa = mpa(crc, markers);
            let sim = Sim::with_mtu_and_mpa(Seed(5), mtu, mpa);
            let sim = sim.one_way_delay(Duration::from_micros(50));
            check_packed(sim, mpa, mtu - HEADERS[0], rounds(mtu));
        }
    }
}

#[test]
fn messages_share_segments_over_ipv6() {
    needs_link!("it counts segments of a link's MTU");
    let sim = Sim::over_ipv6(Seed(6)).one_way_delay(Duration::from_micros(50));
    check_packed(sim, MpaConfig::default(), 1500 - HEADERS[1], rounds(1500));
}

fn connected(seed: u64) -> (Sim, SimEnd, SimEnd) {
    let mut sim = Sim::new(Seed(seed)).one_way_delay(Duration::from_micros(50));
    let (a, b) = sim.connected_pair_with(&config());
    sim.run_until_idle();
    (sim, a, b)
}

/// A list of Writes of such lengths, one behind the other.
fn writes(a: &mut SimEnd, target: &Target, lens: &[usize]) -> Vec<SendRequest> {
    let mut at = 0;
    let mut list = Vec::new();
    for (i, len) in (1..).zip(lens) {
        let source = a.source(&pattern(*len));
        list.push(SendRequest::write(WrId(i), source, target.remote(at)));
        at += len;
    }
    list
}

#[test]
fn message_that_is_alone_leaves_at_once() {
    let (mut sim, mut a, b) = connected(7);
    let target = b.target(LEN);
    for round in 1..=3 {
        let (seen, posted) = (frames(&mut sim), sim.now());
        a.post_write(round, &pattern(LEN), target.remote(0));
        sim.run_until("its frame", || !seen.borrow().is_empty());
        assert_eq!(sim.now(), posted, "nothing waits for company");
        sim.run_until_idle();
        let sent = fpdus_of(&seen, Direction::AToB, Deframer::new(true, false));
        assert_eq!(sent, [1]);
    }
}

#[test]
fn segments_of_a_long_message_are_its_own() {
    needs_link!("it counts segments of a link's MTU");
    let (mut sim, mut a, b) = connected(8);
    let target = b.target(4 * KIB);
    let seen = frames(&mut sim);
    let list = writes(&mut a, &target, &[LEN, LEN, 3_000, LEN, LEN, LEN]);
    a.qp.post_send_list(list).unwrap();
    sim.run_until_idle();
    let sent = fpdus_of(&seen, Direction::AToB, Deframer::new(true, false));
    assert_eq!(sent, [2, 1, 1, 1, 3]);
    assert_eq!(a.sends().len(), 6);
}

/// The longest ULPDU leaves room for others in the longest segment. Nothing but whole messages
/// shares it all the same.
#[test]
fn begin_of_a_long_message_stays_alone_where_a_segment_has_room_behind_others() {
    let sim = Sim::with_mtu_and_mpa(Seed(11), 65_535, mpa(true, false));
    let mut sim = sim.one_way_delay(Duration::from_micros(50));
    let (mut a, b) = sim.connected_pair_with(&config());
    sim.run_until_idle();
    let target = b.target(128 * KIB);
    let seen = frames(&mut sim);
    let list = writes(&mut a, &target, &[LEN, LEN, 100_000, LEN]);
    a.qp.post_send_list(list).unwrap();
    sim.run_until_idle();
    let sent = fpdus_of(&seen, Direction::AToB, Deframer::new(true, false));
    assert_eq!(sent, [2, 1, 1, 1]);
    assert_eq!(a.sends().len(), 4);
}

/// Inline data, no data, unsignaled ones, several pieces and a fence, some behind Reads: in the
/// order of posting, whichever way each goes.
#[test]
fn short_messages_of_any_form_complete_in_the_order_of_posting() {
    let (mut sim, mut a, b) = connected(12);
    let bytes = pattern(3 * LEN);
    let (source, sink, target) = (a.source(&bytes), a.target(LEN), b.target(20 * LEN));
    let piece = |at: usize| Sge {
        to: source.to + at as u64,
        len: 32,
        ..source
    };
    let inline = Payload::inline(&bytes[..20]);
    let mut list = Vec::new();
    for round in 0..3 {
        let at = |i: u64| (WrId(10 * round + i), target.remote(0));
        let (read, remote) = at(4);
        list.extend([
            SendRequest::write(at(1).0, inline.clone(), at(1).1),
            SendRequest::write(at(2).0, piece(0), at(2).1).unsignaled(),
            SendRequest::write(at(3).0, [piece(0), piece(64)], at(3).1),
            SendRequest::read(read, sink.local(0, LEN), remote),
            SendRequest::write(at(5).0, piece(0), at(5).1).unsignaled(),
            SendRequest::write(at(6).0, piece(32), at(6).1).fenced(),
            SendRequest::write(at(7).0, Payload::inline(&[]), at(7).1),
        ]);
    }
    for _ in 0..2 {
        a.qp.post_send_list(list.clone()).unwrap();
        sim.run_until_idle();
        let names: Vec<u64> = a.sends().iter().map(|done| done.wr_id).collect();
        let expected = (0..3).flat_map(|round| [1, 3, 4, 6, 7].map(|i| 10 * round + i));
        assert_eq!(names, expected.collect::<Vec<u64>>());
    }
    assert!(target.to_vec()[..32] == bytes[32..64]);
}

/// Markers fall between, into and behind FPDUs of all these lengths.
#[test]
fn messages_of_one_kind_arrive_in_runs_with_and_without_crc_and_markers() {
    for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
        let mpa = mpa(crc, markers);
        let sim = Sim::with_mtu_and_mpa(Seed(10), 9000, mpa);
        let mut sim = sim.one_way_delay(Duration::from_micros(50));
        let (mut a, mut b) = sim.connected_pair_with(&config());
        sim.run_until_idle();
        let lens: Vec<usize> = (0..600).map(|i| i % 150).collect();
        let len = lens.iter().sum();
        let (target, bytes) = (b.target(len), pattern(len));
        let source = a.source(&bytes);
        let mut at = 0;
        let mut pieces = Vec::new();
        for (i, len) in (0..).zip(&lens) {
            b.post_recv(i, *len);
            let (to, len) = (source.to + at as u64, u32::try_from(*len).unwrap());
            pieces.push((WrId(i), at, Sge { to, len, ..source }));
            at += len as usize;
        }
        let writes = (pieces.iter())
            .map(|(name, at, piece)| SendRequest::write(*name, *piece, target.remote(*at)));
        let sends = (pieces.iter()).map(|(name, _, piece)| SendRequest::send(*name, *piece));
        a.qp.post_send_list(writes.chain(sends)).unwrap();
        sim.run_until_idle();
        assert!(target.to_vec() == bytes, "{mpa:?}");
        let received = b.receives();
        let expected = (0..).zip(&lens).map(|(i, len)| Done::receive(i, *len));
        assert!(expected.eq(received), "{mpa:?}");
        for ((name, at, _), len) in pieces.iter().zip(&lens) {
            assert!(
                b.buffer(name.0) == bytes[*at..][..*len],
                "{name:?}, {mpa:?}"
            );
        }
        assert_eq!(a.sends().len(), 2 * lens.len());
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
}

/// What was sealed before the fault leaves, and completes; the Terminate behind it can be read with
/// and without markers.
#[test]
fn fault_of_a_message_concerns_none_in_front_of_it() {
    for markers in [false, true] {
        let mpa = mpa(true, markers);
        let sim = Sim::with_mtu_and_mpa(Seed(9), 1500, mpa);
        let mut sim = sim.one_way_delay(Duration::from_micros(50));
        let (mut a, mut b) = sim.connected_pair_with(&config());
        sim.run_until_idle();
        let target = b.target(10 * LEN);
        (0..9).for_each(|i| b.post_recv(i, LEN));
        for i in 0..9 {
            a.post_send(i, &pattern_of(i, LEN));
        }
        let gone = Sge {
            stag: Stag(0x0dea_d000),
            to: 0,
            len: 64,
        };
        a.post(SendRequest::write(WrId(9), gone, target.remote(0)));
        a.post_write(10, &pattern(LEN), target.remote(LEN));
        sim.run_until_idle();
        let mut done: Vec<Done> = (0..9).map(|i| Done::send(i, LEN)).collect();
        assert!(b.receives()[..9].iter().all(|done| done.outcome == Ok(64)));
        (0..9).for_each(|i| assert!(b.buffer(i) == pattern_of(i, LEN)));
        done.push(Done::failed(
            9,
            Opcode::Write,
            CompletionStatus::InvalidStag,
        ));
        done.push(Done::flushed(10, Opcode::Write));
        assert_eq!(a.sends(), done, "markers {markers}");
        assert!(target.to_vec() == [0; 10 * LEN]);
        let told = b.host().rnic().counters().unwrap().rdma.terminates_in;
        assert_eq!((told, b.state()), (1, QpState::Error), "markers {markers}");
    }
}

/// The third of five Reads that share a segment names memory that is not there.
#[test]
fn terminate_names_the_read_request_that_it_refuses() {
    let (sim, mut a, b) = connected(10);
    let mut sim = sim.expecting(&["drop_refused_segment", "drop_after_failure"]);
    let (source, sink) = (b.target(LEN), a.target(LEN));
    let reads = (1..=5).map(|i| {
        let remote = if i == 3 { NOWHERE } else { source.remote(0) };
        SendRequest::read(WrId(i), sink.local(0, LEN), remote)
    });
    a.qp.post_send_list(reads).unwrap();
    sim.run_until_idle();
    let done = a.sends();
    assert_eq!(done[2], Done::refused(3, Opcode::Read), "{done:?}");
    let others = [&done[..2], &done[3..]].concat();
    assert!(!others.iter().any(|it| it.outcome == done[2].outcome));
}

/// Of FPDUs in one segment, those in front of the one that is refused are acted upon, and those
/// behind it are not.
#[test]
fn terminate_returns_the_header_of_the_packed_segment_that_it_refuses() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    (1..=4).for_each(|i| dut.end.post_recv(i, 8));
    let send = |msn, len| {
        Untagged {
            msn,
            ..Untagged::default()
        }
        .fpdu(&pattern(len))
    };
    let stream = [send(1, 8), send(2, 8), send(3, 9), send(4, 8)].concat();
    dut.peer.send(&stream);
    dut.sim.run_until("the RNIC's FIN", || dut.peer.saw_fin());
    dut.peer.close();
    dut.sim.run_until_idle();
    let (_, captured) = terminate(&dut.answer());
    let refused = Untagged {
        msn: 3,
        ..Untagged::default()
    }
    .ulpdu(&[]);
    assert!(captured.ends_with(&refused), "{captured:x?}");
    let received = dut.end.receives();
    assert_eq!(received[..2], [Done::receive(1, 8), Done::receive(2, 8)]);
    assert!(received[2..].iter().all(|done| done.outcome.is_err()));
}

/// Work requests of each side in a run of random messages.
const OPERATIONS: u64 = 200;

/// Messages that one side has posted, and memory that must hold pattern `.1` at the end.
#[derive(Default)]
struct Posted {
    sends: Vec<Done>,
    receives: Vec<Done>,
    targets: Vec<(Target, u64, usize)>,
}

impl Posted {
    /// Posts `count` more messages from `from` to `to`, most of them short.
    fn post(&mut self, from: &mut SimEnd, to: &mut SimEnd, side: u64, count: u64, rng: &mut Rng) {
        for _ in 0..count {
            let which = 100_000 * side + self.sends.len() as u64;
            let longest = if rng.chance(0.1) { 4_000 } else { 200 };
            let len = rng.index(longest);
            let bytes = pattern_of(which, len);
            match rng.below(3) {
                0 => {
                    to.post_recv(which, len);
                    from.post_send(which, &bytes);
                    self.sends.push(Done::send(which, len));
                    self.receives.push(Done::receive(which, len));
                }
                1 => {
                    let target = to.target(len);
                    from.post_write(which, &bytes, target.remote(0));
                    self.sends.push(Done::write(which, len));
                    self.targets.push((target, which, len));
                }
                _ => {
                    let (source, sink) = (to.target(len), from.target(len));
                    source.fill(&bytes);
                    from.post_read(which, sink.local(0, len), source.remote(0));
                    self.sends.push(Done::read(which, len));
                    self.targets
                        .extend([(sink, which, len), (source, which, len)]);
                }
            }
        }
    }

    fn check(&self, from: &mut SimEnd, to: &mut SimEnd) {
        assert_eq!(from.sends(), self.sends);
        assert_eq!(to.receives(), self.receives);
        for done in &self.receives {
            let len = done.outcome.unwrap() as usize;
            assert!(
                to.buffer(done.wr_id) == pattern_of(done.wr_id, len),
                "{done:?}"
            );
        }
        for (target, which, len) in &self.targets {
            assert!(
                target.to_vec() == pattern_of(*which, *len),
                "memory of {which}"
            );
        }
    }
}

/// Packed segments get lost, come late and twice. The path narrows meanwhile, so that TCP cuts them
/// anywhere.
#[test]
fn packed_messages_arrive_once_whatever_link_and_mtu_do() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 77);
        let mpa = mpa(rng.chance(0.7), rng.chance(0.3));
        let mtu = [1500, 3500, 9000][rng.index(3)];
        let sim = Sim::with_mtu_and_mpa(seed, mtu, mpa);
        let sim = sim.one_way_delay(Duration::from_micros(500));
        let mut sim = sim.loss(0.05).reorder(0.1).duplicate(0.1);
        let (mut a, mut b) = sim.connected_pair_with(&config());
        let (mut forth, mut back) = (Posted::default(), Posted::default());
        while (forth.sends.len() as u64) < OPERATIONS {
            let count = 1 + rng.below(40);
            forth.post(&mut a, &mut b, 1, count, &mut rng);
            back.post(&mut b, &mut a, 2, count, &mut rng);
            sim.run_for(Duration::from_micros(rng.below(2_000)));
            if rng.chance(0.3) {
                let narrow = 576 + rng.index(mtu - 576);
                sim.a().change_interface(|link| link.mtu = narrow);
                sim.b().change_interface(|link| link.mtu = narrow);
            }
        }
        sim.run_until_idle();
        forth.check(&mut a, &mut b);
        back.check(&mut b, &mut a);
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    });
}

/// Segments that a queue pair may send before another one has its turn.
const TURN_SEGMENTS: usize = 32;
/// FPDUs that a queue pair may send before another one has its turn.
const TURN_FPDUS: usize = 512;

/// Of two flows that both have something to send: the most segments, and FPDUs, of one between two
/// segments of the other.
fn longest_runs(seen: &Seen) -> [usize; 2] {
    let seen = seen.borrow();
    let data: Vec<([u8; 4], usize)> = seen
        .iter()
        .filter(|(way, frame)| *way == Direction::AToB && !segment(frame).1.is_empty())
        .map(|(_, frame)| (ports(frame), fpdus_in(segment(frame).1)))
        .collect();
    let last_of = |flow| data.iter().rposition(|it| it.0 == flow).unwrap();
    let flows = [
        data[0].0,
        data.iter().find(|it| it.0 != data[0].0).unwrap().0,
    ];
    let end = flows.map(last_of).into_iter().min().unwrap();
    let runs = data[..end].chunk_by(|one, next| one.0 == next.0);
    runs.fold([0, 0], |[segments, fpdus], run| {
        let in_run: usize = run.iter().map(|it| it.1).sum();
        [segments.max(run.len()), fpdus.max(in_run)]
    })
}

fn fpdus_in(mut payload: &[u8]) -> usize {
    let mut fpdus = 0;
    let mut deframer = Deframer::new(true, false);
    while let Ok(Step::Fpdu { consumed, .. }) = deframer.next(payload) {
        (payload, fpdus) = (&payload[consumed..], fpdus + 1);
    }
    fpdus
}

/// Two connections whose windows are open, and memory at B.
fn bulk_and_small(sim: &mut Sim, depth: u16) -> ([SimEnd; 2], [SimEnd; 2], Target) {
    let config = config().ord(depth).ird(depth);
    let (mut bulk, far) = sim.connected_pair_with(&config);
    let (mut small, peer) = sim.connected_pair_with(&config);
    let target = far.target(8 * MIB);
    for _ in 0..2 {
        bulk.post_write(1, &pattern(8 * MIB), target.remote(0));
        small.post_write(1, &pattern(MIB), target.remote(0));
        sim.run_until_idle();
    }
    ([bulk, far], [small, peer], target)
}

/// 2000 Writes of 8 bytes.
fn post_short_writes(end: &mut SimEnd, target: &Target) {
    let source = end.source(&pattern(8));
    let writes = (0..2000).map(|i| SendRequest::write(WrId(i), source, target.remote(0)));
    end.qp.post_send_list(writes).unwrap();
}

#[test]
fn no_queue_pair_waits_for_more_segments_than_those_of_a_turn() {
    let mut sim = Sim::with_engines(Seed(11), 1, 1500).one_way_delay(Duration::from_micros(5));
    let ([mut bulk, _far], [mut small, _peer], target) = bulk_and_small(&mut sim, 32);
    let seen = frames(&mut sim);
    bulk.post_write(2, &pattern(8 * MIB), target.remote(0));
    post_short_writes(&mut small, &target);
    sim.run_until_idle();
    let [segments, fpdus] = longest_runs(&seen);
    assert!((2..=TURN_SEGMENTS).contains(&segments), "{segments}");
    assert!((50..=TURN_FPDUS).contains(&fpdus), "{fpdus} FPDUs");
}

/// A frame of 9000 bytes holds 319 FPDUs of 28 bytes.
#[test]
fn no_queue_pair_waits_for_more_messages_than_those_of_a_turn() {
    let mut sim = Sim::with_engines(Seed(13), 1, 9000).one_way_delay(Duration::from_micros(5));
    let ([mut one, _far], [mut other, _peer], target) = bulk_and_small(&mut sim, 32);
    let seen = frames(&mut sim);
    post_short_writes(&mut one, &target);
    post_short_writes(&mut other, &target);
    sim.run_until_idle();
    let [segments, fpdus] = longest_runs(&seen);
    assert_eq!([segments, fpdus], [2, TURN_FPDUS]);
}

/// The most segments of other connections that leave A between a segment of the connection with
/// these ports and the answer to it.
fn longest_wait(seen: &Seen, asks: [u8; 4]) -> usize {
    let answers = [asks[2], asks[3], asks[0], asks[1]];
    let (mut waited, mut longest) = (None, 0);
    for (way, frame) in seen.borrow().iter() {
        let has_data = !segment(frame).1.is_empty();
        match way {
            Direction::BToA if has_data && ports(frame) == asks => {
                waited.get_or_insert(0);
            }
            Direction::AToB if has_data && ports(frame) == answers => {
                longest = longest.max(waited.take().unwrap_or(0));
            }
            Direction::AToB if has_data => waited = waited.map(|others| others + 1),
            Direction::AToB | Direction::BToA => {}
        }
    }
    longest
}

/// A turn that has begun ends, and that of the other queue pair comes first where it waits already.
#[test]
fn small_read_waits_for_no_more_than_two_turns_of_a_queue_pair_that_sends_megabytes() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = Sim::new(Seed(12));
    let ([mut bulk, _far], [small, mut peer], target) = bulk_and_small(&mut sim, 4);
    let source = small.target(8);
    let seen = frames(&mut sim);
    bulk.post_write(2, &pattern(8 * MIB), target.remote(0));
    for i in 0..200 {
        peer.post_read(i, target.local(0, 8), source.remote(0));
    }
    sim.run_until_idle();
    assert_eq!((peer.sends().len(), bulk.sends().len()), (200, 3));
    let data = |it: &&(Direction, Vec<u8>)| it.0 == Direction::BToA && !segment(&it.1).1.is_empty();
    let asks = ports(&seen.borrow().iter().find(data).unwrap().1);
    let waited = longest_wait(&seen, asks);
    assert!(
        (1..=2 * TURN_SEGMENTS).contains(&waited),
        "{waited} segments"
    );
}
