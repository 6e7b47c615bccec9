//! Windows that limit the sender.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xwarp_driver::{IoCounters, IoError, MemoryIo, PacketIo, RxFrame, SentFrame, TxFrame};
use xwarp_tcp::{CloseReason, ConnId, Event, MAX_SEGMENTS_IN_FLIGHT};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames;
use crate::net::{Endpoint, Fate, Net, config, small};

#[test]
fn full_window_refuses_and_an_ack_invites() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    let piece = pattern_of(1, 1000);
    for _ in 0..4 {
        assert!(net.a.write(a, &piece, net.now));
    }
    assert!(net.a.conn(a).writable(97).is_none());
    assert!(net.a.conn(a).writable(1000).is_none());
    net.settle();
    assert_eq!(net.a.events(), []);
    assert_eq!(net.a.conn(a).unacked(), 0);
    net.b.read(b, 4000);
    net.settle();
    assert_eq!(net.a.events(), [Event::Writable(a)]);
    assert!(net.a.write(a, &piece, net.now));
    assert_eq!(net.a.stack.counters().retransmissions, 0);
}

#[test]
fn window_is_filled_to_the_last_byte_without_splitting() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    for len in [1448, 1448, 1200] {
        assert!(net.a.write(a, &pattern_of(1, len), net.now));
    }
    assert!(net.a.conn(a).writable(1).is_none());
    net.settle();
    assert_eq!(net.b.conn(b).readable_len(), 4096);
    let sent = net.carried.iter().filter(|(from, _)| *from == Side::A);
    assert_eq!(sent.count(), 2 + 3);
}

#[test]
fn send_buffer_limits_too() {
    // The send buffer is four times the receive buffer: 8192 bytes.
    let mut net = Net::with(small(Side::A, 2048), config(Side::B));
    let (a, _) = net.connect(false);
    for _ in 0..5 {
        assert!(net.a.write(a, &pattern_of(1, 1400), net.now));
    }
    assert!(net.a.conn(a).writable(1400).is_none());
    net.settle();
    assert_eq!(net.a.events(), [Event::Writable(a)]);
    assert!(net.a.conn(a).writable(9000).is_none(), "it will never fit");
}

#[test]
fn so_many_segments_are_in_flight_at_most() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    let mut sent = 0;
    while net.a.write(a, &[0], net.now) {
        sent += 1;
    }
    assert_eq!(sent, MAX_SEGMENTS_IN_FLIGHT);
    net.settle();
    assert_eq!(net.a.events(), [Event::Writable(a)]);
    assert_eq!(net.b.read(b, 1).len(), MAX_SEGMENTS_IN_FLIGHT);
    assert!(net.a.write(a, &[0], net.now));
}

#[test]
fn lost_window_update_is_asked_for() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    for _ in 0..4 {
        net.a.write(a, &pattern_of(1, 1024), net.now);
    }
    net.settle();
    assert!(net.a.conn(a).writable(1024).is_none());
    net.judge(|from, _| {
        if from == Side::B {
            Fate::Lose
        } else {
            Fate::Pass
        }
    });
    net.b.read(b, 4096);
    net.settle();
    net.be_kind();
    assert_eq!(net.a.events(), []);
    net.pass(Duration::from_secs(3));
    assert_eq!(net.a.events(), [Event::Writable(a)]);
    assert!(net.a.write(a, &pattern_of(1, 1024), net.now));
    net.settle();
    assert_eq!(net.b.read(b, 1), pattern_of(1, 1024));
    net.pass(Duration::from_secs(5));
    assert_eq!(net.a.stack.next_deadline(), None, "the probes have stopped");
}

#[test]
fn closed_window_of_a_living_peer_is_waited_upon() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    net.a.write(a, &pattern_of(1, 4096), net.now);
    assert!(!net.a.write(a, &[1], net.now));
    net.pass(Duration::from_mins(5));
    assert_eq!(net.a.events(), []);
    assert_eq!(net.b.read(b, 64), pattern_of(1, 4096));
    net.settle();
    assert_eq!(net.a.events(), [Event::Writable(a)]);
}

