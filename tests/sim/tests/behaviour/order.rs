//! The ordering and completion rules of RFC 5040 §5.5, each watched at the moment that it speaks
//! of.

use std::time::Duration;

use xwarp::error::{PostError, TermCode};
use xwarp::work::Sgl;
use xwarp::{Access, Opcode, QpConfig, QpState, RecvRequest, SendRequest, Sge, Stag, WrId};
use xwarp_sim_tests::wire::{Tagged, Untagged, ulpdus};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, for_each_seed, pattern, pattern_of};
use xwarp_test_kit::netsim::{Direction, Seed};

use crate::hostile::Dut;

fn sim(seed: Seed) -> Sim {
    Sim::new(seed).one_way_delay(Duration::from_micros(50))
}

/// Rules 10 and 16.
#[test]
fn writes_are_there_when_the_send_after_them_is_received() {
    for_each_seed(|seed| {
        let mut sim = sim(seed).loss(0.02).reorder(0.05).duplicate(0.02);
        let (mut a, mut b) = sim.connected_pair();
        let target = b.target(100 * KIB);
        b.post_recv(3, 3_000);
        a.post_write(1, &pattern_of(1, 60 * KIB), target.remote(0));
        a.post_write(2, &pattern_of(2, 40 * KIB), target.remote(60 * KIB));
        a.post_send(3, &pattern_of(3, 3_000));
        let (received, memory, buffer) = sim.wait_for("the Send", || {
            let received = b.receives();
            (!received.is_empty()).then(|| (received, target.to_vec(), b.buffer(3)))
        });
        assert_eq!(received, [Done::receive(3, 3_000)]);
        assert!(memory == [pattern_of(1, 60 * KIB), pattern_of(2, 40 * KIB)].concat());
        assert!(buffer == pattern_of(3, 3_000));
        sim.run_until_idle();
        assert_eq!(b.receives(), [], "delivered once");
    });
}

/// Rules 12 and 17: whichever frame is missing, the request waits for it.
#[test]
fn read_sees_the_writes_that_were_posted_before_it() {
    for n in 1..=8 {
        let mut sim = sim(Seed(n));
        let (mut a, mut b) = sim.connected_pair();
        sim.run_until_idle();
        let (target, sink) = (b.target(6 * KIB), a.target(6 * KIB));
        b.post_recv(2, 10);
        sim.link().lane(Direction::AToB).drop_nth(n);
        a.post_write(1, &pattern_of(n, 6 * KIB), target.remote(0));
        a.post_send(2, b"before it");
        a.post_read(3, sink.local(0, 6 * KIB), target.remote(0));
        let received = sim.wait_for("the Read Response", || {
            let begun = a.host().rnic().counters().unwrap().rdma.placed_bytes > 0;
            begun.then(|| b.receives())
        });
        assert_eq!(received, [Done::receive(2, 9)], "without frame {n}");
        sim.run_until_idle();
        let done = [
            Done::write(1, 6 * KIB),
            Done::send(2, 9),
            Done::read(3, 6 * KIB),
        ];
        assert_eq!(a.sends(), done, "without frame {n}");
        assert!(sink.to_vec() == pattern_of(n, 6 * KIB), "without frame {n}");
    }
}

/// Rules 11, 15 and 19.
#[test]
fn work_completes_in_the_order_posted_and_a_read_with_its_last_segment() {
    let mut dut = Dut::new();
    let sink = dut.end.target(8);
    let far = xwarp::RemoteAddress {
        stag: Stag(0x100),
        to: 0,
    };
    dut.end.post_read(1, sink.local(0, 8), far);
    dut.end.post_send(2, b"sent at once");
    dut.end.post_write(3, b"likewise", far);
    dut.sim.run_until_idle();
    assert_eq!(ulpdus(&dut.answer()).len(), 3, "all three have left");
    assert_eq!(dut.end.sends(), []);
    let place = sink.remote(0);
    let first = Tagged {
        control: 0x81,
        ..Tagged::read_response(place.stag, place.to)
    };
    dut.peer.send(&first.fpdu(b"8 byte"));
    dut.sim.run_until_idle();
    assert_eq!(dut.end.sends(), []);
    let last = Tagged::read_response(place.stag, place.to + 6);
    dut.peer.send(&last.fpdu(b"s!"));
    dut.sim.run_until_idle();
    let done = [Done::read(1, 8), Done::send(2, 12), Done::write(3, 8)];
    assert_eq!(dut.end.sends(), done);
    assert_eq!(sink.to_vec(), b"8 bytes!");
}

