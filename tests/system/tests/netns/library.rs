//! The library, without the command: two RNICs in one process, each with an engine thread that sleeps when it may.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xwarp::{
    Access, Arm, CompletionQueue, MemoryRegion, NicConfig, Opcode, Operation, Progress, QpConfig,
    QueuePair, RecvRequest, Rnic, RnicConfig, SendRequest, Sgl, Waiting, WorkCompletion, WrId,
    XdpMode,
};
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, check_nothing_dropped, eventually};
use xwarp_test_kit::{needs_root, pattern_of};

const BYTES: usize = 64 << 10;
const LEN: u32 = 64 << 10;
/// Bytes of a ping.
const PING: u32 = 64;

fn server() -> SocketAddr {
    SocketAddr::new(Hosts::SERVER, 7471)
}

/// An RNIC whose engine is a thread that sleeps at once when there is nothing to do.
fn open(host: &Host) -> Rnic {
    open_with(host, Progress::Thread, RnicConfig::default().min_rto)
}

fn open_with(host: &Host, progress: Progress, min_rto: Duration) -> Rnic {
    let config = RnicConfig {
        nic: NicConfig {
            mode: Some(XdpMode::Native),
            region_bytes: 8 << 20,
            ..NicConfig::default()
        },
        progress,
        min_rto,
        waiting: Waiting::Blocking,
        ..RnicConfig::default()
    };
    host.run(|| Rnic::open(DEV, &config)).expect("an RNIC")
}

/// One end of a connection, with memory to send from and to receive into.
struct End {
    qp: QueuePair,
    source: MemoryRegion,
    sink: MemoryRegion,
}

impl End {
    fn new(rnic: &Rnic, cq: &CompletionQueue) -> Self {
        Self::with(rnic, cq, &QpConfig::default())
    }

    fn with(rnic: &Rnic, cq: &CompletionQueue, config: &QpConfig) -> Self {
        let pd = rnic.allocate_pd().expect("a protection domain");
        Self {
            qp: pd.create_qp(config, cq, cq).expect("a queue pair"),
            source: pd
                .allocate(BYTES, Access::LOCAL_READ | Access::REMOTE_READ)
                .expect("memory"),
            sink: pd
                .allocate(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
                .expect("memory"),
        }
    }

    fn expect(&mut self, id: u64, len: u32) {
        let buffer = self.sink.local(0, len);
        self.qp
            .post_recv(RecvRequest::new(WrId(id), buffer))
            .expect("room");
    }

    /// Sends the first `len` bytes of the source.
    fn send(&mut self, len: u32, solicited: bool) {
        let operation = Operation::Send {
            payload: self.source.local(0, len).into(),
            solicited,
            invalidate: None,
        };
        let request = SendRequest::new(WrId(0), operation).unsignaled();
        self.qp.post_send(request).expect("room");
    }
}

/// Two RNICs.
struct Pair<'a> {
    hosts: &'a Hosts,
    a: Rnic,
    b: Rnic,
}

impl<'a> Pair<'a> {
    fn open(hosts: &'a Hosts) -> Self {
        Self {
            hosts,
            a: open(&hosts.a),
            b: open(&hosts.b),
        }
    }

    /// Connects these ends, one after the other. Ports and routes are asked for in the namespace of the asking thread.
    fn connect(&self, initiators: &mut [End], responders: &mut [End]) {
        let mut listener = self
            .hosts
            .b
            .run(|| self.b.listen(server()))
            .expect("a port");
        for (initiator, responder) in initiators.iter_mut().zip(responders) {
            thread::scope(|scope| {
                let accepting = scope.spawn(|| {
                    let request = listener.accept(TIMEOUT).unwrap().expect("a request");
                    assert_eq!(request.private_data(), b"hello");
                    request
                        .accept(&mut responder.qp, b"welcome")
                        .expect("a connection");
                });
                let answer = self
                    .hosts
                    .a
                    .run(|| initiator.qp.connect(server(), b"hello", TIMEOUT));
                assert_eq!(answer.expect("a connection"), b"welcome");
                accepting.join().expect("a thread");
            });
        }
    }

