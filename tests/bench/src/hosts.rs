//! Two RNICs of the kit, with as many connected queue pairs as are wanted. All queue pairs of a
//! host share its region and its completion queue. An end of the kit has regions of its own, which
//! `--idle` would count as memory of its queue pair.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::cm::MpaConfig;
use xwarp::config::Progress;
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig, QueuePair,
    RecvRequest, Rnic, RnicConfig, SendRequest, SharedReceiveQueue, SrqConfig, WorkCompletion,
    WrId,
};
use xwarp_driver::Wire;
use xwarp_tcp::{Instant, StackConfig};
use xwarp_test_kit::{MemoryRnic, Side, carry};

const FRAMES: usize = 512;
pub(crate) const HALF_TRIP: Duration = Duration::from_micros(20);
/// Longer than any timer of a message runs, so that its cost does not depend on when its queue pair
/// sends the next one.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
const PORT: u16 = 4791;
/// Bytes of each host's region, for messages that go one at a time.
pub(crate) const REGION: usize = 4096;
/// Messages that are posted at a time otherwise.
pub(crate) const BURST: usize = 64;
/// The longest of these, in bytes.
pub(crate) const BURST_LEN: usize = 4096;
const ENTRIES: usize = 2 * BURST;
const QUEUE_PAIRS: usize = 10_000;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// How the queue pairs of two hosts are.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) crc: bool,
    pub(crate) markers: bool,
    /// All queue pairs of a host take their receive buffers from one queue.
    pub(crate) shared: bool,
}

impl Manner {
    /// What is the default.
    pub(crate) const PLAIN: Self = Self {
        crc: true,
        markers: false,
        shared: false,
    };
    pub(crate) const SHARED: Self = Self {
        shared: true,
        ..Self::PLAIN
    };
    pub(crate) const MARKERS: Self = Self {
        markers: true,
        ..Self::PLAIN
    };
    /// Markers, but no CRC.
    pub(crate) const UNCHECKED: Self = Self {
        crc: false,
        ..Self::MARKERS
    };
}

/// A host: one RNIC and what an application has of it.
pub(crate) struct Host {
    pub(crate) rnic: Rnic,
    pub(crate) region: MemoryRegion,
    pub(crate) cq: CompletionQueue,
    pub(crate) qps: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    pd: ProtectionDomain,
    pub(crate) wire: Wire,
    /// Entries of a work queue, and Reads outstanding.
    depth: u16,
}

/// An RNIC, with `region` bytes for regions.
pub(crate) fn open(side: Side, manner: Manner, region: usize) -> (Rnic, Wire) {
    let mpa = MpaConfig::default().crc(manner.crc).markers(manner.markers);
    let config = RnicConfig::default().progress(Progress::Manual).mpa(mpa);
    let rnic = MemoryRnic::at(side)
        .config(config)
        .frames(FRAMES)
        .region_area(region);
    let stack = |tcp: &mut StackConfig| {
        tcp.seed = Some(1);
        tcp.ack_delay = Duration::ZERO;
        tcp.max_connections = 2 * QUEUE_PAIRS;
    };
    rnic.stack(stack).open()
}

impl Host {
    pub(crate) fn new(side: Side, manner: Manner, depth: u16, region: usize) -> Self {
        let (rnic, wire) = open(side, manner, region);
        let pd = rnic.allocate_pd().expect("a protection domain");
        let srq = || pd.create_srq(SrqConfig::default().depth(depth.into()));
        Self {
            srq: manner
                .shared
                .then(|| srq().expect("a shared receive queue")),
            region: pd.allocate(region, Access::all()).expect("a region"),
            cq: rnic.create_cq(ENTRIES).expect("a completion queue"),
            qps: Vec::new(),
            rnic,
            pd,
            wire,
            depth,
        }
    }

