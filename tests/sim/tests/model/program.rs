//! The random program: steps, and the comparison after each.

use std::any::Any;
use std::collections::VecDeque;
use std::time::Duration;

use xwarp::cm::Connecting;
use xwarp::memory::SharedBytes;
use xwarp::stream::StreamListener;
use xwarp::{Listener, ProtectionDomain, QpState, SharedReceiveQueue, SrqConfig, Stag};
use xwarp_sim_tests::Sim;
use xwarp_test_kit::netsim::{Rng, Seed};

use crate::buffers::Buffers;
use crate::end::ModelEnd;
use crate::pair::{Pair, SharedModel};
use crate::post::SHARED_DEPTH;

/// Connections, of which the first two share a receive queue at the second host.
pub(crate) const PAIRS: usize = 3;
/// Pairs of them whose second end takes buffers from the shared receive queue.
const SHARING: usize = 2;
/// All that a peer which errs, a reset or a cut can bring about.
const DROPS: [&str; 9] = [
    "drop_after_failure",
    "drop_bad_fpdu",
    "drop_beyond_window",
    "drop_no_flow",
    "drop_old_timestamp",
    "drop_refused_segment",
    "drop_startup",
    "drop_startup_timeout",
    "drop_no_timestamp",
];

/// A protection domain and what is of it, whatever that may be.
pub(crate) type Domain = (ProtectionDomain, Vec<Box<dyn Any>>);

pub(crate) struct Program {
    pub(crate) rng: Rng,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) stream_listeners: Vec<StreamListener>,
    pub(crate) connecting: Vec<Option<Connecting>>,
    pub(crate) buffers: [Buffers; 2],
    pub(crate) shared: SharedModel,
    pub(crate) srq: SharedReceiveQueue,
    /// Memory that was registered once, and its `STag`s: of both hosts.
    pub(crate) dead: [Vec<(Stag, SharedBytes)>; 2],
    /// What regions held that were registered anew, and their memory.
    pub(crate) gone: VecDeque<(Vec<u8>, SharedBytes)>,
    /// Of either host, with what is of it.
    pub(crate) domains: [Option<Domain>; 2],
    pub(crate) loss: f64,
    pub(crate) cut: bool,
    pub(crate) sim: Sim,
}

/// The engines that each RNIC has: one, two or four.
fn engines_of(Seed(seed): Seed) -> usize {
    1 << (seed % 3)
}

impl Program {
    pub(crate) fn new(seed: Seed, loss: f64) -> Self {
        let mut sim = Sim::with_engines(seed, engines_of(seed), 1500)
            .one_way_delay(Duration::from_micros(200))
            .loss(loss)
            .reorder(loss)
            .duplicate(loss)
            .expecting(&DROPS);
        let hosts = [sim.a(), sim.b()];
        let depth = SHARED_DEPTH;
        let srq = hosts[1]
            .pd()
            .create_srq(SrqConfig::default().depth(depth))
            .unwrap();
        let pair = |n: usize| Pair {
            ends: [
                ModelEnd::new(&hosts[0], 2 * n as u64, None),
                ModelEnd::new(&hosts[1], 2 * n as u64 + 1, (n < SHARING).then_some(&srq)),
            ],
            excused: true,
            spoken: false,
            uses_stags: false,
        };
        let pairs = (0..PAIRS).map(pair).collect();
        let mut ports = [(); PAIRS].map(|()| hosts[1].at(sim.new_port())).to_vec();
        let listeners = ports.iter().map(|at| hosts[1].rnic().listen(*at).unwrap());
        let listeners = listeners.collect();
        ports.fill_with(|| hosts[1].at(sim.new_port()));
        let streams = ports.iter().map(|at| hosts[1].rnic().listen_streams(*at));
        Self {
            rng: Rng::new(seed, 1),
            pairs,
            listeners,
            stream_listeners: streams.map(Result::unwrap).collect(),
            connecting: (0..PAIRS).map(|_| None).collect(),
            buffers: hosts.each_ref().map(Buffers::new),
            shared: SharedModel::default(),
            srq,
            dead: [Vec::new(), Vec::new()],
            gone: VecDeque::new(),
            domains: [None, None],
            loss,
            cut: false,
            sim,
        }
    }

    /// One step of the program.
    pub(crate) fn step(&mut self) {
        let (n, who) = (self.rng.index(PAIRS), self.rng.index(2));
        // Time has passed for it in the steps of others.
        self.observe(n);
        match self.rng.index(110) {
            0..30 => self.post_send(n, who),
            30..55 => self.post_recv(n, who),
            55..69 => self.poll(n, who),
            69..76 => self.pass(n),
            76..89 => self.connect(n),
            89..94 => self.settle(),
            94 => self.modify(n, who),
            95 => self.end(n, who),
            96 => self.replace(n, who),
            97 => self.region(who),
            98 => self.change_interface(),
            99 => self.query(n, who),
            100..103 => self.modify_depths(n, who),
            103 => self.reregister(n, who),
            104..106 => self.resize_queue(n, who),
            106..108 => self.domain(who),
            _ => self.resize(n, who),
        }
        self.observe(n);
    }

