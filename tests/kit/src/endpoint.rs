//! Endpoint of TCP connections: a stack on an interface in memory, without an RNIC.

use xwarp_driver::{MemoryIo, PacketIo, Wire};
use xwarp_tcp::{CloseReason, ConnId, ConnMut, Event, Instant, Stack, StackConfig};

/// Frames received in one step.
const BUDGET: usize = 64;

/// Carries all that was sent at `from` to `to`; how many frames that were.
pub fn carry(from: &Wire, to: &Wire) -> usize {
    let mut carried = 0;
    while let Some(frame) = from.take_sent() {
        to.deliver(frame);
        carried += 1;
    }
    to.share_buffers(from);
    carried
}

/// A TCP stack, its interface in memory, and the events that it has reported.
pub struct Endpoint {
    /// The stack.
    pub stack: Stack,
    /// The wire at its interface.
    pub wire: Wire,
    /// Events that have come and were not taken, but those of doubt.
    pub events: Vec<Event>,
    /// Connections whose paths are in doubt, once for each time.
    pub doubts: Vec<ConnId>,
}

impl Endpoint {
    /// A stack on an interface of `frames` frames.
    pub fn new(frames: usize, config: StackConfig) -> Self {
        let (io, wire) = MemoryIo::new(frames).expect("memory");
        Self::on(Box::new(io), wire, config)
    }

    /// A stack on an interface of the test's own.
    pub fn on(io: Box<dyn PacketIo>, wire: Wire, config: StackConfig) -> Self {
        Self {
            stack: Stack::new(io, config),
            wire,
            events: Vec::new(),
            doubts: Vec::new(),
        }
    }

    /// One turn, and the events of it; how much there was to do.
    pub fn step(&mut self, now: Instant) -> usize {
        let done = self.stack.step(now, BUDGET).expect("memory does not fail");
        while let Some(event) = self.stack.poll_event() {
            match event {
                Event::Doubtful(conn) => self.doubts.push(conn),
                event => self.events.push(event),
            }
        }
        done
    }

    /// Takes the events that have come.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Takes the frames that were sent.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.wire.take_sent()).collect()
    }

    /// A connection that is there.
    pub fn conn(&mut self, id: ConnId) -> ConnMut<'_> {
        self.stack.conn_mut(id).expect("a connection")
    }

    /// Writes `data` as one piece; false if there is no room.
    pub fn write(&mut self, conn: ConnId, data: &[u8], now: Instant) -> bool {
        let Some(mut conn) = self.stack.conn_mut(conn) else {
            return false;
        };
        let Some(room) = conn.writable(data.len()) else {
            return false;
        };
        room.copy_from_slice(data);
        conn.commit(data.len(), now);
        true
    }

    /// Reads all that is there, in pieces of `piece` bytes that the stack must join.
    pub fn read(&mut self, conn: ConnId, piece: usize) -> Vec<u8> {
        let mut data = Vec::new();
        let Some(mut conn) = self.stack.conn_mut(conn) else {
            return data;
        };
        while conn.readable_len() > 0 {
            let want = piece.min(conn.readable_len());
            let slice = conn.readable(want);
            assert!(slice.len() >= want, "{} of {want} bytes", slice.len());
            data.extend_from_slice(&slice[..want]);
            conn.consume(want);
        }
        data
    }

    /// How the connection has ended, by the events that were not taken.
    pub fn close_reasons(&self, conn: ConnId) -> Vec<CloseReason> {
        let reason = |event: &Event| match event {
            Event::Closed {
                conn: c, reason, ..
            } if *c == conn => Some(*reason),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}
