//! Transfers between the two sides of a link.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp_driver::Wire;
use xwarp_tcp::{CloseReason, ConnId, Event, Instant, Path, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Endpoint, Side};

/// Frames of an interface.
pub(crate) const FRAMES: usize = 1024;
const BUDGET: usize = 64;

/// One side's part of a transfer: it sends its data, then closes, and keeps received data.
pub(crate) trait Transfer {
    fn step(&mut self, now: Instant) -> usize;
    fn next_deadline(&self) -> Option<Instant>;
    fn received(&self) -> &[u8];
    /// True if both sides have closed.
    fn is_done(&self) -> bool;
    fn report(&self) -> String;
}

/// A side that uses our stack.
pub(crate) struct StackTransfer {
    pub(crate) tcp: Endpoint,
    pub(crate) conn: Option<ConnId>,
    outbox: Vec<u8>,
    sent: usize,
    /// Bytes of the next segment.
    piece: usize,
    /// All segments are full, not of all sizes.
    full: bool,
    connected: bool,
    closed: bool,
    received: Vec<u8>,
    /// Maximum of unacknowledged bytes.
    pub(crate) most_unacked: usize,
    pub(crate) ended: Option<CloseReason>,
}

/// Addresses: A connects from the first, B listens at the second.
pub(crate) fn address(side: Side) -> SocketAddr {
    let port = match side {
        Side::A => 40_000,
        Side::B => 4791,
    };
    SocketAddr::new(side.address(), port)
}

/// From A to B.
pub(crate) fn path() -> Path {
    Path {
        local: address(Side::A),
        remote: address(Side::B),
        next_hop: Side::B.mac(),
        metrics: xwarp_tcp::RouteMetrics::default(),
    }
}

impl StackTransfer {
    pub(crate) fn new(side: Side, outbox: Vec<u8>, config: &StackConfig) -> (Self, Wire) {
        let config = StackConfig {
            mac: side.mac(),
            seed: Some(3),
            connect_timeout: Duration::from_mins(1),
            ..config.clone()
        };
        let tcp = Endpoint::new(FRAMES, config);
        let wire = tcp.wire.clone();
        let end = Self {
            tcp,
            conn: None,
            outbox,
            sent: 0,
            piece: 1448,
            full: false,
            connected: false,
            closed: false,
            received: Vec::new(),
            most_unacked: 0,
            ended: None,
        };
        (end, wire)
    }

    /// Sends full segments.
    pub(crate) fn in_bulk(mut self) -> Self {
        self.full = true;
        self
    }

    pub(crate) fn listen(&mut self) {
        self.tcp.stack.listen(address(Side::B), 4).unwrap();
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.conn = Some(self.tcp.stack.connect(path(), now).unwrap());
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Incoming { conn, .. } | Event::Connected(conn) => {
                self.conn = Some(conn);
                self.connected = true;
            }
            Event::Closed { reason, .. } => {
                self.read();
                self.ended = Some(reason);
            }
            _ => {}
        }
    }

    fn read(&mut self) {
        let Some(conn) = self.conn else { return };
        let Some(mut conn) = self.tcp.stack.conn_mut(conn) else {
            return;
        };
        while conn.readable_len() > 0 {
            let slice = conn.readable(1);
            let len = slice.len();
            self.received.extend_from_slice(slice);
            conn.consume(len);
        }
    }

    fn write(&mut self, now: Instant) -> usize {
        let Some(conn) = self.conn.filter(|_| self.connected && !self.closed) else {
            return 0;
        };
        let before = self.sent;
        if self.full {
            self.piece = self.tcp.conn(conn).emss();
        }
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            let piece = &rest[..self.piece.min(rest.len())];
            if !self.tcp.write(conn, piece, now) {
                return self.sent - before;
            }
            self.sent += piece.len();
            self.most_unacked = self.most_unacked.max(self.tcp.conn(conn).unacked());
            if !self.full {
                self.piece = self.piece * 31 % 1448 + 1;
            }
        }
        self.tcp.stack.close(conn, now);
        self.closed = true;
        1
    }
}

impl Transfer for StackTransfer {
    fn step(&mut self, now: Instant) -> usize {
        let mut done = self.tcp.stack.step(now, BUDGET).unwrap();
        while let Some(event) = self.tcp.stack.poll_event() {
            done += 1;
            self.on_event(event);
            self.read();
        }
        done += self.write(now);
        self.tcp.stack.transmit(now).unwrap();
        done
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.tcp.stack.next_deadline()
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    fn report(&self) -> String {
        format!(
            "sent {} of {}, received {}, ended {:?}, {} frames free, {:?}",
            self.sent,
            self.outbox.len(),
            self.received.len(),
            self.ended,
            self.tcp.stack.io().tx_free(),
            self.tcp.stack.counters()
        )
    }
}

/// Runs both ends until they are done. Returns the virtual time, and the longest time without
/// received data.
pub(crate) fn run(
    a: &mut dyn Transfer,
    b: &mut dyn Transfer,
    wires: [Wire; 2],
    seed: Seed,
    conditions: impl FnOnce(Link) -> Link,
) -> (Duration, Duration) {
    let [wire_a, wire_b] = wires;
    let mut link = conditions(Link::new(seed, wire_a, wire_b));
    let start = Duration::from_secs(1);
    let (mut now, mut progress, mut stall) = (start, start, Duration::ZERO);
    let mut received = 0;
    for _ in 0..5_000_000 {
        let instant = Instant::ORIGIN + now;
        let done = a.step(instant) + b.step(instant) + link.carry(now);
        let total = a.received().len() + b.received().len();
        if total > received {
            if received > 0 {
                stall = stall.max(now.saturating_sub(progress));
            }
            (received, progress) = (total, now);
        }
        if a.is_done() && b.is_done() {
            return (progress.saturating_sub(start), stall);
        }
        if done > 0 {
            continue;
        }
        let deadlines = [a.next_deadline(), b.next_deadline()];
        let deadlines = deadlines.into_iter().flatten().map(Instant::since_origin);
        let Some(next) = deadlines.chain(link.next_arrival()).min() else {
            break;
        };
        now = next.max(now + Duration::from_micros(1));
    }
    panic!(
        "seed {seed:?}: no end\na: {}\nb: {}",
        a.report(),
        b.report()
    );
}
