//! Bottleneck simulation: one sender with endless data on an idealised link, in virtual time.
//!
//! The path is a queue of bounded length before a link of fixed rate. Segments are lost at random
//! before the queue, and marked in it beyond a threshold. The path never reorders, so an ACK shows
//! exactly which segments before it were lost. So a run measures the algorithm, and not the
//! engine's loss detection.

use std::collections::VecDeque;
use std::fmt::Write;

use super::testing::ALL;
use super::*;
use crate::delivery_rate::{RateSampler, SentRate};
use crate::rtt::RttEstimator;

/// Parameters of a link.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Bytes per segment.
    mss: usize,
    /// Bytes per second.
    rate: u64,
    /// Nanoseconds of a round trip without a queue.
    rtt: u64,
    /// Nanoseconds per run.
    length: u64,
}

/// The path of the table: 50 Mbit/s.
const PATH: Path = Path {
    mss: 1460,
    rate: 6_250_000,
    rtt: 20_000_000,
    length: 20_000_000_000,
};
/// Losses per million segments.
const LOSSES: [u64; 5] = [0, 100, 1_000, 10_000, 50_000];
const SNAPSHOT: &str = "src/congestion/utilisation.txt";

impl Path {
    /// A path of 10 Gbit/s and 1 ms: a bandwidth-delay product of 1,250,000 bytes.
    fn wide(mss: usize) -> Self {
        Self {
            mss,
            rate: 1_250_000_000,
            rtt: 1_000_000,
            length: 2_000_000_000,
        }
    }

    /// Bandwidth-delay product in bytes.
    fn product(&self) -> usize {
        bytes(self.rtt, self.rate)
    }

    /// Queue length in bytes from which segments are marked: a sixth of the bandwidth-delay product
    /// (RFC 8257 §5).
    fn marking(&self) -> usize {
        self.product() / 6
    }
}

#[derive(Debug)]
struct Segment {
    number: u64,
    sent: u64,
    /// When the ACK arrives; `None` if the segment is lost.
    acked: Option<u64>,
    marked: bool,
    rate: SentRate,
}

#[derive(Debug)]
struct Run {
    path: Path,
    control: Box<dyn Congestion>,
    rtt: RttEstimator,
    rate: RateSampler,
    /// Bytes delivered so far.
    delivered: u64,
    now: u64,
    /// When the link has sent the whole queue.
    free_at: u64,
    paced_until: u64,
    flight: VecDeque<Segment>,
    next: u64,
    /// Segments from this number on were sent after the loss was found that is being repaired.
    recovery: Option<u64>,
    /// When the timer was started.
    timer: u64,
    random: u64,
    loss: u64,
    queued: u128,
}

/// Results of a run.
struct Outcome {
    /// Utilisation of the link in thousandths.
    utilisation: u64,
    /// Mean length in bytes of the queue that a segment finds.
    queue: u128,
}

fn instant(nanos: u64) -> Instant {
    Instant::ORIGIN + Duration::from_nanos(nanos)
}

/// Bytes that pass in `nanos` nanoseconds.
fn bytes(nanos: u64, rate: u64) -> usize {
    let bytes = u128::from(nanos) * u128::from(rate) / 1_000_000_000;
    usize::try_from(bytes).unwrap()
}

/// Nanoseconds in which `bytes` pass at `rate`.
fn duration(bytes: usize, rate: u64) -> u64 {
    bytes as u64 * 1_000_000_000 / rate
}

impl Run {
    fn new(path: Path, algorithm: CongestionControl, loss: u64) -> Self {
        Self {
            path,
            control: algorithm.start(path.mss, Instant::ORIGIN),
            rtt: RttEstimator::new(Duration::from_millis(5), Duration::from_mins(1)),
            rate: RateSampler::new(Instant::ORIGIN),
            delivered: 0,
            now: 0,
            free_at: 0,
            paced_until: 0,
            flight: VecDeque::new(),
            next: 0,
            recovery: None,
            timer: 0,
            random: 0x5eed + loss,
            loss,
            queued: 0,
        }
    }

    fn finish(mut self) -> Outcome {
        while self.now < self.path.length {
            self.send();
            self.advance();
        }
        let possible = bytes(self.path.length, self.path.rate) as u64;
        Outcome {
            utilisation: self.delivered * 1000 / possible,
            queue: self.queued / u128::from(self.next),
        }
    }

