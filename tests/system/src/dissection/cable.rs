//! Two TCP stacks and the frames between them.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp_tcp::{ConnId, Event, Instant, Path, StackConfig};
use xwarp_test_kit::{Endpoint, Side};

const FRAMES: usize = 64;
const PORT: u16 = 7471;
const FIRST_PORT: u16 = 40000;
/// Turns until a connection is over.
const MAX_TURNS: usize = 1000;

/// An initiator and a responder, whose connections follow each other.
pub struct Cable {
    endpoints: [Endpoint; 2],
    /// All frames, in their order.
    pub frames: Vec<Vec<u8>>,
    connections: u16,
    now: Instant,
}

impl Default for Cable {
    fn default() -> Self {
        let mut endpoints = Side::BOTH.map(|side| {
            let config = StackConfig {
                mac: side.mac(),
                seed: Some(side.number().into()),
                ..StackConfig::default()
            };
            Endpoint::new(FRAMES, config)
        });
        let [_, responder] = &mut endpoints;
        let listening = responder.stack.listen(at(Side::B, PORT), 1);
        listening.expect("a free port");
        Self {
            endpoints,
            frames: Vec::new(),
            connections: 0,
            now: Instant::ORIGIN,
        }
    }
}

fn at(side: Side, port: u16) -> SocketAddr {
    SocketAddr::new(side.address(), port)
}

impl Cable {
    /// One connection: the initiator's pieces and the responder's, in turn, each a segment of its
    /// own, then a FIN from both.
    pub fn talk(&mut self, initiator: &[Vec<u8>], responder: &[Vec<u8>]) {
        let path = Path {
            local: at(Side::A, FIRST_PORT + self.connections),
            remote: at(Side::B, PORT),
            next_hop: Side::B.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        };
        self.connections += 1;
        let connecting = self.endpoints[0].stack.connect(path, self.now);
        let first = connecting.expect("a free port");
        let second = self.turn_until("a connection", |event| match event {
            Event::Incoming { conn, .. } => Some(conn),
            _ => None,
        });
        for n in 0..initiator.len().max(responder.len()) {
            for (end, conn, pieces) in [(0, first, initiator), (1, second, responder)] {
                if let Some(piece) = pieces.get(n) {
                    self.say(end, conn, piece);
                }
            }
        }
        for (end, conn) in [(0, first), (1, second)] {
            self.endpoints[end].stack.close(conn, self.now);
            self.turn_until("a FIN", |event| {
                matches!(event, Event::PeerClosed(_)).then_some(())
            });
        }
    }

    fn say(&mut self, end: usize, conn: ConnId, piece: &[u8]) {
        let written = self.endpoints[end].write(conn, piece, self.now);
        assert!(written, "no room");
        self.turn_until("bytes", |event| {
            matches!(event, Event::Readable(_)).then_some(())
        });
    }

    /// Runs both endpoints until one of them reports what is waited for.
    fn turn_until<T>(&mut self, what: &str, wanted: impl Fn(Event) -> Option<T>) -> T {
        for _ in 0..MAX_TURNS {
            self.now = self.now + Duration::from_micros(1);
            let mut found = None;
            for endpoint in &mut self.endpoints {
                endpoint.step(self.now);
                for event in endpoint.events() {
                    if let Event::Readable(conn) = event {
                        endpoint.read(conn, usize::MAX);
                    }
                    found = found.or_else(|| wanted(event));
                }
                let sent = endpoint.stack.transmit(self.now);
                sent.expect("memory does not fail");
            }
            self.carry();
            if let Some(found) = found {
                return found;
            }
        }
        panic!("waited in vain for {what}");
    }

    fn carry(&mut self) {
        let [a, b] = &self.endpoints;
        for (from, to) in [(a, b), (b, a)] {
            for frame in from.sent() {
                to.wire.deliver(frame.clone());
                self.frames.push(frame);
            }
        }
    }
}
