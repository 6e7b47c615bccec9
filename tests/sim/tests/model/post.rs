//! Which work requests are posted, and what is expected of them.

use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, PostError, QpState, RecvRequest, RemoteAddress,
    SendRequest, Sge, Sgl, SharedReceiveQueue, Stag, WrId,
};
use xwarp_netsim::Rng;

use crate::LONGEST;
use crate::buffers::Buffers;
use crate::memory::Patch;
use crate::pair::{Pair, SharedModel, tagged};
use crate::queue::{Effect, Fate, Message, Work};
use crate::side::DEPTH;

/// Entries of the shared receive queue.
pub(crate) const SHARED_DEPTH: usize = 12;

fn remote(region: &MemoryRegion, at: usize) -> RemoteAddress {
    region.remote(at as u64)
}

fn sge(region: &MemoryRegion, at: usize, len: usize) -> Sge {
    region.local(at as u64, u32::try_from(len).unwrap())
}

/// A random piece of `room` octets that is mostly short.
fn piece(rng: &mut Rng, room: usize) -> (usize, usize) {
    let longest = if rng.chance(0.2) { LONGEST } else { 40 };
    let len = rng.index(longest + 1);
    (rng.index(room - len + 1), len)
}

/// `STag`s that were deallocated: of this side, and of the peer.
type Dead = [Option<Stag>; 2];

/// A work request with what is known of it.
struct Draft {
    request: SendRequest,
    work: Work,
}

impl Pair {
    /// Posts a random work request to the send queue of a side.
    pub(crate) fn post_send(&mut self, who: usize, dead: Dead, rng: &mut Rng) {
        let Some(mut draft) = self.draft(who, dead, rng) else {
            return;
        };
        if rng.chance(0.3) {
            draft.request = draft.request.unsignaled();
        }
        if rng.chance(0.1) {
            draft.request = draft.request.fenced();
        }
        draft.work.signaled = draft.request.signaled;
        self.submit(who, draft.request, draft.work);
    }