#[test]
fn closed_window_of_a_dead_peer_times_out() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, _) = net.connect(false);
    net.a.write(a, &pattern_of(1, 4096), net.now);
    net.settle();
    assert!(!net.a.write(a, &[1], net.now));
    net.judge(|_, _| Fate::Lose);
    net.pass(Duration::from_mins(2));
    assert_eq!(net.a.close_reasons(a), [CloseReason::TimedOut]);
}

#[test]
fn piece_larger_than_any_window_is_split() {
    let mut net = Net::with(config(Side::A), small(Side::B, 1024));
    let pair = net.connect(false);
    let data = pattern_of(1, 14_000);
    assert_eq!(net.transfer(pair, &data, || 1400), data);
}

#[test]
fn consuming_reopens_the_window_on_the_wire() {
    let mut net = Net::with(config(Side::A), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    net.a.write(a, &pattern_of(1, 4096), net.now);
    net.settle();
    let last = |net: &Net| frames::read(&net.carried.last().unwrap().1).window;
    assert_eq!(last(&net), 0);
    net.b.conn(b).consume(4096);
    assert!(net.b.stack.next_deadline().is_some());
    net.b.stack.transmit(net.now).unwrap();
    net.settle();
    assert_eq!(last(&net), 4096);
}

/// An interface whose supply of TX frames the test switches.
struct Starving {
    inner: MemoryIo,
    fed: Arc<AtomicBool>,
}

impl PacketIo for Starving {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        self.inner.receive(budget, out);
    }
    fn recycle(&mut self, frame: RxFrame) {
        self.inner.recycle(frame);
    }
    fn owns(&self, frame: &RxFrame) -> bool {
        self.inner.owns(frame)
    }
    fn tx_frame(&mut self) -> Option<TxFrame> {
        let fed = self.fed.load(Ordering::Relaxed);
        fed.then(|| self.inner.tx_frame())?
    }
    fn send(&mut self, frame: TxFrame) {
        self.inner.send(frame);
    }
    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.inner.send_kept(frame)
    }
    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.inner.keep(frame)
    }
    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.inner.reclaim(sent)
    }
    fn release(&mut self, sent: SentFrame) {
        self.inner.release(sent);
    }
    fn tx_free(&self) -> usize {
        self.inner.tx_free()
    }
    fn rx_frames(&self) -> usize {
        self.inner.rx_frames()
    }
    fn discard(&mut self, frame: TxFrame) {
        self.inner.discard(frame);
    }
    fn flush(&mut self) -> Result<(), IoError> {
        self.inner.flush()
    }
    fn backlog(&self) -> bool {
        self.inner.backlog()
    }
    fn set_up(&mut self, up: bool) {
        self.inner.set_up(up);
    }
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }
    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

#[test]
fn without_a_tx_frame_nothing_is_written_or_lost() {
    let (inner, wire) = MemoryIo::new(64).unwrap();
    let fed = Arc::new(AtomicBool::new(true));
    let io = Starving {
        inner,
        fed: Arc::clone(&fed),
    };
    let mut net = Net::new();
    net.a = Endpoint::on(Box::new(io), wire, config(Side::A));
    let (a, b) = net.connect(false);

    fed.store(false, Ordering::Relaxed);
    assert!(net.a.conn(a).writable(100).is_none());
    net.b.write(b, &[7; 100], net.now);
    net.settle();
    assert_eq!(net.a.events(), [Event::Readable(a)]);
    assert_eq!(net.b.conn(b).unacked(), 100, "the ACK waits for a frame");
    assert_eq!(net.a.stack.next_deadline(), Some(net.now));

    fed.store(true, Ordering::Relaxed);
    net.settle();
    assert_eq!(net.a.events(), [Event::Writable(a)]);
    assert_eq!(net.b.conn(b).unacked(), 0);
    assert!(net.a.write(a, &[9; 100], net.now));
    net.settle();
    assert_eq!(net.b.read(b, 100), [9; 100]);
    assert_eq!(net.b.stack.counters().retransmissions, 0);
}

