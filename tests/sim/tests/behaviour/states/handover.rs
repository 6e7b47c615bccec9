//! Streams of raw bytes that are handed over to queue pairs (verbs draft §6.2.1.2, §6.6.1).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::{ModifyError, StreamError};
use xwarp::event::AsyncEventKind;
use xwarp::stream::{Framing, LlpStream, StreamListener, StreamState};
use xwarp::{QpConfig, QpState, Stag};
use xwarp_sim_tests::wire::{Tagged, ulpdus};
use xwarp_sim_tests::{Done, KIB, MIB, PlainPeer, Sim, SimEnd, for_each_seed, pattern};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::netsim::Seed;

use super::sim;

const LIMIT: Duration = Duration::from_secs(1);

fn listen(sim: &mut Sim) -> StreamListener {
    let at = sim.b().at(sim.new_port());
    sim.b().rnic().listen_streams(at).unwrap()
}

/// Two ends of a TCP connection in streaming mode; A has connected.
pub(super) fn streams(sim: &mut Sim) -> (LlpStream, LlpStream) {
    let mut listener = listen(sim);
    let at = listener.addresses()[0];
    let a = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    let b = sim.wait_for("a stream", || listener.try_accept().unwrap());
    sim.run_until("TCP", || a.state() == Ok(StreamState::Established));
    (a, b)
}

pub(super) fn write(sim: &mut Sim, stream: &mut LlpStream, bytes: &[u8]) {
    let mut rest = bytes;
    sim.run_until("room", || {
        rest = &rest[stream.write(rest).unwrap()..];
        rest.is_empty()
    });
}

pub(super) fn read(sim: &mut Sim, stream: &mut LlpStream, len: usize) -> Vec<u8> {
    let (mut bytes, mut filled) = (vec![0; len], 0);
    sim.run_until("bytes", || {
        filled += stream.read(&mut bytes[filled..]).unwrap();
        filled == len
    });
    bytes
}

fn ends(sim: &Sim) -> (SimEnd, SimEnd) {
    let config = QpConfig::default();
    (sim.a().end(&config), sim.b().end(&config))
}

/// The draft's start-up: A, which is passive, says hello in streaming mode. B answers by its last
/// streaming message and goes on to iWARP. A, upon that message, follows with work that it has
/// posted before.
fn start(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd, framings: [Framing; 2], last: &[u8]) {
    let (mut at_a, mut at_b) = streams(sim);
    write(sim, &mut at_a, b"do you speak iWARP?");
    assert_eq!(read(sim, &mut at_b, 19), b"do you speak iWARP?");
    b.post_recv(1, 100);
    b.post_send(2, b"from the active side");
    let change = QpChange::start_with(&at_b, framings[1], last);
    b.qp.modify(change).unwrap();
    assert_eq!(b.state(), QpState::Rts);
    a.post_recv(3, 100);
    a.post_send(4, b"from the passive side");
    assert_eq!(read(sim, &mut at_a, last.len()), last);
    a.qp.modify(QpChange::start(&at_a, framings[0])).unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 21)]);
    assert_eq!(a.receives(), [Done::receive(3, 20)]);
    assert_eq!(b.buffer(1)[..21], *b"from the passive side");
    assert_eq!(
        (a.sends(), b.sends()),
        (vec![Done::send(4, 21)], vec![Done::send(2, 20)])
    );
}

/// Both ends move data both ways, and close.
fn use_and_close(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd, len: usize) {
    let (at_a, at_b) = (a.target(len), b.target(len));
    a.post_write(10, &pattern(len), at_b.remote(0));
    a.post_read(11, at_a.local(0, len), at_b.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(10, len), Done::read(11, len)]);
    assert!(at_a.to_vec() == pattern(len));
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    for end in [a, b] {
        assert_eq!(end.events(), [AsyncEventKind::Closed]);
        assert_eq!(end.qp.query().unwrap().stream, None);
    }
}

