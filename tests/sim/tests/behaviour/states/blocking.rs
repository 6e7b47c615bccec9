//! Streams of engines that run by themselves, by the calls that wait.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use xwarp::attr::QpChange;
use xwarp::completion::Arm;
use xwarp::config::{Progress, WaitMode};
use xwarp::error::{DisconnectError, RnicEnded, RnicUnavailable, StreamError, WaitError};
use xwarp::event::{AsyncEventKind, EventResource};
use xwarp::stream::{Framing, StreamListener};
use xwarp::work::Sgl;
use xwarp::{Access, QpConfig, QpState, RecvRequest, Rnic, RnicConfig, SendRequest, WrId};
use xwarp_test_kit::{
    Cable, MemoryRnic, MemoryRnics, Side, eventually, eventually_within, spawn_numbered,
    thread_sleeps,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const PORT: u16 = 7471;

fn rnic_at(side: Side, progress: Progress) -> MemoryRnic {
    let config = RnicConfig::default()
        .progress(progress)
        .wait_mode(WaitMode::Busy);
    MemoryRnic::at(side).frames(256).config(config)
}

/// An RNIC whose peers never answer.
fn rnic(progress: Progress) -> Rnic {
    rnic_at(Side::A, progress).open().0
}

fn rnics(progress: Progress) -> MemoryRnics {
    MemoryRnics::open(|side| rnic_at(side, progress))
}

/// Where the RNIC at B listens.
fn at_b() -> SocketAddr {
    SocketAddr::new(Side::B.address(), PORT)
}

/// Runs the two ends of a connection, each in a thread of its own.
fn run_ends(near: impl FnOnce() + Send, far: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let ends = [scope.spawn(far), scope.spawn(near)];
        for end in ends {
            end.join().unwrap();
        }
    });
}

/// Connects in streaming mode, says hello, reads the answer, and goes on with a Send.
fn passive(rnic: &Rnic) {
    let mut stream = rnic.connect_stream(at_b(), TIMEOUT).unwrap();
    stream.wait_established(TIMEOUT).unwrap();
    stream.write_all(b"hello", TIMEOUT).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer, TIMEOUT).unwrap();
    assert_eq!(answer, *b"I do");
    let nothing = stream.read_exact(&mut answer, Duration::from_millis(5));
    assert_eq!(nothing, Err(StreamError::TimedOut));
    let mut cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    qp.modify(QpChange::start(&stream, Framing::default()))
        .unwrap();
    let region = pd.allocate(8, Access::LOCAL_READ).unwrap();
    region.bytes().write(0, b"a Send").unwrap();
    qp.post_send(SendRequest::send(WrId(1), region.local(0, 6)))
        .unwrap();
    assert!(cq.wait(TIMEOUT).unwrap().unwrap().is_success());
    qp.disconnect(TIMEOUT).unwrap();
}

fn active(rnic: &Rnic, mut listener: StreamListener) {
    let mut stream = listener.accept(TIMEOUT).unwrap().unwrap();
    let mut hello = [0; 5];
    stream.read_exact(&mut hello, TIMEOUT).unwrap();
    assert_eq!(hello, *b"hello");
    let mut cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    let region = pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    qp.post_recv(RecvRequest::new(WrId(1), region.local(0, 8)))
        .unwrap();
    let change = QpChange::start_with(&stream, Framing::default(), b"I do");
    qp.modify(change).unwrap();
    let done = cq.wait(TIMEOUT).unwrap().unwrap();
    assert!(done.is_success() && done.byte_len == 6);
    assert_eq!(region.bytes().to_vec()[..6], *b"a Send");
    qp.disconnect(TIMEOUT).unwrap();
}

#[test]
fn stream_is_handed_over_by_engines_that_run_by_themselves() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let rnics = rnics(progress);
        let listener = rnics.b.listen_streams(at_b()).unwrap();
        run_ends(|| passive(&rnics.a), || active(&rnics.b, listener));
    }
}

#[test]
fn disconnect_of_an_rnic_that_was_closed_says_so() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let rnic = rnic(progress);
        let cq = rnic.create_cq(4).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        qp.disconnect(TIMEOUT).expect("nothing to close");
        rnic.close().unwrap();
        let closed = qp.disconnect(TIMEOUT);
        assert!(matches!(closed, Err(DisconnectError::Unavailable(_))));
    }
}

