//! Event loops: epoll over the descriptors of an RNIC, with an engine thread and with an inline
//! engine that the loop turns.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::{ClockId, clock_gettime};
use xwarp::attr::QpId;
use xwarp::cm::{Connecting, ConnectionRequest, PrivateData};
use xwarp::completion::Arm;
use xwarp::config::Progress;
use xwarp::error::{ConnectError, HostError};
use xwarp::event::AsyncEventKind;
use xwarp::{
    CompletionQueue, Listener, Opcode, ProtectionDomain, QpConfig, QpState, Rnic, RnicConfig,
};
use xwarp_driver::net::NeighbourError;
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, check_nothing_dropped};
use xwarp_test_kit::{End, needs_root, next_success};

/// How long the connections of a server are idle.
const IDLE: Duration = Duration::from_secs(2);
/// Messages there and back, after that.
const ROUNDS: u64 = 50;
const LEN: u32 = 64;

fn at_server(port: u16) -> SocketAddr {
    SocketAddr::new(Hosts::SERVER, port)
}

fn open(host: &Host, progress: Progress) -> Rnic {
    host.open(RnicConfig::default().progress(progress))
}

/// An epoll instance over these descriptors.
fn watch(fds: &[BorrowedFd<'_>]) -> Epoll {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("an epoll instance");
    for fd in fds {
        let readable = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        epoll.add(fd, readable).expect("a descriptor");
    }
    epoll
}

/// Sleeps until one of them is readable.
fn sleep(epoll: &Epoll) {
    let timeout = EpollTimeout::try_from(TIMEOUT).expect("a time that epoll knows");
    let woken = epoll.wait(&mut [EpollEvent::empty(); 4], timeout);
    assert!(woken.expect("epoll") > 0, "a wake-up was lost");
}

/// What becomes of an attempt to connect, for a loop that sleeps on two descriptors and turns an
/// inline engine.
fn outcome_of(rnic: &Rnic, connecting: &mut Connecting) -> Result<PrivateData, ConnectError> {
    let epoll = watch(&[rnic.as_fd(), connecting.as_fd()]);
    loop {
        sleep(&epoll);
        rnic.progress().expect("an RNIC");
        if let Some(outcome) = connecting.try_finish() {
            return outcome;
        }
    }
}

/// Time that this thread has run for.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of the thread");
    Duration::from(time)
}

/// An end that waits for a message.
fn end(pd: &ProtectionDomain, cq: &CompletionQueue) -> End {
    let mut end = End::new(pd, cq, &QpConfig::default(), LEN as usize);
    end.post_recv(0, LEN);
    end
}

/// Sends a message, unsignaled.
fn send(end: &mut End) {
    let request = end.send(1, LEN).unsignaled();
    end.post(request);
}

/// A server of one thread that sleeps on one epoll instance.
struct Server<'a> {
    rnic: &'a Rnic,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    ends: Vec<End>,
    /// Time that the thread had run for when the last client was accepted.
    accepted: Duration,
    /// How long it ran for from then until the first message came.
    idle: Option<Duration>,
}

impl Server<'_> {
    fn admit(&mut self, request: ConnectionRequest) {
        let mut end = end(&self.pd, &self.cq);
        request.accept(&mut end.qp, b"").expect("a connection");
        self.ends.push(end);
        self.accepted = thread_time();
    }

    /// Arms first and polls then.
    fn answer(&mut self) {
        self.cq.arm(Arm::Next).expect("an RNIC");
        while let Some(completion) = self.cq.poll().expect("an RNIC") {
            if completion.opcode == Opcode::Receive && completion.is_success() {
                let ran = thread_time().saturating_sub(self.accepted);
                self.idle.get_or_insert(ran);
                let end = self.end(completion.qp);
                end.post_recv(0, LEN);
                send(end);
            }
        }
    }

    fn end(&mut self, qp: QpId) -> &mut End {
        let mut ends = self.ends.iter_mut();
        ends.find(|end| end.qp.id() == qp).expect("one of ours")
    }

    /// Serves until as many clients have closed.
    fn run(&mut self, mut listener: Listener, clients: usize) {
        let channel = self.rnic.create_completion_channel().expect("a channel");
        self.cq = self.rnic.create_cq_on(&channel, 64).expect("a queue");
        let events = self.rnic.events();
        let fds = [
            self.rnic.as_fd(),
            listener.as_fd(),
            channel.as_fd(),
            events.as_fd(),
        ];
        let epoll = watch(&fds);
        self.cq.arm(Arm::Next).expect("an RNIC");
        let mut closed = 0;
        while closed < clients {
            sleep(&epoll);
            self.rnic.progress().expect("an RNIC");
            while let Some(request) = listener.try_accept().expect("an RNIC") {
                self.admit(request);
            }
            while let Some(id) = channel.try_next().expect("an RNIC") {
                assert_eq!(id, self.cq.id());
                self.answer();
            }
            while let Some(event) = events.try_next().expect("an RNIC") {
                assert_eq!(event.kind, AsyncEventKind::Closed);
                closed += 1;
            }
        }
    }
}

