//! Segments in flight, of all sizes: how many a connection may have both ways.

use smoltcp::wire::{IpEndpoint, TcpControl};
use xwarp_driver::{MemoryIo, RxFrame, Wire};

use super::{Conn, Secrets};
use crate::config::StackConfig;
use crate::congestion::testing::ack;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::ethernet::{IPV4, LinkHeader};
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options, Segment};
use crate::wire::seq::{Seq, from_raw};

/// Bytes of the IP and TCP headers, with timestamps and without.
const HEADERS: [usize; 2] = [52, 40];
const PEER_ISS: u32 = 7;

/// A connection that we have opened, and what lies below it.
struct Large {
    conn: Conn,
    device: Device,
    wire: Wire,
    now: Instant,
}

impl Large {
    /// With a peer that announces windows as we do.
    fn new(mtu: usize, config: &StackConfig) -> Self {
        let endpoint = |text: &str| IpEndpoint::from(text.parse::<std::net::SocketAddr>().unwrap());
        let flow = Flow {
            local: endpoint("10.0.0.1:40000"),
            remote: endpoint("10.0.0.2:4791"),
        };
        let (io, wire) = MemoryIo::new(64).unwrap();
        let now = Instant::from_micros(1_000_000);
        let secrets = Secrets {
            iss: from_raw(0),
            stamp_offset: 0,
        };
        let link = LinkHeader::new([2; 6], [4; 6], IPV4);
        let mut large = Self {
            conn: Conn::new(flow, link, config, secrets, mtu, now),
            device: Device::new(Box::new(io), mtu),
            wire,
            now,
        };
        large.conn.open(now);
        large.turn();
        let announced = config.buffer_at(mtu);
        let shift = large.conn.negotiation.offered().shift;
        large.answer(&Segment {
            control: TcpControl::Syn,
            options: Options {
                mss: Some(u16::try_from(mtu - HEADERS[1]).unwrap()),
                shift: Some(shift),
                sack_permitted: true,
                ..large.options()
            },
            window: u16::MAX,
            ..large.segment(0)
        });
        large.turn();
        let window = u16::try_from(announced >> shift).unwrap();
        large.answer(&Segment {
            window,
            ..large.segment(1)
        });
        large
    }

    fn turn(&mut self) {
        self.conn.egress(&mut self.device, self.now);
        self.device.flush().unwrap();
        while self.wire.take_sent().is_some() {}
    }

    fn options(&self) -> Options {
        Options {
            timestamp: Some((1, self.conn.stamps.value(self.now))),
            ..Options::default()
        }
    }

    /// An ACK of all that was sent, so many bytes after the peer's SYN.
    fn segment(&self, at: usize) -> Segment {
        Segment {
            flow: *self.conn.flow(),
            control: TcpControl::None,
            seq: from_raw(PEER_ISS) + at,
            ack: Some(self.conn.send.nxt),
            window: 0,
            options: self.options(),
            payload: 0..0,
            ecn: Ecn::default(),
        }
    }

    fn frame(&mut self) -> RxFrame {
        self.wire.deliver(vec![0; 60]);
        let mut frames = Vec::new();
        self.device.receive(1, &mut frames);
        frames.pop().unwrap()
    }

    fn answer(&mut self, segment: &Segment) {
        let frame = self.frame();
        self.conn.arrive(segment, frame, &mut self.device, self.now);
    }

    /// How many full segments can be sent before any is acknowledged, if congestion control does not mind.
    fn sent(&mut self) -> usize {
        let conn = &mut self.conn;
        conn.congestion.on_ack(&ack(1000, 1 << 24));
        let (mut sent, len) = (0, conn.emss());
        while conn.can_write(len, self.now) {
            let begin: Seq = conn.send.end;
            conn.track(begin, len, Conn::DATA, None, self.now);
            sent += 1;
        }
        sent
    }

    /// How many full segments the peer may send before any is acknowledged.
    fn received(&mut self) -> usize {
        self.conn.acks.demand();
        self.turn();
        self.conn.receive.window() / self.conn.emss()
    }
}

#[test]
fn sixteen_segments_of_any_size_can_be_in_flight_both_ways() {
    for (mtu, segments) in [(1500, 181), (9000, 29), (65_523, 16), (65_535, 16)] {
        let mut large = Large::new(mtu, &StackConfig::default());
        assert_eq!(large.conn.emss(), mtu - HEADERS[0]);
        assert_eq!((large.received(), large.sent()), (segments, segments));
    }
}

#[test]
fn peer_with_larger_windows_is_sent_four_times_as_much_at_most() {
    for (mtu, segments) in [(1500, 256), (9000, 117), (65_535, 64)] {
        let mut large = Large::new(mtu, &StackConfig::default());
        let window = Segment {
            window: u16::MAX,
            ..large.segment(1)
        };
        large.conn.negotiation.set_peer_shift(14);
        large.answer(&window);
        assert_eq!(large.sent(), segments);
    }
}

#[test]
fn buffer_that_was_asked_for_is_what_is_announced() {
    let config = StackConfig {
        buffer: Some(200_000),
        ..StackConfig::default()
    };
    let mut large = Large::new(65_535, &config);
    assert_eq!((large.received(), large.sent()), (3, 3));
}