    /// `SplitMix64`.
    fn chance(&mut self, per_million: u64) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 1_000_000 < per_million
    }

    fn in_flight(&self) -> usize {
        self.flight.len() * self.path.mss
    }

    fn has_room(&self) -> bool {
        self.flight.is_empty() || self.in_flight() + self.path.mss <= self.control.window()
    }

    fn send(&mut self) {
        while self.has_room() && self.paced_until <= self.now {
            let now = self.now;
            let Path { mss, rate, rtt, .. } = self.path;
            let waiting = bytes(self.free_at.saturating_sub(now), rate);
            let lost = self.chance(self.loss) || waiting + mss > self.path.product();
            if !lost {
                self.free_at = self.free_at.max(now) + duration(mss, rate);
            }
            if self.flight.is_empty() {
                self.timer = now;
            }
            let sent = self
                .rate
                .on_sent(instant(now), self.in_flight(), self.delivered);
            self.flight.push_back(Segment {
                number: self.next,
                sent: now,
                acked: (!lost).then_some(self.free_at + rtt),
                marked: self.control.marks() == Marks::Counted && waiting > self.path.marking(),
                rate: sent,
            });
            self.next += 1;
            self.queued += waiting as u128;
            if let Some(rate) = self.control.pacing_rate() {
                self.paced_until = self.paced_until.max(now) + duration(mss, rate);
            }
        }
    }

    /// Advances to the next event.
    fn advance(&mut self) {
        let timeout = self.timer + u64::try_from(self.rtt.rto().as_nanos()).unwrap();
        let ack = self.flight.iter().find_map(|segment| segment.acked);
        let event = ack.map_or(timeout, |ack| ack.min(timeout));
        if self.has_room() && self.paced_until < event {
            self.now = self.paced_until;
            return;
        }
        self.now = event;
        if ack == Some(event) {
            self.on_ack();
        } else {
            self.control.on_timeout(instant(self.now), self.in_flight());
            self.rtt.back_off();
            self.flight.clear();
            self.recovery = Some(self.next);
            self.timer = self.now;
        }
    }

    fn on_ack(&mut self) {
        let mss = self.path.mss;
        let now = instant(self.now);
        let before = self.in_flight();
        let lost = (self.flight.iter())
            .take_while(|segment| segment.acked.is_none())
            .count();
        self.flight.drain(..lost);
        let segment = self.flight.pop_front().unwrap();
        if lost > 0 && self.recovery.is_none() {
            self.control.on_loss(now, before);
            self.recovery = Some(self.next);
        }
        if self.recovery.is_some_and(|end| segment.number >= end) {
            self.control.on_recovered(now);
            self.recovery = None;
        }
        let sample = Duration::from_nanos(self.now - segment.sent);
        self.rtt.sample(sample, now);
        self.delivered += mss as u64;
        self.rate.on_acked(&segment.rate, now);
        self.timer = self.now;
        self.control.on_ack(&Acked {
            now,
            bytes: mss,
            in_flight: self.in_flight(),
            rtt: Some(sample),
            delivered: self.delivered,
            rate: self.rate.sample(self.delivered, self.rtt.min_rtt()),
            ece_bytes: if segment.marked { mss } else { 0 },
            cwnd_limited: true,
            in_recovery: self.recovery.is_some(),
        });
    }
}

/// The table that `utilisation.txt` keeps.
fn table() -> String {
    let mut table = String::from(
        "Utilisation in per cent of 50 Mbit/s, 20 ms round trip, a buffer of one bandwidth-delay product, 20 s,\n\
         by the part of segments lost at random; mean queue in bytes without loss.\n\n\
         algorithm      0 %   0.01 %    0.1 %      1 %      5 %    queue\n",
    );
    for algorithm in ALL {
        let outcomes = LOSSES.map(|loss| Run::new(PATH, algorithm, loss).finish());
        let mut line = format!("{:9}", format!("{algorithm:?}"));
        for (i, Outcome { utilisation, .. }) in outcomes.iter().enumerate() {
            let width = if i == 0 { 7 } else { 6 };
            write!(line, "{:width$}.{}", utilisation / 10, utilisation % 10).unwrap();
            if i > 0 {
                line.push(' ');
            }
        }
        writeln!(table, "{line}{:9}", outcomes[0].queue).unwrap();
    }
    table
}

#[test]
fn utilisation_is_what_it_was() {
    kept::compare(SNAPSHOT, &table(), "congestion control behaves otherwise");
}

#[test]
fn without_loss_a_buffer_of_one_product_is_enough_to_fill_the_link() {
    for algorithm in ALL {
        let outcome = Run::new(PATH, algorithm, 0).finish();
        assert!(
            outcome.utilisation > 900,
            "{algorithm:?}: {}",
            outcome.utilisation
        );
    }
}

#[test]
fn large_segments_fill_a_link_too() {
    for mss in [1448, 8948, 65_471] {
        for algorithm in ALL {
            let Outcome { utilisation, .. } = Run::new(Path::wide(mss), algorithm, 0).finish();
            assert!(utilisation > 900, "{algorithm:?}, {mss}: {utilisation}");
        }
    }
}

#[test]
fn dctcp_keeps_the_queue_about_the_marking_threshold() {
    let dctcp = Run::new(PATH, CongestionControl::Dctcp, 0).finish();
    let reno = Run::new(PATH, CongestionControl::NewReno, 0).finish();
    assert!(
        dctcp.queue < PATH.marking() as u128 * 3 / 2,
        "{}",
        dctcp.queue
    );
    assert!(reno.queue > 2 * dctcp.queue, "{}", reno.queue);
}

#[test]
fn bbr_does_not_mind_what_is_lost_at_random() {
    let [none, .., one_per_cent, five_per_cent] = LOSSES.map(|loss| {
        Run::new(PATH, CongestionControl::Bbr, loss)
            .finish()
            .utilisation
    });
    assert!(10 * one_per_cent > 9 * none, "{one_per_cent} of {none}");
    assert!(10 * five_per_cent > 7 * none, "{five_per_cent} of {none}");
}
