//! A host without an RNIC: one plain TCP connection that says whatever the test wants.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use xwarp_driver::{MemoryIo, Wire};
use xwarp_tcp::{CloseReason, ConnId, Event, Instant, Path};
use xwarp_test_kit::netsim::Seed;
use xwarp_test_kit::{Endpoint, Side};

use crate::host::{MTU, stack_config};
use crate::switch::{self, SimSwitch};
use crate::windowed::{Announced, Windowed};

const FRAMES: usize = 512;
const BUDGET: usize = 64;
/// Its port when it connects.
const LOCAL_PORT: u16 = 40000;

/// A TCP peer; a clone is a second handle.
#[derive(Clone)]
pub struct PlainPeer(Rc<RefCell<Inner>>);

struct Inner {
    side: Side,
    address: IpAddr,
    /// What joins it to its peer, if no link does.
    switch: Option<SimSwitch>,
    announced: Announced,
    tcp: Endpoint,
    conn: Option<ConnId>,
    /// Pieces that are to be sent, each as a segment where it fits one.
    outbox: VecDeque<Vec<u8>>,
    received: Vec<u8>,
    connected: bool,
    saw_fin: bool,
    ended: Option<CloseReason>,
    reads: bool,
    next_port: u16,
    /// Who has connected, the oldest first.
    clients: Vec<SocketAddr>,
    now: Instant,
}

impl PlainPeer {
    pub(crate) fn new(side: Side, seed: Seed, switch: Option<SimSwitch>) -> (Self, Wire) {
        let (mut io, wire) = MemoryIo::new(FRAMES).unwrap();
        let mut address = side.address();
        if let Some(switch) = &switch {
            io = io.with_local_hop(switch::local_hop());
            address = switch.address_like(address);
            switch.attach(side, wire.clone());
        }
        let (io, announced) = Windowed::new(io);
        let inner = Inner {
            side,
            address,
            switch,
            announced,
            tcp: Endpoint::on(Box::new(io), wire.clone(), stack_config(side, seed, MTU)),
            conn: None,
            outbox: VecDeque::new(),
            received: Vec::new(),
            connected: false,
            saw_fin: false,
            ended: None,
            reads: true,
            next_port: LOCAL_PORT,
            clients: Vec::new(),
            now: Instant::ORIGIN,
        };
        (Self(Rc::new(RefCell::new(inner))), wire)
    }

    /// Listens for connections, one after the other: the newest is the one that all else is about.
    pub fn listen(&self, port: u16) {
        let mut inner = self.0.borrow_mut();
        let local = SocketAddr::new(inner.address, port);
        inner.open(local);
        inner.tcp.stack.listen(local, 1).unwrap();
    }