/// Connects, and waits for what happens then.
fn waiter(rnic: &Rnic) {
    let cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    qp.connect(at_b(), b"", TIMEOUT).unwrap();
    let began = Instant::now();
    assert_eq!(rnic.events().wait(Duration::from_millis(5)).unwrap(), None);
    assert!(began.elapsed() >= Duration::from_millis(5));
    // The peer has waited for this message before it does anything.
    qp.post_send(SendRequest::send(WrId(1), xwarp::work::Sgl::new()))
        .unwrap();
    let asleep = Instant::now();
    let event = rnic.events().wait(TIMEOUT).unwrap().expect("an event");
    assert!(asleep.elapsed() < TIMEOUT / 2, "nobody woke it");
    assert_eq!(event.qp(), Some(qp.id()));
    assert_eq!(event.kind, AsyncEventKind::ConnectionReset);
}

/// Accepts, waits for a message, and resets the connection.
fn resetter(rnic: &Rnic, mut listener: xwarp::Listener) {
    let mut cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    qp.post_recv(RecvRequest::new(WrId(1), xwarp::work::Sgl::new()))
        .unwrap();
    let request = listener.accept(TIMEOUT).unwrap().expect("a request");
    request.accept(&mut qp, b"").unwrap();
    assert!(cq.wait(TIMEOUT).unwrap().unwrap().is_success());
    qp.abort().unwrap();
    // An inline engine sends the reset when it is turned.
    rnic.progress().unwrap();
}

#[test]
fn waiter_for_an_event_is_woken_by_it() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let rnics = rnics(progress);
        let listener = rnics.b.listen(at_b()).unwrap();
        run_ends(|| waiter(&rnics.a), || resetter(&rnics.b, listener));
    }
}

/// Threads that say which they are before they wait for something.
struct Waiters(Receiver<PathBuf>);

impl Waiters {
    fn new() -> (Sender<PathBuf>, Self) {
        let (tell, told) = channel();
        (tell, Self(told))
    }

    /// Returns when `count` threads have sent their path and sleep.
    fn await_asleep(&self, count: usize) {
        let deadline = Instant::now() + TIMEOUT;
        for _ in 0..count {
            let thread = self.0.recv_timeout(TIMEOUT).unwrap();
            while !sleeps(&thread) {
                assert!(
                    Instant::now() < deadline,
                    "{} does not wait",
                    thread.display()
                );
                thread::yield_now();
            }
        }
    }
}

/// Says which thread is about to wait.
fn about_to_wait(tell: &Sender<PathBuf>) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    tell.send(Path::new("/proc").join(thread)).unwrap();
}

/// Whether the kernel has put the thread to sleep (`proc_pid_stat(5)`: its state follows its name).
fn sleeps(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
    let state = stat.rsplit(") ").next().unwrap();
    state.starts_with('S')
}

#[test]
fn waiter_for_an_event_is_woken_when_the_rnic_closes() {
    let rnic = rnic(Progress::Thread);
    let long = Duration::from_hours(1);
    let (tell, waiting) = Waiters::new();
    thread::scope(|scope| {
        let wait = || {
            about_to_wait(&tell);
            rnic.events().wait(long)
        };
        let waiters = [(); 2].map(|()| scope.spawn(wait));
        waiting.await_asleep(2);
        rnic.close().unwrap();
        for waiter in waiters {
            let closed = RnicEnded::Unavailable(RnicUnavailable::Closed);
            assert_eq!(waiter.join().unwrap(), Err(closed));
        }
    });
}

