//! The random program: steps, and the comparison after each.

use std::time::Duration;

use xwarp::{
    Access, Connecting, DestroyError, Listener, QpChange, QpState, SharedBytes, SharedReceiveQueue,
    SrqConfig, Stag,
};
use xwarp_netsim::{Rng, Seed};
use xwarp_sim_tests::{Host, Sim};

use crate::buffers::Buffers;
use crate::pair::{Pair, SharedModel};
use crate::post::SHARED_DEPTH;
use crate::side::Side;

/// Connections, of which the first two share a receive queue at the second host.
const PAIRS: usize = 3;
/// Pairs of them whose second side takes buffers from the shared receive queue.
const SHARING: usize = 2;
/// Regions that are gone, and whose memory is watched.
const DEAD: usize = 8;
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
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Program {
    rng: Rng,
    pairs: Vec<Pair>,
    listeners: Vec<Listener>,
    connecting: Vec<Option<Connecting>>,
    buffers: [Buffers; 2],
    shared: SharedModel,
    srq: SharedReceiveQueue,
    /// Memory that was registered once, and its `STag`s: of both hosts.
    dead: [Vec<(Stag, SharedBytes)>; 2],
    loss: f64,
    cut: bool,
    ports: Vec<u16>,
    sim: Sim,
}

impl Program {
    pub(crate) fn new(seed: Seed, loss: f64) -> Self {
        let mut sim = Sim::new(seed)
            .one_way_delay(Duration::from_micros(200))
            .loss(loss)
            .expecting(&DROPS);
        let hosts = [sim.a(), sim.b()];
        let depth = SHARED_DEPTH;
        let srq = hosts[1]
            .pd()
            .create_srq(SrqConfig {
                depth,
                ..SrqConfig::default()
            })
            .unwrap();
        let pair = |n: usize| Pair {
            sides: [
                Side::new(&hosts[0], 2 * n as u64, None),
                Side::new(&hosts[1], 2 * n as u64 + 1, (n < SHARING).then_some(&srq)),
            ],
            excused: true,
            spoken: false,
            uses_windows: false,
        };
        let pairs = (0..PAIRS).map(pair).collect();
        let ports: Vec<u16> = (0..PAIRS).map(|_| sim.new_port()).collect();
        let listen = |port: &u16| hosts[1].rnic().listen(hosts[1].at(*port)).unwrap();
        Self {
            rng: Rng::new(seed, 1),
            pairs,
            listeners: ports.iter().map(listen).collect(),
            connecting: (0..PAIRS).map(|_| None).collect(),
            buffers: hosts.each_ref().map(Buffers::new),
            shared: SharedModel::default(),
            srq,
            dead: [Vec::new(), Vec::new()],
            loss,
            cut: false,
            ports,
            sim,
        }
    }

    /// One step of the program.
    pub(crate) fn step(&mut self) {
        let (n, who) = (self.rng.index(PAIRS), self.rng.index(2));
        // Time has passed for it in the steps of others.
        self.observe(n);
        match self.rng.index(100) {
            0..30 => self.post_send(n, who),
            30..55 => {
                let Self {
                    pairs,
                    buffers,
                    srq,
                    shared,
                    ..
                } = self;
                pairs[n].post_recv(who, &mut buffers[who], srq, shared);
            }
            55..69 => self.poll(n, who),
            69..76 => self.pass(n),
            76..89 => self.connect(n),
            89..94 => self.settle(),
            94 => self.modify(n, who),
            95 => self.end(n, who),
            96 => self.replace(n, who),
            97 => self.region(who),
            98 => self.change_link(),
            _ => self.query(n, who),
        }
        self.observe(n);
    }

    /// Everything comes to rest.
    pub(crate) fn finish(mut self) {
        self.settle();
        for n in 0..PAIRS {
            for who in [0, 1] {
                let side = &mut self.pairs[n].sides[who];
                side.qp().abort().unwrap();
                side.live = true;
                self.pairs[n].excused = true;
            }
        }
        self.settle();
        for pair in &self.pairs {
            let ended = |side: &Side| side.state == QpState::Error && side.sends.posted.is_empty();
            assert!(pair.sides.iter().all(ended));
        }
    }

