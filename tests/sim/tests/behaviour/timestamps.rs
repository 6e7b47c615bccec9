//! Times of arrival in completions: the NIC's, of the frame that brought the end of a message or of
//! a response.

use std::net::SocketAddr;
use std::time::Duration;

use xwarp::config::NicConfig;
use xwarp::sim::Instant;
use xwarp::{
    Access, CompletionQueue, MemoryRegion, Opcode, QpConfig, QueuePair, RecvRequest, Rnic,
    RnicConfig, SendRequest, WrId,
};
use xwarp_driver::Wire;
use xwarp_sim_tests::wire::{REQUEST, Untagged};
use xwarp_tcp::{ConnId, Path, StackConfig};
use xwarp_test_kit::{Endpoint, MemoryRnic, Side, carry};

const PORT: u16 = 7471;
const LIMIT: Duration = Duration::from_secs(5);
/// Bytes of a host's memory.
const LEN: usize = 1 << 15;
/// Frames with fewer bytes have no payload.
const HEADERS: usize = 90;
/// An old clock's first time.
const BOOT: Duration = Duration::from_secs(1_000_000);

struct Host {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    rnic: Rnic,
    wire: Wire,
    /// When the last frame with payload came.
    last: Option<Duration>,
}

impl Host {
    fn new(side: Side, timestamps: bool) -> Self {
        let nic = NicConfig::default().timestamps(timestamps);
        let config = RnicConfig::default()
            .progress(xwarp::config::Progress::Manual)
            .nic(nic);
        let (rnic, wire) = MemoryRnic::at(side).config(config).frames(512).open();
        let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(64).unwrap());
        let all =
            Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        Self {
            qp: pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap(),
            region: pd.allocate(LEN, all).unwrap(),
            cq,
            rnic,
            wire,
            last: None,
        }
    }

    /// The next completion's kind and time.
    fn completion(&mut self) -> (Opcode, Option<Duration>) {
        let done = self.cq.poll().unwrap().expect("a completion");
        assert!(done.is_success(), "{done:?}");
        (done.opcode, done.timestamp())
    }
}

/// Two connected hosts, of which A is the client.
struct Pair {
    hosts: [Host; 2],
    now: u64,
    /// The NICs tell when frames arrive.
    tells: bool,
}

impl Pair {
    fn new(timestamps: bool) -> Self {
        let mut pair = Self {
            hosts: Side::BOTH.map(|side| Host::new(side, timestamps)),
            now: 0,
            tells: true,
        };
        let at = (Side::B.address(), PORT).into();
        let mut listener = pair.hosts[1].rnic.listen(at).unwrap();
        let mut connecting = pair.hosts[0].qp.begin_connect(at, b"", LIMIT).unwrap();
        pair.run();
        let request = listener.try_accept().unwrap().expect("a request");
        request.accept(&mut pair.hosts[1].qp, b"").unwrap();
        pair.run();
        connecting.try_finish().expect("an answer").unwrap();
        pair
    }

    /// Lets both go on until nothing is left to do. Each frame arrives a microsecond after the one
    /// before.
    fn run(&mut self) {
        for _ in 0..2000 {
            self.now += 50;
            for from in [0, 1] {
                self.hosts[from]
                    .rnic
                    .step_at(Instant::from_micros(self.now));
                self.carry(from);
            }
        }
    }

    fn carry(&mut self, from: usize) {
        while let Some(frame) = self.hosts[from].wire.take_sent() {
            self.now += 1;
            let to = &mut self.hosts[1 - from];
            let arrival = BOOT + Duration::from_micros(self.now);
            if frame.len() > HEADERS {
                to.last = self.tells.then_some(arrival);
            }
            if self.tells {
                to.wire.deliver_at(frame, arrival);
            } else {
                to.wire.deliver(frame);
            }
        }
    }

    /// Sends `len` bytes from A to B. Returns the times of both completions.
    fn send(&mut self, len: u32) -> [Option<Duration>; 2] {
        let [a, b] = &mut self.hosts;
        let sink = b.region.local(0, len);
        b.qp.post_recv(RecvRequest::new(WrId(1), sink)).unwrap();
        let source = a.region.local(0, len);
        a.qp.post_send(SendRequest::send(WrId(2), source)).unwrap();
        self.run();
        let [a, b] = &mut self.hosts;
        let (sent, received) = (a.completion(), b.completion());
        assert_eq!((sent.0, received.0), (Opcode::Send, Opcode::Receive));
        [sent.1, received.1]
    }

    /// A reads `len` bytes of B's region. Returns the time of the completion.
    fn read(&mut self, len: u32) -> Option<Duration> {
        let [a, b] = &mut self.hosts;
        let (sink, remote) = (a.region.local(0, len), b.region.remote(0));
        a.qp.post_send(SendRequest::read(WrId(3), sink, remote))
            .unwrap();
        self.run();
        let (opcode, time) = self.hosts[0].completion();
        assert_eq!(opcode, Opcode::Read);
        time
    }
}

