//! A hand-written peer, against host b.

use smoltcp::wire::{Ipv4Packet, TcpControl, TcpPacket, TcpRepr};
use xwarp_tcp::{CloseReason, ConnId, Event};
use xwarp_test_kit::Side;

use crate::frames::{self, Seen, segment};
use crate::net::{Endpoint, Net, config};

/// The peer's initial sequence number.
const ISS: u32 = 1000;

fn send(host: &mut Endpoint, net_now: xwarp_tcp::Instant, tcp: &TcpRepr<'_>) -> Vec<Seen> {
    host.wire.deliver(frames::write(tcp));
    host.step(net_now);
    host.sent()
        .iter()
        .map(|frame| frames::read(frame))
        .collect()
}

/// A host that has answered our SYN. Returns its initial sequence number.
fn half_open(window_scale: Option<u8>) -> (Net, u32) {
    let mut net = Net::with(config(Side::A), config(Side::B));
    net.listen(false);
    let syn = TcpRepr {
        window_scale,
        max_seg_size: Some(1460),
        ..segment(TcpControl::Syn, ISS, None)
    };
    let answers = send(&mut net.b, net.now, &syn);
    assert!(answers.len() == 1 && answers[0].syn && answers[0].ack);
    assert_eq!(answers[0].ack_number, ISS + 1);
    let iss = answers[0].seq;
    (net, iss)
}