    /// Everything comes to rest.
    pub(crate) fn finish(mut self) {
        self.settle();
        for n in 0..PAIRS {
            for who in [0, 1] {
                let end = &mut self.pairs[n].ends[who];
                end.qp().abort().unwrap();
                end.live = true;
                self.pairs[n].excused = true;
            }
        }
        self.settle();
        for pair in &self.pairs {
            let ended = |end: &ModelEnd| end.state == QpState::Error && end.sends.posted.is_empty();
            assert!(pair.ends.iter().all(ended));
        }
    }

    fn post_send(&mut self, n: usize, who: usize) {
        let (mine, peers) = (self.dead[who].last(), self.dead[1 - who].last());
        let dead = [mine, peers].map(|region| region.map(|(stag, _)| *stag));
        self.pairs[n].post_send(who, dead, &mut self.rng);
        self.excuse_where_buffers_lack();
    }

    fn post_recv(&mut self, n: usize, who: usize) {
        let (pair, buffers) = (&mut self.pairs[n], &mut self.buffers[who]);
        if self.rng.chance(0.1) {
            pair.post_recv_list(who, buffers, 1 + self.rng.index(3));
        } else {
            pair.post_recv(who, buffers, &mut self.srq, &mut self.shared);
        }
    }

    /// A message without a buffer may end a connection.
    pub(crate) fn excuse_where_buffers_lack(&mut self) {
        let to_shared: usize = self.pairs[..SHARING]
            .iter()
            .map(|pair| pair.ends[0].messages.len())
            .sum();
        let waiting = |pair: &Pair| pair.ends[0].messages.len();
        for (n, pair) in self.pairs.iter_mut().enumerate() {
            let lacks = if n < SHARING {
                waiting(pair) > 0 && to_shared > self.shared.posted.len()
            } else {
                waiting(pair) > pair.ends[1].recvs.len()
            };
            pair.excused |= lacks || pair.ends[1].messages.len() > pair.ends[0].recvs.len();
        }
    }

    fn poll(&mut self, n: usize, who: usize) {
        let most = self.rng.index(4);
        if self.rng.chance(0.5) {
            self.pairs[n].poll_sends(who, most);
        } else {
            self.pairs[n].poll_receives(who, most, &mut self.buffers[who], &mut self.shared);
        }
    }

    /// A short time.
    fn pass(&mut self, n: usize) {
        let time = Duration::from_micros(self.rng.below(1500));
        self.sim.run_for(time);
        self.accept();
        self.observe(n);
    }

    /// The link is well, and everything that is under way ends.
    fn settle(&mut self) {
        self.cut = false;
        self.set_loss(self.loss);
        loop {
            self.sim.run_until_idle();
            let before: Vec<bool> = self.connecting.iter().map(Option::is_some).collect();
            self.accept();
            self.sim.run_until_idle();
            self.accept();
            if !before.contains(&true) || self.connecting.iter().all(Option::is_none) {
                break;
            }
        }
        for n in 0..PAIRS {
            self.observe(n);
        }
        for pair in &mut self.pairs {
            for who in [0, 1] {
                pair.drain(who, &mut self.buffers[who], &mut self.shared);
            }
        }
        for pair in &mut self.pairs {
            for who in [0, 1] {
                assert!(
                    !matches!(pair.ends[who].state, QpState::Closing | QpState::Terminate),
                    "it rests in {:?}",
                    pair.ends[who].state
                );
            }
            pair.settle(&mut self.buffers, &mut self.shared);
            pair.check();
        }
        let first = self.shared.posted.first();
        assert!(
            first.is_none_or(|first| *first > self.shared.last_ended),
            "a buffer was left out"
        );
        self.buffers.iter().for_each(Buffers::check);
        for (_, bytes) in self.dead.iter().flatten() {
            assert!(bytes.to_vec().iter().all(|byte| *byte == 0));
        }
        for (known, bytes) in &self.gone {
            assert!(bytes.to_vec() == *known, "memory that has no region");
        }
    }

    pub(crate) fn set_loss(&mut self, loss: f64) {
        self.sim.link().change(|conditions| conditions.loss = loss);
    }

    pub(crate) fn observe(&mut self, n: usize) {
        let pair = &mut self.pairs[n];
        for who in [0, 1] {
            pair.observe(who, &mut self.buffers[who], &mut self.shared);
        }
        pair.check();
    }
}
