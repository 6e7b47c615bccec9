//! Two endpoints, a link on which the test decides the fate of each frame, and a clock that jumps.
//! Tests with random fates use `netsim` of `xwarp-test-kit`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use xwarp_tcp::{ConnId, Event, Instant, ListenerId, Path, StackConfig};
use xwarp_test_kit::Side;

pub(crate) use xwarp_test_kit::Endpoint;

/// Frames of an interface.
pub(crate) const FRAMES: usize = 1024;
/// Frames received in one step.
pub(crate) const BUDGET: usize = 64;

/// What the link does to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Lose,
    Repeat,
    /// Delivers it after the next frame of its direction.
    Delay,
}

type Judge = Box<dyn FnMut(Side, &mut Vec<u8>) -> Fate>;

pub(crate) struct Net {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) now: Instant,
    /// Every frame put on the link, including lost ones.
    pub(crate) carried: Vec<(Side, Vec<u8>)>,
    judge: Judge,
    /// Delayed frames of a and of b.
    delayed: [Option<Vec<u8>>; 2],
}

pub(crate) fn config(side: Side) -> StackConfig {
    StackConfig {
        mac: side.mac(),
        seed: Some(7),
        ..StackConfig::default()
    }
}

/// An endpoint with a receive buffer of `buffer` bytes.
pub(crate) fn small(side: Side, buffer: usize) -> StackConfig {
    StackConfig {
        buffer: Some(buffer),
        ..config(side)
    }
}

impl Net {
    pub(crate) fn new() -> Self {
        Self::with(config(Side::A), config(Side::B))
    }

    pub(crate) fn with(a: StackConfig, b: StackConfig) -> Self {
        Self {
            a: Endpoint::new(FRAMES, a),
            b: Endpoint::new(FRAMES, b),
            now: Instant::from_micros(1_000_000),
            carried: Vec::new(),
            judge: Box::new(|_, _| Fate::Pass),
            delayed: [None, None],
        }
    }

    pub(crate) fn judge(&mut self, judge: impl FnMut(Side, &mut Vec<u8>) -> Fate + 'static) {
        self.judge = Box::new(judge);
    }

    pub(crate) fn be_kind(&mut self) {
        self.judge(|_, _| Fate::Pass);
    }

    /// Runs both endpoints until neither has work, 10 us per turn.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.now = self.now + Duration::from_micros(10);
            let done = self.a.step(self.now) + self.b.step(self.now);
            if self.carry() + done == 0 {
                return;
            }
        }
        panic!("the endpoints do not come to rest");
    }

    fn carry(&mut self) -> usize {
        let Self {
            a,
            b,
            carried,
            judge,
            delayed: [of_a, of_b],
            ..
        } = self;
        let before = carried.len();
        carry(Side::A, [a, b], of_a, carried, judge);
        carry(Side::B, [b, a], of_b, carried, judge);
        carried.len() - before
    }

    /// Jumps to the next timer. Returns false if there is none.
    pub(crate) fn jump(&mut self) -> bool {
        let deadlines = [self.a.stack.next_deadline(), self.b.stack.next_deadline()];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        self.settle();
        true
    }

    /// Lets time pass, and runs timers.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        loop {
            let deadlines = [self.a.stack.next_deadline(), self.b.stack.next_deadline()];
            let next = deadlines.into_iter().flatten().min();
            if next.is_none_or(|next| next > end) {
                break;
            }
            self.jump();
        }
        self.now = self.now.max(end);
        self.settle();
    }

    /// A path from a to b.
    pub(crate) fn path(ipv6: bool, port: u16) -> Path {
        let [local, remote]: [IpAddr; 2] = if ipv6 {
            ["fd00::a", "fd00::b"].map(|addr| addr.parse().unwrap())
        } else {
            ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap())
        };
        Path {
            local: SocketAddr::new(local, port),
            remote: SocketAddr::new(remote, 4791),
            next_hop: Side::B.mac(),
            metrics: xwarp_tcp::RouteMetrics::default(),
        }
    }

    pub(crate) fn listen(&mut self, ipv6: bool) -> ListenerId {
        let local = Self::path(ipv6, 1).remote;
        self.b.stack.listen(local, 64).unwrap()
    }

    /// A connection from a to b, as each side names it.
    pub(crate) fn connect(&mut self, ipv6: bool) -> (ConnId, ConnId) {
        self.listen(ipv6);
        self.connect_from(ipv6, 40_000)
    }

    /// A connection from port `port` of a to b, which listens already.
    pub(crate) fn connect_from(&mut self, ipv6: bool, port: u16) -> (ConnId, ConnId) {
        let a = self
            .a
            .stack
            .connect(Self::path(ipv6, port), self.now)
            .unwrap();
        self.settle();
        assert_eq!(self.a.events(), [Event::Connected(a)]);
        match self.b.events()[..] {
            [Event::Incoming { conn, .. }] => (a, conn),
            ref other => panic!("{other:?}"),
        }
    }

    /// Carries `data` from a to b in pieces of the lengths that `piece` returns, whatever the link
    /// does.
    pub(crate) fn transfer(
        &mut self,
        (a, b): (ConnId, ConnId),
        data: &[u8],
        mut piece: impl FnMut() -> usize,
    ) -> Vec<u8> {
        let (mut left, mut received) = (data, Vec::new());
        let mut next = piece();
        for _ in 0..100_000 {
            while !left.is_empty() {
                let (now, rest) = left.split_at(next.min(left.len()));
                if !self.a.write(a, now, self.now) {
                    break;
                }
                left = rest;
                next = piece();
            }
            self.settle();
            let before = received.len();
            received.extend(self.b.read(b, 999));
            self.settle(); // a learns of the window that this opens
            if received.len() >= data.len() {
                return received;
            }
            let invited = self.a.events.contains(&Event::Writable(a));
            self.a.events.retain(|event| *event != Event::Writable(a));
            let arrived = self.b.conn(b).readable_len() > 0;
            let alive = before < received.len() || arrived || invited || self.jump();
            assert!(
                alive,
                "stuck after {} of {}: {:?}, {:?}",
                received.len(),
                data.len(),
                self.a.stack.counters(),
                self.a.events
            );
        }
        panic!("no end after {} of {} bytes", received.len(), data.len());
    }
}

fn carry(
    from: Side,
    [source, target]: [&Endpoint; 2],
    delayed: &mut Option<Vec<u8>>,
    carried: &mut Vec<(Side, Vec<u8>)>,
    judge: &mut Judge,
) {
    while let Some(mut frame) = source.wire.take_sent() {
        carried.push((from, frame.clone()));
        match judge(from, &mut frame) {
            Fate::Lose => continue,
            Fate::Delay if delayed.is_none() => {
                *delayed = Some(frame);
                continue;
            }
            Fate::Repeat => target.wire.deliver(frame.clone()),
            Fate::Pass | Fate::Delay => {}
        }
        target.wire.deliver(frame);
        if let Some(late) = delayed.take() {
            target.wire.deliver(late);
        }
    }
}
