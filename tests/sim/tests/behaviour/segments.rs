//! Alignment of FPDUs to TCP segments and packets (RFC 5044 §5.1, appendix A).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use xwarp::{QpConfig, SendRequest, Sge, WrId};
use xwarp_driver::Icmp;
use xwarp_iwarp::mpa::{Deframer, Step, next_fpdu};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, Target, needs_link, pattern};
use xwarp_test_kit::netsim::{Direction, Seed};

/// Bytes of an Ethernet, an IPv4 and an IPv6 header.
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;

fn sim() -> Sim {
    Sim::new(Seed(53)).one_way_delay(Duration::from_micros(50))
}

/// Frames and which way they went.
pub(crate) type Seen = Rc<RefCell<Vec<(Direction, Vec<u8>)>>>;

/// All frames that are sent from now on.
pub(crate) fn frames(sim: &mut Sim) -> Seen {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&frames);
    sim.link().observe(move |sighting| {
        let frame = (sighting.direction, sighting.frame.to_vec());
        seen.borrow_mut().push(frame);
    });
    frames
}

/// The TCP segment in a frame.
fn tcp(frame: &[u8]) -> &[u8] {
    let packet = &frame[ETHERNET..];
    let field = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    match packet[0] >> 4 {
        4 => &packet[IPV4..field(2)],
        _ => &packet[IPV6..IPV6 + field(4)],
    }
}

/// Sequence number and payload of the TCP segment in a frame.
pub(crate) fn segment(frame: &[u8]) -> (u32, &[u8]) {
    let tcp = tcp(frame);
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    (sequence, &tcp[usize::from(tcp[12] >> 4) * 4..])
}

/// Source and destination port of the TCP segment in a frame.
pub(crate) fn ports(frame: &[u8]) -> [u8; 4] {
    *tcp(frame).first_chunk().unwrap()
}

/// FPDUs of each segment that went one way: a segment begins with one and holds whole ones. Frames
/// of start-up are left out.
pub(crate) fn fpdus_of(seen: &Seen, way: Direction, mut deframer: Deframer) -> Vec<usize> {
    let mut counts = Vec::new();
    for (_, frame) in seen.borrow().iter().filter(|(went, _)| *went == way) {
        let (_, mut rest) = segment(frame);
        if rest.is_empty() || rest.starts_with(b"MPA ID Re") {
            continue;
        }
        let mut fpdus = 0;
        while !rest.is_empty() {
            let step = deframer.next(rest);
            let Ok(Step::Fpdu { consumed, .. }) = step else {
                panic!(
                    "{way:?}: {} bytes behind {fpdus} FPDUs: {step:?}",
                    rest.len()
                );
            };
            (rest, fpdus) = (&rest[consumed..], fpdus + 1);
        }
        counts.push(fpdus);
    }
    counts
}

/// Writes, Sends and Reads of several sizes, in both directions.
fn transfer(sim: &mut Sim) {
    let (mut a, mut b) = sim.connected_pair();
    for (i, len) in (1..).zip([1, 4, 100, 1_440, 1_441, 20_000]) {
        let (target, source, sink) = (b.target(len), a.target(len), b.target(len));
        source.fill(&pattern(len));
        b.post_recv(i, len);
        a.post_write(i, &pattern(len), target.remote(0));
        a.post_send(i, &pattern(len));
        b.post_read(i, sink.local(0, len), source.remote(0));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::write(i, len), Done::send(i, len)]);
        assert_eq!(b.sends(), [Done::read(i, len)]);
        assert!(target.to_vec() == pattern(len) && sink.to_vec() == pattern(len));
    }
}

/// R5044-5.1-1, R5044-A.1-1
#[test]
fn each_segment_begins_with_an_fpdu_and_holds_whole_ones() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let frames = frames(&mut sim);
    transfer(&mut sim);
    let count = |way| fpdus_of(&frames, way, Deframer::new(true, false));
    let fpdus: usize = Direction::ALL.into_iter().flat_map(count).sum();
    assert!(fpdus > 60, "{fpdus} FPDUs");
    let startup = |frame: &[u8]| segment(frame).1.starts_with(b"MPA ID Re");
    let startup = frames.borrow().iter().filter(|it| startup(&it.1)).count();
    assert_eq!(startup, 2, "a Request and a Reply");
}

/// Has 64 KiB written: by one Write, or by Writes of 64 bytes that share segments.
fn write_64_kib(a: &mut SimEnd, target: &Target, small: bool) {
    let source = a.source(&pattern(64 * KIB));
    let len = if small { 64 } else { 64 * KIB };
    let list = (0..64 * KIB).step_by(len).map(|at| {
        let piece = Sge {
            to: source.to + at as u64,
            len: u32::try_from(len).unwrap(),
            ..source
        };
        SendRequest::write(WrId(1), piece, target.remote(at))
    });
    a.qp.post_send_list(list).unwrap();
}