    /// The same where the responder's engine runs inline, by the polling of its completion queue.
    fn connect_inline(&self, initiator: &mut End, responder: &mut End, cq: &mut CompletionQueue) {
        let listen = || self.b.listen(server());
        let mut listener = self.hosts.b.run(listen).expect("a port");
        let connected = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.accept(TIMEOUT).unwrap().expect("a request");
                let accepted = request.accept(&mut responder.qp, b"");
                accepted.expect("a connection");
                while !connected.load(Ordering::Acquire) {
                    assert!(cq.poll().expect("an RNIC").is_none());
                }
            });
            let connect = || initiator.qp.connect(server(), b"", TIMEOUT);
            let answer = self.hosts.a.run(connect);
            connected.store(true, Ordering::Release);
            answer.expect("a connection");
        });
    }

    /// Nothing was dropped: not by the kernel, by TCP or by the RDMA layers.
    fn check_counters(&self) {
        check_nothing_dropped(&self.a);
        check_nothing_dropped(&self.b);
    }

    /// Nothing is left on the interfaces when both are gone, and all objects that were made from them before.
    fn close(self) {
        let Self { hosts, a, b } = self;
        drop((a, b));
        assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
    }
}

fn next(cq: &mut CompletionQueue) -> WorkCompletion {
    let completion = cq.wait(TIMEOUT).expect("a completion queue");
    let completion = completion.expect("a wake-up was lost: nothing has completed");
    assert!(completion.is_success(), "{completion:?}");
    completion
}

/// Both applications sleep in `wait` and both engines sleep in `poll`: every message must wake three threads.
#[test]
fn blocking_ping_pong_loses_no_wake_up() {
    const ROUNDS: u8 = 200;
    needs_root!();
    let hosts = Hosts::new();
    let pair = Pair::open(&hosts);
    let mut cqs = [&pair.a, &pair.b].map(|rnic| rnic.create_cq(64).expect("a queue"));
    let mut near = [End::new(&pair.a, &cqs[0])];
    let mut far = [End::new(&pair.b, &cqs[1])];
    near[0].expect(0, PING);
    far[0].expect(0, PING);
    pair.connect(&mut near, &mut far);
    let since = Instant::now();
    ping_pong(&mut near[0], &mut far[0], &mut cqs, ROUNDS);
    // A wake-up that comes by some timeout only would take ten times as long.
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    pair.check_counters();
    drop((near, far, cqs));
    pair.close();
}

fn ping_pong(near: &mut End, far: &mut End, cqs: &mut [CompletionQueue; 2], rounds: u8) {
    let [near_cq, far_cq] = cqs;
    thread::scope(|scope| {
        scope.spawn(|| (0..rounds).for_each(|round| answer(far, far_cq, round)));
        (0..rounds).for_each(|round| ask(near, near_cq, round));
    });
}

fn ask(end: &mut End, cq: &mut CompletionQueue, round: u8) {
    end.source
        .bytes()
        .fill(0..PING as usize, round)
        .expect("our own memory");
    end.send(PING, false);
    receive(end, cq, round ^ 0xff);
}

fn answer(end: &mut End, cq: &mut CompletionQueue, round: u8) {
    receive(end, cq, round);
    end.source
        .bytes()
        .fill(0..PING as usize, round ^ 0xff)
        .expect("our own memory");
    end.send(PING, false);
}

/// Waits for a ping of this content, and posts the buffer for the next.
fn receive(end: &mut End, cq: &mut CompletionQueue, content: u8) {
    let completion = next(cq);
    assert_eq!(
        (completion.opcode, completion.byte_len),
        (Opcode::Receive, PING)
    );
    let held = end.sink.bytes().to_vec();
    assert_eq!(held[..PING as usize], [content; PING as usize]);
    end.expect(0, PING);
}