#[test]
fn answer_without_a_frame_is_counted() {
    let mut net = Net::new();
    net.b = Endpoint::new(1, config(Side::B));
    net.a.stack.connect(Net::path(false, 1), net.now).unwrap();
    net.settle();
    let counters = net.b.stack.counters();
    assert_eq!((counters.drop_no_flow, counters.drop_no_tx_frame), (1, 1));
    assert_eq!((counters.resets_out, counters.segments_out), (0, 0));
}

#[test]
fn segment_with_bytes_tells_of_the_room_that_was_made() {
    let mut net = Net::with(small(Side::A, 4096), small(Side::B, 4096));
    let (a, b) = net.connect(false);
    for _ in 0..2 {
        assert!(net.a.write(a, &[1; 1400], net.now));
    }
    net.settle();
    net.carried.clear();
    net.b.read(b, 100);
    assert!(net.b.write(b, b"answer", net.now));
    net.settle();
    let from_b = net.carried.iter().filter(|(from, _)| *from == Side::B);
    assert_eq!(from_b.count(), 1, "no bare ACK besides");
}

/// Asks for `len` bytes, then for the rest of the same segment; writes and sends them. Returns the
/// bytes of the segment.
fn write_wide(net: &mut Net, conn: ConnId, len: usize) -> usize {
    let mut conn = net.a.conn(conn);
    conn.writable(len).unwrap().fill(1);
    let room = conn.widen().unwrap();
    assert_eq!(room[..len], vec![1; len], "what was written stays");
    room[len..].fill(2);
    let sent = room.len();
    assert_eq!(conn.widen().unwrap().len(), sent, "there is no more");
    conn.commit(sent, net.now);
    sent
}

#[test]
fn room_is_widened_to_a_segment() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    assert!(net.a.conn(a).widen().is_none(), "there is no room yet");
    assert_eq!(write_wide(&mut net, a, 100), 1448);
    assert!(net.a.conn(a).widen().is_none(), "it was committed");
    assert_eq!(write_wide(&mut net, a, 1448), 1448);
    net.settle();
    let data = [vec![1; 100], vec![2; 1348], vec![1; 1448]].concat();
    assert_eq!(net.b.read(b, 1), data);
    let lens = net
        .carried
        .iter()
        .map(|(_, it)| frames::read(it).payload.len());
    let lens: Vec<usize> = lens.filter(|len| *len > 0).collect();
    assert_eq!(lens, [1448, 1448]);
}

#[test]
fn room_is_widened_to_the_peers_window_and_the_send_buffer() {
    let mut net = Net::with(config(Side::A), small(Side::B, 2048));
    let (a, _) = net.connect(false);
    assert!(net.a.write(a, &pattern_of(1, 1448), net.now));
    assert_eq!(write_wide(&mut net, a, 100), 600);
    // The send buffer is four times the receive buffer: 8192 bytes.
    let mut net = Net::with(small(Side::A, 2048), config(Side::B));
    let (a, _) = net.connect(false);
    for _ in 0..5 {
        assert!(net.a.write(a, &pattern_of(1, 1448), net.now));
    }
    assert_eq!(write_wide(&mut net, a, 100), 952);
}

#[test]
fn room_is_widened_to_the_congestion_window() {
    /// Segments of the initial window (RFC 6928 §2).
    const WINDOW: usize = 10;
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    let mut sent = 1000;
    assert!(net.a.write(a, &pattern_of(1, sent), net.now));
    while net.a.write(a, &pattern_of(1, 1448), net.now) {
        sent += 1448;
    }
    sent += write_wide(&mut net, a, 1);
    assert_eq!(sent, WINDOW * 1448);
    assert!(net.a.conn(a).writable(1).is_none());
}

#[test]
fn room_of_another_connection_is_not_widened() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    let (other, _) = net.connect_from(false, 40_001);
    assert!(net.a.conn(a).writable(100).is_some());
    assert!(net.a.conn(other).widen().is_none());
    assert!(net.a.conn(a).widen().is_some());
}