#[test]
fn stream_carries_raw_bytes_both_ways_until_it_is_closed() {
    let mut sim = sim();
    let (mut a, mut b) = streams(&mut sim);
    assert_eq!(a.read(&mut [0; 10]), Ok(0), "nothing has come");
    let bytes = pattern(MIB);
    let (mut sent, mut received) = (0, Vec::new());
    sim.run_until("all bytes", || {
        sent += a.write(&bytes[sent..]).unwrap();
        let mut piece = [0; 5000];
        while let n @ 1.. = b.read(&mut piece).unwrap() {
            received.extend_from_slice(&piece[..n]);
        }
        received.len() == MIB
    });
    assert!(received == bytes);
    write(&mut sim, &mut b, b"thank you");
    drop(b);
    sim.run_until("the FIN", || a.state() == Ok(StreamState::PeerClosed));
    assert_eq!(read(&mut sim, &mut a, 9), b"thank you");
    assert_eq!(a.read(&mut [0; 1]), Err(StreamError::PeerClosed));
    drop(a);
    sim.run_until_idle();
}

#[test]
fn stream_becomes_a_queue_pairs_by_the_last_streaming_message() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    start(&mut sim, &mut a, &mut b, [Framing::default(); 2], b"I do");
    use_and_close(&mut sim, &mut a, &mut b, 100 * KIB);
    start(
        &mut sim,
        &mut a,
        &mut b,
        [Framing::default(); 2],
        b"I still do",
    );
    use_and_close(&mut sim, &mut a, &mut b, 100 * KIB);
}

#[test]
fn nothing_is_lost_whatever_the_link_does_during_the_transition() {
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed).expecting(&["drop_no_flow"]);
        let (mut a, mut b) = ends(&sim);
        start(&mut sim, &mut a, &mut b, [Framing::default(); 2], b"I do");
        use_and_close(&mut sim, &mut a, &mut b, 32 * KIB);
    });
}

#[test]
fn last_streaming_message_of_any_length_comes_first() {
    for len in [1, 5000, MIB] {
        let mut sim = sim().rate(100_000_000);
        let (mut a, mut b) = ends(&sim);
        start(
            &mut sim,
            &mut a,
            &mut b,
            [Framing::default(); 2],
            &pattern(len),
        );
        use_and_close(&mut sim, &mut a, &mut b, 10 * KIB);
    }
}

#[test]
fn crc_and_markers_are_as_the_application_says() {
    for crc in [false, true] {
        for (send_markers, receive_markers) in [(false, true), (true, false), (true, true)] {
            let framing = Framing {
                crc,
                send_markers,
                receive_markers,
            };
            let other = Framing {
                crc,
                send_markers: receive_markers,
                receive_markers: send_markers,
            };
            let mut sim = sim();
            let (mut a, mut b) = ends(&sim);
            start(&mut sim, &mut a, &mut b, [framing, other], b"I do");
            let info = a.qp.connection().unwrap();
            assert_eq!(
                (info.crc, info.send_markers, info.receive_markers),
                (crc, send_markers, receive_markers)
            );
            use_and_close(&mut sim, &mut a, &mut b, 10 * KIB);
        }
    }
}

#[test]
fn framings_that_differ_are_found_by_the_crc() {
    let mut sim = sim().expecting(&["drop_bad_fpdu", "drop_after_failure"]);
    let (mut a, mut b) = ends(&sim);
    let (at_a, at_b) = streams(&mut sim);
    let no_crc = Framing {
        crc: false,
        ..Framing::default()
    };
    b.post_recv(1, 10);
    b.qp.modify(QpChange::start(&at_b, Framing::default()))
        .unwrap();
    a.qp.modify(QpChange::start(&at_a, no_crc)).unwrap();
    a.post_send(1, b"hello");
    sim.run_until_idle();
    let error = xwarp::error::InboundError::Crc;
    let events = b.events();
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { error: told, .. }] if told == error),
        "{events:?}"
    );
}

#[test]
fn fpdus_that_come_before_the_stream_is_handed_over_are_taken_then() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let (at_a, at_b) = streams(&mut sim);
    let target = b.target(50 * KIB);
    a.post_write(1, &pattern(50 * KIB), target.remote(0));
    a.post_send(2, b"early");
    a.qp.modify(QpChange::start(&at_a, Framing::default()))
        .unwrap();
    sim.run_for(Duration::from_millis(10));
    b.post_recv(3, 10);
    b.qp.modify(QpChange::start(&at_b, Framing::default()))
        .unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(3, 5)]);
    assert!(target.to_vec() == pattern(50 * KIB));
    use_and_close(&mut sim, &mut b, &mut a, KIB);
}