#[test]
fn only_a_solicited_message_wakes_who_waits_for_one() {
    needs_root!();
    let hosts = Hosts::new();
    let pair = Pair::open(&hosts);
    let near_cq = pair.a.create_cq(64).expect("a queue");
    let mut far_cq = pair.b.create_cq(64).expect("a queue");
    let mut near = [End::new(&pair.a, &near_cq)];
    let mut far = [End::new(&pair.b, &far_cq)];
    (0..3).for_each(|id| far[0].expect(id, PING));
    pair.connect(&mut near, &mut far);
    far_cq.arm(Arm::Solicited).expect("an open RNIC");
    near[0].send(PING, false);
    let woken = far_cq
        .wait_event(Duration::from_millis(300))
        .expect("a queue");
    assert!(
        !woken,
        "a plain Send has woken who waits for a solicited one"
    );
    near[0].send(PING, true);
    assert!(
        far_cq.wait_event(TIMEOUT).expect("a queue"),
        "a solicited Send has woken nobody"
    );
    let received = [next(&mut far_cq), next(&mut far_cq)];
    assert_eq!(
        received.map(|one| (one.wr_id, one.solicited)),
        [(WrId(0), false), (WrId(1), true)]
    );
    far_cq.arm(Arm::Next).expect("an open RNIC");
    near[0].send(PING, false);
    assert!(
        far_cq.wait_event(TIMEOUT).expect("a queue"),
        "a Send has woken nobody"
    );
    assert_eq!(next(&mut far_cq).wr_id, WrId(2));
    pair.check_counters();
    drop((near, far, near_cq, far_cq));
    pair.close();
}

/// Time that the engines' threads of this process have run for.
fn engine_times() -> Vec<Duration> {
    let tasks = fs::read_dir("/proc/self/task").expect("our own threads");
    let tasks = tasks.map(|task| task.expect("a thread").path());
    let engines = tasks.filter(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "xwarp-engine")
    });
    let times = engines.map(|task| {
        // Nanoseconds on a CPU, nanoseconds waited for one, turns.
        let text = fs::read_to_string(task.join("schedstat")).expect("CONFIG_SCHED_INFO");
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("a number"))
    });
    times.collect()
}

#[test]
fn idle_engine_takes_less_than_a_hundredth_of_a_core() {
    const IDLE: Duration = Duration::from_secs(2);
    needs_root!();
    let hosts = Hosts::new();
    let pair = Pair::open(&hosts);
    let mut cqs = [&pair.a, &pair.b].map(|rnic| rnic.create_cq(64).expect("a queue"));
    let mut near = [End::new(&pair.a, &cqs[0])];
    let mut far = [End::new(&pair.b, &cqs[1])];
    near[0].expect(0, PING);
    far[0].expect(0, PING);
    pair.connect(&mut near, &mut far);
    let before = engine_times();
    let times = thread::scope(|scope| {
        // An application that waits must cost nothing, either.
        let [near_cq, far_cq] = &mut cqs;
        scope.spawn(|| assert_eq!(far_cq.wait(IDLE).expect("a queue"), None));
        assert_eq!(near_cq.wait(IDLE).expect("a queue"), None);
        engine_times()
    });
    assert_eq!((before.len(), times.len()), (2, 2), "engines");
    for (before, after) in before.into_iter().zip(times) {
        let busy = after.saturating_sub(before);
        assert!(busy < IDLE / 100, "{busy:?} of {IDLE:?}");
    }
    // And they are awake at once when there is work.
    ping_pong(&mut near[0], &mut far[0], &mut cqs, 1);
    pair.check_counters();
    drop((near, far, cqs));
    pair.close();
}

/// As many segments as one connection may have in flight come while nobody takes any.
#[test]
fn burst_of_small_messages_waits_for_a_receiver_that_does_not_run() {
    const MESSAGES: usize = 600;
    const IN_FLIGHT: u64 = 256;
    needs_root!();
    let hosts = Hosts::new();
    // Whoever does not run acknowledges nothing, and no timer of the sender's shall help.
    let patient = Duration::from_secs(30);
    let pair = Pair {
        hosts: &hosts,
        a: open_with(&hosts.a, Progress::Thread, patient),
        b: open_with(&hosts.b, Progress::Inline, patient),
    };
    let (mut near_cq, mut far_cq) = (
        pair.a.create_cq(1024).unwrap(),
        pair.b.create_cq(8).unwrap(),
    );
    let deep = QpConfig {
        send_depth: 1024,
        ..QpConfig::default()
    };
    let mut near = End::with(&pair.a, &near_cq, &deep);
    let mut far = End::new(&pair.b, &far_cq);
    pair.connect_inline(&mut near, &mut far, &mut far_cq);
    near.source.bytes().write(0, &[7; MESSAGES]).unwrap();
    for at in 0..MESSAGES as u64 {
        let write = SendRequest::write(WrId(at), near.source.local(at, 1), far.sink.remote(at));
        near.qp.post_send(write).expect("room");
    }
    // One of these may be no message, but sent to wake up a peer that is silent.
    eventually("as many FPDUs as TCP takes", || {
        pair.a.counters().expect("an RNIC").rdma.fpdus_out == IN_FLIGHT
    });
    let all = [7; MESSAGES];
    let mut placed = [0; MESSAGES];
    eventually("all messages", || {
        assert!(far_cq.poll().expect("an RNIC").is_none());
        far.sink.bytes().read(0, &mut placed).unwrap();
        placed == all
    });
    for _ in 0..MESSAGES {
        next(&mut near_cq);
    }
    let counters = pair.a.counters().expect("an RNIC").tcp;
    assert_eq!(counters.retransmissions, 0, "{counters:?}");
    pair.check_counters();
    drop((near, far, near_cq, far_cq));
    pair.close();
}