    /// Address and port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.0.borrow().address, port)
    }

    /// Begins to connect, from a port not used before, and forgets the connection before.
    pub fn connect(&self, remote: SocketAddr) {
        let mut inner = self.0.borrow_mut();
        let local = SocketAddr::new(inner.address, inner.next_port);
        inner.open(local);
        let path = Path {
            local,
            remote,
            next_hop: inner.next_hop(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        };
        let now = inner.now;
        inner.next_port += 1;
        let conn = inner.tcp.stack.connect(path, now).unwrap();
        inner.begin(conn, false);
    }

    /// Queues `bytes` behind those that are still to be sent.
    pub fn send(&self, bytes: &[u8]) {
        self.send_pieces(bytes, 1024);
    }

    /// The same in segments of `len` bytes.
    pub fn send_pieces(&self, bytes: &[u8], len: usize) {
        let pieces = bytes.chunks(len).map(<[u8]>::to_vec);
        self.0.borrow_mut().outbox.extend(pieces);
    }

    /// Begins or ceases to read; while it does not, its window closes.
    pub fn set_reading(&self, reads: bool) {
        let mut inner = self.0.borrow_mut();
        inner.reads = reads;
        inner.read();
    }

    /// Says from now on that it has a window of so much, scaled as its SYN said, or what is true.
    pub fn announce(&self, window: Option<u16>) {
        self.0.borrow().announced.set(window);
    }

    /// Sends a FIN.
    pub fn close(&self) {
        let mut inner = self.0.borrow_mut();
        let now = inner.now;
        if let Some(conn) = inner.conn {
            inner.tcp.stack.close(conn, now);
        }
    }

    /// Sends a RST.
    pub fn abort(&self) {
        let mut inner = self.0.borrow_mut();
        let now = inner.now;
        if let Some(conn) = inner.conn {
            inner.tcp.stack.abort(conn, now);
        }
    }

    /// All that it has received on this connection.
    pub fn received(&self) -> Vec<u8> {
        self.0.borrow().received.clone()
    }

    /// The connection has been established.
    pub fn is_connected(&self) -> bool {
        self.0.borrow().connected
    }

    /// Who has connected to it so far, the oldest first.
    pub fn clients(&self) -> Vec<SocketAddr> {
        self.0.borrow().clients.clone()
    }

    /// The other side has sent its FIN.
    pub fn saw_fin(&self) -> bool {
        self.0.borrow().saw_fin
    }

    /// How the connection has ended.
    pub fn ended(&self) -> Option<CloseReason> {
        self.0.borrow().ended
    }

    pub(crate) fn step(&self, now: Instant) -> usize {
        self.0.borrow_mut().step(now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.0.borrow().tcp.stack.next_deadline()
    }

    pub(crate) fn report(&self) -> String {
        let inner = self.0.borrow();
        format!(
            "plain peer: received {} bytes, connected {}, FIN {}, ended {:?}, {:?}",
            inner.received.len(),
            inner.connected,
            inner.saw_fin,
            inner.ended,
            inner.tcp.stack.counters()
        )
    }
}

impl Inner {
    /// Reserves a port, if there is a switch that must know of it.
    fn open(&self, local: SocketAddr) {
        if let Some(switch) = &self.switch {
            switch.open(self.side, local).unwrap();
        }
    }

    fn next_hop(&self) -> [u8; 6] {
        match self.switch {
            Some(_) => switch::local_hop().mac,
            None => self.side.other().mac(),
        }
    }

    fn step(&mut self, now: Instant) -> usize {
        self.now = now;
        let mut done = self.tcp.stack.step(now, BUDGET).unwrap();
        while let Some(event) = self.tcp.stack.poll_event() {
            done += 1;
            self.on_event(event);
        }
        done += self.flush(now);
        self.tcp.stack.transmit(now).unwrap();
        done
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Incoming { conn, remote, .. } => {
                self.clients.push(remote);
                self.begin(conn, true);
                self.read();
            }
            Event::Connected(conn) => self.connected |= self.conn == Some(conn),
            Event::Readable(_) => self.read(),
            Event::PeerClosed(conn) => {
                self.read();
                self.saw_fin |= self.conn == Some(conn);
            }
            Event::Closed { conn, reason, .. } if self.conn == Some(conn) => {
                self.ended = Some(reason);
            }
            Event::RouteWanted(_)
            | Event::Writable(_)
            | Event::Doubtful(_)
            | Event::Stray(_)
            | Event::Closed { .. } => {}
        }
    }

    fn begin(&mut self, conn: ConnId, connected: bool) {
        self.conn = Some(conn);
        self.received.clear();
        self.outbox.clear();
        (self.connected, self.saw_fin, self.ended) = (connected, false, None);
    }

    fn read(&mut self) {
        let Some(conn) = self.conn.filter(|_| self.reads) else {
            return;
        };
        self.received.extend(self.tcp.read(conn, usize::MAX));
    }

    fn flush(&mut self, now: Instant) -> usize {
        let Some(conn) = self.conn.filter(|_| self.connected) else {
            return 0;
        };
        let mut sent = 0;
        while let Some(piece) = self.outbox.pop_front() {
            if !self.tcp.write(conn, &piece, now) {
                self.outbox.push_front(piece);
                break;
            }
            sent += 1;
        }
        sent
    }
}
