//! The peer: TCP connections of a stack of its own, and what it says on each.

use std::collections::VecDeque;
use std::net::SocketAddr;

use xwarp_driver::Wire;
use xwarp_iwarp::Framer;
use xwarp_tcp::{ConnId, Event, Instant, Path};
use xwarp_test_kit::Endpoint;

use super::application::LISTEN_PORT;
use super::program::{Bytes, Scene};
use super::sides::{PEER, RNIC, address, stack_config};

/// Frames of the peer's interface, and how many it takes at once.
const FRAMES: usize = 96;
const BUDGET: usize = 64;
/// Where the RNIC connects to.
pub(super) const PEER_PORT: u16 = 7472;
/// Where the peer connects from at first.
const FIRST_PORT: u16 = 40000;
/// Connections that it makes.
const MAX_CONNS: usize = 4;

/// One connection.
pub(super) struct Talk {
    conn: ConnId,
    established: bool,
    /// The RNIC is the initiator.
    answers: bool,
    /// What was said and not sent.
    pub(super) pending: Vec<u8>,
    outbox: VecDeque<Vec<u8>>,
    pub(super) received: Vec<u8>,
    pub(super) saw_fin: bool,
    framer: Framer,
    /// Next message numbers on QN 0 to 3, and the next offset in the message on QN 0.
    msn: [u32; 4],
    offset: u32,
}

/// See the module.
pub(super) struct HostilePeer {
    tcp: Endpoint,
    pub(super) talks: Vec<Talk>,
    reads: bool,
    next_port: u16,
    scene: Scene,
    now: Instant,
}

impl HostilePeer {
    pub(super) fn new(scene: &Scene) -> (Self, Wire) {
        let mut tcp = Endpoint::new(FRAMES, stack_config(PEER));
        let wire = tcp.wire.clone();
        let local = SocketAddr::new(address(PEER, scene.ipv6), PEER_PORT);
        tcp.stack.listen(local, 8).expect("a free port");
        let peer = Self {
            tcp,
            talks: Vec::new(),
            reads: true,
            next_port: FIRST_PORT,
            scene: scene.clone(),
            now: Instant::ORIGIN,
        };
        (peer, wire)
    }

    /// Connects to the RNIC, from a port not used before.
    pub(super) fn connect(&mut self) {
        let ipv6 = self.scene.ipv6;
        let path = Path {
            local: SocketAddr::new(address(PEER, ipv6), self.next_port),
            remote: SocketAddr::new(address(RNIC, ipv6), LISTEN_PORT),
            next_hop: RNIC.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        };
        self.next_port += 1;
        if self.talks.len() <= MAX_CONNS
            && let Ok(conn) = self.tcp.stack.connect(path, self.now)
        {
            self.begin(conn, false);
        }
    }

    fn begin(&mut self, conn: ConnId, answers: bool) {
        self.talks.push(Talk {
            conn,
            established: answers,
            answers,
            pending: Vec::new(),
            outbox: VecDeque::new(),
            received: Vec::new(),
            saw_fin: false,
            framer: Framer::new(self.scene.crc, self.scene.markers),
            msn: [1; 4],
            offset: 0,
        });
    }

    /// The addresses of a connection: the peer's, the RNIC's.
    pub(super) fn addresses(&self, talk: usize) -> Option<(SocketAddr, SocketAddr)> {
        let conn = self.tcp.stack.conn(self.talks.get(talk)?.conn)?;
        Some((conn.local_addr(), conn.peer_addr()))
    }

    pub(super) fn step(&mut self, now: Instant) -> usize {
        self.now = now;
        let mut done = self
            .tcp
            .stack
            .step(now, BUDGET)
            .expect("memory does not fail");
        while let Some(event) = self.tcp.stack.poll_event() {
            done += 1;
            self.on_event(event);
        }
        for talk in 0..self.talks.len() {
            done += self.flush(talk);
        }
        self.tcp.stack.transmit(now).expect("memory does not fail");
        done
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.tcp.stack.next_deadline()
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Incoming { conn, .. } if self.talks.len() <= MAX_CONNS => self.begin(conn, true),
            Event::Incoming { conn, .. } => self.tcp.stack.abort(conn, self.now),
            Event::Connected(conn) => {
                for talk in self.talks.iter_mut().filter(|talk| talk.conn == conn) {
                    talk.established = true;
                }
            }
            Event::PeerClosed(conn) => {
                for talk in self.talks.iter_mut().filter(|talk| talk.conn == conn) {
                    talk.saw_fin = true;
                }
            }
            Event::RouteWanted(_)
            | Event::Readable(_)
            | Event::Writable(_)
            | Event::Doubtful(_)
            | Event::Stray(_)
            | Event::Closed { .. } => {}
        }
        self.read();
    }

    fn read(&mut self) {
        if !self.reads {
            return;
        }
        for talk in &mut self.talks {
            talk.received.extend(self.tcp.read(talk.conn, usize::MAX));
        }
    }

    fn flush(&mut self, talk: usize) -> usize {
        let Some(talk) = self.talks.get_mut(talk).filter(|talk| talk.established) else {
            return 0;
        };
        let mut sent = 0;
        while let Some(piece) = talk.outbox.pop_front() {
            if !self.tcp.write(talk.conn, &piece, self.now) {
                talk.outbox.push_front(piece);
                break;
            }
            sent += 1;
        }
        sent
    }

    /// Sends a FIN.
    pub(super) fn close(&mut self, talk: usize) {
        if let Some(talk) = self.talks.get(talk) {
            self.tcp.stack.close(talk.conn, self.now);
        }
    }

    /// Sends a RST.
    pub(super) fn abort(&mut self, talk: usize) {
        if let Some(talk) = self.talks.get(talk) {
            self.tcp.stack.abort(talk.conn, self.now);
        }
    }

    pub(super) fn set_reading(&mut self, reads: bool) {
        self.reads = reads;
        self.read();
    }

    /// Ends all connections, and forgets them.
    pub(super) fn abort_all(&mut self) {
        for talk in 0..self.talks.len() {
            self.abort(talk);
        }
        self.reads = true;
    }
}