/// Rule 18, which is a permission: neither side's work waits for a long response.
#[test]
fn send_overtakes_the_response_to_an_earlier_read() {
    let mut sim = sim(Seed(3));
    let (mut a, mut b) = sim.connected_pair();
    let (source, sink) = (b.target(MIB), a.target(MIB));
    source.fill(&pattern(MIB));
    b.post_recv(2, 10);
    a.post_recv(9, 10);
    a.post_read(1, sink.local(0, MIB), source.remote(0));
    a.post_send(2, b"go on");
    sim.run_until("the Send", || b.receives() == [Done::receive(2, 5)]);
    let placed = a.host().rnic().counters().unwrap().rdma.placed_bytes;
    assert!(placed < MIB as u64, "{placed}");
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::read(1, MIB), Done::send(2, 5)]);
    assert!(sink.to_vec() == pattern(MIB));
}

#[test]
fn no_more_reads_are_asked_for_at_once_than_ord_allows() {
    let config = QpConfig::default().ord(2);
    let mut dut = Dut::with(&config);
    let sink = dut.end.target(40);
    let far = xwarp::RemoteAddress {
        stag: Stag(0x100),
        to: 0,
    };
    for (i, at) in (0..5).zip((0..).step_by(8)) {
        dut.end.post_read(i, sink.local(at, 8), far);
    }
    for answered in 0..5 {
        dut.sim.run_until_idle();
        let asked = ulpdus(&dut.answer()).len();
        assert_eq!(asked, (answered + 2).min(5), "{answered} answered");
        let place = sink.remote(8 * answered);
        let response = Tagged::read_response(place.stag, place.to);
        dut.peer.send(&response.fpdu(b"8 bytes!"));
    }
    dut.sim.run_until_idle();
    assert_eq!(dut.end.sends(), [0, 1, 2, 3, 4].map(|i| Done::read(i, 8)));
}

#[test]
fn writes_and_reads_may_begin_and_end_at_any_byte() {
    let mut sim = sim(Seed(4));
    let (mut a, b) = sim.connected_pair();
    let (target, sink) = (b.target(64), a.target(64));
    let mut expected = [vec![0; 64], vec![0; 64]];
    for (i, (at, len)) in (0..).zip([(0, 1), (1, 17), (19, 3), (23, 7), (37, 2), (63, 1)]) {
        let bytes = pattern_of(i, len);
        a.post_write(2 * i, &bytes, target.remote(at));
        a.post_read(2 * i + 1, sink.local(63 - at, 1), target.remote(at));
        expected[0][at..at + len].copy_from_slice(&bytes);
        expected[1][63 - at] = bytes[0];
    }
    sim.run_until_idle();
    assert_eq!([target.to_vec(), sink.to_vec()], expected);
}

/// The ordering rules hold for one direction of one stream: a stream that waits holds up no other.
#[test]
fn stream_that_may_not_send_holds_up_no_other() {
    let mut sim = sim(Seed(5));
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    sim.connect_silently(&mut a, &mut b);
    b.post_send(1, b"waits for the first FPDU");
    let (mut c, mut d) = sim.connected_pair();
    d.post_recv(1, 10);
    c.post(SendRequest::send(WrId(1), Sgl::new()));
    sim.run_until_idle();
    assert_eq!(d.receives(), [Done::receive(1, 0)]);
    assert_eq!((b.sends(), c.sends()), (vec![], vec![Done::send(1, 0)]));
}

/// RFC 5041 §6.2.1: what was posted before the close is done, and nothing is taken after it.
#[test]
fn after_a_close_has_begun_no_work_is_taken() {
    let mut sim = sim(Seed(6));
    let (mut a, b) = sim.connected_pair();
    let target = b.target(MIB);
    a.post_write(1, &pattern(MIB), target.remote(0));
    let source = a.source(b"too late");
    a.qp.begin_disconnect().unwrap();
    let refused = Err(PostError::InvalidState(QpState::Closing));
    let late = SendRequest::send(WrId(2), source);
    assert_eq!(a.qp.post_send(late), refused);
    let late = RecvRequest::new(WrId(3), Sgl::new());
    assert_eq!(a.qp.post_recv(late), refused);
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, MIB)]);
    assert!(target.to_vec() == pattern(MIB));
}