    fn post_send(&mut self, n: usize, who: usize) {
        let (mine, peers) = (self.dead[who].last(), self.dead[1 - who].last());
        let dead = [mine, peers].map(|region| region.map(|(stag, _)| *stag));
        self.pairs[n].post_send(who, dead, &mut self.rng);
        self.excuse_where_buffers_lack();
    }

    /// A message without a buffer may end a connection.
    fn excuse_where_buffers_lack(&mut self) {
        let to_shared: usize = self.pairs[..SHARING]
            .iter()
            .map(|pair| pair.sides[0].messages.len())
            .sum();
        let waiting = |pair: &Pair| pair.sides[0].messages.len();
        for (n, pair) in self.pairs.iter_mut().enumerate() {
            let lacks = if n < SHARING {
                waiting(pair) > 0 && to_shared > self.shared.posted.len()
            } else {
                waiting(pair) > pair.sides[1].recvs.len()
            };
            pair.excused |= lacks || pair.sides[1].messages.len() > pair.sides[0].recvs.len();
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

    /// Lets the second host answer.
    fn accept(&mut self) {
        for n in 0..PAIRS {
            while let Some(request) = self.listeners[n].try_accept() {
                let side = &mut self.pairs[n].sides[1];
                if side.shown_state() == QpState::Idle && side.live {
                    // One that was given up meanwhile is refused.
                    let _ = request.accept(side.qp(), b"");
                } else {
                    request.reject(b"").unwrap_or(());
                }
            }
            if let Some(connecting) = &mut self.connecting[n]
                && let Some(result) = connecting.try_finish()
            {
                self.pairs[n].excused |= result.is_err();
                self.connecting[n] = None;
            }
        }
    }

    /// Connects the first side to the second, if both are Idle.
    fn connect(&mut self, n: usize) {
        if self.rng.chance(0.7) {
            self.recover(n);
        }
        self.observe(n);
        let pair = &mut self.pairs[n];
        let idle = |side: &Side| side.state == QpState::Idle;
        if !pair.sides.iter().all(idle) || self.connecting[n].is_some() {
            return;
        }
        for who in [0, 1] {
            pair.drain(who, &mut self.buffers[who], &mut self.shared);
            let side = &mut pair.sides[who];
            side.messages = side
                .sends
                .posted
                .iter()
                .filter_map(|work| work.message.clone())
                .collect();
            side.live = true;
        }
        let fine = |side: &Side| {
            side.sends
                .posted
                .iter()
                .all(|work| work.fate == crate::queue::Fate::Good)
        };
        pair.excused = self.cut || !pair.sides.iter().all(fine);
        pair.spoken = false;
        pair.post_first_word(0);
        let host = self.sim.b();
        let at = host.at(self.ports[n]);
        let connecting = pair.sides[0].qp().begin_connect(at, b"", CONNECT_LIMIT);
        self.connecting[n] = Some(connecting.unwrap());
        self.excuse_where_buffers_lack();
        if self.rng.chance(0.9) {
            for _ in 0..20 {
                self.sim.run_for(Duration::from_millis(1));
                self.accept();
            }
        }
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
                    !matches!(pair.sides[who].state, QpState::Closing | QpState::Terminate),
                    "it rests in {:?}",
                    pair.sides[who].state
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
            assert!(bytes.to_vec().iter().all(|octet| *octet == 0));
        }
    }

    fn set_loss(&mut self, loss: f64) {
        self.sim.link().change(|conditions| conditions.loss = loss);
    }

    /// To any state, of which few are legal.
    fn modify(&mut self, n: usize, who: usize) {
        use QpState::{Closing, Error, Idle, Rts, Terminate};
        let to = [Idle, Rts, Closing, Terminate, Error][self.rng.index(5)];
        self.modify_to(n, who, to);
    }

    fn modify_to(&mut self, n: usize, who: usize, to: QpState) {
        use QpState::{Closing, Error, Idle, Rts, Terminate};
        self.observe(n);
        let pair = &mut self.pairs[n];
        let side = &mut pair.sides[who];
        let from = side.qp().query().unwrap().state;
        let legal = matches!(
            (from, to),
            (Idle, Idle | Error) | (Rts, Rts | Closing | Terminate | Error) | (Error, Idle)
        );
        let result = side.qp().modify(QpChange::to(to));
        assert_eq!(result.is_ok(), legal, "{from:?} to {to:?}: {result:?}");
        let is = side.shown_state();
        if !legal || from == to {
            assert_eq!(is, from);
            return;
        }
        pair.excused = true;
        let follows: &[QpState] = match to {
            Closing => &[Closing, Error],
            Terminate => &[Terminate, Error],
            Idle => &[Idle],
            Rts | Error => &[Error],
        };
        assert!(follows.contains(&is), "{from:?} to {to:?} led to {is:?}");
        if from == Idle && to == Error {
            side.state = Rts; // what was posted ends
            pair.observe(who, &mut self.buffers[who], &mut self.shared);
        } else if to == Idle {
            side.state = Idle;
        }
    }

    /// What is in Error becomes Idle again.
    fn recover(&mut self, n: usize) {
        for who in [0, 1] {
            self.observe(n);
            if self.pairs[n].sides[who].state == QpState::Error {
                self.modify_to(n, who, QpState::Idle);
            }
        }
    }

    /// By a reset, or gracefully.
    fn end(&mut self, n: usize, who: usize) {
        self.observe(n);
        let pair = &mut self.pairs[n];
        pair.excused = true;
        let side = &mut pair.sides[who];
        if self.rng.chance(0.5) {
            side.graceful |= side.state == QpState::Rts;
            side.qp().begin_disconnect().unwrap();
        } else {
            side.live = true;
            side.qp().abort().unwrap();
        }
    }

    /// Destroys a queue pair, and creates another one.
    fn replace(&mut self, n: usize, who: usize) {
        self.observe(n);
        let pair = &mut self.pairs[n];
        let side = &mut pair.sides[who];
        if !matches!(side.state, QpState::Idle | QpState::Error) || !side.window_is.is_certain() {
            return;
        }
        let bound = side.window_is.bound.is_some();
        match side.qp.take().unwrap().destroy() {
            Ok(()) => assert!(!bound, "destroyed with a window"),
            Err(refused) => {
                assert!(bound && matches!(refused.error, DestroyError::WindowsBound));
                side.qp = Some(*refused.object);
                return;
            }
        }
        let srq = side.shared.then_some(&self.srq);
        side.replace_qp(srq);
        let (buffers, shared) = (&mut self.buffers[who], &mut self.shared);
        for id in std::mem::take(&mut pair.sides[who].recvs) {
            buffers.ended(id, None);
        }
        pair.forget_sends(who);
        pair.drain(who, buffers, shared);
        pair.excused = true;
        pair.sides[who].live = false;
    }

    /// Registers memory and deregisters it: its `STag` is dead from then on.
    fn region(&mut self, who: usize) {
        let host: Host = if who == 0 { self.sim.a() } else { self.sim.b() };
        if self.dead[who].len() < DEAD {
            let region = host.region(64, Access::all());
            let (stag, bytes) = (region.stag(), region.bytes().clone());
            assert!(region.query().unwrap().is_valid());
            assert!(region.deallocate().is_ok());
            self.dead[who].push((stag, bytes));
        }
    }

    fn change_link(&mut self) {
        self.cut = !self.cut;
        self.set_loss(if self.cut { 1.0 } else { self.loss });
        if self.cut {
            for pair in &mut self.pairs {
                pair.excused = true;
            }
        }
    }

    fn query(&mut self, n: usize, who: usize) {
        let side = &mut self.pairs[n].sides[who];
        let info = side.qp().query().unwrap();
        assert_eq!(info.state, side.shown_state());
        assert_eq!(info.id, side.qp().id());
        let ended = matches!(info.state, QpState::Idle | QpState::Error);
        assert!(!ended || info.stream.is_none());
        assert!(
            info.terminate.is_none() || matches!(info.state, QpState::Terminate | QpState::Error)
        );
    }

    fn observe(&mut self, n: usize) {
        let pair = &mut self.pairs[n];
        for who in [0, 1] {
            pair.observe(who, &mut self.buffers[who], &mut self.shared);
        }
        pair.check();
    }
}
