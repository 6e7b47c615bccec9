//! Garbage: bytes that are no valid segment.

use proptest::prelude::*;
use smoltcp::wire::{IpAddress, TcpControl, TcpRepr};
use xwarp_driver::net::Network;
use xwarp_tcp::CloseReason;
use xwarp_test_kit::{Side, pattern_of};

use crate::frames::{self, segment};
use crate::net::{Endpoint, Net, config};

#[test]
fn truncated_frames_are_dropped_at_every_length() {
    let mut net = Net::new();
    let (a, b) = net.connect(false);
    net.a.write(a, &pattern_of(1, 200), net.now);
    for frame in net.a.sent() {
        for len in 0..frame.len() {
            net.b.wire.deliver(frame[..len].to_vec());
            net.b.step(net.now);
        }
        assert_eq!(net.b.conn(b).readable_len(), 0);
        net.b.wire.deliver(frame);
    }
    net.settle();
    assert_eq!(net.b.read(b, 200), pattern_of(1, 200));
}

#[test]
fn other_frames_are_dropped_each_by_its_cause() {
    let mut net = Net::new();
    let frame = frames::write(&segment(TcpControl::None, 1, Some(1)));
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        net.b.wire.deliver(frame);
    };
    changed(12, 0x09); // ethertype
    changed(0, 0xff); // group address
    changed(5, 0xc); // another station
    changed(14, 0x44); // header of 4 words
    changed(24, 0); // IPv4 checksum
    changed(50, 0x55); // TCP checksum
    net.settle();
    let counters = net.b.stack.counters();
    assert_eq!(counters.drop_not_ip, 1);
    assert_eq!(counters.drop_not_unicast, 1);
    assert_eq!(counters.drop_other_station, 1);
    assert_eq!(counters.drop_bad_ip, 1);
    assert_eq!(counters.drop_bad_checksum, 2);
    assert_eq!((counters.segments_in, counters.segments_out), (0, 0));
}