#[test]
fn waiter_for_a_completion_is_woken_when_the_rnic_closes() {
    let rnic = rnic(Progress::Thread);
    let mut queues = [(); 2].map(|()| rnic.create_cq(4).unwrap());
    queues[1].arm(Arm::Next).unwrap();
    let began = Instant::now();
    let (tell, waiting) = Waiters::new();
    thread::scope(|scope| {
        let [polled, armed] = &mut queues;
        let polls = scope.spawn(|| {
            about_to_wait(&tell);
            polled.wait(TIMEOUT)
        });
        let waits = scope.spawn(|| {
            about_to_wait(&tell);
            armed.wait_event(TIMEOUT)
        });
        waiting.await_asleep(2);
        rnic.close().unwrap();
        assert!(matches!(
            polls.join().unwrap(),
            Err(WaitError::Unavailable(_))
        ));
        assert!(matches!(
            waits.join().unwrap(),
            Err(WaitError::Unavailable(_))
        ));
    });
    assert!(began.elapsed() < TIMEOUT / 2, "nobody was woken");
}

#[test]
fn panic_of_an_engine_that_runs_by_itself_is_an_event_and_the_peer_is_told() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let rnics = rnics(progress);
        let listener = rnics.b.listen(at_b()).unwrap();
        run_ends(|| panicking(&rnics.a), || told(&rnics.b, listener));
    }
}

/// Connects; then its engine panics.
fn panicking(rnic: &Rnic) {
    let mut cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    qp.connect(at_b(), b"", TIMEOUT).unwrap();
    assert_eq!(rnic.inject_panic(), Err(RnicUnavailable::Closed));
    let event = rnic.events().wait(TIMEOUT).unwrap().expect("an event");
    assert_eq!(event.resource, EventResource::Rnic);
    assert!(matches!(event.kind, AsyncEventKind::Failed { .. }));
    let ended = [xwarp::QpState::Terminate, xwarp::QpState::Error];
    assert!(ended.contains(&qp.state()), "{:?}", qp.state());
    // An inline engine sends its Terminate, and closes, when it is turned.
    assert!(cq.wait(Duration::from_millis(100)).unwrap().is_none());
    let ended = rnic.events().wait(TIMEOUT);
    assert!(matches!(ended, Err(RnicEnded::Failed(_))), "{ended:?}");
}

/// Accepts a connection, and expects the Terminate of a peer whose RNIC has failed.
fn told(rnic: &Rnic, mut listener: xwarp::Listener) {
    let cq = rnic.create_cq(4).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    let request = listener.accept(TIMEOUT).unwrap().expect("a request");
    request.accept(&mut qp, b"").unwrap();
    let event = rnic.events().wait(TIMEOUT).unwrap().expect("an event");
    let code = xwarp::error::TermCode::rdmap_operation(8);
    assert_eq!(event.kind, AsyncEventKind::TerminateReceived(code));
}

/// Verbs draft §9.3.2.1: here a handler keeps the engine busy, so it cannot serve the thread that
/// polls and posts.
#[test]
fn polling_and_posting_wait_for_no_engine() {
    let rnic = rnic(Progress::Thread);
    let pd = rnic.allocate_pd().unwrap();
    let (enter, entered) = channel();
    let (release, released) = channel();
    let (leave, left) = channel();
    let handler = rnic.add_completion_handler(move |_| {
        enter.send(()).unwrap();
        leave.send(released.recv_timeout(TIMEOUT)).unwrap();
    });
    let mut busy = rnic.create_cq_with(4, handler.unwrap()).unwrap();
    let mut cq = rnic.create_cq(4).unwrap();
    let create = |cq| pd.create_qp(&QpConfig::default(), cq, cq).unwrap();
    let [mut first, mut next, mut last] = [create(&cq), create(&cq), create(&busy)];
    let buffer = || RecvRequest::new(WrId(1), xwarp::work::Sgl::new());
    first.post_recv(buffer()).unwrap();
    first.modify(QpChange::to(QpState::Error)).unwrap();
    last.post_recv(buffer()).unwrap();
    busy.arm(Arm::Next).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| last.modify(QpChange::to(QpState::Error)).unwrap());
        entered.recv_timeout(TIMEOUT).unwrap();
        assert!(cq.poll().unwrap().is_some());
        assert!(cq.poll().unwrap().is_none());
        cq.arm(Arm::Next).unwrap();
        next.post_recv(buffer()).unwrap();
        next.post_send(SendRequest::send(WrId(1), xwarp::work::Sgl::new()))
            .unwrap();
        release.send(()).unwrap();
        assert_eq!(left.recv(), Ok(Ok(())), "all this while it was busy");
    });
    assert!(busy.poll().unwrap().is_some());
}

