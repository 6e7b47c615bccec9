//! Several engines deliver what one does, though frames are lost, overtake each other and come to
//! other queues, and queue pairs move.

use std::collections::BTreeSet;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::{Access, MemoryRegion, QpConfig, QpState};
use xwarp_sim_tests::{Done, Sim, SimEnd, Target, for_each_seed};
use xwarp_test_kit::netsim::Seed;
use xwarp_test_kit::pattern_of;

use super::{ENGINES, engine_of};

const CONNECTIONS: usize = 5;
/// How often each queue pair is connected. The hosts take turns as the initiator.
const ROUNDS: u64 = 4;
/// Messages of a round, either way; the first ones are posted in Idle.
const MESSAGES: u64 = 4;
/// Bytes of a message: some segments.
const LEN: usize = 4000;
/// Frames after which the NICs choose queues anew.
const FRAMES: usize = 7;

/// What one end has seen of its work requests and in its memory.
#[derive(Debug, PartialEq)]
struct Seen {
    sends: Vec<Done>,
    receives: Vec<Done>,
    bytes: Vec<Vec<u8>>,
}

/// An end, what its peer writes to, and what it reads into.
struct Party {
    end: SimEnd,
    target: Target,
    sink: MemoryRegion,
    /// The engines that it was on.
    engines: BTreeSet<usize>,
}

impl Party {
    fn new(end: SimEnd) -> Self {
        Self {
            target: end.target(LEN),
            sink: end.region(LEN, Access::LOCAL_WRITE | Access::REMOTE_WRITE),
            engines: BTreeSet::new(),
            end,
        }
    }

    fn post_messages(&mut self, salt: u64, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            self.end.post_recv(number, LEN);
            self.end.post_send(number, &pattern_of(salt + number, LEN));
        }
    }

    /// Writes to the peer, and reads back what it has written.
    fn post_accesses(&mut self, peer: &Self, salt: u64) {
        let remote = peer.target.remote(0);
        self.end.post_write(salt, &pattern_of(salt, LEN), remote);
        let sink = self.sink.local(0, u32::try_from(LEN).unwrap());
        self.end.post_read(salt + 1, sink, remote);
    }

    fn end_round(&mut self) {
        self.engines.insert(engine_of(&self.end));
        self.end.qp.abort().unwrap();
        self.end.qp.modify(QpChange::to(QpState::Idle)).unwrap();
    }

    fn seen(&mut self) -> Seen {
        let messages = (0..ROUNDS * MESSAGES).map(|number| self.end.buffer(number));
        let memory = [self.target.to_vec(), self.sink.bytes().to_vec()];
        Seen {
            bytes: messages.chain(memory).collect(),
            sends: self.end.sends(),
            receives: self.end.receives(),
        }
    }
}

/// Posts, connects, posts more and ends the connection when all is done.
fn run_round(sim: &mut Sim, pair: &mut [Party; 2], round: u64) {
    let first = round * MESSAGES;
    let (early, late) = (first..first + 2, first + 2..first + MESSAGES);
    let [a, b] = pair;
    a.post_messages(1000, early.clone());
    b.post_messages(2000, early);
    if round.is_multiple_of(2) {
        sim.connect_silently(&mut a.end, &mut b.end);
    } else {
        sim.connect_silently(&mut b.end, &mut a.end);
    }
    a.post_messages(1000, late.clone());
    b.post_messages(2000, late);
    a.post_accesses(b, 3000 + 10 * round);
    b.post_accesses(a, 4000 + 10 * round);
    sim.run_until_idle();
    a.end_round();
    b.end_round();
    sim.run_until_idle();
}

/// What all ends have seen, and on how many engines each queue pair was.
fn deliver(seed: Seed, engines: usize) -> (Vec<[Seen; 2]>, Vec<usize>) {
    let mut sim = Sim::with_resteering(seed, engines, FRAMES)
        .one_way_delay(Duration::from_micros(500))
        .loss(0.03)
        .reorder(0.1)
        .duplicate(0.05)
        .expecting(&["drop_no_flow"]);
    let config = QpConfig::default();
    let mut pairs =
        [(); CONNECTIONS].map(|()| [sim.a(), sim.b()].map(|host| Party::new(host.end(&config))));
    for round in 0..ROUNDS {
        for pair in &mut pairs {
            run_round(&mut sim, pair, round);
        }
    }
    let moved = pairs.iter().flatten().map(|party| party.engines.len());
    let moved = moved.collect();
    (
        pairs.map(|pair| pair.map(|mut party| party.seen())).into(),
        moved,
    )
}

#[test]
fn several_engines_deliver_on_a_bad_link_what_one_delivers() {
    for_each_seed(|seed| {
        let (by_one, _) = deliver(seed, 1);
        let (by_several, moved) = deliver(seed, ENGINES);
        let have_moved = moved.iter().filter(|engines| **engines > 1).count();
        assert!(have_moved >= CONNECTIONS, "half of them: {moved:?}");
        let all = usize::try_from(ROUNDS * MESSAGES).unwrap();
        let done = |seen: &[Done]| seen.iter().filter(|done| done.outcome.is_ok()).count();
        for seen in by_one.iter().flatten() {
            assert_eq!(
                (done(&seen.sends), done(&seen.receives)),
                (all + 2 * 4, all)
            );
        }
        assert!(by_one == by_several);
    });
}