fn established() -> (Net, u32, ConnId) {
    let (mut net, iss) = half_open(Some(3));
    send(
        &mut net.b,
        net.now,
        &segment(TcpControl::None, ISS + 1, Some(iss + 1)),
    );
    match net.b.events()[..] {
        [Event::Incoming { conn, .. }] => (net, iss, conn),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn segments_of_no_flow_are_answered_as_rfc_9293_says() {
    let mut net = Net::new();
    let ack = send(&mut net.b, net.now, &segment(TcpControl::None, 5, Some(77)));
    assert!(ack[0].rst && !ack[0].ack);
    assert_eq!(ack[0].seq, 77);
    let fin = TcpRepr {
        payload: b"abc",
        ..segment(TcpControl::Fin, 5, None)
    };
    let answer = send(&mut net.b, net.now, &fin);
    assert!(answer[0].rst && answer[0].ack);
    assert_eq!((answer[0].seq, answer[0].ack_number), (0, 5 + 3 + 1));
    let reset = segment(TcpControl::Rst, 5, None);
    assert_eq!(send(&mut net.b, net.now, &reset), []);
    assert_eq!(net.b.stack.counters().drop_no_flow, 3);
    assert_eq!(net.b.stack.counters().resets_out, 2);
}

#[test]
fn peer_without_options_gets_a_window_unscaled_and_small_segments() {
    let mut net = Net::new();
    net.listen(false);
    let answers = send(&mut net.b, net.now, &segment(TcpControl::Syn, ISS, None));
    assert_eq!(answers[0].options, [2, 4, 0x05, 0xb4]);
    let iss = answers[0].seq;
    let ack = TcpRepr {
        payload: b"hi",
        ..segment(TcpControl::None, ISS + 1, Some(iss + 1))
    };
    let answers = send(&mut net.b, net.now, &ack);
    assert_eq!(answers[0].window, 65535);
    let Event::Incoming { conn, .. } = net.b.events[0] else {
        panic!("{:?}", net.b.events);
    };
    assert_eq!(net.b.conn(conn).emss(), 536);
}

#[test]
fn bytes_with_the_handshakes_last_ack_are_announced_after_it() {
    let (mut net, iss) = half_open(Some(0));
    let ack = TcpRepr {
        payload: b"early",
        ..segment(TcpControl::Psh, ISS + 1, Some(iss + 1))
    };
    send(&mut net.b, net.now, &ack);
    let [Event::Incoming { conn, .. }, Event::Readable(same)] = net.b.events()[..] else {
        panic!();
    };
    assert_eq!(conn, same);
    assert_eq!(net.b.conn(conn).readable(5), b"early");
}

#[test]
fn reset_half_open_connection_goes_silently() {
    let (mut net, _) = half_open(Some(0));
    let reset = segment(TcpControl::Rst, ISS + 1, None);
    assert_eq!(send(&mut net.b, net.now, &reset), []);
    assert_eq!(net.b.events(), []);
    assert_eq!(net.b.stack.counters().drop_no_flow, 0);
    let again = segment(TcpControl::Rst, ISS + 1, None);
    send(&mut net.b, net.now, &again);
    assert_eq!(net.b.stack.counters().drop_no_flow, 1);
}

#[test]
fn bytes_beyond_the_window_of_a_syn_are_not_given_to_smoltcp() {
    // smoltcp takes the SYN's window for a scaled one, twice its ring, and would panic.
    let (mut net, iss) = half_open(Some(3));
    let far = TcpRepr {
        payload: &[1; 1000],
        ..segment(TcpControl::None, ISS + 1 + 300_000, Some(iss + 1))
    };
    send(&mut net.b, net.now, &far);
    assert_eq!(net.b.stack.counters().drop_beyond_window, 1);
    let last = TcpRepr {
        payload: &[1; 1000],
        ..segment(TcpControl::None, ISS + 1 + 64_535, Some(iss + 1))
    };
    send(&mut net.b, net.now, &last);
    assert_eq!(net.b.stack.counters().drop_beyond_window, 1);
}

#[test]
fn bytes_beyond_the_window_of_our_own_syn_are_not_given_to_smoltcp() {
    let mut net = Net::new();
    let path = Net::path(false, 4791);
    let path = xwarp_tcp::Path {
        local: path.remote,
        remote: "10.0.0.1:40000".parse().unwrap(),
        next_hop: Side::A.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    };
    net.b.stack.connect(path, net.now).unwrap();
    let iss = frames::read(&net.b.sent()[0]).seq;
    let answer = TcpRepr {
        window_scale: Some(3),
        ..segment(TcpControl::Syn, ISS, Some(iss + 1))
    };
    let far = TcpRepr {
        payload: &[1; 1000],
        ..segment(TcpControl::None, ISS + 1 + 300_000, Some(iss + 1))
    };
    // Both in one burst, so that no ACK of ours comes between them.
    net.b.wire.deliver(frames::write(&answer));
    send(&mut net.b, net.now, &far);
    assert_eq!(net.b.stack.counters().drop_beyond_window, 1);
    assert!(matches!(net.b.events()[..], [Event::Connected(_)]));
}

#[test]
fn fin_beyond_the_window_does_not_swallow_bytes() {
    let mut ring = config(Side::B);
    ring.buffer = Some(1024);
    let mut net = Net::with(config(Side::A), ring);
    net.listen(false);
    let iss = send(&mut net.b, net.now, &segment(TcpControl::Syn, ISS, None))[0].seq;
    let fin = |payload| TcpRepr {
        payload,
        ..segment(TcpControl::Fin, ISS + 1, Some(iss + 1))
    };
    // Bytes with room are taken, the FIN is not.
    send(&mut net.b, net.now, &fin(&[5; 1025]));
    let events = net.b.events();
    let conn = events[0].conn();
    assert_eq!(events[1..], [Event::Readable(conn)]);
    assert_eq!(net.b.read(conn, 1), [5; 1024]);
    net.b.step(net.now);
    send(&mut net.b, net.now, &fin(&[5; 1025]));
    assert_eq!(
        net.b.events(),
        [Event::Readable(conn), Event::PeerClosed(conn)]
    );
    assert_eq!(net.b.conn(conn).readable_len(), 1);
}

#[test]
fn reset_within_the_window_ends_and_one_beyond_it_does_not() {
    let (mut net, iss, conn) = established();
    let beyond = segment(TcpControl::Rst, ISS + 1 + 400_000, Some(iss + 1));
    send(&mut net.b, net.now, &beyond);
    assert_eq!(net.b.events(), []);
    let within = segment(TcpControl::Rst, ISS + 1, Some(iss + 1));
    assert_eq!(send(&mut net.b, net.now, &within), []);
    let reason = CloseReason::Reset;
    assert_eq!(
        net.b.events(),
        [Event::Closed {
            conn,
            reason,
            lost: false
        }]
    );
}

#[test]
fn syn_on_an_established_connection_is_challenged_and_changes_nothing() {
    let (mut net, _, conn) = established();
    let syn = TcpRepr {
        max_seg_size: Some(100),
        window_scale: Some(9),
        ..segment(TcpControl::Syn, ISS + 999, None)
    };
    send(&mut net.b, net.now, &syn);
    let syn = TcpRepr {
        ack_number: Some(smoltcp::wire::TcpSeqNumber(1)),
        ..syn
    };
    send(&mut net.b, net.now, &syn);
    assert_eq!(net.b.events(), []);
    assert_eq!(net.b.conn(conn).emss(), 1460);
    // The window of the last ACK, scaled as the first SYN announced.
    assert!(net.b.conn(conn).writable(250_000).is_some());
}

#[test]
fn ack_of_bytes_never_sent_changes_nothing() {
    let (mut net, iss, conn) = established();
    net.b.write(conn, b"12345", net.now);
    send(
        &mut net.b,
        net.now,
        &segment(TcpControl::None, ISS + 1, Some(iss + 1_000_000)),
    );
    assert_eq!(net.b.conn(conn).unacked(), 5);
    send(
        &mut net.b,
        net.now,
        &segment(TcpControl::None, ISS + 1, Some(iss + 3)),
    );
    assert_eq!(net.b.conn(conn).unacked(), 3);
    send(
        &mut net.b,
        net.now,
        &segment(TcpControl::None, ISS + 1, Some(iss + 6)),
    );
    assert_eq!(net.b.conn(conn).unacked(), 0);
}

#[test]
fn shrinking_window_is_survived() {
    let (mut net, iss, conn) = established();
    assert!(net.b.write(conn, &[1; 1000], net.now));
    let shrunk = TcpRepr {
        window_len: 0,
        ..segment(TcpControl::None, ISS + 1, Some(iss + 101))
    };
    send(&mut net.b, net.now, &shrunk);
    assert!(net.b.conn(conn).writable(1).is_none());
    send(
        &mut net.b,
        net.now,
        &segment(TcpControl::None, ISS + 1, Some(iss + 1001)),
    );
    assert_eq!(net.b.events(), [Event::Writable(conn)]);
}

#[test]
fn three_duplicate_acks_repeat_one_segment_at_once() {
    let (mut net, iss, conn) = established();
    for _ in 0..4 {
        assert!(net.b.write(conn, &[1; 1000], net.now));
    }
    net.b.sent();
    let duplicate = segment(TcpControl::None, ISS + 1, Some(iss + 1));
    assert_eq!(send(&mut net.b, net.now, &duplicate), []);
    assert_eq!(send(&mut net.b, net.now, &duplicate), []);
    let repeated = send(&mut net.b, net.now, &duplicate);
    assert_eq!(repeated.len(), 1);
    assert_eq!(repeated[0].seq, iss + 1);
    assert_eq!(net.b.stack.counters().retransmissions, 1);
}

/// A frame with bytes in place of its options that no codec would write.
fn write_with_options(tcp: &TcpRepr<'_>, options: &[u8]) -> Vec<u8> {
    let mut frame = frames::write(tcp);
    let (ip, plain) = (14, 14 + 20 + 20);
    assert_eq!(frame[ip + 20 + 12], 5 << 4, "there are options already");
    frame.splice(plain..plain, options.iter().copied());
    let len = u16::try_from(frame.len() - ip).unwrap();
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[ip..]);
    packet.set_total_len(len);
    packet.fill_checksum();
    let (source, target) = (packet.src_addr().into(), packet.dst_addr().into());
    let mut segment = TcpPacket::new_unchecked(packet.payload_mut());
    segment.set_header_len(20 + u8::try_from(options.len()).unwrap());
    segment.fill_checksum(&source, &target);
    frame
}

/// Malformed options, and the resulting MSS of a SYN with them.
const MALFORMED: [(&[u8], usize); 12] = [
    (&[0x22, 0, 0, 0], 536),                 // length 0
    (&[0x22, 1, 0, 0], 536),                 // length 1
    (&[0x22, 0x28, 0, 0], 536),              // length beyond the end
    (&[2, 3, 5, 0], 536),                    // an MSS of 3 bytes
    (&[0xff; 40], 536),                      // length 255
    (&[2, 4, 5, 0xb4, 0x22, 0, 0, 0], 1460), // a valid MSS in front
    (&[2, 4, 5, 0xb4, 0x22, 1, 0, 0], 1460),
    (&[2, 4, 5, 0xb4, 0x22, 0x28, 0, 0], 1460),
    (&[2, 4, 5, 0xb4, 1, 1, 1, 0x22], 1460), // no room for a length
    (&[2, 3, 5, 1, 2, 4, 5, 0xb4], 1460),    // behind one of the wrong length, as in the kernel
    (&[3, 4, 0, 0, 2, 4, 5, 0xb4], 1460),
    (&[2, 4, 5, 0xb4, 2, 0, 0, 0], 1460),
];

/// RFC 9293 §3.1, MUST-7; the kernel ignores them, too.
#[test]
fn malformed_options_are_ignored_in_a_syn_and_after_it() {
    for (options, mss) in MALFORMED {
        let mut net = Net::new();
        net.listen(false);
        let send = |net: &mut Net, tcp: &TcpRepr<'_>| {
            net.b.wire.deliver(write_with_options(tcp, options));
            net.b.step(net.now);
            let sent = net.b.sent();
            sent.iter().map(|f| frames::read(f)).collect::<Vec<_>>()
        };
        let answers = send(&mut net, &segment(TcpControl::Syn, ISS, None));
        let [Seen { syn: true, seq, .. }] = answers[..] else {
            panic!("{options:?}: {answers:?}");
        };
        let data = TcpRepr {
            payload: b"data",
            ..segment(TcpControl::Psh, ISS + 1, Some(seq.wrapping_add(1)))
        };
        send(&mut net, &data);
        let [Event::Incoming { conn, .. }, Event::Readable(_)] = net.b.events()[..] else {
            panic!("{options:?}: no connection");
        };
        assert_eq!(net.b.read(conn, 4), b"data", "{options:?}");
        assert_eq!(net.b.conn(conn).emss(), mss, "{options:?}");
        assert_eq!(net.b.stack.counters().drop_bad_tcp, 0, "{options:?}");
    }
}