/// The peer's FPDUs lie right behind its streaming message, in the same segments.
#[test]
fn fpdu_right_behind_a_streaming_message_is_not_lost() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let (mut at_a, mut at_b) = streams(&mut sim);
    write(&mut sim, &mut at_a, b"here I come");
    a.post_send(1, b"at once");
    a.qp.modify(QpChange::start(&at_a, Framing::default()))
        .unwrap();
    b.post_recv(2, 10);
    sim.run_for(Duration::from_millis(10));
    assert_eq!(read(&mut sim, &mut at_b, 11), b"here I come");
    b.qp.modify(QpChange::start_with(&at_b, Framing::default(), b""))
        .unwrap();
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(2, 7)]);
}

#[test]
fn active_side_sends_no_fpdu_before_it_has_got_one() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let (mut at_a, at_b) = streams(&mut sim);
    b.post_send(1, b"too early");
    b.qp.modify(QpChange::start_with(&at_b, Framing::default(), b"I do"))
        .unwrap();
    sim.run_until_idle();
    assert_eq!(read(&mut sim, &mut at_a, 4), b"I do");
    assert_eq!(at_a.read(&mut [0; 10]), Ok(0), "and nothing besides");
    a.post_recv(2, 10);
    a.qp.modify(QpChange::start(&at_a, Framing::default()))
        .unwrap();
    sim.run_until_idle();
    assert_eq!(a.receives(), [], "the passive side has not spoken");
    a.post_write(
        3,
        b"",
        xwarp::RemoteAddress {
            stag: xwarp::Stag(0),
            to: 0,
        },
    );
    sim.run_until_idle();
    assert_eq!(a.receives(), [Done::receive(2, 9)]);
}

/// Verbs draft §13.1: without a last streaming message neither side waits for the other.
#[test]
fn both_sides_may_speak_first() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let (at_a, at_b) = streams(&mut sim);
    sim.run_until_idle();
    for (end, stream) in [(&mut a, &at_a), (&mut b, &at_b)] {
        end.post_recv(1, 10);
        end.post_send(2, b"me first");
        end.qp
            .modify(QpChange::start(stream, Framing::default()))
            .unwrap();
    }
    sim.run_for(Duration::from_micros(60));
    for end in [&mut a, &mut b] {
        assert_eq!(end.receives(), [Done::receive(1, 8)], "on the first way");
        assert_eq!(end.sends(), [Done::send(2, 8)]);
    }
    use_and_close(&mut sim, &mut a, &mut b, KIB);
}

/// As a peer sees it that reads what it gets byte by byte. It gets raw bytes up to the last
/// streaming message, then whole FPDUs, then a FIN.
#[test]
fn behind_the_last_streaming_message_there_are_fpdus_and_nothing_else() {
    let (sim, peer) = Sim::with_plain_peer(Seed(5));
    let mut sim = sim.one_way_delay(Duration::from_micros(50));
    let mut a = sim.a().end(&QpConfig::default());
    let at = sim.a().at(sim.new_port());
    let mut listener = sim.a().rnic().listen_streams(at).unwrap();
    peer.connect(at);
    let mut stream = sim.wait_for("a stream", || listener.try_accept().unwrap());
    write(&mut sim, &mut stream, b"welcome; ");
    let last = b"and now iWARP";
    let change = QpChange::start_with(&stream, Framing::default(), last);
    a.qp.modify(change).unwrap();
    assert_eq!(stream.write(b"one more thing"), Err(StreamError::Gone));
    assert_eq!(stream.read(&mut [0; 8]), Err(StreamError::Gone));
    a.post_send(1, &pattern(5 * KIB));
    peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
    sim.run_until("the Send", || a.sends() == [Done::send(1, 5 * KIB)]);
    drop(stream);
    a.qp.begin_disconnect().unwrap();
    sim.run_until("the FIN", || peer.saw_fin());
    peer.close();
    sim.run_until_idle();
    assert_eq!(a.state(), QpState::Idle);
    let received = peer.received();
    let fpdus = received.strip_prefix(b"welcome; and now iWARP").unwrap();
    let payload: Vec<u8> = ulpdus(fpdus)
        .iter()
        .flat_map(|ulpdu| ulpdu[18..].to_vec())
        .collect();
    assert!(payload == pattern(5 * KIB));
}