#[test]
fn address_can_be_listened_on_for_as_long_as_the_interface_has_it() {
    needs_root!();
    let hosts = Hosts::new();
    let rnic = open(&hosts.b);
    let later = SocketAddr::from(([10, 77, 5, 2], 7471));
    let listen = || hosts.b.run(|| rnic.listen(later));
    for _ in 0..2 {
        let refused = listen().err().expect("not there yet, or any more");
        let told = refused.to_string();
        assert!(
            told.starts_with("10.77.5.2 is not an address of eth1; it has 10.77.0.2"),
            "{told}"
        );
        hosts.b.ip("address add 10.77.5.2/24 dev eth1");
        let listener = listen().expect("an address that came after the RNIC was opened");
        assert_eq!(listener.addresses(), [later]);
        drop(listener);
        hosts.b.ip("address del 10.77.5.2/24 dev eth1");
    }
    rnic.close().expect("an open RNIC");
}

/// On every queue pair a Write and a Send one way, and a Read the other way, all under way at the same time.
#[test]
fn eight_queue_pairs_move_their_own_data_at_once() {
    const QPS: usize = 8;
    needs_root!();
    let hosts = Hosts::new();
    let pair = Pair::open(&hosts);
    let mut near_cq = pair.a.create_cq(256).expect("a queue");
    let mut far_cq = pair.b.create_cq(256).expect("a queue");
    let mut near: Vec<End> = (0..QPS).map(|_| End::new(&pair.a, &near_cq)).collect();
    let mut far: Vec<End> = (0..QPS).map(|_| End::new(&pair.b, &far_cq)).collect();
    for (which, (near, far)) in near.iter().zip(&mut far).enumerate() {
        near.source
            .bytes()
            .write(0, &pattern_of(which as u64, BYTES))
            .expect("our own memory");
        far.source
            .bytes()
            .write(0, &pattern_of((QPS + which) as u64, BYTES))
            .expect("our own memory");
        far.qp
            .post_recv(RecvRequest::new(WrId(0), Sgl::new()))
            .expect("room");
    }
    pair.connect(&mut near, &mut far);
    for (near, far) in near.iter_mut().zip(&far) {
        let write = SendRequest::write(WrId(1), near.source.local(0, LEN), far.sink.remote(0));
        near.qp.post_send(write).expect("room");
        near.send(0, true);
        let read = SendRequest::read(WrId(2), near.sink.local(0, LEN), far.source.remote(0));
        near.qp.post_send(read).expect("room");
    }
    for _ in 0..QPS {
        assert_eq!(next(&mut far_cq).opcode, Opcode::Receive);
    }
    let mut done: Vec<_> = (0..2 * QPS).map(|_| next(&mut near_cq)).collect();
    done.sort_by_key(|done| (done.qp, done.wr_id));
    for (done, near) in done.chunks(2).zip(&near) {
        assert_eq!([done[0].qp, done[1].qp], [near.qp.id(); 2]);
        assert_eq!(
            [done[0].opcode, done[1].opcode],
            [Opcode::Write, Opcode::Read]
        );
    }
    for (which, (near, far)) in near.iter().zip(&far).enumerate() {
        assert!(
            far.sink.bytes().to_vec() == pattern_of(which as u64, BYTES),
            "what queue pair {which} wrote"
        );
        assert!(
            near.sink.bytes().to_vec() == pattern_of((QPS + which) as u64, BYTES),
            "what queue pair {which} read"
        );
    }
    pair.check_counters();
    drop((near, far, near_cq, far_cq));
    pair.close();
}
