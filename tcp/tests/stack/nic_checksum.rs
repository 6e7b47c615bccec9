//! Checksums by the NIC: a probe asks for them, they are used after its answer, and no longer after
//! losses.

use std::time::Duration;

use smoltcp::wire::{TcpControl, TcpRepr};
use xwarp_driver::MemoryIo;
use xwarp_tcp::{ConnId, Event, StackCounters};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames::{self, Seen};
use crate::net::{Endpoint, FRAMES, Fate, Net, config};

/// Bytes to carry.
const BYTES: usize = if cfg!(miri) { 20_000 } else { 200_000 };

/// A host whose NIC offers to compute checksums.
pub(crate) fn offering(side: Side) -> Endpoint {
    let (io, wire) = MemoryIo::new(FRAMES).unwrap();
    Endpoint::on(Box::new(io.offering_checksums()), wire, config(side))
}

/// Two such hosts, with a connection between them. Both NICs compute, or neither does.
fn pair(ipv6: bool, computes: bool) -> (Net, ConnId, ConnId) {
    let mut net = Net::new();
    net.a = offering(Side::A);
    net.b = offering(Side::B);
    net.a.wire.set_computes_checksums(computes);
    net.b.wire.set_computes_checksums(computes);
    let (a, b) = net.connect(ipv6);
    (net, a, b)
}

/// Two pieces each way: each side has then sent a probe, and received the answer if there is one.
fn exchange(net: &mut Net, (a, b): (ConnId, ConnId)) {
    for _ in 0..2 {
        assert!(net.a.write(a, b"question", net.now));
        net.settle();
        assert_eq!(net.b.read(b, 8), b"question");
        assert!(net.b.write(b, b"answer", net.now));
        net.settle();
        assert_eq!(net.a.read(a, 6), b"answer");
    }
}

fn asked_and_proven(counters: &StackCounters) -> (u64, u64) {
    (counters.checksum_probes_out, counters.checksums_proven)
}

fn carry(net: &mut Net, pair: (ConnId, ConnId)) {
    let data = pattern_of(5, BYTES);
    let mut len = 700;
    let received = net.transfer(pair, &data, || {
        len = (len * 31 + 7) % 1448 + 1;
        len
    });
    assert!(received == data, "the bytes differ");
}

#[test]
fn nic_that_computes_is_found_out_once_and_used_by_both_sides() {
    for ipv6 in [false, true] {
        let (mut net, a, b) = pair(ipv6, true);
        exchange(&mut net, (a, b));
        carry(&mut net, (a, b));
        for end in [&net.a, &net.b] {
            let counters = end.stack.counters();
            assert_eq!(asked_and_proven(&counters), (1, 1));
            assert_eq!((counters.retransmissions, counters.undone), (0, 0));
            assert_eq!(counters.duplicates_reported, 0, "an answer is none");
            assert_eq!(counters.drop_partial_checksum, 0);
        }
        // If the NIC no longer computes, its use shows.
        net.a.wire.set_computes_checksums(false);
        assert!(net.a.write(a, b"left to the NIC", net.now));
        net.settle();
        assert_eq!(net.b.stack.counters().drop_partial_checksum, 1);
        net.pass(Duration::from_secs(1));
        assert_eq!(net.b.read(b, 15), b"left to the NIC", "from here then");
    }
}

#[test]
fn nic_that_does_nothing_is_not_used_and_nothing_is_lost_or_sent_again() {
    for ipv6 in [false, true] {
        let (mut net, a, b) = pair(ipv6, false);
        exchange(&mut net, (a, b));
        carry(&mut net, (a, b));
        for end in [&net.a, &net.b] {
            let counters = end.stack.counters();
            assert_eq!(asked_and_proven(&counters), (1, 0));
            assert_eq!(counters.retransmissions, 0);
            assert_eq!(counters.drop_partial_checksum, 1, "the other's probe");
        }
    }
}