/// Of one segment, of several, and of more than a turn receives.
const LENGTHS: [u32; 3] = [64, 5000, 30_000];

#[test]
fn receive_has_the_time_of_the_frame_that_ended_its_message() {
    let mut pair = Pair::new(true);
    for len in LENGTHS {
        let [sent, received] = pair.send(len);
        assert_eq!(received, pair.hosts[1].last, "{len}");
        assert!(received.unwrap() > BOOT);
        assert_eq!(sent, None, "nothing has arrived for it");
    }
}

/// Small messages that come together are in frames of their own, as each is alone when it is sent.
#[test]
fn each_message_of_a_burst_has_its_own_time() {
    const MESSAGES: u64 = 20;
    let mut pair = Pair::new(true);
    let (mut times, mut frames) = (Vec::new(), Vec::new());
    for number in 0..MESSAGES {
        let [a, b] = &mut pair.hosts;
        let sink = b.region.local(0, 64);
        b.qp.post_recv(RecvRequest::new(WrId(number), sink))
            .unwrap();
        let source = a.region.local(0, 64);
        a.qp.post_send(SendRequest::send(WrId(number), source))
            .unwrap();
        pair.now += 1;
        a.rnic.step_at(Instant::from_micros(pair.now));
        pair.carry(0);
        frames.push(pair.hosts[1].last);
    }
    pair.run();
    while let Some(done) = pair.hosts[1].cq.poll().unwrap() {
        times.push(done.timestamp());
    }
    assert_eq!(times, frames);
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
}

/// A peer without an RNIC, which sends segments of any bytes to a host.
struct Raw {
    tcp: Endpoint,
    conn: ConnId,
    host: Host,
    now: u64,
}

impl Raw {
    /// It has sent its MPA Request.
    fn new(host: Host) -> Self {
        let config = StackConfig {
            mac: Side::A.mac(),
            ..StackConfig::default()
        };
        let mut tcp = Endpoint::new(64, config);
        let at = SocketAddr::new(Side::B.address(), PORT);
        let mut listener = host.rnic.listen(at).unwrap();
        let path = Path {
            local: SocketAddr::new(Side::A.address(), 40_000),
            remote: at,
            next_hop: Side::B.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        };
        let conn = tcp.stack.connect(path, Instant::from_micros(0)).unwrap();
        let mut raw = Self {
            tcp,
            conn,
            host,
            now: 0,
        };
        raw.run(BOOT);
        raw.send(REQUEST, BOOT);
        let request = listener.try_accept().unwrap().expect("a request");
        request.accept(&mut raw.host.qp, b"").unwrap();
        raw.run(BOOT);
        raw
    }

    /// Sends a segment, which arrives at this time.
    fn send(&mut self, bytes: &[u8], arrival: Duration) {
        let now = Instant::from_micros(self.now);
        assert!(self.tcp.write(self.conn, bytes, now));
        self.run(arrival);
    }

    /// Lets both go on. What arrives at the host does at this time.
    fn run(&mut self, arrival: Duration) {
        for _ in 0..200 {
            self.now += 50;
            let now = Instant::from_micros(self.now);
            self.tcp.step(now);
            for frame in self.tcp.sent() {
                self.host.wire.deliver_at(frame, arrival);
            }
            self.host.rnic.step_at(now);
            carry(&self.host.wire, &self.tcp.wire);
        }
    }
}

#[test]
fn message_whose_fpdu_comes_in_two_segments_has_the_time_of_the_second() {
    let mut raw = Raw::new(Host::new(Side::B, true));
    let into = raw.host.region.local(0, 64);
    raw.host
        .qp
        .post_recv(RecvRequest::new(WrId(1), into))
        .unwrap();
    let fpdu = Untagged::default().fpdu(&[7; 64]);
    let [first, second] = [7, 9].map(|seconds| BOOT + Duration::from_secs(seconds));
    raw.send(&fpdu[..30], first);
    raw.send(&fpdu[30..], second);
    assert_eq!(raw.host.completion(), (Opcode::Receive, Some(second)));
}

#[test]
fn read_has_the_time_of_the_frame_that_ended_its_response() {
    let mut pair = Pair::new(true);
    for len in LENGTHS {
        let time = pair.read(len);
        assert_eq!(time, pair.hosts[0].last, "{len}");
        assert!(time.unwrap() > BOOT);
    }
}

#[test]
fn completion_has_no_time_that_the_nic_did_not_tell() {
    let mut pair = Pair::new(true);
    assert!(pair.send(64)[1].is_some());
    pair.tells = false;
    for len in LENGTHS {
        assert_eq!(pair.send(len), [None; 2], "{len}: an older frame's time");
        assert_eq!(pair.read(len), None);
    }
    pair.tells = true;
    assert_eq!(pair.send(64)[1], pair.hosts[1].last);
}

#[test]
fn nobody_gets_times_that_were_not_asked_for() {
    let mut pair = Pair::new(false);
    for len in LENGTHS {
        assert_eq!(pair.send(len), [None; 2]);
        assert_eq!(pair.read(len), None);
    }
}
