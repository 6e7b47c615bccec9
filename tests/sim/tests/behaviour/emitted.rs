//! Emitted segments, field by field, as a peer sees them that knows nothing of our encoder
//! (RFC 5040 §4, RFC 5041 §4, §5).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use xwarp::work::Operation;
use xwarp::{QpConfig, SendRequest, Sge, Stag, WrId};
use xwarp_sim_tests::wire::{REPLY, Untagged, read_request, ulpdus};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, Target, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::hostile::Dut;

/// A region of the peer that exists only by name.
const FAR: xwarp::RemoteAddress = xwarp::RemoteAddress {
    stag: Stag(0x00ab_cd01),
    to: 0xffff_fff0, // offsets carry over 32 bits
};
/// What Sends ask the peer to invalidate.
const TAKEN: Stag = Stag(0x0102_0304);

/// One DDP segment, read at the offsets of the figures in RFC 5041 §4.2 and §4.3.
#[derive(Clone, Debug)]
struct Seen(Vec<u8>);

impl Seen {
    fn opcode(&self) -> u8 {
        self.0[1] & 0x0f
    }

    fn is_tagged(&self) -> bool {
        self.0[0] & 0x80 != 0
    }

    fn is_last(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.0[at..].first_chunk().unwrap())
    }

    fn to(&self) -> u64 {
        u64::from_be_bytes(*self.0[6..].first_chunk().unwrap())
    }

    /// What all segments of a message have in common: `RsvdULP`, and `STag` or QN and MSN.
    fn identity(&self) -> Vec<u8> {
        let end = if self.is_tagged() { 6 } else { 14 };
        self.0[1..end].to_vec()
    }

    fn payload(&self) -> &[u8] {
        &self.0[if self.is_tagged() { 14 } else { 18 }..]
    }
}

/// The segments of a stream, message by message; a message ends with L, and nothing stands between
/// its segments.
fn messages(stream: &[u8]) -> Vec<Vec<Seen>> {
    let mut messages = Vec::new();
    let mut open: Vec<Seen> = Vec::new();
    for seen in ulpdus(stream).into_iter().map(Seen) {
        if let Some(first) = open.first() {
            assert_eq!(seen.identity(), first.identity());
        }
        open.push(seen.clone());
        if seen.is_last() {
            messages.push(std::mem::take(&mut open));
        }
    }
    assert!(open.is_empty(), "a message without an end");
    messages
}

/// A Send of these bytes in one of its four kinds.
fn send(sge: Sge, solicited: bool, invalidate: Option<Stag>) -> Operation {
    Operation::Send {
        payload: sge.into(),
        solicited,
        invalidate,
    }
}

/// Opcode and length of everything that [`post_everything`] posts, in this order.
const POSTED: [(u8, usize); 11] = [
    (0, 1),
    (3, 5_000),
    (4, 4_000),
    (1, 28),
    (5, 10),
    (0, 0),
    (0, MIB),
    (6, 3_000),
    (1, 28),
    (3, 0),
    (0, 4_321),
];

/// Returns where the Reads lead to, which has to be there while they are asked for.
fn post_everything(dut: &mut Dut) -> Target {
    let sink = dut.end.target(KIB);
    for (i, (opcode, len)) in (0..).zip(POSTED) {
        let bytes = pattern(len);
        let operation = match opcode {
            0 => Operation::Write {
                payload: dut.end.source(&bytes).into(),
                remote: FAR,
            },
            1 => Operation::Read {
                invalidate_sink: false,
                sink: sink.local(0, 100),
                remote: FAR,
            },
            3 => send(dut.end.source(&bytes), false, None),
            4 => send(dut.end.source(&bytes), false, Some(TAKEN)),
            5 => send(dut.end.source(&bytes), true, None),
            _ => send(dut.end.source(&bytes), true, Some(TAKEN)),
        };
        dut.end.post(SendRequest::new(WrId(i), operation));
    }
    sink
}

/// All that was posted, as it left.
fn everything() -> Vec<Vec<Seen>> {
    let mut dut = Dut::new();
    let _sink = post_everything(&mut dut);
    dut.sim.run_until_idle();
    messages(&dut.answer())
}

#[test]
fn each_message_is_one_ddp_message_and_they_leave_in_the_order_posted() {
    let left: Vec<(u8, usize)> = everything()
        .iter()
        .map(|message| {
            let bytes = message.iter().map(|seen| seen.payload().len()).sum();
            (message[0].opcode(), bytes)
        })
        .collect();
    assert_eq!(left, POSTED);
}