#[test]
fn probe_is_the_byte_before_those_unacknowledged_behind_data() {
    let (mut net, a, b) = pair(false, true);
    net.carried.clear();
    // The passive side knows that its peer is connected. The active side knows it once its first
    // data is acknowledged.
    assert!(net.a.write(a, b"question", net.now));
    net.settle();
    assert_eq!(net.a.stack.counters().checksum_probes_out, 0);
    assert!(net.b.write(b, b"answer", net.now));
    net.settle();
    let of = |side: Side, net: &Net| -> Vec<frames::Seen> {
        let its = net.carried.iter().filter(|(from, _)| *from == side);
        its.map(|(_, frame)| frames::read(frame)).collect()
    };
    let [.., data, probe] = &of(Side::B, &net)[..] else {
        panic!("{:?}", net.carried);
    };
    assert_eq!(data.payload, b"answer");
    assert_eq!((probe.seq + 1, &probe.payload[..]), (data.seq, &[0][..]));
    assert!(!probe.syn && !probe.fin && !probe.rst && probe.ack);
    let answer = of(Side::A, &net).pop().unwrap();
    let [numbers @ .., _, _, _, _] = &answer.options[answer.options.len() - 8..] else {
        panic!("{answer:?}");
    };
    assert_eq!(numbers, probe.seq.to_be_bytes(), "the block begins there");
    assert_eq!(asked_and_proven(&net.b.stack.counters()), (1, 1));
    assert!(net.a.write(a, b"question", net.now));
    net.settle();
    assert_eq!(asked_and_proven(&net.a.stack.counters()), (1, 1));
}

#[test]
fn nothing_that_comes_twice_is_taken_for_an_answer() {
    let mut net = Net::new();
    (net.a, net.b) = (offering(Side::A), offering(Side::B));
    net.a.wire.set_computes_checksums(false);
    net.b.wire.set_computes_checksums(false);
    net.judge(|_, _| Fate::Repeat);
    let (a, b) = net.connect(false);
    exchange(&mut net, (a, b));
    carry(&mut net, (a, b));
    let counters = [&net.a, &net.b].map(|end| end.stack.counters());
    assert_eq!(counters.map(|c| asked_and_proven(&c)), [(1, 0); 2]);
    assert!(counters[0].duplicates_reported > 0, "{counters:?}");
}

#[test]
fn loss_has_the_nic_asked_anew() {
    let (mut net, a, b) = pair(false, true);
    exchange(&mut net, (a, b));
    let mut count = 0;
    net.judge(move |from, _| {
        count += usize::from(from == Side::A);
        let lost = from == Side::A && count == 9;
        if lost { Fate::Lose } else { Fate::Pass }
    });
    carry(&mut net, (a, b));
    let counters = net.a.stack.counters();
    assert!(counters.retransmissions > 0, "{counters:?}");
    assert_eq!(asked_and_proven(&counters), (2, 2), "{counters:?}");
    assert_eq!(
        (counters.checksums_doubted, counters.checksums_given_up),
        (1, 0)
    );
}

#[test]
fn nic_that_stops_computing_is_used_no_more() {
    let (mut net, a, b) = pair(false, true);
    exchange(&mut net, (a, b));
    net.a.wire.set_computes_checksums(false);
    carry(&mut net, (a, b));
    let lost = net.b.stack.counters().drop_partial_checksum;
    let counters = net.a.stack.counters();
    assert_eq!(asked_and_proven(&counters), (1, 1), "{counters:?}");
    assert_eq!(
        counters.checksums_given_up, 1,
        "none has arrived: a timeout"
    );
    let before = counters.retransmissions;
    carry(&mut net, (a, b));
    assert_eq!(net.b.stack.counters().drop_partial_checksum, lost);
    assert_eq!(net.a.stack.counters().retransmissions, before);
}

#[test]
fn timeout_ends_the_use_of_the_nic() {
    let (mut net, a, b) = pair(false, true);
    exchange(&mut net, (a, b));
    net.judge(|_, _| Fate::Lose);
    assert!(net.a.write(a, b"through an outage", net.now));
    net.pass(Duration::from_millis(100));
    net.be_kind();
    net.pass(Duration::from_secs(2));
    assert_eq!(net.b.read(b, 17), b"through an outage");
    assert_eq!(net.a.stack.counters().checksums_given_up, 1);
    net.a.wire.set_computes_checksums(false);
    carry(&mut net, (a, b));
    assert_eq!(net.b.stack.counters().drop_partial_checksum, 0);
    assert_eq!(net.a.stack.counters().checksums_given_up, 1, "once");
    assert_eq!(asked_and_proven(&net.a.stack.counters()), (1, 1));
}

/// A host whose NIC offers to compute checksums, and a hand-written peer.
struct ByHand {
    net: Net,
    conn: ConnId,
    /// The host's initial sequence number.
    iss: u32,
}

impl ByHand {
    /// They are connected.
    fn new(sack_permitted: bool) -> Self {
        let mut net = Net::new();
        net.b = offering(Side::B);
        net.listen(false);
        let syn = TcpRepr {
            sack_permitted,
            ..frames::segment(TcpControl::Syn, 1000, None)
        };
        let iss = receive(&mut net, &syn)[0].seq;
        let ack = frames::segment(TcpControl::None, 1001, Some(iss + 1));
        receive(&mut net, &ack);
        let [Event::Incoming { conn, .. }] = net.b.events()[..] else {
            panic!("no connection");
        };
        net.judge(|_, _| Fate::Lose); // host A is not the peer
        Self { net, conn, iss }
    }

