//! Halves of a turn: which frames leave in which.

use std::time::Duration;

use xwarp_tcp::{ConnId, Event};
use xwarp_test_kit::Side;

use crate::net::{BUDGET, Net, config, small};

/// Sends a message from A to B, which polls it. Returns the frames that B's answer of the turn puts
/// on the cable.
fn answered(net: &mut Net, a: ConnId) -> usize {
    assert!(net.a.write(a, b"request", net.now));
    net.a.stack.flush().unwrap();
    for frame in net.a.sent() {
        net.b.wire.deliver(frame);
    }
    assert_eq!(net.b.stack.poll(net.now, BUDGET), 1);
    assert!(matches!(net.b.stack.poll_event(), Some(Event::Readable(_))));
    assert!(net.b.sent().is_empty(), "nothing leaves by polling");
    net.b.stack.answer(net.now).unwrap();
    net.b.sent().len()
}

#[test]
fn ack_that_may_wait_for_an_answer_is_left_to_the_next_turn_and_no_other() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    assert_eq!(answered(&mut net, a), 1, "nobody has answered so far");
    assert_ne!(net.b.stack.next_deadline(), Some(net.now));
    // This answer shows that answers come.
    net.b.read(b, usize::MAX);
    assert!(net.b.write(b, b"answer", net.now));
    net.settle();
    net.a.read(a, usize::MAX);
    net.settle();
    assert_eq!(answered(&mut net, a), 0);
    let deadline = net.b.stack.next_deadline();
    assert_eq!(deadline, Some(net.now), "something is left to do");
    net.b.read(b, usize::MAX);
    assert!(net.b.write(b, b"answer", net.now));
    net.b.stack.flush().unwrap();
    assert_eq!(net.b.sent().len(), 1);
    net.b.stack.transmit(net.now).unwrap();
    assert!(net.b.sent().is_empty(), "the answer has acknowledged");
    let deadline = net.b.stack.next_deadline();
    assert!(deadline.is_some_and(|at| at > net.now), "a timer runs");
}

/// A writes, B reads and answers without any other cause. Returns the frames of the answer.
fn answer(net: &mut Net, a: ConnId, b: ConnId, sizes: &[usize]) -> Vec<Vec<u8>> {
    for size in sizes {
        assert!(net.a.write(a, &vec![1; *size], net.now));
    }
    net.a.stack.transmit(net.now).unwrap();
    for frame in net.a.sent() {
        net.b.wire.deliver(frame);
    }
    net.b.stack.poll(net.now, BUDGET);
    net.b.read(b, usize::MAX);
    assert!(net.b.write(b, b"answer", net.now));
    net.b.stack.flush().unwrap();
    net.b.sent()
}

#[test]
fn ack_that_came_with_bytes_counts_for_the_answer_to_them() {
    let mut net = Net::with(config(Side::A), small(Side::B, 2000));
    let (a, b) = net.connect(false);
    for frame in answer(&mut net, a, b, &[1000, 1000]) {
        net.a.wire.deliver(frame);
    }
    assert_eq!(net.a.stack.poll(net.now, BUDGET), 1);
    assert!(net.a.write(a, &[2; 1000], net.now), "there is room again");
    assert!(net.a.write(a, &[2; 1000], net.now));
    assert!(!net.a.write(a, &[2; 1000], net.now), "but not for more");
    assert_eq!(net.a.conn(a).unacked(), 2000);
}

#[test]
fn no_timer_runs_out_over_an_ack_that_came_with_bytes() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    let answer = answer(&mut net, a, b, &[100]);
    // A does not see it before its timeout.
    net.now = net.now + Duration::from_secs(2);
    for frame in answer {
        net.a.wire.deliver(frame);
    }
    let done = net.a.stack.poll(net.now, BUDGET);
    assert_eq!(done, 2, "a frame and a timer");
    net.a.stack.transmit(net.now).unwrap();
    assert_eq!(net.a.conn(a).unacked(), 0);
    let counters = net.a.stack.counters();
    assert_eq!((counters.retransmissions, counters.tail_probes), (0, 0));
}

#[test]
fn ack_that_came_with_bytes_is_acted_upon_in_the_next_turn_at_the_latest() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    // This shows A that its ACKs may wait for answers.
    for frame in answer(&mut net, a, b, &[100]) {
        net.a.wire.deliver(frame);
    }
    net.a.stack.poll(net.now, BUDGET);
    assert_eq!(net.a.conn(a).unacked(), 0, "whoever asks is told");
    net.a.read(a, usize::MAX);
    for frame in answer(&mut net, a, b, &[100]) {
        net.a.wire.deliver(frame);
    }
    net.a.stack.poll(net.now, BUDGET);
    net.a.read(a, usize::MAX);
    let free = net.a.stack.io().tx_free();
    net.a.stack.answer(net.now).unwrap();
    assert_eq!(net.a.stack.io().tx_free(), free, "an answer may come");
    assert_eq!(net.a.stack.next_deadline(), Some(net.now));
    net.a.stack.transmit(net.now).unwrap();
    assert_eq!(net.a.stack.io().tx_free(), free + 1, "its frame is free");
}