#[test]
fn every_byte_of_a_message_is_sent_once_at_rising_offsets() {
    for message in everything() {
        let mut sent = Vec::new();
        for seen in &message {
            if seen.is_tagged() {
                assert_eq!(seen.to(), FAR.to + sent.len() as u64);
            } else {
                assert_eq!(seen.word(14) as usize, sent.len(), "MO");
            }
            sent.extend_from_slice(seen.payload());
            assert!(seen.0.len() <= 1454, "MULPDU for an EMSS of 1460");
        }
        let (bytes, opcode) = (sent.len(), message[0].opcode());
        assert!(opcode == 1 || sent == pattern(bytes));
        let (last, others) = message.split_last().unwrap();
        assert!(last.is_last() && others.iter().all(|seen| !seen.payload().is_empty()));
        assert!(bytes == 0 || !last.payload().is_empty());
    }
}

#[test]
fn versions_and_reserved_fields_are_as_they_must_be_sent() {
    for seen in everything().concat() {
        assert_eq!(seen.0[0] & 0x3f, 1, "DV 1, reserved bits 0");
        assert_eq!(seen.0[1] & 0xf0, 0x40, "RV 1, reserved bits 0");
        assert_eq!(seen.is_tagged(), seen.opcode() == 0, "T by the opcode");
        match seen.opcode() {
            1 | 3 | 5 => assert_eq!(seen.word(2), 0, "no STag to invalidate"),
            4 | 6 => assert_eq!(seen.word(2), TAKEN.0, "in every segment"),
            _ => assert_eq!(seen.word(2), FAR.stag.0),
        }
    }
}

#[test]
fn queues_are_numbered_from_one_each_for_itself() {
    let mut next = [1, 1];
    for message in everything() {
        let qn = match message[0].opcode() {
            0 => continue,
            1 => 1,
            _ => 0,
        };
        for seen in &message {
            assert_eq!((seen.word(6), seen.word(10)), (qn, next[qn as usize]));
        }
        next[qn as usize] += 1;
    }
    assert_eq!(next, [6, 3], "five Sends, two Read Requests");
}

#[test]
fn read_request_is_its_header_and_nothing_else() {
    let mut dut = Dut::new();
    let sink = dut.end.target(100);
    dut.end.post_read(1, sink.local(3, 97), FAR);
    dut.sim.run_until_idle();
    let place = sink.remote(3);
    let ulpdu = [
        vec![0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
        read_request(place.stag, place.to, 97, FAR.stag, FAR.to),
    ];
    assert_eq!(ulpdus(&dut.answer()), [ulpdu.concat()]);
}

/// Reads of nothing, of one byte and of many segments, to sinks that mean nothing here.
#[test]
fn reads_are_answered_one_by_one_in_the_order_of_their_requests() {
    const SINKS: [u32; 4] = [0, u32::MAX, 0xdead_beef, 1];
    let mut dut = Dut::new();
    let source = dut.end.target(64 * KIB);
    source.fill(&pattern(64 * KIB));
    let place = source.remote(0);
    let reads = (1_u32..).zip([1_u32, 64 * 1024, 0, 3, 20_000, 0, 1, 5_000]);
    let reads: Vec<(u32, u32)> = reads.collect();
    let mut requests = Vec::new();
    for &(msn, len) in &reads {
        let sink = Stag(SINKS[msn as usize % 4]);
        let header = read_request(sink, u64::from(msn) << 33, len, place.stag, place.to);
        let request = Untagged {
            msn,
            ..Untagged::read_request()
        };
        requests.extend(request.fpdu(&header));
    }
    dut.peer.send(&requests);
    dut.sim.run_until_idle();
    let responses = messages(&dut.answer());
    assert_eq!(responses.len(), reads.len());
    for (response, (msn, len)) in responses.iter().zip(reads) {
        let mut bytes = Vec::new();
        for seen in response {
            assert_eq!(seen.0[..2], [0x81 | seen.0[0] & 0x40, 0x42]);
            assert_eq!(seen.word(2), SINKS[msn as usize % 4]);
            assert_eq!(seen.to(), (u64::from(msn) << 33) + bytes.len() as u64);
            bytes.extend_from_slice(seen.payload());
        }
        assert!(bytes == pattern(64 * KIB)[..len as usize], "Read {msn}");
    }
    assert_eq!((dut.end.sends(), dut.end.receives()), (vec![], vec![]));
}

/// What came whole before the fault stays, the FPDU that was begun is finished, and the Terminate
/// is the last.
#[test]
fn terminate_comes_between_whole_fpdus_and_nothing_after_it() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    dut.sim.run_until_idle();
    let source = dut.end.source(&pattern(MIB));
    dut.end.post(SendRequest::write(WrId(1), source, FAR));
    dut.end.post_send(2, b"never");
    dut.sim.run_for(Duration::from_micros(120));
    let bad = Untagged {
        qn: 9,
        ..Untagged::default()
    };
    dut.assert_terminates(
        "QN 9",
        &bad.fpdu(b"x"),
        xwarp::error::TermCode::ddp_untagged(1),
    );
    let seen: Vec<Seen> = ulpdus(&dut.answer()).into_iter().map(Seen).collect();
    let (terminate, before) = seen.split_last().unwrap();
    assert_eq!(
        (terminate.word(6), terminate.word(10), terminate.word(14)),
        (2, 1, 0)
    );
    assert_eq!(terminate.word(2), 0, "no STag to invalidate");
    assert!(!before.is_empty() && before.iter().all(|seen| seen.opcode() == 0));
    assert!(
        before.iter().all(|seen| !seen.is_last()),
        "the Write was cut"
    );
    let flushed = [
        Done::flushed(1, xwarp::Opcode::Write),
        Done::flushed(2, xwarp::Opcode::Send),
    ];
    assert_eq!(dut.end.sends(), flushed);
}