    /// Writes `len` bytes as one piece. Returns the sent segments.
    fn write(&mut self, len: usize) -> Vec<Seen> {
        assert!(
            self.net
                .b
                .write(self.conn, &pattern_of(1, len), self.net.now)
        );
        self.net.b.step(self.net.now);
        let sent = self.net.b.sent();
        sent.iter().map(|frame| frames::read(frame)).collect()
    }

    /// Acknowledges all before byte `ack`, and the bytes in `block`. Returns the segments that the
    /// host sends then.
    fn acknowledge(&mut self, ack: u32, block: Option<(u32, u32)>) -> Vec<Seen> {
        let at = |byte: u32| self.iss.wrapping_add(1).wrapping_add(byte);
        let ack = TcpRepr {
            sack_ranges: [block.map(|(begin, end)| (at(begin), at(end))), None, None],
            ..frames::segment(TcpControl::None, 1001, Some(at(ack)))
        };
        receive(&mut self.net, &ack)
    }

    fn asked_and_proven(&self) -> (u64, u64) {
        asked_and_proven(&self.net.b.stack.counters())
    }
}

/// Delivers a segment to the host. Returns the segments that it sends then.
fn receive(net: &mut Net, segment: &TcpRepr<'_>) -> Vec<Seen> {
    net.b.wire.deliver(frames::write(segment));
    net.b.step(net.now);
    let sent = net.b.sent();
    sent.iter().map(|frame| frames::read(frame)).collect()
}

/// Bytes that arrived twice, the first of which was the probe's.
#[test]
fn report_of_more_than_the_byte_of_the_probe_proves_nothing() {
    let mut host = ByHand::new(true);
    assert_eq!(host.write(8).len(), 2, "data and a probe");
    host.acknowledge(8, None);
    assert_eq!(host.write(8).len(), 1, "data alone");
    // The probe has the byte before these: the SYN's last number.
    host.acknowledge(16, Some((u32::MAX, 4)));
    assert_eq!(host.asked_and_proven(), (1, 0));
    host.acknowledge(16, Some((u32::MAX, 0)));
    assert_eq!(host.asked_and_proven(), (1, 1));
}

/// The answer could be mistaken for another report.
#[test]
fn peer_is_not_asked_anew_before_what_was_lost_is_repaired() {
    let mut host = ByHand::new(true);
    host.write(8);
    host.acknowledge(8, Some((u32::MAX, 0)));
    assert_eq!(host.asked_and_proven(), (1, 1));
    for _ in 0..6 {
        assert_eq!(host.write(8).len(), 1);
    }
    let again = host.acknowledge(8, Some((16, 56)));
    assert_eq!(again.len(), 1, "the lost one");
    assert_eq!(host.write(8).len(), 1, "no probe beside it");
    host.acknowledge(64, None);
    assert_eq!(host.write(8).len(), 2, "data and a probe");
    assert_eq!(host.asked_and_proven(), (2, 1));
}

/// The retransmission is lost as well, and further segments.
#[test]
fn timeout_while_the_nic_is_in_doubt_ends_its_use() {
    let mut host = ByHand::new(true);
    host.write(8);
    host.acknowledge(8, Some((u32::MAX, 0)));
    for _ in 0..6 {
        host.write(8);
    }
    assert_eq!(host.acknowledge(8, Some((16, 56))).len(), 1, "the lost one");
    host.net.pass(Duration::from_millis(200));
    assert_eq!(host.net.b.stack.counters().checksums_given_up, 1);
    host.net.b.sent();
    host.acknowledge(56, None);
    assert_eq!(host.write(8).len(), 1, "no further probe");
    assert_eq!(host.asked_and_proven(), (1, 1));
}

/// The probe and its answer may have been in flight all the time.
#[test]
fn answer_after_a_timeout_proves_nothing() {
    let mut host = ByHand::new(true);
    assert_eq!(host.write(8).len(), 2, "data and a probe");
    host.net.pass(Duration::from_secs(2));
    assert_eq!(host.net.b.stack.counters().checksums_given_up, 1);
    host.acknowledge(8, Some((u32::MAX, 0)));
    assert_eq!(host.asked_and_proven(), (1, 0));
}

/// Such a peer could not report the byte of a probe.
#[test]
fn peer_without_sack_is_not_asked() {
    let mut host = ByHand::new(false);
    assert_eq!(host.write(8).len(), 1, "data alone");
    assert_eq!(host.asked_and_proven(), (0, 0));
}