/// R5044-A.1-2
#[test]
fn segment_that_is_sent_again_has_the_same_borders() {
    const LEN: usize = 64 * KIB;
    needs_link!("it counts segments of a link's MTU");
    for (lost, small) in [3, 10, 25]
        .into_iter()
        .flat_map(|n| [(n, false), (n, true)])
    {
        let mut sim = sim();
        let config = QpConfig::default().send_depth(1024);
        let (mut a, b) = sim.connected_pair_with(&config);
        let frames = frames(&mut sim);
        sim.link().lane(Direction::AToB).drop_nth(lost);
        let target = b.target(LEN);
        write_64_kib(&mut a, &target, small);
        sim.run_until_idle();
        assert!(target.to_vec() == pattern(LEN));
        let (mut sent, mut again) = (BTreeMap::new(), 0);
        for (direction, frame) in frames.borrow().iter() {
            let (sequence, payload) = segment(frame);
            if *direction == Direction::AToB && !payload.is_empty() {
                let first = sent.entry(sequence).or_insert_with(|| payload.to_vec());
                assert_eq!(first.len(), payload.len(), "without frame {lost}");
                assert!(first == payload, "other bytes under the same numbers");
                again += 1;
            }
        }
        assert!(again > sent.len(), "something was sent again");
        // No segment begins inside another one: borders only repeat.
        let ends = sent
            .iter()
            .map(|(at, payload)| at.wrapping_add(u32::try_from(payload.len()).unwrap()));
        let inner = ends.filter(|end| !sent.contains_key(end)).count();
        assert_eq!(inner, 1, "only the last has none behind it");
    }
}

/// What a router says that drops this frame, for a path of this MTU (RFC 1191 §4).
fn too_big(frame: &[u8], mtu: u16) -> Icmp {
    let begin = &frame[ETHERNET..ETHERNET + IPV4 + 8];
    Icmp::V4([&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), begin].concat())
}

/// Bytes of each ULPDU that reached the other side of a path of this MTU.
fn ulpdus_below(frames: &Seen, mtu: usize) -> Vec<usize> {
    let mut segments = BTreeMap::new();
    for (direction, frame) in frames.borrow().iter() {
        let (sequence, payload) = segment(frame);
        if *direction == Direction::AToB && frame.len() <= ETHERNET + mtu && !payload.is_empty() {
            segments.insert(sequence, payload.to_vec());
        }
    }
    let stream: Vec<u8> = segments.into_values().flatten().collect();
    let (mut rest, mut lens) = (&stream[..], Vec::new());
    while let Ok(Step::Fpdu { ulpdu, consumed }) = next_fpdu(rest, true) {
        lens.push(ulpdu.len());
        rest = &rest[consumed..];
    }
    assert_eq!(rest.len(), 0, "after {} FPDUs", lens.len());
    lens
}

/// R5041-3-1, R5041-3-2, R5044-4.5-5: TCP cuts what was framed before, and what is framed later
/// fits the narrower path.
#[test]
fn on_a_path_that_becomes_narrower_fpdus_become_smaller() {
    const MTU: u16 = 1_000;
    needs_link!("no path behind a switch is narrower");
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    sim.run_until_idle();
    let frames = frames(&mut sim);
    let is_too_large = |frame: &[u8]| frame.len() > ETHERNET + usize::from(MTU);
    sim.link().lane(Direction::AToB).drop_if(is_too_large);
    a.post_write(1, &pattern(MIB), target.remote(0));
    sim.run_until("a frame", || !frames.borrow().is_empty());
    let message = too_big(&frames.borrow()[0].1, MTU);
    sim.link().complain(Direction::AToB, message);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert!(target.to_vec() == pattern(MIB));
    let lens = ulpdus_below(&frames, usize::from(MTU));
    // TCP's timestamps take 12 bytes of each segment.
    let narrow = lens.partition_point(|len| *len == 1_442);
    assert!(narrow > 0, "framed for an MTU of 1500");
    let (last, full) = lens[narrow..].split_last().unwrap();
    assert!(full.len() > 500 && full.iter().all(|len| *len == 942) && *last <= 942);
}

/// R5044-A.5.1-1: DF is set in every packet, data or not; none is a fragment.
#[test]
fn no_packet_may_be_fragmented() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim().expecting(&["drop_no_flow"]);
    let frames = frames(&mut sim);
    transfer(&mut sim);
    let mut refused = sim.a().end(&QpConfig::default());
    let at = sim.b().at(9);
    let limit = Duration::from_secs(5);
    let mut connecting = refused.qp.begin_connect(at, b"", limit).unwrap();
    let outcome = sim.wait_for("the refusal", || connecting.try_finish());
    assert!(outcome.is_err());
    for (direction, frame) in frames.borrow().iter() {
        let fragmentation = [frame[ETHERNET + 6], frame[ETHERNET + 7]];
        assert_eq!(fragmentation, [0x40, 0], "{direction:?}: {frame:x?}");
    }
    assert!(frames.borrow().len() > 60, "data, answers, resets");
}