/// A client that waits in the library's own calls: connects, is idle, sends and receives, and
/// closes.
fn client(host: &Host, rnic: &Rnic, port: u16) {
    let mut cq = rnic.create_cq(8).expect("a queue");
    let pd = rnic.allocate_pd().expect("a domain");
    let mut end = end(&pd, &cq);
    host.run(|| end.qp.connect(at_server(port), b"", TIMEOUT))
        .expect("a connection");
    assert_eq!(cq.wait(IDLE).expect("a queue"), None);
    for _ in 0..ROUNDS {
        send(&mut end);
        assert_eq!(next_success(&mut cq).opcode, Opcode::Receive);
        end.post_recv(0, LEN);
    }
    end.qp.disconnect(TIMEOUT).expect("a close");
}

/// The server's loop and the clients' calls, with engines of this kind.
fn serve(progress: Progress, port: u16) {
    let hosts = Hosts::new();
    let [a, b] = [&hosts.a, &hosts.b].map(|host| open(host, progress));
    let listener = hosts.b.run(|| b.listen(at_server(port))).expect("a port");
    let mut server = Server {
        rnic: &b,
        pd: b.allocate_pd().expect("a domain"),
        cq: b.create_cq(1).expect("a queue"),
        ends: Vec::new(),
        accepted: Duration::ZERO,
        idle: None,
    };
    // An inline engine is shared by all threads that wait.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| client(&hosts.a, &a, port));
        }
        server.run(listener, 2);
    });
    let idle = server.idle.expect("a message");
    assert!(idle < IDLE / 100, "the loop ran for {idle:?} of {IDLE:?}");
    check_nothing_dropped(&a);
    check_nothing_dropped(&b);
}

#[test]
fn epoll_loop_serves_with_an_engine_thread() {
    needs_root!();
    serve(Progress::Thread, 7471);
}

#[test]
fn epoll_loop_drives_an_inline_engine_and_sleeps_while_nothing_happens() {
    needs_root!();
    serve(Progress::Inline, 7472);
}

#[test]
fn epoll_loop_connects_with_an_inline_engine() {
    needs_root!();
    let hosts = Hosts::new();
    let a = open(&hosts.a, Progress::Inline);
    let b = open(&hosts.b, Progress::Thread);
    let mut listener = hosts.b.run(|| b.listen(at_server(7473))).expect("a port");
    let cqs = [&a, &b].map(|rnic| rnic.create_cq(8).expect("a queue"));
    let mut near = end(&a.allocate_pd().expect("a domain"), &cqs[0]);
    let mut far = end(&b.allocate_pd().expect("a domain"), &cqs[1]);
    let answer = thread::scope(|scope| {
        scope.spawn(|| far.accept(&mut listener, b"welcome"));
        let begin = || near.qp.begin_connect(at_server(7473), b"", TIMEOUT);
        let mut connecting = hosts.a.run(begin).expect("a beginning");
        outcome_of(&a, &mut connecting).expect("a connection")
    });
    assert_eq!(answer, b"welcome");
}

