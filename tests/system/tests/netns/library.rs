//! The library, without the command: two RNICs in one process, each with an engine thread that
//! sleeps when it may.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xwarp::completion::Arm;
use xwarp::config::Progress;
use xwarp::work::Sgl;
use xwarp::{CompletionQueue, Opcode, QpConfig, RecvRequest, Rnic, RnicConfig, SendRequest, WrId};
use xwarp_system_tests::{Host, Hosts, TIMEOUT, check_nothing_dropped, eventually};
use xwarp_test_kit::{End, needs_root, next_success, pattern_of};

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
    host.open(RnicConfig::default().progress(progress).min_rto(min_rto))
}

/// A queue pair in a protection domain of its own.
fn end(rnic: &Rnic, cq: &CompletionQueue) -> End {
    end_with(rnic, cq, &QpConfig::default())
}

fn end_with(rnic: &Rnic, cq: &CompletionQueue, config: &QpConfig) -> End {
    let pd = rnic.allocate_pd().expect("a protection domain");
    End::new(&pd, cq, config, BYTES)
}

/// Sends the first bytes of the source, unsignaled.
fn send(end: &mut End, len: u32) {
    let request = end.send(0, len).unsignaled();
    end.post(request);
}

/// Sends the first bytes of the source to a peer that waits for a solicited event.
fn send_solicited(end: &mut End, len: u32) {
    let request = end.send(0, len).unsignaled().solicited();
    end.post(request);
}

/// Two RNICs.
struct Rnics<'a> {
    hosts: &'a Hosts,
    a: Rnic,
    b: Rnic,
}

impl<'a> Rnics<'a> {
    fn open(hosts: &'a Hosts) -> Self {
        Self {
            hosts,
            a: open(&hosts.a),
            b: open(&hosts.b),
        }
    }

    /// The same where B runs only when it is polled. It acknowledges nothing meanwhile, and no
    /// timer of A helps.
    fn with_idle_receiver(hosts: &'a Hosts) -> Self {
        let min_rto = Duration::from_secs(30);
        Self {
            hosts,
            a: open_with(&hosts.a, Progress::Thread, min_rto),
            b: open_with(&hosts.b, Progress::Inline, min_rto),
        }
    }