/// The kernel's TCP leaves checksums to a device. On a virtual link no device computes them, and an
/// unverified segment is not accepted.
#[test]
fn checksum_that_was_left_to_a_device_is_told_from_a_wrong_one() {
    let mut net = Net::new();
    let left = |len: usize| {
        let mut frame = frames::write(&TcpRepr {
            payload: &pattern_of(1, len),
            ..segment(TcpControl::None, 1, Some(1))
        });
        frames::leave_checksum(&mut frame);
        frame
    };
    net.b.wire.deliver(left(100));
    net.b.wire.deliver(left(1460));
    net.b.wire.deliver(left(3000));
    net.settle();
    let counters = net.b.stack.counters();
    assert_eq!(counters.drop_partial_checksum, 2);
    assert_eq!(counters.drop_super_packet, 1);
    assert_eq!((counters.drop_bad_checksum, counters.segments_in), (0, 0));
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddress {
    IpAddress::v4(a, b, c, d)
}

fn v6(text: &str) -> IpAddress {
    text.parse::<std::net::Ipv6Addr>().unwrap().into()
}

/// Sends a SYN and an ACK of no flow to a listening host. Returns the number of answers.
fn ask(net: &mut Net, source: IpAddress, target: IpAddress) -> usize {
    for tcp in [
        segment(TcpControl::Syn, 1, None),
        segment(TcpControl::None, 1, Some(1)),
    ] {
        net.b
            .wire
            .deliver(frames::write_between(source, target, &tcp));
    }
    net.b.step(net.now);
    net.b.sent().len()
}

#[test]
fn nobody_is_answered_whose_address_no_peer_has() {
    let (ours, ours6) = (v4(10, 0, 0, 2), v6("fd00::2"));
    let sources = [
        (v4(0, 0, 0, 0), ours),
        (v4(0, 1, 2, 3), ours),
        (v4(127, 0, 0, 1), ours),
        (v4(224, 0, 0, 1), ours),
        (v4(240, 0, 0, 1), ours),
        (v4(255, 255, 255, 255), ours),
        (ours, ours),
        (v4(10, 0, 0, 255), ours),
        (v4(10, 9, 255, 255), ours),
        (v4(10, 9, 8, 7), ours), // ours, too
        (v6("::"), ours6),
        (v6("::1"), ours6),
        (v6("ff02::1"), ours6),
        (v6("::ffff:10.0.0.1"), ours6),
        (ours6, ours6),
        (v6("fe80::2"), ours6), // ours, too
    ];
    for (source, target) in sources {
        let mut net = Net::new();
        net.listen(source.version() == smoltcp::wire::IpVersion::Ipv6);
        let network = |address: IpAddress, prefix| Network {
            address: address.into(),
            prefix,
        };
        net.b.stack.set_networks(vec![
            network(ours, 24),
            network(v4(10, 9, 8, 7), 16),
            network(ours6, 64),
            network(v6("fe80::2"), 64),
        ]);
        assert_eq!(ask(&mut net, source, target), 0, "from {source}");
        let counters = net.b.stack.counters();
        assert_eq!(counters.drop_bad_source, 2, "from {source}");
        assert_eq!((counters.drop_no_flow, counters.segments_out), (0, 0));
    }
}

#[test]
fn nobody_is_answered_who_asks_all_hosts() {
    for target in [
        v4(255, 255, 255, 255),
        v4(224, 0, 0, 1),
        v4(127, 0, 0, 1),
        v4(0, 0, 0, 0),
    ] {
        let mut net = Net::new();
        assert_eq!(ask(&mut net, v4(10, 0, 0, 1), target), 0, "to {target}");
        assert_eq!(net.b.stack.counters().drop_not_unicast, 2, "to {target}");
    }
    for target in [v6("ff02::1"), v6("::1"), v6("::ffff:10.0.0.2")] {
        let mut net = Net::new();
        assert_eq!(ask(&mut net, v6("fd00::1"), target), 0, "to {target}");
        assert_eq!(net.b.stack.counters().drop_not_unicast, 2, "to {target}");
    }
}

#[test]
fn neighbour_of_an_excluded_address_is_answered() {
    let mut net = Net::new();
    net.listen(false);
    let address = "10.0.0.2".parse().unwrap();
    net.b.stack.set_networks(vec![Network {
        address,
        prefix: 24,
    }]);
    for source in [
        v4(10, 0, 0, 254),
        v4(10, 0, 0, 0),
        v4(10, 0, 1, 255),
        v4(223, 255, 255, 255),
    ] {
        // A SYN-ACK; and a RST for the ACK of the same flow, which acknowledges unsent data.
        assert_eq!(ask(&mut net, source, v4(10, 0, 0, 2)), 2, "from {source}");
    }
    assert_eq!(net.b.stack.counters().drop_bad_source, 0);
}

#[test]
fn frame_with_a_vlans_tag_is_not_answered_and_one_with_a_priority_is_answered_with_it() {
    let mut net = Net::new();
    net.listen(false);
    let syn = frames::write(&segment(TcpControl::Syn, 1, None));
    let tagged = |tag: [u8; 4]| [&syn[..12], &tag, &syn[12..]].concat();
    for tag in [
        [0x81, 0, 0, 5],
        [0x81, 0, 0x0f, 0xff],
        [0x88, 0xa8, 0x10, 1],
    ] {
        net.b.wire.deliver(tagged(tag));
    }
    net.b.step(net.now);
    assert_eq!(net.b.sent(), Vec::<Vec<u8>>::new());
    assert_eq!(net.b.stack.counters().drop_vlan, 3);
    net.b.wire.deliver(tagged([0x81, 0, 0xe0, 0]));
    net.b.step(net.now);
    let answers = net.b.sent();
    assert_eq!(answers[0][..12], [Side::A.mac(), Side::B.mac()].concat());
    assert_eq!(answers[0][12..18], [0x81, 0, 0xe0, 0, 0x08, 0]);
    assert_eq!((answers.len(), net.b.stack.counters().drop_vlan), (1, 3));
}

fn control() -> impl Strategy<Value = TcpControl> {
    prop_oneof![
        Just(TcpControl::None),
        Just(TcpControl::Psh),
        Just(TcpControl::Syn),
        Just(TcpControl::Fin),
        Just(TcpControl::Rst),
    ]
}

/// A number near 0, where the windows are, or any number.
fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0_u32..4,
        4 => (0_u32..2000).prop_map(|n| n.wrapping_sub(1000)),
        2 => 0_u32..600_000,
        1 => any::<u32>(),
    ]
}

prop_compose! {
    /// A segment with a valid checksum, whose numbers are relative to the initial ones.
    fn any_segment()(
        control in control(),
        seq in offset(),
        ack in proptest::option::weighted(0.9, offset()),
        window_len in any::<u16>(),
        window_scale in proptest::option::of(any::<u8>()),
        max_seg_size in proptest::option::of(any::<u16>()),
        len in prop_oneof![Just(0_usize), 0_usize..40, 1000_usize..1460],
    ) -> (TcpRepr<'static>, usize) {
        let repr = TcpRepr { window_len, window_scale, max_seg_size, ..segment(control, seq, ack) };
        (repr, len)
    }
}