/// No host has the address, and the kernel would send ARP requests for a minute.
#[test]
fn connection_to_a_silent_neighbour_is_waited_for_by_its_descriptor_alone() {
    const LIMIT: Duration = Duration::from_secs(2);
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.ip(&format!(
        "ntable change name arp_cache dev {DEV} retrans 20000"
    ));
    let nobody = SocketAddr::new(Ipv4Addr::new(10, 77, 0, 9).into(), 7474);
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let rnic = open(&hosts.a, progress);
        let cq = rnic.create_cq(8).expect("a queue");
        let mut end = end(&rnic.allocate_pd().expect("a domain"), &cq);
        let started = Instant::now();
        let mut begin = |limit| {
            let begun = hosts.a.run(|| end.qp.begin_connect(nobody, b"", limit));
            begun.expect("a beginning")
        };
        drop(begin(TIMEOUT));
        let mut connecting = begin(LIMIT);
        assert!(started.elapsed() < TIMEOUT, "it waits for the neighbour");
        let outcome = outcome_of(&rnic, &mut connecting);
        assert!(started.elapsed() >= LIMIT);
        let silent = matches!(
            &outcome,
            Err(ConnectError::Host(HostError::Neighbour(
                NeighbourError::NoAnswer { .. }
            )))
        );
        assert!(silent, "{outcome:?}");
        assert_eq!(end.qp.state(), QpState::Idle);
    }
}

/// The kernel learns the address while the event loop waits in another network namespace.
#[test]
fn connection_goes_on_when_the_neighbour_appears() {
    needs_root!();
    let hosts = Hosts::new();
    let late = IpAddr::from(Ipv4Addr::new(10, 77, 0, 9));
    let a = open(&hosts.a, Progress::Inline);
    let b = open(&hosts.b, Progress::Thread);
    let cqs = [&a, &b].map(|rnic| rnic.create_cq(8).expect("a queue"));
    let mut near = end(&a.allocate_pd().expect("a domain"), &cqs[0]);
    let mut far = end(&b.allocate_pd().expect("a domain"), &cqs[1]);
    let begin = || near.qp.begin_connect((late, 7475).into(), b"", TIMEOUT);
    let mut connecting = hosts.a.run(begin).expect("a beginning");
    assert!(connecting.try_finish().is_none());
    hosts.b.ip(&format!("addr add {late}/24 dev {DEV}"));
    let listen = || b.listen((late, 7475).into());
    let mut listener = hosts.b.run(listen).expect("a port");
    let answer = thread::scope(|scope| {
        scope.spawn(|| far.accept(&mut listener, b"late"));
        outcome_of(&a, &mut connecting).expect("a connection")
    });
    assert_eq!(answer, b"late");
}

/// The kernel learns the address later. The application waits for the queue pair's state, and does
/// not poll the attempt.
#[test]
fn connection_is_made_by_the_engine_alone_when_the_neighbour_appears() {
    needs_root!();
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let hosts = Hosts::new();
        let late = IpAddr::from(Ipv4Addr::new(10, 77, 0, 9));
        let a = open(&hosts.a, progress);
        let b = open(&hosts.b, Progress::Thread);
        let cqs = [&a, &b].map(|rnic| rnic.create_cq(8).expect("a queue"));
        let mut near = end(&a.allocate_pd().expect("a domain"), &cqs[0]);
        let mut far = end(&b.allocate_pd().expect("a domain"), &cqs[1]);
        let begin = || near.qp.begin_connect((late, 7476).into(), b"", TIMEOUT);
        let _connecting = hosts.a.run(begin).expect("a beginning");
        hosts.b.ip(&format!("addr add {late}/24 dev {DEV}"));
        let listen = || b.listen((late, 7476).into());
        let mut listener = hosts.b.run(listen).expect("a port");
        thread::scope(|scope| {
            scope.spawn(|| far.accept(&mut listener, b""));
            let changes = near.qp.state_changes().expect("a descriptor");
            let epoll = watch(&[a.as_fd(), changes.as_fd()]);
            while changes.take() != QpState::Rts {
                sleep(&epoll);
                a.progress().expect("an RNIC");
            }
        });
    }
}