/// Objects that a handler owns, and drops.
type Owned = (
    xwarp::QueuePair,
    xwarp::MemoryRegion,
    xwarp::CompletionQueue,
);

/// Flushes two receives into a completion queue of one: a completion that is armed for, and an
/// overflow.
fn overflow(rnic: &Rnic, pd: &xwarp::ProtectionDomain, handler: xwarp::event::HandlerId) {
    let cq = rnic.create_cq_with(1, handler).unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    cq.arm(Arm::Next).unwrap();
    for number in 0..2 {
        let request = RecvRequest::new(WrId(number), xwarp::work::Sgl::new());
        qp.post_recv(request).unwrap();
    }
    qp.abort().unwrap();
}

fn objects_for_a_handler(rnic: &Rnic, pd: &xwarp::ProtectionDomain) -> Owned {
    let cq = rnic.create_cq(1).unwrap();
    let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    (qp, pd.allocate(8, Access::LOCAL_READ).unwrap(), cq)
}

/// Calls verbs from a handler, drops the objects that the handler owns, and sends the errors of the
/// refused verbs to the test. Only the first call does anything.
fn act_in_a_handler(
    rnic: &Weak<Rnic>,
    owned: &mut Option<Owned>,
    tell: &Sender<[RnicUnavailable; 4]>,
) {
    let Some((mut qp, region, mut cq)) = owned.take() else {
        return;
    };
    let rnic = rnic.upgrade().unwrap();
    assert!(cq.poll().unwrap().is_none(), "no verb that waits");
    let Err(WaitError::Unavailable(waited)) = cq.wait(TIMEOUT) else {
        panic!("it has waited");
    };
    let Err(RnicEnded::Unavailable(event)) = rnic.events().wait(TIMEOUT) else {
        panic!("it has waited");
    };
    let refused = [rnic.close(), qp.abort()].map(Result::unwrap_err);
    drop((qp, region, cq));
    tell.send([waited, event, refused[0], refused[1]]).unwrap();
}

#[test]
fn verb_in_a_handler_is_refused_and_what_the_handler_drops_ends_after_it() {
    for progress in [
        Progress::Thread,
        Progress::Inline,
        Progress::Assisted,
        Progress::Manual,
    ] {
        let rnic = Arc::new(rnic(progress));
        let pd = rnic.allocate_pd().unwrap();
        let (tell, told) = channel();
        let handler = |tell: Sender<[RnicUnavailable; 4]>| {
            let mut owned = Some(objects_for_a_handler(&rnic, &pd));
            let rnic = Arc::downgrade(&rnic);
            move || act_in_a_handler(&rnic, &mut owned, &tell)
        };
        let (mut on_completion, mut on_event) = (handler(tell.clone()), handler(tell));
        let handler = rnic.add_completion_handler(move |_| on_completion());
        rnic.set_event_handler(move |_, _| on_event()).unwrap();
        overflow(&rnic, &pd, handler.unwrap());
        for _ in 0..2 {
            let refused = told.recv_timeout(TIMEOUT).unwrap();
            assert_eq!(refused, [RnicUnavailable::InHandler; 4], "{progress:?}");
        }
        pd.deallocate().expect("all that was of it is gone");
        rnic.close().unwrap();
    }
}

#[test]
fn handler_that_owns_objects_may_be_cleared() {
    for progress in [
        Progress::Thread,
        Progress::Inline,
        Progress::Assisted,
        Progress::Manual,
    ] {
        let rnic = rnic(progress);
        let pd = rnic.allocate_pd().unwrap();
        let cq = rnic.create_cq(1).unwrap();
        let owned = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        let handler = rnic.add_completion_handler(move |_| drop(owned.query()));
        rnic.clear_completion_handler(handler.unwrap()).unwrap();
        pd.deallocate().expect("the queue pair is gone");
    }
}

