//! Stalls of a stream on a real link that loses 5 %, with the engine on both ends.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Rule, Side};
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_tcp::{ConnId, Event};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::engine::Engine;
use crate::waited::{Waited, waited_since};

const PORT: u16 = 5004;
/// The part of the segments of one side that is lost.
const LOSS: f64 = 0.05;
const SEEDS: u64 = 3;
/// How long a stream lasts.
const LENGTH: Duration = Duration::from_secs(2);
/// Bytes after which the stream repeats itself.
const PERIOD: usize = 1 << 16;
/// How long it may stand still. Beside a load of 15 on two processors it stood for 18 ms at most.
const LIMIT: Duration = Duration::from_millis(60);

/// A time in which nothing was delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    time: Duration,
    /// What the end that waited for longer has waited for a processor meanwhile, by the kernel's
    /// account.
    waited: Duration,
}

impl Gap {
    /// What is left when the machine's part is taken off. Both ends wait at once or in turn. Only
    /// the longer wait is taken off, so that ends which share a processor are granted half of the
    /// time at most.
    fn own(&self) -> Duration {
        self.time.saturating_sub(self.waited)
    }
}

/// What has come.
struct Receiver {
    block: Vec<u8>,
    bytes: usize,
    threads: [Waited; 2],
    /// When the last bytes came, and what the threads had waited by then.
    last: Option<(Instant, [Duration; 2])>,
    /// The longest, and the one with the longest part of its own.
    longest: [Gap; 2],
}

impl Receiver {
    fn take(&mut self, engine: &mut Engine, conn: ConnId) {
        let mut data = Vec::new();
        engine.read(conn, &mut data);
        if data.is_empty() {
            return;
        }
        let period = self.block.iter().cycle().skip(self.bytes % PERIOD);
        assert!(data.iter().eq(period.take(data.len())), "other bytes");
        self.bytes += data.len();
        let now = Instant::now();
        if let Some((last, before)) = self.last {
            let gap = Gap {
                time: now - last,
                waited: waited_since(&self.threads, before),
            };
            let [longest, own] = self.longest;
            self.longest = [
                if gap.time > longest.time {
                    gap
                } else {
                    longest
                },
                if gap.own() > own.own() { gap } else { own },
            ];
        }
        self.last = Some((now, self.threads.each_ref().map(Waited::in_all)));
    }

    /// Takes all until the peer closes, and closes as well.
    fn take_all(&mut self, engine: &mut Engine) {
        engine.run(|engine, event| match event {
            Some(Event::Readable(conn)) => {
                self.take(engine, conn);
                false
            }
            Some(Event::PeerClosed(conn)) => {
                self.take(engine, conn);
                let now = engine.now();
                engine.stack.close(conn, now);
                false
            }
            Some(Event::Closed { .. }) => true,
            _ => false,
        });
        engine.check();
    }
}

/// Writes as much as finds room of what is left of the block, and of further ones; what is left
/// then.
fn fill<'a>(engine: &mut Engine, conn: ConnId, block: &'a [u8], mut left: &'a [u8]) -> &'a [u8] {
    loop {
        left = &left[engine.write(conn, left)..];
        if !left.is_empty() {
            return left;
        }
        left = block;
    }
}

/// Sends the block over and over for as long as a stream lasts.
fn send(engine: &mut Engine, conn: ConnId, block: &[u8]) {
    let (began, mut left, mut closing) = (Instant::now(), block, false);
    engine.run(|engine, event| {
        if !closing && began.elapsed() > LENGTH {
            closing = true;
            let now = engine.now();
            engine.stack.close(conn, now);
        }
        if !closing {
            left = fill(engine, conn, block, left);
        }
        matches!(event, Some(Event::Closed { .. }))
    });
    engine.check();
}

/// A stream from A to B; what came.
fn stream(hosts: &Bridged) -> Receiver {
    let block = Rng::new(Seed(3), 0).bytes(PERIOD);
    let (ready, is_ready) = mpsc::channel();
    let (give, taken) = mpsc::channel();
    let wanted = block.clone();
    let receiving = hosts.b.begin(move || {
        let mut engine = Engine::open_at(Side::B, XdpMode::Native).sleeping();
        engine.listen(PORT);
        ready.send(()).expect("the test waits");
        let sender = taken.recv().expect("a sender");
        let mut receiver = Receiver {
            block: wanted,
            bytes: 0,
            threads: [sender, Waited::of_this_thread()],
            last: None,
            longest: [Gap::default(); 2],
        };
        receiver.take_all(&mut engine);
        receiver
    });
    is_ready.recv().expect("a listener");
    hosts.a.call(move || {
        let mut engine = Engine::open(XdpMode::Native).sleeping();
        give.send(Waited::of_this_thread()).expect("a receiver");
        let conn = engine.connect(43_000, PORT);
        engine.until_connected();
        send(&mut engine, conn, &block);
    });
    receiving.recv().expect("what came")
}

#[test]
fn five_percent_loss_never_stalls_for_longer_than_60_ms() {
    needs_root!();
    for seed in 0..SEEDS {
        for of in [Side::A, Side::B] {
            let _alone = Exclusive::wait_for(LOCK);
            let hosts = Bridged::new();
            let rule = Rule {
                loss: LOSS,
                ..Rule::new(Seed(seed))
            };
            let impaired = hosts.impair(of, rule);
            let Receiver { bytes, longest, .. } = stream(&hosts);
            let fates = impaired.fates();
            let [gap, own] = longest;
            let what = format!(
                "seed {seed}, losses of {of:?}: {bytes} bytes, {fates:?}, {gap:?}, without waiting {:?}",
                own.own()
            );
            println!("{what}");
            assert!(fates.lost > 0, "{what}");
            assert!(own.own() <= LIMIT, "{what}");
        }
    }
}