#[test]
fn only_an_established_stream_of_the_same_rnic_can_be_handed_over() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let before = a.qp.query().unwrap();
    let mut listener = listen(&mut sim);
    let at = listener.addresses()[0];
    let connecting = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    let refused = |end: &mut SimEnd, stream: &LlpStream| {
        let change = QpChange::start(stream, Framing::default()).ord(1);
        assert_eq!(end.qp.modify(change), Err(ModifyError::InvalidStream));
    };
    assert_eq!(connecting.state(), Ok(StreamState::Connecting));
    refused(&mut a, &connecting);
    let peer = sim.wait_for("a stream", || listener.try_accept().unwrap());
    refused(&mut b, &connecting);
    drop(peer);
    sim.run_until("the FIN", || {
        connecting.state() == Ok(StreamState::PeerClosed)
    });
    refused(&mut a, &connecting);
    assert_eq!(a.qp.query().unwrap(), before, "the ORD is as it was");
    let (near, far) = streams(&mut sim);
    a.qp.modify(QpChange::start(&near, Framing::default()).ord(1))
        .unwrap();
    assert_eq!(
        (a.qp.ord(), a.qp.query().unwrap().stream),
        (1, Some(near.id()))
    );
    let mut other = sim.a().end(&QpConfig::default());
    refused(&mut other, &near);
    b.qp.modify(QpChange::start(&far, Framing::default()))
        .unwrap();
    assert_eq!(far.state(), Ok(StreamState::Gone));
    drop((near, far));
    use_and_close(&mut sim, &mut a, &mut b, KIB);
}

#[test]
fn stream_goes_with_no_other_transition() {
    let mut sim = sim();
    let (mut a, mut b) = ends(&sim);
    let (near, far) = streams(&mut sim);
    a.qp.modify(QpChange::start(&near, Framing::default()))
        .unwrap();
    b.qp.modify(QpChange::start(&far, Framing::default()))
        .unwrap();
    let (other, _peer) = streams(&mut sim);
    let before = a.qp.query().unwrap();
    let error = a.qp.modify(QpChange::start(&other, Framing::default()));
    assert!(matches!(error, Err(ModifyError::InvalidModifier { .. })));
    assert_eq!(a.qp.query().unwrap(), before);
    assert_eq!(other.state(), Ok(StreamState::Established));
}

#[test]
fn nobody_listening_and_nobody_accepting() {
    let mut sim = Sim::new(Seed(3)).expecting(&["drop_no_flow"]);
    let at = sim.b().at(sim.new_port());
    let stream = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    sim.run_until("the refusal", || stream.state() == Ok(StreamState::Gone));
    let listener = listen(&mut sim);
    let at = listener.addresses()[0];
    let stream = sim.a().rnic().connect_stream(at, LIMIT).unwrap();
    sim.run_until("TCP", || stream.state() == Ok(StreamState::Established));
    drop(listener);
    sim.run_until("the FIN", || stream.state() == Ok(StreamState::PeerClosed));
}

/// A peer that has connected to a stream of A's.
fn with_peer() -> (Sim, PlainPeer, LlpStream) {
    let (sim, peer) = Sim::with_plain_peer(Seed(6));
    let mut sim = sim.one_way_delay(Duration::from_micros(50));
    let at = sim.a().at(sim.new_port());
    let mut listener = sim.a().rnic().listen_streams(at).unwrap();
    peer.connect(at);
    let stream = sim.wait_for("a stream", || listener.try_accept().unwrap());
    (sim, peer, stream)
}

#[test]
fn stream_that_was_dropped_waits_for_the_peers_fin_ten_seconds_at_most() {
    let (mut sim, peer, stream) = with_peer();
    drop(stream);
    for _ in 0..3 {
        sim.run_for(Duration::from_secs(3));
        assert_eq!(peer.ended(), None);
        peer.send(b"?");
    }
    sim.run_for(Duration::from_secs(2));
    assert_eq!(peer.ended(), Some(CloseReason::Reset));
}

#[test]
fn bytes_written_to_a_dropped_stream_survive_an_outage() {
    let (mut sim, peer, mut stream) = with_peer();
    sim.link().change(|conditions| conditions.loss = 1.0);
    write(&mut sim, &mut stream, b"the end");
    drop(stream);
    sim.run_for(Duration::from_secs(35));
    sim.link().change(|conditions| conditions.loss = 0.0);
    sim.run_until("the FIN", || peer.saw_fin());
    assert_eq!(peer.received(), b"the end");
}