#[derive(Clone, Debug)]
enum Action {
    Receive(TcpRepr<'static>, usize),
    Write(usize),
    Read,
    Close,
    Wait(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        12 => any_segment().prop_map(|(repr, len)| Action::Receive(repr, len)),
        3 => (1_usize..3000).prop_map(Action::Write),
        2 => Just(Action::Read),
        1 => Just(Action::Close),
        2 => (0_u64..3_000_000).prop_map(Action::Wait),
    ]
}

fn act(host: &mut Endpoint, now: &mut xwarp_tcp::Instant, iss: u32, action: Action, bytes: &[u8]) {
    let conn = host.events.first().map(xwarp_tcp::Event::conn);
    match (action, conn) {
        (Action::Receive(repr, len), _) => {
            let own = |n: smoltcp::wire::TcpSeqNumber| {
                smoltcp::wire::TcpSeqNumber(n.0.wrapping_add(iss.cast_signed()))
            };
            let repr = TcpRepr {
                ack_number: repr.ack_number.map(own),
                payload: &bytes[..len],
                ..repr
            };
            host.wire.deliver(frames::write(&repr));
        }
        (Action::Write(len), Some(conn)) => {
            host.write(conn, &bytes[..len], *now);
        }
        (Action::Read, Some(conn)) => {
            host.read(conn, 100);
        }
        (Action::Close, Some(conn)) => host.stack.close(conn, *now),
        (Action::Wait(micros), _) => *now = *now + std::time::Duration::from_micros(micros),
        (_, None) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20)) {
        let mut net = Net::new();
        for frame in frames {
            for ethertype in [None, Some([0x08, 0x00]), Some([0x86, 0xdd])] {
                let mut frame = frame.clone();
                if let (Some(ethertype), true) = (ethertype, frame.len() > 14) {
                    frame[12..14].copy_from_slice(&ethertype);
                    frame[..6].copy_from_slice(&Side::B.mac());
                    frame[14] = if ethertype[0] == 8 { 0x45 } else { 0x60 };
                }
                net.b.wire.deliver(frame);
            }
        }
        net.settle();
        prop_assert_eq!(net.b.stack.counters().segments_in, 0);
    }

    #[test]
    fn hostile_peer_never_panics_the_stack(
        scale in proptest::option::of(0_u8..15),
        buffer in prop_oneof![Just(1024_usize), Just(70_000), Just(100_000), Just(262_144)],
        actions in prop::collection::vec((action(), any::<bool>()), 0..60),
    ) {
        let mut small = config(Side::B);
        small.buffer = Some(buffer);
        let mut net = Net::with(config(Side::A), small);
        net.listen(false);
        let syn = TcpRepr { window_scale: scale, ..segment(TcpControl::Syn, 0, None) };
        net.b.wire.deliver(frames::write(&syn));
        net.b.step(net.now);
        let iss = frames::read(&net.b.sent()[0]).seq;
        let bytes = pattern_of(1, 3000);
        for (action, step) in actions {
            act(&mut net.b, &mut net.now, iss, action, &bytes);
            if step {
                net.b.step(net.now);
            }
        }
        net.b.step(net.now);
    }
}

/// The kernel refuses a SYN to a port without a listener by such a RST, by IPv6 on a virtual link.
#[test]
fn refusal_counts_though_its_checksum_was_left_to_a_device() {
    for ipv6 in [false, true] {
        let mut net = Net::new();
        let path = Net::path(ipv6, 40_000);
        let a = net.a.stack.connect(path, net.now).unwrap();
        net.a.step(net.now);
        let iss = frames::read(&net.a.sent()[0]).seq;
        let mut tell = |control, ack| {
            let [from, to] = [path.remote, path.local].map(|end| end.ip().into());
            let tcp = TcpRepr {
                src_port: 4791,
                dst_port: 40_000,
                ..segment(control, 0, ack)
            };
            let mut frame = frames::write_between(from, to, &tcp);
            frame[..12].rotate_left(6);
            frames::leave_checksum(&mut frame);
            net.a.wire.deliver(frame);
            net.a.step(net.now);
            net.a.close_reasons(a)
        };
        let known = Some(iss.wrapping_add(1));
        for (control, ack) in [
            (TcpControl::Rst, None),
            (TcpControl::Rst, Some(iss)),
            (TcpControl::Rst, Some(iss.wrapping_add(2))),
            (TcpControl::Syn, known),
            (TcpControl::None, known),
        ] {
            assert_eq!(tell(control, ack), [], "{control:?} {ack:?}");
        }
        assert_eq!(tell(TcpControl::Rst, known), [CloseReason::Refused]);
        let counters = net.a.stack.counters();
        assert_eq!(
            (counters.drop_partial_checksum, counters.segments_out),
            (5, 1)
        );
    }
}

/// An unverified segment does not end an established connection.
#[test]
fn reset_of_a_connection_counts_only_with_a_checksum() {
    let mut net = Net::new();
    let (_, b) = net.connect(false);
    let last = frames::read(&net.carried.last().unwrap().1);
    let mut frame = frames::write(&segment(TcpControl::Rst, last.seq, Some(last.ack_number)));
    let whole = frame.clone();
    frames::leave_checksum(&mut frame);
    net.b.wire.deliver(frame);
    net.settle();
    assert_eq!(net.b.stack.counters().drop_partial_checksum, 1);
    assert!(net.b.stack.is_open(b));
    net.b.wire.deliver(whole);
    net.settle();
    assert!(!net.b.stack.is_open(b));
}
