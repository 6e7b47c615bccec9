//! Two TCP stacks and the frames between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use xwarp_driver::{MemoryIo, Wire};
use xwarp_tcp::{ConnId, Event, Instant, Path, Stack, StackConfig};

const FRAMES: usize = 64;
const BUDGET: usize = 64;
const PORT: u16 = 7471;
const FIRST_PORT: u16 = 40000;
/// Turns until a connection is over.
const MAX_TURNS: usize = 1000;

/// An initiator and a responder, whose connections follow each other.
pub struct Cable {
    ends: [(Stack, Wire); 2],
    /// All frames, in their order.
    pub frames: Vec<Vec<u8>>,
    connections: u16,
    now: Instant,
}

impl Default for Cable {
    fn default() -> Self {
        let mut ends = [1, 2].map(|host| {
            let (io, wire) = MemoryIo::new(FRAMES).expect("memory");
            let config = StackConfig {
                mac: [2, 0, 0, 0, 0, host],
                seed: Some(host.into()),
                ..StackConfig::default()
            };
            (Stack::new(Box::new(io), config), wire)
        });
        ends[1].0.listen(at(2, PORT), 1).expect("a free port");
        Self {
            ends,
            frames: Vec::new(),
            connections: 0,
            now: Instant::ORIGIN,
        }
    }
}

fn at(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, host).into(), port)
}

impl Cable {
    /// One connection: the initiator's pieces and the responder's, in turn, each a segment of its own, then a FIN from both.
    pub fn talk(&mut self, initiator: &[Vec<u8>], responder: &[Vec<u8>]) {
        let path = Path {
            local: at(1, FIRST_PORT + self.connections),
            remote: at(2, PORT),
            next_hop: [2, 0, 0, 0, 0, 2],
        };
        self.connections += 1;
        let first = self.ends[0].0.connect(path, self.now).expect("a free port");
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
            self.ends[end].0.close(conn, self.now);
            self.turn_until("a FIN", |event| {
                matches!(event, Event::PeerClosed(_)).then_some(())
            });
        }
    }

    fn say(&mut self, end: usize, conn: ConnId, piece: &[u8]) {
        let place = self.ends[end].0.writable(conn, piece.len()).expect("room");
        place.copy_from_slice(piece);
        self.ends[end].0.commit(conn, piece.len(), self.now);
        self.turn_until("bytes", |event| {
            matches!(event, Event::Readable(_)).then_some(())
        });
    }

    /// Runs both ends until one of them reports what is waited for.
    fn turn_until<T>(&mut self, what: &str, wanted: impl Fn(Event) -> Option<T>) -> T {
        for _ in 0..MAX_TURNS {
            self.now = self.now + Duration::from_micros(1);
            let mut found = None;
            for (stack, _) in &mut self.ends {
                stack.step(self.now, BUDGET).expect("memory does not fail");
                while let Some(event) = stack.poll_event() {
                    if let Event::Readable(conn) = event {
                        let n = stack.readable_len(conn);
                        stack.consume(conn, n);
                    }
                    found = found.or_else(|| wanted(event));
                }
                stack.transmit(self.now).expect("memory does not fail");
            }
            self.carry();
            if let Some(found) = found {
                return found;
            }
        }
        panic!("waited in vain for {what}");
    }

    fn carry(&mut self) {
        for from in 0..2 {
            while let Some(frame) = self.ends[from].1.take_sent() {
                self.ends[1 - from].1.deliver(frame.clone());
                self.frames.push(frame);
            }
        }
    }
}
