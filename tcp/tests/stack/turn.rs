//! What leaves in which half of a turn.

use xwarp_tcp::Event;

use crate::net::{BUDGET, Net};

/// Sends a message from A to B, which polls it; what B's answer of the turn puts on the cable.
fn answered(net: &mut Net, a: xwarp_tcp::ConnId) -> usize {
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
fn an_ack_that_may_wait_for_an_answer_is_left_to_the_next_turn_and_no_other() {
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