    /// Posts work whose effect is possible from then on, if it was posted.
    pub(crate) fn submit(&mut self, who: usize, request: SendRequest, work: Work) {
        let state = self.sides[who].shown_state();
        let queue = &self.sides[who].sends;
        let (held, posted) = (queue.held(), queue.posted.len());
        match self.sides[who].qp().post_send(request) {
            Ok(()) => {
                assert!(
                    matches!(state, QpState::Idle | QpState::Rts),
                    "posted in {state:?}"
                );
                assert!(held < DEPTH, "{held} are not polled");
                self.posted(who, work);
            }
            Err(PostError::InvalidState(its)) => {
                assert_eq!(its, state);
                assert!(!matches!(state, QpState::Idle | QpState::Rts));
            }
            Err(PostError::TooManyWorkRequests(_)) => {
                assert!(posted >= DEPTH, "{posted} are posted");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn posted(&mut self, who: usize, work: Work) {
        let id = tagged(who, work.id);
        match &work.effect {
            Effect::Nothing | Effect::Add(_) => {}
            Effect::Write(patch) => self.sides[1 - who].memory.begin(id, patch.clone()),
            Effect::Read(patch) => self.sides[who].memory.begin(id, patch.clone()),
            Effect::Bind(_) | Effect::Unbind => {
                self.sides[who].window_is.begin();
                self.excused |= self.uses_windows;
            }
        }
        if let Some(message) = &work.message {
            if message.invalidate.is_some() {
                self.sides[1 - who].window_is.begin();
                self.excused |= self.uses_windows;
            }
            if self.sides[who].live {
                self.sides[who].messages.push_back(message.clone());
            }
        }
        self.excused |= work.fate != Fate::Good;
        self.spoken |= who == 0 && !matches!(work.effect, Effect::Bind(_) | Effect::Unbind);
        self.sides[who].sends.posted.push_back(work);
    }

    fn draft(&mut self, who: usize, dead: Dead, rng: &mut Rng) -> Option<Draft> {
        let id = self.sides[who].next_id;
        self.sides[who].next_id += 1;
        match rng.index(40) {
            0..10 => Some(self.send(who, id, rng)),
            10..18 => Some(self.write(who, id, rng)),
            18..24 => Some(self.read(who, id, rng)),
            24..28 => Some(self.add(who, id, rng)),
            28..30 => Some(immediate(id, rng)),
            30..33 if self.sides[who].window_is.bound.is_none() || rng.chance(0.1) => {
                Some(self.bind(who, id))
            }
            30..33 => None,
            33..35 => self.unbind(who, id),
            35..37 => self.write_by_window(who, id, rng),
            37..38 => self.send_invalidating(who, id, rng),
            38..39 => Some(self.refused(who, id, dead, rng)),
            _ => Some(self.fatal(who, id, dead, rng)),
        }
    }

    fn source(&self, who: usize, rng: &mut Rng, room: usize) -> (Sge, usize, Vec<u8>) {
        let (at, len) = piece(rng, room);
        let octets = self.sides[who].free_octets()[at..at + len].to_vec();
        (sge(&self.sides[who].source, at, len), at, octets)
    }

    fn send(&self, who: usize, id: u64, rng: &mut Rng) -> Draft {
        let (place, _, octets) = self.source(who, rng, 4 * LONGEST);
        let mut draft = Draft::new(
            SendRequest::send(WrId(id), place),
            Opcode::Send,
            octets.len(),
        );
        draft.work.message = Some(Message {
            octets,
            immediate: None,
            invalidate: None,
        });
        draft
    }

    fn send_invalidating(&self, who: usize, id: u64, rng: &mut Rng) -> Option<Draft> {
        let window = &self.sides[1 - who].window_is;
        // One that waits for a connection would outlive what is known of the window.
        let connected = self.sides.iter().all(|side| side.state == QpState::Rts);
        let stag = window.bound.filter(|_| window.is_certain() && connected)?;
        let mut draft = self.send(who, id, rng);
        if let xwarp::Operation::Send { invalidate, .. } = &mut draft.request.operation {
            *invalidate = Some(stag);
        }
        draft.work.opcode = Opcode::SendInvalidate;
        draft.work.message.as_mut().unwrap().invalidate = Some(stag);
        Some(draft)
    }

    fn write(&self, who: usize, id: u64, rng: &mut Rng) -> Draft {
        let (place, _, octets) = self.source(who, rng, 4 * LONGEST);
        let at = rng.index(2 * LONGEST - octets.len() + 1);
        let to = remote(&self.sides[1 - who].sink, at);
        let mut draft = Draft::new(
            SendRequest::write(WrId(id), place, to),
            Opcode::Write,
            octets.len(),
        );
        draft.work.effect = Effect::Write(Patch { at, octets });
        draft
    }

    /// A Write to the peer's window, of whose octets the first ones are not in it.
    fn write_by_window(&mut self, who: usize, id: u64, rng: &mut Rng) -> Option<Draft> {
        let window = &self.sides[1 - who].window_is;
        let fate = match (window.is_certain(), window.bound) {
            (false, _) => Fate::Open,
            (true, Some(_)) => Fate::Good,
            (true, None) => Fate::Fatal,
        };
        let stag = window.bound.or(window.stale)?;
        let (place, _, mut octets) = self.source(who, rng, 4 * LONGEST);
        let at = rng.index(2 * LONGEST - octets.len() + 1);
        let to = RemoteAddress {
            stag,
            ..remote(&self.sides[1 - who].sink, at)
        };
        let outside = at < WINDOW_AT && !octets.is_empty();
        let fate = if octets.is_empty() {
            Fate::Open
        } else if outside {
            Fate::Fatal
        } else {
            fate
        };
        let mut draft = Draft::new(
            SendRequest::write(WrId(id), place, to),
            Opcode::Write,
            octets.len(),
        );
        if fate == Fate::Fatal {
            octets.clear();
        }
        draft.work.effect = Effect::Write(Patch { at, octets });
        draft.work.fate = fate;
        self.uses_windows = true;
        Some(draft)
    }

    fn read(&self, who: usize, id: u64, rng: &mut Rng) -> Draft {
        let (_, from, octets) = self.source(1 - who, rng, 4 * LONGEST);
        let at = 2 * LONGEST + rng.index(2 * LONGEST - octets.len() + 1);
        let place = sge(&self.sides[who].sink, at, octets.len());
        let request = SendRequest::read(WrId(id), place, remote(&self.sides[1 - who].source, from));
        let mut draft = Draft::new(request, Opcode::Read, octets.len());
        draft.work.effect = Effect::Read(Patch { at, octets });
        draft
    }

    fn add(&self, who: usize, id: u64, rng: &mut Rng) -> Draft {
        let add = rng.draw();
        let request =
            SendRequest::fetch_add(WrId(id), add, remote(&self.sides[1 - who].counter, 0));
        let mut draft = Draft::new(request, Opcode::FetchAdd, 8);
        draft.work.effect = Effect::Add(add);
        draft
    }

    /// The window may be bound to what the peer writes, but for the first octets.
    fn bind(&mut self, who: usize, id: u64) -> Draft {
        let side = &mut self.sides[who];
        let first = remote(&side.sink, WINDOW_AT);
        let bind = side.window.bind(
            first,
            (2 * LONGEST - WINDOW_AT) as u64,
            Access::REMOTE_WRITE,
        );
        let mut draft = Draft::new(SendRequest::bind(WrId(id), bind), Opcode::Bind, 0);
        draft.work.effect = Effect::Bind(bind.window);
        draft.work.fate = match (side.window_is.is_certain(), side.window_is.bound) {
            (false, _) => Fate::Open,
            (true, None) => Fate::Good,
            (true, Some(_)) => Fate::Refused(CompletionStatus::StagNotInvalid),
        };
        draft
    }

    fn unbind(&self, who: usize, id: u64) -> Option<Draft> {
        let window = &self.sides[who].window_is;
        let stag = window.bound.filter(|_| window.is_certain())?;
        let mut draft = Draft::new(
            SendRequest::invalidate(WrId(id), stag),
            Opcode::Invalidate,
            0,
        );
        draft.work.effect = Effect::Unbind;
        Some(draft)
    }

    /// A Send from where nothing may be taken.
    fn refused(&self, who: usize, id: u64, dead: Dead, rng: &mut Rng) -> Draft {
        let source = &self.sides[who].source;
        let (place, status) = match dead[0] {
            Some(stag) if rng.chance(0.5) => (
                Sge {
                    stag,
                    to: 0,
                    len: 8,
                },
                CompletionStatus::InvalidStag,
            ),
            _ => (
                sge(source, source.len() - 7, 8),
                CompletionStatus::BaseBounds,
            ),
        };
        let mut draft = Draft::new(SendRequest::send(WrId(id), place), Opcode::Send, 8);
        draft.work.fate = Fate::Refused(status);
        draft
    }

    /// A Write or Read of what the peer does not have.
    fn fatal(&self, who: usize, id: u64, dead: Dead, rng: &mut Rng) -> Draft {
        let peer = &self.sides[1 - who];
        let to = match dead[1] {
            Some(stag) if rng.chance(0.5) => RemoteAddress { stag, to: 0 },
            _ => remote(&peer.source, peer.source.len() - 7),
        };
        let mut draft = if rng.chance(0.5) {
            let from = sge(&self.sides[who].source, 0, 8);
            Draft::new(SendRequest::write(WrId(id), from, to), Opcode::Write, 8)
        } else {
            let into = sge(&self.sides[who].sink, 2 * LONGEST, 8);
            Draft::new(SendRequest::read(WrId(id), into, to), Opcode::Read, 8)
        };
        draft.work.fate = Fate::Fatal;
        draft
    }

    /// An empty Write, without which the peer of a side that has connected may not begin.
    pub(crate) fn post_first_word(&mut self, who: usize) {
        let id = self.sides[who].next_id;
        self.sides[who].next_id += 1;
        let to = remote(&self.sides[1 - who].sink, 0);
        let mut draft = Draft::new(
            SendRequest::write(WrId(id), Sgl::new(), to),
            Opcode::Write,
            0,
        );
        draft.request.signaled = false;
        draft.work.signaled = false;
        self.submit(who, draft.request, draft.work);
    }

    /// Posts a receive, to the shared receive queue where there is one.
    pub(crate) fn post_recv(
        &mut self,
        who: usize,
        buffers: &mut Buffers,
        srq: &mut SharedReceiveQueue,
        model: &mut SharedModel,
    ) {
        let side = &mut self.sides[who];
        let (id, place) = buffers.take();
        let request = RecvRequest::new(WrId(id), place);
        if side.shared {
            let result = srq.post_recv(request.clone());
            assert_eq!(
                result.is_ok(),
                model.posted.len() < SHARED_DEPTH,
                "{result:?}"
            );
            assert!(side.qp().post_recv(request).is_err());
            match result {
                Ok(()) => assert!(model.posted.insert(id)),
                Err(_) => buffers.put_back(id),
            }
            return;
        }
        let state = side.shown_state();
        match side.qp().post_recv(request) {
            Ok(()) => {
                assert!(matches!(state, QpState::Idle | QpState::Rts));
                side.recvs.push_back(id);
                assert!(side.recvs.len() <= DEPTH);
                return;
            }
            Err(PostError::InvalidState(its)) => assert_eq!(its, state),
            Err(error) => assert_eq!(error, PostError::TooManyWorkRequests(side.recvs.len())),
        }
        buffers.put_back(id);
    }
}

/// Where windows begin in a sink.
const WINDOW_AT: usize = 32;

impl Draft {
    fn new(request: SendRequest, opcode: Opcode, len: usize) -> Self {
        let work = Work {
            id: request.wr_id.0,
            opcode,
            signaled: true,
            len,
            effect: Effect::Nothing,
            message: None,
            fate: Fate::Good,
        };
        Self { request, work }
    }
}

fn immediate(id: u64, rng: &mut Rng) -> Draft {
    let data = rng.draw().to_be_bytes();
    let mut draft = Draft::new(SendRequest::immediate(WrId(id), data), Opcode::Immediate, 0);
    draft.work.message = Some(Message {
        octets: Vec::new(),
        immediate: Some(data),
        invalidate: None,
    });
    draft
}
