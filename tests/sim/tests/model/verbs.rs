//! Verbs that the program draws besides those that post and poll.

use xwarp::attr::QpChange;
use xwarp::error::{DestroyError, ModifyError, RegisterError, ResizeError};
use xwarp::memory::{RegionSpec, SharedBytes};
use xwarp::{Access, QpState};

use crate::end::{DEPTH, ModelEnd, SINK, SPARE, Spare, VA};
use crate::pair::Pair;
use crate::program::Program;
use crate::queue::{Needs, Reads};

/// Regions that are gone, and whose memory is watched.
const DEAD: usize = 8;
/// Memory that regions had before they were registered anew.
const GONE: usize = 12;
/// Depths that are drawn.
const DEPTHS: u64 = 4;
/// Work requests that a queue is made for when it is resized.
const FEWEST: usize = 4;

impl Program {
    /// To any state, of which few are legal.
    pub(crate) fn modify(&mut self, n: usize, who: usize) {
        use QpState::{Closing, Error, Idle, Rts, Terminate};
        let to = [Idle, Rts, Closing, Terminate, Error][self.rng.index(5)];
        self.modify_to(n, who, to);
    }

    fn modify_to(&mut self, n: usize, who: usize, to: QpState) {
        use QpState::{Closing, Error, Idle, Rts, Terminate};
        self.observe(n);
        let pair = &mut self.pairs[n];
        let end = &mut pair.ends[who];
        let from = end.qp().query().unwrap().state;
        let legal = matches!(
            (from, to),
            (Idle, Idle | Error) | (Rts, Rts | Closing | Terminate | Error) | (Error, Idle)
        );
        let result = end.qp().modify(QpChange::to(to));
        assert_eq!(result.is_ok(), legal, "{from:?} to {to:?}: {result:?}");
        let is = end.shown_state();
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
            end.state = Rts; // what was posted ends
            pair.observe(who, &mut self.buffers[who], &mut self.shared);
        } else if to == Idle {
            end.state = Idle;
        }
    }

    /// What is in Error becomes Idle again.
    pub(crate) fn recover(&mut self, n: usize) {
        for who in [0, 1] {
            self.observe(n);
            if self.pairs[n].ends[who].state == QpState::Error {
                self.modify_to(n, who, QpState::Idle);
            }
        }
    }

    /// By a reset, or gracefully.
    pub(crate) fn end(&mut self, n: usize, who: usize) {
        self.observe(n);
        let pair = &mut self.pairs[n];
        pair.excused = true;
        let end = &mut pair.ends[who];
        if self.rng.chance(0.5) {
            end.graceful |= end.state == QpState::Rts;
            end.qp().begin_disconnect().unwrap();
        } else {
            end.live = true;
            end.qp().abort().unwrap();
        }
    }

    /// Destroys a queue pair, and creates another one.
    pub(crate) fn replace(&mut self, n: usize, who: usize) {
        self.observe(n);
        let pair = &mut self.pairs[n];
        let end = &mut pair.ends[who];
        if !matches!(end.state, QpState::Idle | QpState::Error) || !end.window_is.is_certain() {
            return;
        }
        let bound = end.window_is.bound.is_some();
        match end.qp.take().unwrap().destroy() {
            Ok(()) => assert!(!bound, "destroyed with a window"),
            Err(refused) => {
                assert!(bound && matches!(refused.error, DestroyError::WindowsBound));
                end.qp = Some(*refused.object);
                return;
            }
        }
        let srq = end.shared.then_some(&self.srq);
        end.replace_qp(srq);
        let (buffers, shared) = (&mut self.buffers[who], &mut self.shared);
        for id in std::mem::take(&mut pair.ends[who].recvs) {
            buffers.ended(id, None);
        }
        pair.forget_sends(who);
        pair.drain(who, buffers, shared);
        pair.excused = true;
        pair.ends[who].live = false;
    }

    /// Registers memory and deregisters it: its `STag` is dead from then on.
    pub(crate) fn region(&mut self, who: usize) {
        let host = if who == 0 { self.sim.a() } else { self.sim.b() };
        if self.dead[who].len() < DEAD {
            let region = host.region(64, Access::all());
            let (stag, bytes) = (region.stag(), region.bytes().clone());
            assert!(region.query().unwrap().is_valid());
            assert!(region.deallocate().is_ok());
            self.dead[who].push((stag, bytes));
        }
    }

    pub(crate) fn change_interface(&mut self) {
        self.cut = !self.cut;
        self.set_loss(if self.cut { 1.0 } else { self.loss });
        if self.cut {
            for pair in &mut self.pairs {
                pair.excused = true;
            }
        }
    }

    pub(crate) fn query(&mut self, n: usize, who: usize) {
        let end = &mut self.pairs[n].ends[who];
        let info = end.qp().query().unwrap();
        assert_eq!(info.state, end.shown_state());
        assert_eq!(info.id, end.qp().id());
        end.check_depths();
        let ended = matches!(info.state, QpState::Idle | QpState::Error);
        assert!(!ended || info.stream.is_none());
        assert!(
            info.terminate.is_none() || matches!(info.state, QpState::Terminate | QpState::Error)
        );
    }

    /// Other depths: on the next connection, or at once.
    pub(crate) fn modify_depths(&mut self, n: usize, who: usize) {
        self.observe(n);
        let pair = &mut self.pairs[n];
        let state = pair.ends[who].state;
        let mut depths = [0; 2].map(|_| u16::try_from(self.rng.below(DEPTHS)).unwrap());
        if state == QpState::Rts && self.rng.chance(0.9) {
            let peer = &pair.ends[1 - who].depths;
            depths = [depths[0].min(peer[1]).max(1), depths[1].max(peer[0])];
        }
        let [ord, ird] = depths;
        let starting = state == QpState::Idle && pair.ends[who].live;
        if starting || !matches!(state, QpState::Idle | QpState::Rts) {
            return;
        }
        let end = &mut pair.ends[who];
        let change = QpChange::to(state).ord(ord).ird(ird);
        let given = end.qp().modify(change).unwrap();
        assert_eq!([given.ord, given.ird], depths);
        if state == QpState::Idle {
            end.wished = depths;
            return;
        }
        if ord == 0 || end.depths[0] == 0 {
            end.sends.reads = Reads::Open;
            pair.excused = true;
        }
        pair.ends[who].depths = depths;
        pair.excused |= pair.may_overrun();
    }

    /// Queues of other depths, unless there is more in them.
    pub(crate) fn resize_queue(&mut self, n: usize, who: usize) {
        self.observe(n);
        let end = &mut self.pairs[n].ends[who];
        if !matches!(end.state, QpState::Idle | QpState::Rts) {
            return;
        }
        let (sends, wanted) = (
            end.shared || self.rng.chance(0.5),
            FEWEST + self.rng.index(9),
        );
        let change = QpChange::to(end.state);
        let change = if sends {
            change.send_depth(wanted)
        } else {
            change.recv_depth(wanted)
        };
        let (least, most) = if sends {
            (end.sends.held(), end.sends.posted.len())
        } else {
            (end.recvs.len(), end.recvs.len())
        };
        match end.qp().modify(change) {
            Ok(_) => {
                assert!(wanted >= least, "{least} in {wanted}");
                end.queue_depths[usize::from(!sends)] = wanted;
            }
            Err(ModifyError::TooManyPresent { present, .. }) => {
                assert!(wanted < present && least <= present && present <= most);
            }
            Err(error) => panic!("{error}"),
        }
        let info = end.qp().query().unwrap();
        let [send_depth, recv_depth] = end.queue_depths;
        assert_eq!(info.send_depth, send_depth);
        assert!(end.shared || info.recv_depth == recv_depth);
    }

    /// A protection domain can be deallocated once it has no objects (verbs.md §1).
    pub(crate) fn domain(&mut self, who: usize) {
        let host = if who == 0 { self.sim.a() } else { self.sim.b() };
        let (pd, mut objects) = (self.domains[who].take())
            .unwrap_or_else(|| (host.rnic().allocate_pd().unwrap(), Vec::new()));
        match self.rng.index(5) {
            0 => objects.push(Box::new(pd.allocate(8, Access::all()).unwrap())),
            1 => objects.push(Box::new(pd.allocate_window().unwrap())),
            2 => objects.push(Box::new(pd.allocate_stag(1, true).unwrap())),
            3 => drop(objects.pop()),
            _ => match pd.deallocate() {
                Ok(()) => return assert!(objects.is_empty()),
                Err(refused) => {
                    assert_eq!(refused.error, DestroyError::DomainInUse(objects.len()));
                    assert!(!objects.is_empty());
                    self.domains[who] = Some((*refused.object, objects));
                    return;
                }
            },
        }
        self.domains[who] = Some((pd, objects));
    }

    /// Fewer entries than there are completions are refused; nothing is lost either way.
    pub(crate) fn resize(&mut self, n: usize, who: usize) {
        let (few, many) = (1 + self.rng.index(6), (4 + self.rng.index(4)) * DEPTH);
        let pair = &mut self.pairs[n];
        let end = &mut pair.ends[who];
        let sends = self.rng.chance(0.5);
        let cq = if sends {
            &mut end.send_cq
        } else {
            &mut end.recv_cq
        };
        let result = cq.resize(few);
        cq.resize(many).unwrap();
        assert_eq!(cq.query().unwrap().entries, many);
        let present = if sends {
            pair.poll_sends(who, usize::MAX)
        } else {
            pair.poll_receives(who, usize::MAX, &mut self.buffers[who], &mut self.shared)
        };
        match result {
            Ok(()) => assert!(present <= few, "{present} in {few}"),
            Err(ResizeError::TooManyPresent { present: told, .. }) => {
                assert_eq!(told, present);
                assert!(present > few);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// RI-Reregister: other memory, Tagged Offsets, rights and key, at once. With a window it is
    /// refused, and all stays as it is.
    pub(crate) fn reregister(&mut self, n: usize, who: usize) {
        let pair = &mut self.pairs[n];
        let end = &mut pair.ends[who];
        let host = end.host.clone();
        let memory = host.rnic().allocate_memory(SPARE).unwrap();
        let writable = self.rng.chance(0.7);
        let access = if writable {
            Access::all()
        } else {
            Access::all().difference(Access::REMOTE_WRITE)
        };
        let base = VA * (1 + self.rng.below(5));
        let spec = RegionSpec::new(access).at(base);
        if end.window_is.is_certain() && end.window_is.bound.is_some() {
            refuse_reregister(end, &memory, &spec);
        }
        let nothing = host.region(SPARE, access);
        let former = std::mem::replace(&mut end.spare.region, nothing);
        let (bytes, stale) = (former.bytes().clone(), former.remote(0));
        let spec = spec.with_key(stale.stag.key().wrapping_add(1));
        let region = former.reregister(host.pd(), memory, &spec).unwrap();
        assert_eq!(region.stag().index(), stale.stag.index());
        let stale = Some(stale);
        end.spare = Spare {
            region,
            writable,
            stale,
        };
        end.memory.renew(SINK);
        pair.excused |= pair.uses_stags;
        pair.ends[1 - who].sends.open(Needs::Spare);
        self.gone.push_back((bytes.to_vec(), bytes));
        if self.gone.len() > GONE {
            self.gone.pop_front();
        }
    }
}

/// The sink has a window: Reregister leaves it as it is.
fn refuse_reregister(end: &mut ModelEnd, memory: &SharedBytes, spec: &RegionSpec) {
    let host = end.host.clone();
    let nothing = host.region(SPARE, spec.access);
    let sink = std::mem::replace(&mut end.sink, nothing);
    let before = sink.query().unwrap();
    let refused = sink.reregister(host.pd(), memory.clone(), spec);
    let refused = refused.unwrap_err();
    assert!(matches!(refused.error, RegisterError::WindowsBound));
    end.sink = refused.region.unwrap();
    assert_eq!(end.sink.query().unwrap(), before);
}

impl Pair {
    /// The depths of a connection that MPA's start-up makes: no end asks for more than the other
    /// one serves (RFC 6581 §9.1).
    pub(crate) fn settle_depths(&mut self) {
        let [a, b] = &mut self.ends;
        let (first, second) = (a.wished, b.wished);
        a.depths = [first[0].min(second[1]), first[1]];
        b.depths = [second[0].min(first[1]), second[1].min(first[0])];
        self.judge_reads();
    }

    /// The same without MPA, where applications see to it; the ORD of both.
    pub(crate) fn agree_on_depths(&mut self) -> [u16; 2] {
        let [a, b] = &mut self.ends;
        (a.depths, b.depths) = (a.wished, b.wished);
        a.depths[0] = a.wished[0].min(b.wished[1]);
        b.depths[0] = b.wished[0].min(a.wished[1]);
        let ords = [a.depths[0], b.depths[0]];
        self.judge_reads();
        ords
    }

    fn judge_reads(&mut self) {
        for end in &mut self.ends {
            end.sends.reads = match end.depths[0] {
                0 => Reads::Refused,
                _ => Reads::Fine,
            };
        }
    }
}
