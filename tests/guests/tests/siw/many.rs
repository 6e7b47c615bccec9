//! Many queue pairs of one RNIC, in both roles at once, with traffic of every kind.

use std::net::SocketAddr;
use std::thread;

use ::xwarp::error::PostError;
use ::xwarp::{
    CompletionQueue, Listener, MemoryRegion, Opcode, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, RemoteAddress, Rnic, SendRequest, Stag, WrId,
};
use xwarp_guest_tests::siw::{Guest, Lab, Peer, XWARP_ADDRESS, filling};
use xwarp_system_tests::{TIMEOUT, check_nothing_dropped};
use xwarp_test_kit::next_request;

use crate::xwarp::{Setup, open};
use crate::{PORT, with_guest};

/// Connections to each of siw's listeners, and to the one of xwarp's.
const EACH: usize = 2;
/// siw's listeners.
const LISTENERS: usize = 3;
/// Bytes of a message, and messages of each kind.
const PIECE: u32 = 8 << 10;
const PIECES: u64 = 8;
const WHOLE: u64 = PIECES * PIECE as u64;
/// Where Writes, Reads and Sends go, in a region of this size.
const WRITES: u64 = 0;
const READS: u64 = WHOLE;
const SENDS: u64 = 2 * WHOLE;
const SOURCE: u64 = 3 * WHOLE;
const REGION: usize = 256 << 10;

/// A connection to siw. Number 3 has, on siw's side, queue pair `s3` and memory `r3`.
pub(crate) struct Connection {
    number: usize,
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    /// All of it may be accessed by the peer, in every way.
    memory: MemoryRegion,
    remote: RemoteAddress,
}

impl Connection {
    /// A queue pair with its memory, here and there, not connected yet.
    pub(crate) fn new(
        rnic: &Rnic,
        pd: &ProtectionDomain,
        siw: &mut Peer<'_>,
        number: usize,
    ) -> Self {
        let cq = rnic.create_cq(256).expect("a queue");
        let qp = pd.create_qp(&QpConfig::default(), &cq, &cq);
        let rights = ::xwarp::Access::LOCAL_READ
            | ::xwarp::Access::LOCAL_WRITE
            | ::xwarp::Access::REMOTE_READ
            | ::xwarp::Access::REMOTE_WRITE;
        let memory = pd.allocate(REGION, rights).expect("memory");
        let region = siw.ask(&format!(
            "region region=r{number} size={REGION} rights=local-write,remote-read,remote-write"
        ));
        let remote = RemoteAddress {
            stag: Stag(u32::try_from(region.number("stag")).expect("32 bits")),
            to: region.number("to"),
        };
        Self {
            number,
            qp: qp.expect("a queue pair"),
            cq,
            memory,
            remote,
        }
    }

    pub(crate) fn connect(
        &mut self,
        lab: &Lab,
        guest: &Guest<'_>,
        siw: &mut Peer<'_>,
        listener: u16,
    ) {
        let (number, at) = (self.number, guest.at(PORT + listener));
        thread::scope(|scope| {
            scope.spawn(|| {
                siw.ask(&format!("take listener=l{listener} name=s{number}"));
                siw.ask(&format!("accept name=s{number}"));
                siw.expect_event(&format!("s{number}"), "ESTABLISHED");
            });
            let connected = lab.xwarp.run(|| self.qp.connect(at, b"", TIMEOUT));
            connected.expect("a connection");
        });
    }

    fn accept(&mut self, siw: &mut Peer<'_>, listener: &mut Listener) {
        let number = self.number;
        siw.ask(&format!(
            "resolve name=s{number} address={XWARP_ADDRESS} port={PORT}"
        ));
        siw.ask(&format!("connect name=s{number}"));
        let request = next_request(listener);
        request.accept(&mut self.qp, b"").expect("accepted");
        siw.expect_event(&format!("s{number}"), "ESTABLISHED");
    }

    /// What is to be sent, nothing of it where it is to arrive, and buffers for the Sends of either
    /// side.
    pub(crate) fn prepare(&mut self, siw: &mut Peer<'_>) {
        let (number, whole) = (self.number, bytes(WHOLE));
        let memory = self.memory.bytes();
        memory.write(0, &vec![0; 3 * whole]).expect("our memory");
        let source = filling(whole, ours(number));
        memory.write(bytes(SOURCE), &source).expect("our memory");
        siw.ask(&format!(
            "fill region=r{number} offset=0 length={SOURCE} seed=0"
        ));
        let seed = theirs(number);
        siw.ask(&format!(
            "fill region=r{number} offset={SOURCE} length={WHOLE} seed={seed}"
        ));
        for id in 0..PIECES {
            let buffer = self.memory.local(SENDS + id * u64::from(PIECE), PIECE);
            let request = RecvRequest::new(WrId(300 + id), buffer);
            self.qp.post_recv(request).expect("room");
        }
        siw.ask(&format!(
            "recv name=s{number} id=300 region=r{number} offset={SENDS} length={PIECE} times={PIECES}"
        ));
    }

