//! Two RNICs on a wire, with as many connected queue pairs as are wanted.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use xwarp::{
    Access, CompletionQueue, FixedHost, Listener, MemoryRegion, Progress, ProtectionDomain,
    QpConfig, QueuePair, RecvRequest, RegionPool, Rnic, RnicConfig, SendRequest, Sgl, WrId,
};
use xwarp_driver::{MemoryIo, Wire};
use xwarp_tcp::{Instant, StackConfig};

const FRAMES: usize = 512;
const HALF_TRIP: Duration = Duration::from_micros(20);
/// Longer than any timer of a message runs, so that its cost does not depend on when its queue pair sends the next one.
const PAUSE: Duration = Duration::from_millis(20);
const PORT: u16 = 4791;
/// Bytes of each side's region.
pub(crate) const REGION: usize = 4096;
const ENTRIES: usize = 64;
const QUEUE_PAIRS: usize = 10_000;
const TIMEOUT: Duration = Duration::from_secs(1);

/// One RNIC and what an application has of it.
pub(crate) struct Side {
    pub(crate) rnic: Rnic,
    pub(crate) region: MemoryRegion,
    pub(crate) cq: CompletionQueue,
    pub(crate) qps: Vec<QueuePair>,
    pd: ProtectionDomain,
    wire: Wire,
}

fn address(place: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + place))
}

fn mac(place: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, 1 + place]
}

impl Side {
    fn new(place: u8) -> Self {
        let (io, wire) = MemoryIo::new(FRAMES).expect("memory");
        let stack = StackConfig {
            mac: mac(place),
            seed: Some(1),
            ack_delay: Duration::ZERO,
            max_connections: 2 * QUEUE_PAIRS,
            ..StackConfig::default()
        };
        let peer = 1 - place;
        let host = FixedHost::new(address(place), [(address(peer), mac(peer))]);
        let regions = RegionPool::anonymous(REGION).expect("memory");
        let config = RnicConfig {
            progress: Progress::Manual,
            ..RnicConfig::default()
        };
        let rnic = Rnic::with_io(Box::new(io), stack, Arc::new(host), regions, &config);
        let rnic = rnic.expect("an RNIC without an interface");
        let pd = rnic.allocate_pd().expect("a protection domain");
        Self {
            region: pd.allocate(REGION, Access::all()).expect("a region"),
            cq: rnic.create_cq(ENTRIES).expect("a completion queue"),
            qps: Vec::new(),
            rnic,
            pd,
            wire,
        }
    }

    fn create_qp(&mut self) {
        // The smallest queues: what is measured is all else.
        let config = QpConfig {
            send_depth: 1,
            recv_depth: 1,
            ..QpConfig::default()
        };
        let qp = self.pd.create_qp(&config, &self.cq, &self.cq);
        self.qps.push(qp.expect("a queue pair"));
    }

    pub(crate) fn post_receive(&mut self, at: usize, len: u32) {
        let request = RecvRequest::new(WrId(0), self.region.local(0, len));
        self.qps[at].post_recv(request).expect("an empty queue");
    }
}

/// Both, and the time.
pub(crate) struct Pair {
    pub(crate) requester: Side,
    pub(crate) responder: Side,
    pub(crate) now: Instant,
    listener: Listener,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let responder = Side::new(1);
        let at = SocketAddr::new(address(1), PORT);
        Self {
            requester: Side::new(0),
            listener: responder.rnic.listen(at).expect("a free port"),
            responder,
            now: Instant::ORIGIN,
        }
    }

    /// Connects queue pairs until there are so many.
    pub(crate) fn grow(&mut self, queue_pairs: usize) {
        while self.requester.qps.len() < queue_pairs {
            self.connect();
        }
    }

    fn connect(&mut self) {
        self.requester.create_qp();
        self.responder.create_qp();
        let last = self.requester.qps.len() - 1;
        self.start_up(last);
        // The responder says nothing before the first FPDU has come (RFC 5044 §7.1.2).
        let nowhere = self.responder.region.remote(0);
        let first = SendRequest::write(WrId(0), Sgl::new(), nowhere);
        let posted = self.requester.qps[last].post_send(first);
        posted.expect("an empty queue");
        while self.requester.cq.poll().expect("an open RNIC").is_none() {
            self.turn();
        }
        for _ in 0..4 {
            self.turn();
        }
    }

    fn start_up(&mut self, last: usize) {
        let at = SocketAddr::new(address(1), PORT);
        let connecting = self.requester.qps[last].begin_connect(at, b"", TIMEOUT);
        let mut connecting = connecting.expect("a free port");
        let request = loop {
            self.turn();
            if let Some(request) = self.listener.try_accept().unwrap() {
                break request;
            }
        };
        let accepted = request.accept(&mut self.responder.qps[last], b"");
        accepted.expect("a waiting connection");
        let answer = loop {
            self.turn();
            if let Some(answer) = connecting.try_finish() {
                break answer;
            }
        };
        answer.expect("a connection");
    }

    fn turn(&mut self) {
        self.requester.rnic.step_at(self.now);
        self.forth();
        self.responder.rnic.step_at(self.now);
        self.back();
    }

    /// Lets time pass between two messages.
    pub(crate) fn pause(&mut self) {
        self.now = self.now + PAUSE;
    }

    /// Carries what the requester has sent.
    pub(crate) fn forth(&mut self) {
        carry(&self.requester, &self.responder);
        self.now = self.now + HALF_TRIP;
    }

    /// Carries what the responder has sent.
    pub(crate) fn back(&mut self) {
        carry(&self.responder, &self.requester);
        self.now = self.now + HALF_TRIP;
    }
}

fn carry(from: &Side, to: &Side) {
    while let Some(frame) = from.wire.take_sent() {
        to.wire.deliver(frame);
    }
}
