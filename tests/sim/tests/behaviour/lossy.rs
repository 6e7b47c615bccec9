//! Transfers over links that lose, reorder, repeat and damage frames, with many seeds: every byte
//! arrives once.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use xwarp::QpState;
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, Target, for_each_seed, needs_link, pattern_of};
use xwarp_test_kit::netsim::{Rng, Seed, Sighting};

/// Work requests per direction.
const OPERATIONS: u64 = 24;
/// Most bytes of a message: 14 segments.
const LONGEST: u64 = 20_000;

fn sim(seed: Seed) -> Sim {
    Sim::new(seed).one_way_delay(Duration::from_micros(500))
}

/// What one side has asked for, and what must have become of it.
#[derive(Default)]
struct Plan {
    sends: Vec<Done>,
    receives: Vec<Done>,
    /// At the peer: message `.0` must be received whole.
    messages: Vec<(u64, usize)>,
    /// Memory that must hold pattern `.1` at the end.
    targets: Vec<(Target, u64, usize)>,
}

impl Plan {
    /// Posts a random mix of Sends, Writes and Reads from `from` to `to`; `side` keeps the patterns
    /// of both sides apart.
    fn post(from: &mut SimEnd, to: &mut SimEnd, side: u64, rng: &mut Rng) -> Self {
        let mut plan = Self::default();
        for i in 0..OPERATIONS {
            let which = 1_000 * side + i;
            let len = usize::try_from(rng.below(LONGEST)).unwrap();
            match rng.below(3) {
                0 => plan.send(from, to, which, len),
                1 => plan.write(from, to, which, len),
                _ => plan.read(from, to, which, len),
            }
        }
        plan
    }

    fn send(&mut self, from: &mut SimEnd, to: &mut SimEnd, which: u64, len: usize) {
        to.post_recv(which, len);
        from.post_send(which, &pattern_of(which, len));
        self.sends.push(Done::send(which, len));
        self.receives.push(Done::receive(which, len));
        self.messages.push((which, len));
    }

    fn write(&mut self, from: &mut SimEnd, to: &SimEnd, which: u64, len: usize) {
        let target = to.target(len);
        from.post_write(which, &pattern_of(which, len), target.remote(0));
        self.sends.push(Done::write(which, len));
        self.targets.push((target, which, len));
    }

    fn read(&mut self, from: &mut SimEnd, to: &SimEnd, which: u64, len: usize) {
        let (source, sink) = (to.target(len), from.target(len));
        source.fill(&pattern_of(which, len));
        from.post_read(which, sink.local(0, len), source.remote(0));
        self.sends.push(Done::read(which, len));
        self.targets.push((sink, which, len));
        self.targets.push((source, which, len));
    }

    fn check(&self, from: &mut SimEnd, to: &mut SimEnd) {
        assert_eq!(from.sends(), self.sends, "completions of the send queue");
        assert_eq!(
            to.receives(),
            self.receives,
            "completions of the receive queue"
        );
        for &(which, len) in &self.messages {
            assert!(
                to.buffer(which) == pattern_of(which, len),
                "message {which}"
            );
        }
        for (target, which, len) in &self.targets {
            assert!(
                target.to_vec() == pattern_of(*which, *len),
                "target of {which}"
            );
        }
    }
}

/// Both sides do random work at once; everything must be as on a perfect link.
fn everything_arrives_once(mut sim: Sim, seed: Seed) {
    let mut rng = Rng::new(seed, 200);
    let (mut a, mut b) = sim.connected_pair();
    let ours = Plan::post(&mut a, &mut b, 1, &mut rng);
    let theirs = Plan::post(&mut b, &mut a, 2, &mut rng);
    sim.run_until_idle();
    assert_eq!(
        (a.state(), b.state()),
        (QpState::Rts, QpState::Rts),
        "{:?} {:?}",
        a.events(),
        b.events()
    );
    ours.check(&mut a, &mut b);
    theirs.check(&mut b, &mut a);
}

#[test]
fn everything_arrives_once_despite_loss_of_one_percent() {
    for_each_seed(|seed| everything_arrives_once(sim(seed).loss(0.01), seed));
}

