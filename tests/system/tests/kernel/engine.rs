//! The engine on a host, turned by the thread that waits for something.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use xwarp_driver::attach::XdpMode;
use xwarp_driver::{Nic, NicConfig, Steering};
use xwarp_system_tests::impair::{DEV, Side};
use xwarp_tcp::{ConnId, ConnMut, Event, Path, Stack, StackConfig};

/// Frames received in a turn.
const BUDGET: usize = 64;
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How long an engine that sleeps does so at a time.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// The stack, its interface and its clock.
pub(crate) struct Engine {
    pub(crate) stack: Stack,
    steering: Steering,
    side: Side,
    /// Between turns without work it sleeps; otherwise it yields.
    sleeps: bool,
    origin: Instant,
}

impl Engine {
    /// On the interface of the calling thread's namespace, which is A's.
    pub(crate) fn open(mode: XdpMode) -> Self {
        Self::open_at(Side::A, mode)
    }

    /// On the interface of the calling thread's namespace, which is that of `side`.
    pub(crate) fn open_at(side: Side, mode: XdpMode) -> Self {
        Self::open_with(side, mode, &StackConfig::default())
    }

    /// The same, with a stack as `config` says, but for what the interface says.
    pub(crate) fn open_with(side: Side, mode: XdpMode, config: &StackConfig) -> Self {
        Self::open_on(side, &NicConfig::default().mode(Some(mode)), config)
    }

    /// The same, on an interface that is opened as `nic` says.
    pub(crate) fn open_on(side: Side, nic: &NicConfig, config: &StackConfig) -> Self {
        let mut nic = Nic::open(DEV, nic).expect("root may");
        let config = StackConfig {
            mac: nic.info.mac.0,
            mtu: nic.info.mtu,
            ..config.clone()
        };
        Self {
            stack: Stack::new(nic.ios.remove(0), config),
            steering: nic.steering,
            side,
            sleeps: false,
            origin: Instant::now(),
        }
    }

    /// Sleeps when there is nothing to do.
    pub(crate) fn sleeping(mut self) -> Self {
        self.sleeps = true;
        self
    }

    pub(crate) fn now(&self) -> xwarp_tcp::Instant {
        let micros = self.origin.elapsed().as_micros();
        xwarp_tcp::Instant::from_micros(u64::try_from(micros).expect("a short test"))
    }

    pub(crate) fn listen(&mut self, port: u16) {
        let local = SocketAddr::from((self.side.address(), port));
        self.steering.add(local).expect("room in the map");
        self.stack.listen(local, 128).expect("a free port");
    }

    /// Connects to the other host on the same bridge.
    pub(crate) fn connect(&mut self, from: u16, to: u16) -> ConnId {
        let other = self.side.other();
        self.connect_along(Path {
            local: SocketAddr::from((self.side.address(), from)),
            remote: SocketAddr::from((other.address(), to)),
            next_hop: other.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        })
    }

    pub(crate) fn connect_along(&mut self, path: Path) -> ConnId {
        self.steering.add(path.local).expect("room in the map");
        let now = self.now();
        self.stack.connect(path, now).expect("a new flow")
    }

    /// Turns until the only connection is established.
    pub(crate) fn until_connected(&mut self) {
        self.run(|_, event| matches!(event, Some(Event::Connected(_))));
    }

    /// Turns until `end` says so, telling it what happens.
    pub(crate) fn run(&mut self, mut end: impl FnMut(&mut Self, Option<Event>) -> bool) {
        let began = Instant::now();
        loop {
            let done = self.stack.step(self.now(), BUDGET).expect("a sane kernel");
            while let Some(event) = self.stack.poll_event() {
                if end(self, Some(event)) {
                    return;
                }
            }
            if end(self, None) {
                return;
            }
            self.stack.transmit(self.now()).expect("a sane kernel");
            if done == 0 {
                self.pause();
            }
            assert!(began.elapsed() < TIMEOUT, "{:?}", self.stack.counters());
        }
    }

    /// Leaves the processor to others: if it may sleep, until a frame arrives, a timer is due or a
    /// millisecond is over.
    fn pause(&self) {
        if !self.sleeps || self.stack.io().backlog() {
            return std::thread::yield_now();
        }
        let (now, deadline) = (self.now(), self.stack.next_deadline());
        let limit = deadline.map_or(LONGEST_SLEEP, |at| (at - now).min(LONGEST_SLEEP));
        let readiness = self.stack.io().readiness().expect("a socket");
        let mut watched = [PollFd::new(readiness, PollFlags::POLLIN)];
        ppoll(&mut watched, Some(TimeSpec::from(limit)), None).expect("a sane kernel");
    }

    /// A connection that is there.
    pub(crate) fn conn(&mut self, id: ConnId) -> ConnMut<'_> {
        self.stack.conn_mut(id).expect("a connection")
    }

    /// Writes as much of `data` as finds room, in segments; how much.
    pub(crate) fn write(&mut self, conn: ConnId, data: &[u8]) -> usize {
        let mut written = 0;
        while written < data.len() {
            let now = self.now();
            let mut conn = self.conn(conn);
            let len = conn.emss().min(data.len() - written);
            let Some(room) = conn.writable(len) else {
                break;
            };
            room.copy_from_slice(&data[written..written + len]);
            conn.commit(len, now);
            written += len;
        }
        written
    }

    /// Takes all that is there.
    pub(crate) fn read(&mut self, conn: ConnId, data: &mut Vec<u8>) {
        let mut conn = self.conn(conn);
        loop {
            let slice = conn.readable(1);
            let n = slice.len();
            if n == 0 {
                return;
            }
            data.extend_from_slice(slice);
            conn.consume(n);
        }
    }

    /// Nothing that arrived was in disorder but for what a network does.
    pub(crate) fn check(&self) {
        let counters = self.stack.counters();
        assert_eq!(counters.drop_bad_checksum, 0, "{counters:?}");
        assert_eq!(counters.drop_bad_tcp, 0, "{counters:?}");
        assert_eq!(counters.drop_no_timestamp, 0, "{counters:?}");
        assert_eq!(counters.drop_false_echo, 0, "{counters:?}");
        assert_eq!(counters.drop_beyond_window, 0, "{counters:?}");
        let io = self.stack.io().counters();
        assert_eq!((io.drop_rx_other, io.drop_tx_invalid), (0, 0), "{io:?}");
    }
}
