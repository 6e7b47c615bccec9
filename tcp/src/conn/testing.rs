//! Connection of a unit test, whose peer is the test: segments go in as they are after parsing.

use smoltcp::wire::{IpEndpoint, TcpControl};
use xwarp_driver::{MemoryIo, RxFrame, Wire};

use super::{Conn, Secrets};
use crate::config::StackConfig;
use crate::device::{Device, Hop};
use crate::time::Instant;
use crate::wire::ethernet::{IPV4, LinkHeader};
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options, Segment};
use crate::wire::seq::{Seq, from_raw};

/// Length in bytes of IP and TCP headers without timestamps.
const HEADERS: usize = 40;

/// A connection that this side has opened, and its device.
pub(super) struct Opened {
    pub(super) conn: Conn,
    pub(super) device: Device,
    wire: Wire,
    pub(super) now: Instant,
    /// Initial sequence number of the peer.
    irs: Seq,
}

impl Opened {
    /// A connection to a peer that announces the windows that this side announces.
    pub(super) fn new(mtu: usize, config: &StackConfig) -> Self {
        Self::between(from_raw(0), from_raw(7), mtu, config)
    }

    /// A connection with these initial sequence numbers.
    pub(super) fn between(iss: Seq, irs: Seq, mtu: usize, config: &StackConfig) -> Self {
        let endpoint = |text: &str| IpEndpoint::from(text.parse::<std::net::SocketAddr>().unwrap());
        let flow = Flow {
            local: endpoint("10.0.0.1:40000"),
            remote: endpoint("10.0.0.2:4791"),
        };
        let (io, wire) = MemoryIo::new(64).unwrap();
        let now = Instant::from_micros(1_000_000);
        let secrets = Secrets {
            iss,
            stamp_offset: 0,
        };
        let link = LinkHeader::new([2; 6], [4; 6], IPV4);
        let hop = Hop {
            link,
            mtu,
            is_summed: true,
        };
        let mut opened = Self {
            conn: Conn::new(flow, hop, config, secrets, now),
            device: Device::new(Box::new(io), mtu),
            wire,
            now,
            irs,
        };
        opened.shake_hands(config.buffer_at(mtu), mtu - HEADERS, config.ecn);
        opened
    }

    /// Processes the peer's SYN and first ACK, with this `mss` and window.
    fn shake_hands(&mut self, buffer: usize, mss: usize, ecn: bool) {
        self.conn.open(self.now);
        self.turn();
        let shift = self.conn.negotiation.offered().shift;
        self.answer(&Segment {
            control: TcpControl::Syn,
            ecn: Ecn {
                ece: ecn,
                ..Ecn::default()
            },
            options: Options {
                mss: Some(u16::try_from(mss).unwrap()),
                shift: Some(shift),
                sack_permitted: true,
                ..self.options()
            },
            window: u16::MAX,
            ..self.segment(0)
        });
        self.turn();
        let window = u16::try_from(buffer >> shift).unwrap();
        self.answer(&Segment {
            window,
            ..self.segment(1)
        });
    }

    /// Sends all pending segments.
    pub(super) fn turn(&mut self) {
        self.conn.egress(&mut self.device, self.now);
        self.device.flush().unwrap();
        while self.wire.take_sent().is_some() {}
    }

    /// Options of the peer: a timestamp that does not advance, and the echo of the last one sent.
    pub(super) fn options(&self) -> Options {
        Options {
            timestamp: Some((1, self.conn.stamps.sent())),
            ..Options::default()
        }
    }

    /// An ACK of all sent data, `at` bytes after the peer's SYN.
    pub(super) fn segment(&self, at: usize) -> Segment {
        Segment {
            flow: *self.conn.flow(),
            control: TcpControl::None,
            seq: self.irs + at,
            ack: Some(self.conn.send.nxt()),
            window: 0,
            options: self.options(),
            payload: 0..0,
            ecn: Ecn::default(),
        }
    }

    fn frame(&mut self, len: usize) -> RxFrame {
        self.wire.deliver(vec![0; len.max(60)]);
        let mut frames = Vec::new();
        self.device.receive(1, &mut frames);
        frames.pop().unwrap()
    }

    /// Processes a segment of the peer.
    pub(super) fn answer(&mut self, segment: &Segment) {
        let frame = self.frame(segment.payload.end);
        self.conn.arrive(segment, frame, &mut self.device, self.now);
    }
}