/// RFC 5040 §5.3: a Send with Invalidate takes the region away when it is delivered, and its
/// receive completes after that.
#[test]
fn invalidation_comes_with_the_last_segment_and_before_the_completion() {
    let mut dut = Dut::new().expecting(&["drop_refused_segment"]);
    dut.end.post_recv(1, 100);
    let region = dut.end.region(8, Access::all());
    let first = Untagged {
        control: 0x01,
        rdmap: 0x44,
        stag: region.stag().0,
        ..Untagged::default()
    };
    dut.peer.send(&first.fpdu(b"take "));
    let write = |to| Tagged::write(region.stag(), to).fpdu(b"once");
    dut.peer.send(&write(0));
    dut.sim.run_until_idle();
    assert_eq!(region.bytes().to_vec(), b"once\0\0\0\0", "still valid");
    assert_eq!(dut.end.receives(), []);
    let last = Untagged {
        control: 0x41,
        mo: 5,
        ..first
    };
    dut.peer.send(&last.fpdu(b"it away"));
    dut.sim.run_until_idle();
    let completion = dut.end.recv_cq().poll().unwrap().unwrap();
    assert_eq!(completion.invalidated, Some(region.stag()));
    dut.assert_terminates("too late", &write(4), TermCode::ddp_tagged(0));
}

/// RFC 5041 §5.2: a message has less than 2^32 bytes.
#[test]
fn message_of_4_gib_is_refused_when_it_is_posted() {
    let mut sim = sim(Seed(8));
    let (mut a, _b) = sim.connected_pair();
    let half = |stag| Sge {
        stag,
        to: 0,
        len: 1 << 31,
    };
    let pieces = Sgl::from_iter([half(Stag(0x100)), half(Stag(0x100))]);
    let send = SendRequest::send(WrId(1), pieces.clone());
    assert_eq!(a.qp.post_send(send), Err(PostError::TooLong));
    let recv = RecvRequest::new(WrId(1), pieces);
    assert_eq!(a.qp.post_recv(recv), Err(PostError::TooLong));
}

/// RFC 5045 §6.7.1: a completed Send has left, and says nothing of the peer's application.
#[test]
fn send_completes_though_the_peer_never_takes_it() {
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    dut.peer.set_reading(false);
    dut.end.post_send(1, b"into its window");
    dut.sim.run_until_idle();
    assert_eq!(dut.end.sends(), [Done::send(1, 15)]);
    assert!(dut.answer().is_empty());
}

/// Verbs draft §6.5: what is posted behind a Read that waits for ORD waits, too.
#[test]
fn read_that_waits_for_ord_holds_up_what_is_behind_it() {
    let config = QpConfig::default().ord(1);
    for opcode in [Opcode::Read, Opcode::ReadInvalidate] {
        let mut dut = Dut::with(&config);
        let sinks = [0, 1].map(|_| dut.end.region(8, Access::all()));
        let far = xwarp::RemoteAddress {
            stag: Stag(0x100),
            to: 0,
        };
        for (i, sink) in (0..).zip(&sinks) {
            let read = SendRequest::read(WrId(i), sink.local(0, 8), far);
            dut.end.post(match opcode {
                Opcode::ReadInvalidate => read.invalidating_sink(),
                _ => read,
            });
        }
        dut.end.post_send(2, b"behind");
        dut.end.post_write(3, b"behind", far);
        let sent = |dut: &Dut| -> Vec<u8> {
            let fpdus = ulpdus(&dut.answer());
            fpdus.iter().map(|ulpdu| ulpdu[1] & 0x0f).collect()
        };
        dut.sim.run_until_idle();
        assert_eq!(sent(&dut), [1], "a Read Request");
        for sink in &sinks {
            let place = sink.remote(0);
            let response = Tagged::read_response(place.stag, place.to);
            dut.peer.send(&response.fpdu(b"8 bytes!"));
            dut.sim.run_until_idle();
            assert_eq!(sent(&dut), [1, 1, 3, 0], "then a Send and a Write");
        }
        let reads = [0, 1].map(|i| Done::success(i, opcode, 8));
        let rest = [Done::send(2, 6), Done::write(3, 6)];
        assert_eq!(dut.end.sends(), [reads, rest].concat());
    }
}