impl Talk {
    /// Sends what was said in segments of `len` bytes.
    pub(super) fn cut(&mut self, len: usize) {
        let pending = std::mem::take(&mut self.pending);
        self.outbox.extend(pending.chunks(len).map(<[u8]>::to_vec));
    }

    /// Says a start-up frame of its role; `how`: R, S, C off, M.
    pub(super) fn say_startup(&mut self, how: u8, bytes: &mut Bytes<'_>) {
        let (revision, len) = (bytes.byte(), bytes.byte());
        let key: &[u8; 16] = if self.answers {
            b"MPA ID Rep Frame"
        } else {
            b"MPA ID Req Frame"
        };
        let bit = |n: u8| how >> n & 1;
        let flags = bit(3) << 7 | (1 - bit(2)) << 6 | bit(0) << 5 | bit(1) << 4;
        self.pending.extend(key);
        self.pending.extend([flags, revision, 0, len]);
        self.pending.extend(bytes.take(len));
    }

    /// Says an FPDU around `ulpdu`.
    pub(super) fn say_fpdu(&mut self, ulpdu: &[u8], wrong_crc: bool) {
        let begin = self.pending.len();
        self.pending
            .resize(begin + self.framer.fpdu_len(ulpdu.len()), 0);
        let fpdu = &mut self.pending[begin..];
        fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
        self.framer.seal(fpdu, ulpdu.len());
        if let Some(last) = fpdu.last_mut().filter(|_| wrong_crc) {
            *last ^= 0x80;
        }
    }

    /// From now on it frames as it should.
    pub(super) fn make_good(&mut self) {
        self.framer = Framer::new(true, false);
    }

    /// The next message number on a queue.
    fn take_msn(&mut self, queue: u32, last: bool) -> u32 {
        let next = &mut self.msn[queue as usize];
        let msn = *next;
        *next = msn.wrapping_add(u32::from(last));
        msn
    }

    /// A segment of `opcode` (RFC 5040 §4.3, RFC 7306 §3) as it should be, `len` bytes of payload
    /// where it has some.
    pub(super) fn segment(
        &mut self,
        opcode: u8,
        len: u8,
        last: bool,
        (stag, to): (u32, u64),
    ) -> Vec<u8> {
        let payload: Vec<u8> = (0..len).collect();
        let opcode = opcode & 0x0f;
        let control = 0x01 | u8::from(last) << 6;
        let mut ulpdu = vec![control, 0x40 | opcode];
        let queue = match opcode {
            0 | 2 => {
                ulpdu[0] |= 0x80;
                ulpdu.extend(stag.to_be_bytes());
                ulpdu.extend(to.to_be_bytes());
                ulpdu.extend(&payload);
                return ulpdu;
            }
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        let (msn, offset) = (self.take_msn(queue, last), self.offset);
        let offset = if queue == 0 { offset } else { 0 };
        if queue == 0 {
            self.offset = if last { 0 } else { offset + u32::from(len) };
        }
        let invalidate = if matches!(opcode, 4 | 6) { stag } else { 0 };
        for field in [invalidate, queue, msn, offset] {
            ulpdu.extend(field.to_be_bytes());
        }
        match opcode {
            1 => read_request(&mut ulpdu, stag, to, len),
            10 => atomic_request(&mut ulpdu, stag, to, len),
            7 => ulpdu.extend([len, 0, 0, 0]),
            8 | 9 => ulpdu.extend([len; 8]),
            11 => ulpdu.extend([len; 12]),
            _ => ulpdu.extend(&payload),
        }
        ulpdu
    }
}

/// RFC 5040 §4.4, with a sink of the peer's.
fn read_request(ulpdu: &mut Vec<u8>, stag: u32, to: u64, len: u8) {
    ulpdu.extend(7_u32.to_be_bytes());
    ulpdu.extend(0_u64.to_be_bytes());
    ulpdu.extend(u32::from(len).to_be_bytes());
    ulpdu.extend(stag.to_be_bytes());
    ulpdu.extend(to.to_be_bytes());
}

/// RFC 7306 §5.2.1; `len` is the `AOpCode`.
fn atomic_request(ulpdu: &mut Vec<u8>, stag: u32, to: u64, len: u8) {
    for field in [u32::from(len), 0x1234, stag] {
        ulpdu.extend(field.to_be_bytes());
    }
    for field in [to, 1, 0, 0, u64::MAX] {
        ulpdu.extend(field.to_be_bytes());
    }
}