/// The kernel ends a process that blocks the signals of its own faults.
#[test]
fn engine_thread_takes_its_faults_though_its_creator_blocks_all_signals() {
    // `proc_pid_status(5)`: bit n - 1 for signal n.
    const SIGBUS: u64 = 1 << 6;
    const SIGUSR1: u64 = 1 << 9;
    const SIGSEGV: u64 = 1 << 10;
    let inspection = thread::spawn(|| {
        SigSet::all().thread_block().unwrap();
        let rnic = rnic(Progress::Thread);
        // Its answer says that the thread has begun.
        rnic.counters().unwrap();
        let engines = (threads().into_iter()).filter(|thread| name(thread) == "xwarp-engine");
        let masks: Vec<u64> = engines.filter_map(|thread| blocked(&thread)).collect();
        masks.into_iter().find(|mask| mask & SIGUSR1 != 0)
    });
    let blocked = inspection.join().unwrap().expect("the engine's thread");
    assert_eq!(blocked & (SIGBUS | SIGSEGV), 0, "{blocked:#x}");
}

/// All threads of this process.
fn threads() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/task").unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A thread's name; none if it has ended.
fn name(thread: &Path) -> String {
    let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// The signals that a thread blocks; `None` if it has ended.
fn blocked(thread: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    u64::from_str_radix(mask?.trim(), 16).ok()
}

/// The engine's thread drops the last handle itself, and then ends.
#[test]
fn last_handle_of_an_rnic_may_be_dropped_in_a_handler() {
    let MemoryRnics {
        a,
        b,
        cable: _cable,
    } = rnics(Progress::Thread);
    let (kept, all_handles) = (Arc::new(()), Arc::new(Mutex::new(None)));
    let (tell, told) = channel();
    let (owned, handles) = (Arc::clone(&kept), Arc::clone(&all_handles));
    let on_completion = b.add_completion_handler(move |_| {
        drop((Arc::clone(&owned), handles.lock().unwrap().take()));
        tell.send(()).unwrap();
    });
    let cq = b.create_cq_with(4, on_completion.unwrap()).unwrap();
    cq.arm(Arm::Next).unwrap();
    let pd = b.allocate_pd().unwrap();
    let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    qp.post_recv(RecvRequest::new(WrId(1), Sgl::new())).unwrap();
    let mut listener = b.listen(at_b()).unwrap();
    let accept = thread::spawn(move || {
        let request = listener.accept(TIMEOUT).unwrap().expect("a request");
        request.accept(&mut qp, b"").unwrap();
        (qp, listener)
    });
    let near_cq = a.create_cq(4).unwrap();
    let near_pd = a.allocate_pd().unwrap();
    let near = near_pd.create_qp(&QpConfig::default(), &near_cq, &near_cq);
    let mut near = near.unwrap();
    near.connect(at_b(), b"", TIMEOUT).unwrap();
    let (qp, listener) = accept.join().unwrap();
    *all_handles.lock().unwrap() = Some((b, pd, cq, qp, listener));
    near.post_send(SendRequest::send(WrId(1), Sgl::new()))
        .unwrap();
    let dropped = told.recv_timeout(TIMEOUT);
    assert_eq!(dropped, Ok(()), "the handler waits for ever");
    let ended = eventually_within(TIMEOUT, || Arc::strong_count(&kept) == 1);
    assert!(ended, "the engine goes on");
}

/// The first to find it out clears the descriptor that the other threads sleep on.
#[test]
fn threads_that_wait_for_the_same_stream_all_learn_that_it_is_established() {
    for _ in 0..20 {
        let [(near, a), (far, b)] = [Side::A, Side::B].map(|side| {
            let rnic = rnic_at(side, Progress::Thread);
            rnic.open()
        });
        let _listener = far.listen_streams(at_b()).unwrap();
        let stream = near.connect_stream(at_b(), TIMEOUT).unwrap();
        let waits = || {
            let began = Instant::now();
            let outcome = stream.wait_established(TIMEOUT);
            (outcome, began.elapsed() < TIMEOUT / 2)
        };
        thread::scope(|scope| {
            let threads = [(); 4].map(|()| spawn_numbered(scope, waits));
            for (number, _) in &threads {
                eventually("it sleeps", || thread_sleeps(*number));
            }
            let _cable = Cable::new(a, b);
            for (_, thread) in threads {
                assert_eq!(thread.join().unwrap(), (Ok(()), true));
            }
        });
    }
}
