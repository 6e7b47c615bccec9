//! Data arrives once and in order.

use std::time::Duration;

use xwarp_tcp::Event;
use xwarp_test_kit::{Side, pattern_of};

use crate::frames;
use crate::net::{Net, config, small};

#[test]
fn odd_sizes_arrive_both_ways() {
    for ipv6 in [false, true] {
        let mut net = Net::new();
        let (a, b) = net.connect(ipv6);
        for (round, len) in [1, 2, 3, 535, 1439, 1440].into_iter().enumerate() {
            let there = pattern_of(5, len);
            let back = pattern_of(6, len + round);
            assert!(net.a.write(a, &there, net.now));
            let whole = net.b.write(b, &back, net.now);
            // Longer than an ACK may wait for an answer.
            net.pass(Duration::from_millis(1));
            assert!(whole);
            assert_eq!(net.b.events(), [Event::Readable(b)]);
            assert_eq!(net.a.events(), [Event::Readable(a)]);
            assert_eq!(net.b.read(b, usize::MAX), there);
            assert_eq!(net.a.read(a, usize::MAX), back);
            assert_eq!((net.a.conn(a).unacked(), net.b.conn(b).unacked()), (0, 0));
        }
    }
}

#[test]
fn bytes_around_the_rings_end_are_joined() {
    let mut ring = config(Side::B);
    ring.buffer = Some(4096);
    let mut net = Net::with(config(Side::A), ring.clone());
    let pair = net.connect(false);
    let data = pattern_of(1, 200_000);
    let mut len = 0;
    let piece = move || {
        len = len % 1447 + 1;
        len
    };
    assert_eq!(net.transfer(pair, &data, piece), data);

    // Again, with the small ring at the sender.
    ring.mac = Side::A.mac();
    let mut net = Net::with(ring, config(Side::B));
    let pair = net.connect(false);
    assert_eq!(net.transfer(pair, &data, || 1017), data);
}

#[test]
fn less_than_wanted_is_given_as_it_lies() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.write(a, b"abc", net.now);
    net.settle();
    assert_eq!(net.b.conn(b).readable(100), b"abc");
    assert_eq!(net.b.conn(b).readable(2), b"abc");
    net.b.conn(b).consume(1);
    assert_eq!(net.b.conn(b).readable(2), b"bc");
    net.b.conn(b).consume(99);
    assert_eq!(net.b.conn(b).readable(0), b"");
    assert_eq!(net.b.conn(b).readable_len(), 0);
}

#[test]
fn commit_is_a_segment_with_exactly_its_bytes() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    net.carried.clear();
    let lens = [1, 1448, 20, 700, 1447];
    for len in lens {
        assert!(net.a.write(a, &pattern_of(2, len), net.now));
    }
    net.settle();
    let segments: Vec<_> = net
        .carried
        .iter()
        .filter(|(from, _)| *from == Side::A)
        .map(|(_, frame)| frames::read(frame))
        .collect();
    for (segment, len) in segments.iter().zip(lens) {
        assert!(segment.psh && segment.ack && !segment.fin);
        assert_eq!(segment.payload, pattern_of(2, len));
    }
    assert_eq!(segments.len(), lens.len());
    // All of them arrived in one burst, which one ACK answers.
    assert_eq!(net.carried.len(), lens.len() + 1);
    assert_eq!(net.a.stack.counters().retransmissions, 0);
}

#[test]
fn no_segment_is_cut_where_the_send_buffer_ends() {
    // The send buffer of 16384 bytes is no multiple of the segments, and wraps many times.
    let mut net = Net::with(small(Side::A, 4096), config(Side::B));
    let (a, b) = net.connect(false);
    net.carried.clear();
    let mut received = 0;
    for _ in 0..200 {
        while net.a.write(a, &pattern_of(3, 1447), net.now) {}
        net.settle();
        received += net.b.read(b, 1).len();
    }
    let segments = net.carried.iter().filter(|(from, _)| *from == Side::A);
    let lens: Vec<usize> = segments
        .map(|(_, frame)| frames::read(frame).payload.len())
        .filter(|len| *len > 0)
        .collect();
    assert!(lens.iter().all(|len| *len == 1447), "{lens:?}");
    assert_eq!(lens.len() * 1447, received);
    assert!(received > 10 * 16384);
}

#[test]
fn committing_less_than_was_given_sends_that_much() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    let mut conn = net.a.conn(a);
    conn.writable(1000).unwrap()[..5].copy_from_slice(b"hello");
    conn.commit(5, net.now);
    conn.commit(5, net.now); // there is no slice any longer
    assert!(conn.writable(10).is_some());
    conn.commit(0, net.now);
    assert_eq!(conn.unacked(), 5);
    net.settle();
    assert_eq!(net.b.read(b, 5), b"hello");
}

#[test]
fn room_survives_an_acknowledgment_before_the_commit() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.write(a, b"first ", net.now);
    net.a
        .conn(a)
        .writable(6)
        .unwrap()
        .copy_from_slice(b"second");
    net.settle(); // all data is acknowledged, and smoltcp's ring starts again
    assert_eq!(net.a.conn(a).unacked(), 0);
    net.a.conn(a).commit(6, net.now);
    net.settle();
    assert_eq!(net.b.read(b, 1), b"first second");
}

#[test]
fn fifty_connections_keep_their_bytes_apart() {
    let mut net = Net::new();
    net.listen(false);
    net.listen(true);
    let pairs: Vec<_> = (0..50)
        .map(|i| net.connect_from(i % 3 == 0, 2000 + i))
        .collect();
    let mut received = vec![(Vec::new(), Vec::new()); pairs.len()];
    for round in 0..20 {
        for (i, (a, b)) in (0..).zip(&pairs) {
            assert!(net.a.write(*a, &pattern_of(i, 100 + round), net.now));
            assert!(net.b.write(*b, &pattern_of(i + 99, 300 + round), net.now));
        }
        net.settle();
        for ((a, b), (at_a, at_b)) in pairs.iter().zip(&mut received) {
            at_a.extend(net.a.read(*a, 77));
            at_b.extend(net.b.read(*b, 33));
        }
    }
    let sent = |base: usize, key| -> Vec<u8> {
        (0..20_usize)
            .flat_map(|r| pattern_of(key, base + r))
            .collect()
    };
    for (i, (at_a, at_b)) in (0..).zip(&received) {
        assert_eq!(*at_b, sent(100, i), "connection {i}");
        assert_eq!(*at_a, sent(300, i + 99), "connection {i}");
    }
}