    /// Connects these ends, one after the other. Ports and routes are asked for in the namespace of
    /// the asking thread.
    fn connect(&self, initiators: &mut [End], responders: &mut [End]) {
        let mut listener = self
            .hosts
            .b
            .run(|| self.b.listen(server()))
            .expect("a port");
        for (initiator, responder) in initiators.iter_mut().zip(responders) {
            thread::scope(|scope| {
                let accepting = scope.spawn(|| responder.accept(&mut listener, b"welcome"));
                let answer = self
                    .hosts
                    .a
                    .run(|| initiator.qp.connect(server(), b"hello", TIMEOUT));
                assert_eq!(answer.expect("a connection"), b"welcome");
                assert_eq!(accepting.join().expect("a thread"), b"hello");
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
                responder.accept(&mut listener, b"");
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

    /// Nothing is left on the interfaces when both are gone, and all objects that were made from
    /// them before.
    fn close(self) {
        let Self { hosts, a, b } = self;
        drop((a, b));
        assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
    }
}

/// Both applications sleep in `wait` and both engines sleep in `poll`: every message must wake
/// three threads.
#[test]
fn blocking_ping_pong_loses_no_wake_up() {
    const ROUNDS: u8 = 200;
    needs_root!();
    let hosts = Hosts::new();
    let rnics = Rnics::open(&hosts);
    let mut cqs = [&rnics.a, &rnics.b].map(|rnic| rnic.create_cq(64).expect("a queue"));
    let mut near = [end(&rnics.a, &cqs[0])];
    let mut far = [end(&rnics.b, &cqs[1])];
    near[0].post_recv(0, PING);
    far[0].post_recv(0, PING);
    rnics.connect(&mut near, &mut far);
    let since = Instant::now();
    ping_pong(&mut near[0], &mut far[0], &mut cqs, ROUNDS);
    // Each round would take a quarter of a second and more if wake-ups came by timeouts alone.
    let took = since.elapsed();
    assert!(took < TIMEOUT, "{took:?}");
    rnics.check_counters();
    drop((near, far, cqs));
    rnics.close();
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
    send(end, PING);
    receive(end, cq, round ^ 0xff);
}

fn answer(end: &mut End, cq: &mut CompletionQueue, round: u8) {
    receive(end, cq, round);
    end.source
        .bytes()
        .fill(0..PING as usize, round ^ 0xff)
        .expect("our own memory");
    send(end, PING);
}

/// Waits for a ping of this content, and posts the buffer for the next.
fn receive(end: &mut End, cq: &mut CompletionQueue, content: u8) {
    let completion = next_success(cq);
    assert_eq!(
        (completion.opcode, completion.byte_len),
        (Opcode::Receive, PING)
    );
    let held = end.sink.bytes().to_vec();
    assert_eq!(held[..PING as usize], [content; PING as usize]);
    end.post_recv(0, PING);
}

#[test]
fn only_a_solicited_message_wakes_who_waits_for_one() {
    needs_root!();
    let hosts = Hosts::new();
    let rnics = Rnics::open(&hosts);
    let near_cq = rnics.a.create_cq(64).expect("a queue");
    let mut far_cq = rnics.b.create_cq(64).expect("a queue");
    let mut near = [end(&rnics.a, &near_cq)];
    let mut far = [end(&rnics.b, &far_cq)];
    (0..3).for_each(|id| far[0].post_recv(id, PING));
    rnics.connect(&mut near, &mut far);
    far_cq.arm(Arm::Solicited).expect("an open RNIC");
    send(&mut near[0], PING);
    let woken = far_cq
        .wait_event(Duration::from_millis(300))
        .expect("a queue");
    assert!(
        !woken,
        "a plain Send has woken who waits for a solicited one"
    );
    send_solicited(&mut near[0], PING);
    assert!(
        far_cq.wait_event(TIMEOUT).expect("a queue"),
        "a solicited Send has woken nobody"
    );
    let received = [next_success(&mut far_cq), next_success(&mut far_cq)];
    assert_eq!(
        received.map(|one| (one.wr_id, one.solicited)),
        [(WrId(0), false), (WrId(1), true)]
    );
    far_cq.arm(Arm::Next).expect("an open RNIC");
    send(&mut near[0], PING);
    assert!(
        far_cq.wait_event(TIMEOUT).expect("a queue"),
        "a Send has woken nobody"
    );
    assert_eq!(next_success(&mut far_cq).wr_id, WrId(2));
    rnics.check_counters();
    drop((near, far, near_cq, far_cq));
    rnics.close();
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
    let rnics = Rnics::open(&hosts);
    let mut cqs = [&rnics.a, &rnics.b].map(|rnic| rnic.create_cq(64).expect("a queue"));
    let mut near = [end(&rnics.a, &cqs[0])];
    let mut far = [end(&rnics.b, &cqs[1])];
    near[0].post_recv(0, PING);
    far[0].post_recv(0, PING);
    rnics.connect(&mut near, &mut far);
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
    rnics.check_counters();
    drop((near, far, cqs));
    rnics.close();
}

/// Messages of a burst.
const BURST: usize = 600;

/// Posts a burst of Writes, of which most leave in a segment of their own, as they are alone; how
/// many of these there were. The last segments that TCP takes hold several.
fn post_burst(
    rnics: &Rnics<'_>,
    near: &mut End,
    far: &End,
    near_cq: &mut CompletionQueue,
) -> usize {
    /// Segments that TCP has in flight.
    const IN_FLIGHT: u64 = 256;
    /// Of these, such as may be left for others than messages: to wake up a peer that is silent.
    const WAKES: u64 = 4;
    near.source.bytes().write(0, &[7; BURST]).unwrap();
    let fpdus_out = || rnics.a.counters().expect("an RNIC").rdma.fpdus_out;
    let mut alone = 0;
    for at in 0..BURST as u64 {
        let write = SendRequest::write(WrId(at), near.source.local(at, 1), far.sink.remote(at));
        near.post(write);
        if fpdus_out() + WAKES < IN_FLIGHT {
            next_success(near_cq);
            alone += 1;
        }
    }
    eventually("as many segments as TCP takes", || fpdus_out() >= IN_FLIGHT);
    assert!(
        fpdus_out() < BURST as u64,
        "the last segments hold all others"
    );
    alone
}

/// As many segments as one connection may have in flight arrive while the receiver does not run.
#[test]
fn burst_of_small_messages_waits_for_a_receiver_that_does_not_run() {
    needs_root!();
    let hosts = Hosts::new();
    let rnics = Rnics::with_idle_receiver(&hosts);
    let mut near_cq = rnics.a.create_cq(1024).unwrap();
    let mut far_cq = rnics.b.create_cq(8).unwrap();
    let deep = QpConfig::default().send_depth(1024);
    let mut near = end_with(&rnics.a, &near_cq, &deep);
    let mut far = end(&rnics.b, &far_cq);
    rnics.connect_inline(&mut near, &mut far, &mut far_cq);
    let completed = post_burst(&rnics, &mut near, &far, &mut near_cq);
    let mut placed = [0; BURST];
    eventually("all messages", || {
        assert!(far_cq.poll().expect("an RNIC").is_none());
        far.sink.bytes().read(0, &mut placed).unwrap();
        placed == [7; BURST]
    });
    for _ in completed..BURST {
        next_success(&mut near_cq);
    }
    // A receiver that waits for a processor may get a segment again, and reports it as a duplicate.
    eventually("all that was sent again had arrived", || {
        assert!(far_cq.poll().expect("an RNIC").is_none());
        let counters = rnics.a.counters().expect("an RNIC").tcp;
        counters.retransmissions == counters.duplicates_reported
    });
    rnics.check_counters();
    drop((near, far, near_cq, far_cq));
    rnics.close();
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

/// Queue pairs that are busy at once.
const QPS: usize = 8;

/// Sources that differ from each other, and room for an empty Send at the far ends.
fn fill_sources(near: &[End], far: &mut [End]) {
    let fill = |end: &End, which: usize| {
        let bytes = pattern_of(which as u64, BYTES);
        end.source.bytes().write(0, &bytes).expect("our own memory");
    };
    for (which, (near, far)) in near.iter().zip(far).enumerate() {
        fill(near, which);
        fill(far, QPS + which);
        let posted = far.qp.post_recv(RecvRequest::new(WrId(0), Sgl::new()));
        posted.expect("room");
    }
}

/// A Write and a Send to the far end, and a Read from it.
fn post_of_each_kind(near: &mut End, far: &End) {
    let write = SendRequest::write(WrId(1), near.source.local(0, LEN), far.sink.remote(0));
    near.post(write);
    send_solicited(near, 0);
    let read = SendRequest::read(WrId(2), near.sink.local(0, LEN), far.source.remote(0));
    near.post(read);
}

fn assert_sinks_hold_the_others_source(near: &[End], far: &[End]) {
    let holds = |end: &End, which: usize| {
        let expected = pattern_of(which as u64, BYTES);
        end.sink.bytes().to_vec() == expected
    };
    for (which, (near, far)) in near.iter().zip(far).enumerate() {
        assert!(holds(far, which), "what queue pair {which} wrote");
        assert!(holds(near, QPS + which), "what queue pair {which} read");
    }
}

/// On every queue pair a Write and a Send one way, and a Read the other way, all under way at the
/// same time.
#[test]
fn eight_queue_pairs_move_their_own_data_at_once() {
    needs_root!();
    let hosts = Hosts::new();
    let rnics = Rnics::open(&hosts);
    let mut near_cq = rnics.a.create_cq(256).expect("a queue");
    let mut far_cq = rnics.b.create_cq(256).expect("a queue");
    let mut near: Vec<End> = (0..QPS).map(|_| end(&rnics.a, &near_cq)).collect();
    let mut far: Vec<End> = (0..QPS).map(|_| end(&rnics.b, &far_cq)).collect();
    fill_sources(&near, &mut far);
    rnics.connect(&mut near, &mut far);
    for (near, far) in near.iter_mut().zip(&far) {
        post_of_each_kind(near, far);
    }
    for _ in 0..QPS {
        assert_eq!(next_success(&mut far_cq).opcode, Opcode::Receive);
    }
    let mut done: Vec<_> = (0..2 * QPS).map(|_| next_success(&mut near_cq)).collect();
    done.sort_by_key(|done| (done.qp, done.wr_id));
    for (done, near) in done.chunks(2).zip(&near) {
        assert_eq!([done[0].qp, done[1].qp], [near.qp.id(); 2]);
        let opcodes = [done[0].opcode, done[1].opcode];
        assert_eq!(opcodes, [Opcode::Write, Opcode::Read]);
    }
    assert_sinks_hold_the_others_source(&near, &far);
    rnics.check_counters();
    drop((near, far, near_cq, far_cq));
    rnics.close();
}
