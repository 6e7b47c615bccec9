//! Event loops: epoll over the descriptors of an RNIC, with an engine thread and with an inline engine that the loop turns.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::{ClockId, clock_gettime};
use xwarp::{
    Access, Arm, AsyncEventKind, CompletionQueue, ConnectionRequest, Listener, MemoryRegion,
    NicConfig, Opcode, Progress, ProtectionDomain, QpConfig, QpId, QueuePair, RecvRequest, Rnic,
    RnicConfig, SendRequest, Waiting, WrId, XdpMode,
};
use xwarp_system_tests::{DEV, Host, Hosts, TIMEOUT, check_nothing_dropped};
use xwarp_test_kit::needs_root;

/// How long the connections of a server are idle.
const IDLE: Duration = Duration::from_secs(2);
/// Messages there and back, after that.
const ROUNDS: u64 = 50;
const LEN: u32 = 64;

fn at_server(port: u16) -> SocketAddr {
    SocketAddr::new(Hosts::SERVER, port)
}

fn open(host: &Host, progress: Progress) -> Rnic {
    let config = RnicConfig {
        nic: NicConfig {
            mode: Some(XdpMode::Native),
            region_bytes: 8 << 20,
            ..NicConfig::default()
        },
        progress,
        waiting: Waiting::Blocking,
        ..RnicConfig::default()
    };
    host.run(|| Rnic::open(DEV, &config)).expect("an RNIC")
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

/// Time that this thread has run for.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of the thread");
    Duration::from(time)
}

/// One end of a connection, with one buffer.
struct End {
    qp: QueuePair,
    memory: MemoryRegion,
}

impl End {
    fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Self {
        let qp = pd.create_qp(&QpConfig::default(), cq, cq);
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let memory = pd.allocate(LEN as usize, access);
        let mut end = Self {
            qp: qp.expect("a queue pair"),
            memory: memory.expect("memory"),
        };
        end.expect();
        end
    }

    fn expect(&mut self) {
        let buffer = self.memory.local(0, LEN);
        let posted = self.qp.post_recv(RecvRequest::new(WrId(0), buffer));
        posted.expect("room");
    }

    fn send(&mut self) {
        let request = SendRequest::send(WrId(1), self.memory.local(0, LEN)).unsignaled();
        self.qp.post_send(request).expect("room");
    }
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
        let mut end = End::new(&self.pd, &self.cq);
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
                end.expect();
                end.send();
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

/// A client that waits in the library's own calls: connects, is idle, sends and receives, and closes.
fn client(host: &Host, rnic: &Rnic, port: u16) {
    let mut cq = rnic.create_cq(8).expect("a queue");
    let pd = rnic.allocate_pd().expect("a domain");
    let mut end = End::new(&pd, &cq);
    host.run(|| end.qp.connect(at_server(port), b"", TIMEOUT))
        .expect("a connection");
    assert_eq!(cq.wait(IDLE).expect("a queue"), None);
    for _ in 0..ROUNDS {
        end.send();
        let answer = cq.wait(TIMEOUT).expect("a queue").expect("an answer");
        assert!(answer.is_success() && answer.opcode == Opcode::Receive);
        end.expect();
    }
    assert!(end.qp.disconnect(TIMEOUT).expect("an RNIC"));
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
    let mut near = End::new(&a.allocate_pd().expect("a domain"), &cqs[0]);
    let mut far = End::new(&b.allocate_pd().expect("a domain"), &cqs[1]);
    let answer = thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener
                .accept(TIMEOUT)
                .expect("an RNIC")
                .expect("a request");
            request
                .accept(&mut far.qp, b"welcome")
                .expect("a connection");
        });
        let begin = || near.qp.begin_connect(at_server(7473), b"", TIMEOUT);
        let mut connecting = hosts.a.run(begin).expect("a beginning");
        let epoll = watch(&[a.as_fd(), connecting.as_fd()]);
        loop {
            sleep(&epoll);
            a.progress().expect("an RNIC");
            if let Some(outcome) = connecting.try_finish() {
                break outcome.expect("a connection");
            }
        }
    });
    assert_eq!(answer, b"welcome");
}
