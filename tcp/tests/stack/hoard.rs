//! Peers that send all but the first byte of their windows, and programs that read nothing: their
//! effect on other connections.

use smoltcp::wire::{TcpControl, TcpRepr};
use xwarp_tcp::{ConnId, Event, StackConfig};
use xwarp_test_kit::{Side, pattern_of};

use crate::frames::{read, segment, write};
use crate::net::{FRAMES, Fate, Net, config};

const ISS: u32 = 1000;
const FIRST_PORT: u16 = 20_000;
/// Bytes of a segment, and segments that a window has room for.
const PAYLOAD: usize = 1448;
const SEGMENTS: u32 = 180;
/// Bytes of out-of-order data that all connections may hold together.
const MEMORY: u64 = 64 << 20;

struct Hoard(Net);

impl Hoard {
    fn new() -> Self {
        let of = |side| StackConfig {
            max_connections: 2000,
            ..config(side)
        };
        let mut net = Net::with(of(Side::A), of(Side::B));
        net.listen(false);
        Self(net)
    }

    fn deliver(&mut self, tcp: &TcpRepr<'_>) {
        let Self(net) = self;
        net.b.wire.deliver(write(tcp));
        net.b.step(net.now);
    }

    /// A peer that connects, and then sends all but the first `missing` bytes of its window.
    /// Returns the connection.
    fn add(&mut self, port: u16, missing: u32) -> ConnId {
        let from = |control, seq, ack| TcpRepr {
            src_port: port,
            ..segment(control, seq, ack)
        };
        self.deliver(&TcpRepr {
            window_scale: Some(3),
            max_seg_size: Some(1460),
            ..from(TcpControl::Syn, ISS, None)
        });
        let answer = read(&self.0.b.sent()[0]);
        let ack = Some(answer.seq + 1);
        self.deliver(&from(TcpControl::None, ISS + 1, ack));
        let conn = self.0.b.events().into_iter().find_map(|event| match event {
            Event::Incoming { conn, .. } => Some(conn),
            _ => None,
        });
        let payload = [7; PAYLOAD];
        for n in 0..SEGMENTS {
            let ahead = missing + n * u32::try_from(PAYLOAD).unwrap();
            self.deliver(&TcpRepr {
                payload: &payload,
                ..from(TcpControl::None, ISS + 1 + ahead, ack)
            });
        }
        self.0.b.sent();
        self.0.b.events();
        conn.unwrap_or_else(|| panic!("no connection from port {port}"))
    }

    fn kept(&self) -> u64 {
        self.0.b.stack.counters().out_of_order
    }
}

#[test]
fn what_peers_send_ahead_takes_a_bounded_memory_of_all_connections() {
    let mut hoard = Hoard::new();
    let conns: Vec<ConnId> = (0..400).map(|n| hoard.add(FIRST_PORT + n, 1)).collect();
    let bytes = hoard.kept() * PAYLOAD as u64;
    assert!((MEMORY * 8 / 10..=MEMORY).contains(&bytes), "{bytes} bytes");
    let counters = hoard.0.b.stack.counters();
    assert_eq!(counters.drop_reassembly_full + hoard.kept(), 400 * 180);

    // An honest peer is served meanwhile, despite losses.
    let net = &mut hoard.0;
    let honest = net.connect_from(false, FIRST_PORT - 1);
    let mut carried = 0;
    net.judge(move |from, _| {
        carried += u32::from(from == Side::A);
        match carried % 50 {
            0 => Fate::Lose,
            _ => Fate::Pass,
        }
    });
    let data = pattern_of(3, 500_000);
    assert!(net.transfer(honest, &data, || PAYLOAD) == data);

    // With the connections the memory is free again.
    for conn in conns {
        hoard.0.b.stack.abort(conn, hoard.0.now);
    }
    hoard.0.be_kind();
    hoard.0.settle();
    hoard.0.b.events();
    let before = hoard.kept();
    hoard.add(FIRST_PORT - 2, 1);
    assert_eq!(hoard.kept() - before, u64::from(SEGMENTS));
}

/// Up to half of the receive frames stay with connections. Later payload is copied out, in order or
/// not, and its frames are freed.
#[test]
fn what_connections_keep_leaves_half_of_the_receive_frames_to_the_kernel() {
    for missing in [0, 1] {
        let mut hoard = Hoard::new();
        let segments = 8 * u64::from(SEGMENTS);
        let conns: Vec<ConnId> = (0..8).map(|n| hoard.add(FIRST_PORT + n, missing)).collect();
        let copied = hoard.0.b.stack.counters().copied_out;
        assert_eq!(copied, segments - FRAMES as u64 / 2, "{missing} missing");
        assert_eq!(hoard.0.b.stack.io().counters().drop_rx_no_frame, 0);

        // The remaining frames serve another peer.
        let honest = hoard.0.connect_from(false, FIRST_PORT - 1);
        let data = pattern_of(3, 500_000);
        assert!(hoard.0.transfer(honest, &data, || PAYLOAD) == data);
        assert_eq!(hoard.0.b.stack.io().counters().drop_rx_no_frame, 0);

        // Once they are read or dropped, frames are kept again.
        for conn in conns {
            hoard.0.b.stack.abort(conn, hoard.0.now);
        }
        hoard.0.settle();
        hoard.0.b.events();
        let before = hoard.0.b.stack.counters().copied_out;
        hoard.add(FIRST_PORT - 2, missing);
        assert_eq!(hoard.0.b.stack.counters().copied_out, before);
    }
}