    /// Everything that either side does, posted at once.
    pub(crate) fn post_all(&mut self, siw: &mut Peer<'_>) {
        let (number, Stag(stag)) = (self.number, self.memory.stag());
        let what = format!("name=s{number} region=r{number} length={PIECE} times={PIECES}");
        siw.ask(&format!(
            "write {what} id=0 offset={SOURCE} stag={stag} to={WRITES}"
        ));
        siw.ask(&format!("send {what} id=100 offset={SOURCE}"));
        siw.ask(&format!(
            "read {what} id=200 offset={READS} stag={stag} to={SOURCE}"
        ));
        for id in 0..PIECES {
            let at = id * u64::from(PIECE);
            let source = self.memory.local(SOURCE + at, PIECE);
            let sink = self.memory.local(READS + at, PIECE);
            let (written, read) = (self.theirs(WRITES + at), self.theirs(SOURCE + at));
            for request in [
                SendRequest::write(WrId(id), source, written),
                SendRequest::send(WrId(100 + id), source),
                SendRequest::read(WrId(200 + id), sink, read),
            ] {
                self.qp.post_send(request).expect("room");
            }
        }
    }

    /// One more Write.
    pub(crate) fn post_write(&mut self, id: u64) -> Result<(), PostError> {
        let (source, place) = (self.memory.local(SOURCE, PIECE), self.theirs(WRITES));
        (self.qp).post_send(SendRequest::write(WrId(id), source, place))
    }

    /// One more Read.
    pub(crate) fn post_read(&mut self, id: u64) -> Result<(), PostError> {
        let (sink, place) = (self.memory.local(READS, PIECE), self.theirs(SOURCE));
        (self.qp).post_send(SendRequest::read(WrId(id), sink, place))
    }

    fn theirs(&self, at: u64) -> RemoteAddress {
        RemoteAddress {
            to: self.remote.to + at,
            ..self.remote
        }
    }

    /// Waits for all of it, and compares every byte.
    pub(crate) fn check_all(&mut self, siw: &mut Peer<'_>) {
        let number = self.number;
        for _ in 0..4 * PIECES {
            let done = self.cq.wait(TIMEOUT).expect("a queue");
            let done = done.unwrap_or_else(|| panic!("queue pair {number} misses a completion"));
            assert!(done.is_success(), "queue pair {number}: {done:?}");
            let kind = match done.wr_id {
                WrId(0..100) => Opcode::Write,
                WrId(100..200) => Opcode::Send,
                WrId(200..300) => Opcode::Read,
                WrId(_) => Opcode::Receive,
            };
            assert_eq!(done.opcode, kind, "queue pair {number}");
        }
        let all = bytes(4 * PIECES);
        for done in siw.poll(&format!("s{number}"), all) {
            assert_eq!(done.status, "success", "s{number}: {done:?}");
        }
        let held = self.memory.bytes().to_vec();
        let (whole, seed) = (bytes(WHOLE), ours(number));
        for (at, part) in held.chunks(whole).take(3).enumerate() {
            assert!(
                part == filling(whole, theirs(number)),
                "part {at} of {number}"
            );
        }
        for at in [WRITES, READS, SENDS] {
            siw.ask(&format!(
                "check region=r{number} offset={at} length={WHOLE} seed={seed}"
            ));
        }
    }
}

/// siw's listener of this number.
pub(crate) fn listen(guest: &Guest<'_>, siw: &mut Peer<'_>, number: u16) {
    let (address, port) = (guest.address(), PORT + number);
    siw.ask(&format!(
        "listen name=l{number} address={address} port={port}"
    ));
}

/// The seed of what xwarp sends.
fn ours(number: usize) -> usize {
    1 + number
}

/// The seed of what siw sends.
fn theirs(number: usize) -> usize {
    100 + number
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).expect("small")
}

#[test]
fn queue_pairs_of_one_rnic_work_at_once_in_both_roles() {
    with_guest(|lab, guest| {
        let count = EACH * (LISTENERS + 1) + EACH;
        let setup = Setup::with_bytes(REGION);
        let rnic = open(lab, &setup, count);
        let pd = rnic.allocate_pd().expect("a protection domain");
        let at = SocketAddr::new(XWARP_ADDRESS, PORT);
        let mut listener = lab.xwarp.run(|| rnic.listen(at)).expect("a free port");
        let mut siw = Peer::start(guest);
        for number in 0..LISTENERS {
            listen(guest, &mut siw, u16::try_from(number).expect("a few"));
        }
        let mut connections: Vec<Connection> = (0..count)
            .map(|number| Connection::new(&rnic, &pd, &mut siw, number))
            .collect();
        for connection in &mut connections {
            let to = connection.number / EACH;
            if to < LISTENERS {
                let to = u16::try_from(to).expect("a few");
                connection.connect(lab, guest, &mut siw, to);
            } else {
                connection.accept(&mut siw, &mut listener);
            }
        }
        // The second time every connection has been used already.
        for _ in 0..2 {
            for connection in &mut connections {
                connection.prepare(&mut siw);
            }
            for connection in &mut connections {
                connection.post_all(&mut siw);
            }
            for connection in &mut connections {
                connection.check_all(&mut siw);
            }
        }
        check_nothing_dropped(&rnic);
    });
}
