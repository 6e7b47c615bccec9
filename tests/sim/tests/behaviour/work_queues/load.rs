//! Queues that are resized under load (verbs draft §6.1.3).

use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::error::ModifyError;
use xwarp::{QpConfig, QpState, RecvRequest, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim, SimEnd, Target, for_each_seed, pattern};
use xwarp_test_kit::netsim::{Rng, Seed};

/// Messages either way.
const MESSAGES: u64 = 100;
/// Bytes of the longest: several segments.
const LONGEST: u64 = 5000;
/// A queue's greatest depth.
const DEEPEST: u64 = 40;

/// One side, and what it has done.
struct LoadedEnd {
    end: SimEnd,
    sends: Vec<Done>,
    receives: Vec<Done>,
    /// Lengths of the messages that were posted.
    lens: Vec<u32>,
    buffers: u64,
    memory: Target,
    /// Resizes that were refused, as too much was outstanding, and others.
    resizes: [usize; 2],
}

impl LoadedEnd {
    fn new(end: SimEnd) -> Self {
        let memory = end.target(usize::try_from(LONGEST).unwrap());
        Self {
            end,
            sends: Vec::new(),
            receives: Vec::new(),
            lens: Vec::new(),
            buffers: 0,
            memory,
            resizes: [0; 2],
        }
    }

    fn post_buffer(&mut self) {
        let buffer = self.memory.local(0, usize::try_from(LONGEST).unwrap());
        let request = RecvRequest::new(WrId(self.buffers), buffer);
        if self.buffers < MESSAGES && self.end.qp.post_recv(request).is_ok() {
            self.buffers += 1;
        }
    }

    /// Sends, if the peer has a buffer.
    fn post_send(&mut self, peer_buffers: u64, len: usize) {
        let next = self.lens.len() as u64;
        if next == peer_buffers {
            return;
        }
        let source = self.end.source(&pattern(len));
        let request = SendRequest::send(WrId(next), source);
        if self.end.qp.post_send(request).is_ok() {
            self.lens.push(u32::try_from(len).unwrap());
        }
    }

    fn resize(&mut self, send_depth: u64, recv_depth: u64) {
        let before = self.end.qp.query().unwrap();
        let [send_depth, recv_depth] =
            [send_depth, recv_depth].map(|n| usize::try_from(n).unwrap());
        let change = QpChange::to(QpState::Rts);
        let change = change.send_depth(send_depth).recv_depth(recv_depth);
        match self.end.qp.modify(change) {
            Ok(depths) => {
                assert_eq!(
                    (depths.send_depth, depths.recv_depth),
                    (send_depth, recv_depth)
                );
                self.resizes[1] += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error, ModifyError::TooManyPresent { .. }),
                    "{error}"
                );
                assert_eq!(self.end.qp.query().unwrap(), before);
                self.resizes[0] += 1;
            }
        }
    }

    fn poll(&mut self, n: usize) {
        let end = &mut self.end;
        let sends = std::iter::from_fn(|| end.send_cq().poll().unwrap()).take(n);
        self.sends.extend(sends.map(Done::from));
        let receives = std::iter::from_fn(|| end.recv_cq().poll().unwrap()).take(n);
        self.receives.extend(receives.map(Done::from));
    }

    fn is_done(&self) -> bool {
        let done = [&self.sends, &self.receives].map(|list| list.len() as u64);
        done == [MESSAGES; 2]
    }
}

fn sides(sim: &mut Sim) -> [LoadedEnd; 2] {
    let config = QpConfig::default().send_depth(8).recv_depth(8);
    let entries = usize::try_from(DEEPEST).unwrap();
    let mut ends =
        [sim.a(), sim.b()].map(|host| SimEnd::with_cqs(&host, &config, entries, entries));
    let [a, b] = &mut ends;
    sim.connect(a, b);
    ends.map(LoadedEnd::new)
}

/// One step of one side.
fn act(side: &mut LoadedEnd, peer_buffers: u64, mut pick: impl FnMut(u64) -> u64) {
    match pick(4) {
        0 => (0..=pick(8)).for_each(|_| side.post_buffer()),
        1 => {
            let (n, len) = (pick(8), usize::try_from(pick(LONGEST)).unwrap());
            (0..=n).for_each(|_| side.post_send(peer_buffers, len));
        }
        2 => side.resize(1 + pick(DEEPEST), 1 + pick(DEEPEST)),
        _ => side.poll(usize::try_from(pick(6)).unwrap()),
    }
}

/// Each message once, in order.
fn all_done(lens: &[u32], done: fn(u64, usize) -> Done) -> Vec<Done> {
    let lens = lens.iter().map(|len| usize::try_from(*len).unwrap());
    (0..).zip(lens).map(|(id, len)| done(id, len)).collect()
}

fn run(mut sim: Sim, seed: Seed) {
    let mut sides = sides(&mut sim);
    let mut rng = Rng::new(seed, 11);
    let mut pick = |n: u64| rng.draw() % n;
    while !sides.iter().all(LoadedEnd::is_done) {
        let buffers = sides.each_ref().map(|side| side.buffers);
        let who = usize::try_from(pick(2)).unwrap();
        act(&mut sides[who], buffers[1 - who], &mut pick);
        sim.run_for(Duration::from_micros(pick(100)));
    }
    sim.run_until_idle();
    let lens = sides.each_ref().map(|side| side.lens.clone());
    for (side, [own, peers]) in sides.iter().zip([[0, 1], [1, 0]]) {
        assert_eq!(side.sends, all_done(&lens[own], Done::send));
        assert_eq!(side.receives, all_done(&lens[peers], Done::receive));
        assert!(side.resizes.iter().all(|n| *n > 0), "{:?}", side.resizes);
        assert_eq!(side.end.state(), QpState::Rts);
        assert_eq!(side.end.events(), []);
        assert_eq!(side.end.host().other_events(), []);
    }
}

#[test]
fn no_work_request_is_lost_or_done_twice() {
    for_each_seed(|seed| {
        let sim = Sim::new(seed).one_way_delay(Duration::from_micros(50));
        run(sim, seed);
    });
}

#[test]
fn nor_on_a_bad_link() {
    for_each_seed(|seed| run(Sim::on_a_bad_link(seed), seed));
}