#[test]
fn everything_arrives_once_despite_loss_of_three_percent() {
    for_each_seed(|seed| everything_arrives_once(sim(seed).loss(0.03), seed));
}

#[test]
fn everything_arrives_once_despite_reordering() {
    for_each_seed(|seed| everything_arrives_once(sim(seed).reorder(0.1), seed));
}

#[test]
fn everything_arrives_once_despite_duplication() {
    for_each_seed(|seed| everything_arrives_once(sim(seed).duplicate(0.1), seed));
}

#[test]
fn everything_arrives_once_despite_damaged_frames() {
    for_each_seed(|seed| everything_arrives_once(sim(seed).corrupt(0.02, 1), seed));
}

#[test]
fn everything_arrives_once_despite_all_of_that_together() {
    for_each_seed(|seed| {
        let sim = sim(seed)
            .loss(0.01)
            .reorder(0.02)
            .duplicate(0.02)
            .corrupt(0.01, 1);
        everything_arrives_once(sim, seed);
    });
}

#[test]
fn everything_arrives_once_over_ipv6_despite_all_of_that_together() {
    for_each_seed(|seed| {
        let sim = Sim::over_ipv6(seed).one_way_delay(Duration::from_micros(500));
        let sim = sim
            .loss(0.01)
            .reorder(0.02)
            .duplicate(0.02)
            .corrupt(0.01, 1);
        everything_arrives_once(sim, seed);
    });
}

#[test]
fn everything_arrives_once_at_each_place_of_a_single_lost_frame() {
    for n in 1..40 {
        let mut sim = sim(Seed(n));
        let (mut a, b) = sim.connected_pair();
        let target = b.target(32 * KIB);
        sim.link()
            .lane(xwarp_test_kit::netsim::Direction::AToB)
            .drop_nth(n);
        a.post_write(1, &pattern_of(n, 32 * KIB), target.remote(0));
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::write(1, 32 * KIB)]);
        assert!(
            target.to_vec() == pattern_of(n, 32 * KIB),
            "without frame {n}"
        );
    }
}

#[test]
fn seed_replays_every_frame_and_its_fate() {
    needs_link!("it counts segments of a link's MTU");
    let frames = |seed| {
        let mut sim = sim(seed).loss(0.02).reorder(0.02).duplicate(0.02);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let record = Rc::clone(&seen);
        // Not the bytes: STags are random, whatever the seed.
        sim.link().observe(move |sighting| {
            let Sighting {
                at,
                direction,
                frame,
                fate,
            } = *sighting;
            record.borrow_mut().push((at, direction, frame.len(), fate));
        });
        everything_arrives_once(sim, seed);
        seen.take()
    };
    assert!(frames(Seed(5)).len() > 100);
    assert!(frames(Seed(5)) == frames(Seed(5)));
    assert!(frames(Seed(5)) != frames(Seed(6)));
}

/// Two flipped bits can slip past TCP's checksum. In an FPDU the CRC of MPA must see them; in a TCP
/// header they may cost the connection, which nothing above TCP can prevent. Either way memory
/// holds what was sent, or nothing.
#[test]
fn damage_that_tcp_does_not_see_never_reaches_memory() {
    for_each_seed(|seed| {
        let checks = [
            "drop_bad_fpdu",
            "drop_after_failure",
            "drop_no_flow",
            "drop_beyond_window",
            "drop_no_timestamp",
            "drop_old_timestamp",
            "drop_false_echo",
        ];
        let mut sim = sim(seed).corrupt(0.05, 2).expecting(&checks);
        let (mut a, b) = sim.connected_pair();
        let targets: Vec<Target> = (0..16).map(|_| b.target(16 * KIB)).collect();
        for (i, target) in (0..).zip(&targets) {
            a.post_write(i, &pattern_of(i, 16 * KIB), target.remote(0));
        }
        sim.run_until_idle();
        for (i, target) in (0..).zip(&targets) {
            let (placed, wanted) = (target.to_vec(), pattern_of(i, 16 * KIB));
            let right = |(byte, wanted): (&u8, &u8)| byte == wanted || *byte == 0;
            assert!(
                placed.iter().zip(&wanted).all(right),
                "target {i} holds bytes that were never sent"
            );
        }
    });
}