    pub(crate) fn create_qp(&mut self) {
        // For one message at a time, the smallest queues: what is measured is all else.
        let config = QpConfig::default()
            .send_depth(self.depth.into())
            .recv_depth(self.depth.into())
            .flush_late_posts(true)
            .ord(self.depth)
            .ird(self.depth);
        let (pd, cq) = (&self.pd, &self.cq);
        let qp = match &self.srq {
            Some(srq) => pd.create_qp_with_srq(&config, cq, cq, srq),
            None => pd.create_qp(&config, cq, cq),
        };
        self.qps.push(qp.expect("a queue pair"));
    }

    /// Sends [`BURST`] messages over the first queue pair.
    pub(crate) fn send_burst(&mut self, len: u32) {
        let local = self.region.local(0, len);
        let requests = (0..BURST as u64).map(|name| SendRequest::send(WrId(name), local));
        let posted = self.qps[0].post_send_list(requests);
        posted.expect("an empty queue");
    }

    /// Takes the completions of [`send_burst`](Self::send_burst).
    pub(crate) fn take_burst(&mut self) {
        let mut done = [WorkCompletion::empty(); BURST];
        let polled = self.cq.poll_into(&mut done);
        assert_eq!(polled.expect("an open RNIC"), BURST);
        assert!(done.iter().all(WorkCompletion::is_success));
    }

    pub(crate) fn post_receive(&mut self, at: usize, len: u32) {
        let request = RecvRequest::new(WrId(0), self.region.local(0, len));
        self.qps[at].post_recv(request).expect("an empty queue");
    }

    /// Posts receives where the first queue pair takes them from.
    #[inline]
    pub(crate) fn post_receives(&mut self, requests: impl IntoIterator<Item = RecvRequest>) {
        let posted = match &mut self.srq {
            Some(srq) => srq.post_recv_list(requests),
            None => self.qps[0].post_recv_list(requests),
        };
        posted.expect("an empty queue");
    }
}

pub(crate) fn responder_at() -> SocketAddr {
    SocketAddr::new(Side::B.address(), PORT)
}

/// Both, and the time.
pub(crate) struct Hosts {
    pub(crate) requester: Host,
    pub(crate) responder: Host,
    pub(crate) now: Instant,
    listener: Listener,
}

impl Hosts {
    /// For messages that go one at a time.
    pub(crate) fn new() -> Self {
        Self::with(Manner::PLAIN, 1, REGION)
    }

    /// For [`BURST`] messages at a time.
    pub(crate) fn for_bursts(manner: Manner) -> Self {
        let depth = u16::try_from(BURST).expect("a small number");
        Self::with(manner, depth, BURST * BURST_LEN)
    }

    fn with(manner: Manner, depth: u16, region: usize) -> Self {
        let [requester, responder] = Side::BOTH.map(|side| Host::new(side, manner, depth, region));
        Self {
            requester,
            listener: responder.rnic.listen(responder_at()).expect("a free port"),
            responder,
            now: Instant::ORIGIN,
        }
    }

    /// Connects queue pairs until each side has `queue_pairs`.
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
        let connecting = self.requester.qps[last].begin_connect(responder_at(), b"", TIMEOUT);
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

    /// Lets both engines turn, and carries frames; how many.
    pub(crate) fn turn(&mut self) -> usize {
        self.requester.rnic.step_at(self.now);
        let forth = self.forth();
        self.responder.rnic.step_at(self.now);
        forth + self.back()
    }

    /// Lets time pass between two messages.
    pub(crate) fn pause(&mut self) {
        self.now = self.now + PAUSE;
    }

    /// Carries what the requester has sent; how many frames.
    pub(crate) fn forth(&mut self) -> usize {
        self.now = self.now + HALF_TRIP;
        carry(&self.requester.wire, &self.responder.wire)
    }

    /// Carries what the responder has sent; how many frames.
    pub(crate) fn back(&mut self) -> usize {
        self.now = self.now + HALF_TRIP;
        carry(&self.responder.wire, &self.requester.wire)
    }
}