#[test]
fn of_two_faults_in_one_tcp_segment_the_first_is_told() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment", "drop_after_failure"]);
    let first = Untagged {
        msn: 7,
        ..Untagged::default()
    };
    let second = Untagged {
        qn: 9,
        ..Untagged::default()
    };
    dut.end.post_recv(1, 100);
    let both = [first.fpdu(b"a"), second.fpdu(b"b")].concat();
    let code = xwarp::error::TermCode::ddp_untagged(3);
    let captured = dut.assert_terminates("MSN 7, then QN 9", &both, code);
    assert_eq!(captured[..4], [0xc0, 0, 0, 19], "M, D, 19 bytes");
    assert_eq!(captured[4..], ulpdus(&first.fpdu(b"a"))[0][..18]);
    assert_eq!(ulpdus(&dut.answer()).len(), 1);
}

/// Some RNICs take a Request or Reply only whole.
#[test]
fn start_up_frame_is_one_tcp_segment() {
    let mut sim = Sim::new(Seed(41)).one_way_delay(Duration::from_micros(50));
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&lengths);
    sim.link().observe(move |sighting| {
        let starts = |window: &[u8]| window == b"MPA ID Re";
        if sighting.frame.windows(9).any(starts) {
            seen.borrow_mut().push(sighting.frame.len());
        }
    });
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let at = b.host().at(sim.new_port());
    let mut listener = b.host().rnic().listen(at).unwrap();
    let limit = Duration::from_secs(5);
    let mut connecting = a.qp.begin_connect(at, &[1; 500], limit).unwrap();
    let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
    request.accept(&mut b.qp, &[2; 400]).unwrap();
    let answer = sim.wait_for("the Reply", || connecting.try_finish());
    assert_eq!(answer.unwrap(), [2; 400]);
    let headers = 14 + 20 + 20 + 12; // Ethernet, IPv4, TCP with timestamps
    for (frame, private_data) in lengths.borrow().iter().zip([500, 400]) {
        // The 4 bytes of enhanced data are there in revision 2.
        let rest = frame - headers - 20 - private_data;
        assert!(rest == 0 || rest == 4, "{rest} bytes more");
    }
    assert_eq!(lengths.borrow().len(), 2);
}

/// An initiator with work waiting sends none of it before the whole Reply is here (RFC 5044
/// §7.1.2).
#[test]
fn first_fpdu_of_an_initiator_follows_the_reply() {
    let (sim, peer) = Sim::with_plain_peer(Seed(43));
    let mut sim = sim.one_way_delay(Duration::from_micros(50));
    let mut end = sim.a().end(&QpConfig::default());
    let at = peer.at(sim.new_port());
    peer.listen(at.port());
    end.post_send(1, b"waiting");
    let limit = Duration::from_secs(5);
    let mut connecting = end.qp.begin_connect(at, b"", limit).unwrap();
    sim.run_until("the Request", || peer.received().len() >= 20);
    let request = peer.received();
    peer.send(&REPLY[..19]);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(peer.received(), request);
    peer.send(&REPLY[19..]);
    sim.wait_for("the Reply", || connecting.try_finish())
        .unwrap();
    sim.run_until_idle();
    let sent = messages(&peer.received()[request.len()..]);
    assert_eq!(sent[0][0].payload(), b"waiting");
    // What follows, if anything, wakes a peer that has overlooked it.
    assert!(
        sent[1..]
            .iter()
            .all(|message| message[0].payload().is_empty())
    );
}
