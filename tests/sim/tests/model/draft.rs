//! Random work requests, and what is expected of them: messages.

use xwarp::error::PostError;
use xwarp::work::{AtomicOperation, Operation, Sgl};
use xwarp::{MemoryRegion, Opcode, RemoteAddress, SendRequest, Sge, Stag, WrId};
use xwarp_test_kit::netsim::Rng;

use crate::LONGEST;
use crate::memory::Patch;
use crate::pair::Pair;
use crate::queue::{Change, Effect, Fate, Message, Work};
use crate::stag::Which;

/// `STag`s that were deallocated: of this end, and of the peer.
pub(crate) type Dead = [Option<Stag>; 2];

/// A work request with what is known of it.
pub(crate) struct Draft {
    pub(crate) request: SendRequest,
    pub(crate) work: Work,
}

pub(crate) fn remote(region: &MemoryRegion, at: usize) -> RemoteAddress {
    region.remote(at as u64)
}

pub(crate) fn sge(region: &MemoryRegion, at: usize, len: usize) -> Sge {
    region.local(at as u64, u32::try_from(len).unwrap())
}

/// A random piece of `room` bytes that is mostly short.
fn piece(rng: &mut Rng, room: usize) -> (usize, usize) {
    let longest = if rng.chance(0.2) { LONGEST } else { 40 };
    let len = rng.index(longest + 1);
    (rng.index(room - len + 1), len)
}

impl Draft {
    pub(crate) fn new(request: SendRequest, opcode: Opcode, len: usize) -> Self {
        let work = Work {
            id: request.wr_id.0,
            opcode,
            signaled: true,
            fenced: false,
            len,
            effect: Effect::Nothing,
            message: None,
            fate: Fate::Good,
            needs: None,
        };
        Self { request, work }
    }

    /// The same, now and then without a completion, or with a fence.
    pub(crate) fn flagged(mut self, rng: &mut Rng) -> Self {
        if rng.chance(0.3) {
            self.request = self.request.unsignaled();
        }
        if rng.chance(0.1) {
            self.request = self.request.fenced();
        }
        if self.work.opcode == Opcode::Invalidate && rng.chance(0.5) {
            self.request = self.request.locally_fenced();
            self.work.fenced = true;
        }
        self.work.signaled = self.request.signaled;
        self
    }

    /// Makes it one that cannot even be posted.
    pub(crate) fn forbid(&mut self, rng: &mut Rng) -> PostError {
        let id = self.request.wr_id;
        if rng.chance(0.5) {
            self.request = SendRequest::invalidate(id, Stag(0));
            return PostError::StagZero;
        }
        let endless = Sge {
            stag: Stag(1),
            to: 0,
            len: u32::MAX,
        };
        self.request = SendRequest::send(id, Sgl::from_iter([endless; 2]));
        PostError::TooLong
    }

    /// The peer receives this.
    fn message(&mut self, bytes: Vec<u8>, immediate: Option<[u8; 8]>, rng: &mut Rng) {
        let solicited = rng.chance(0.2);
        if solicited {
            self.request = self.request.clone().solicited();
        }
        if solicited && self.work.opcode == Opcode::Send {
            self.work.opcode = Opcode::SendSolicited;
        }
        self.work.message = Some(Message {
            id: self.work.id,
            solicited,
            bytes,
            immediate,
            invalidate: None,
        });
    }
}

impl Pair {
    pub(crate) fn next_id(&mut self, who: usize) -> u64 {
        let id = self.ends[who].next_id;
        self.ends[who].next_id += 1;
        id
    }

    /// Anything.
    pub(crate) fn draft(&mut self, who: usize, dead: Dead, rng: &mut Rng) -> Option<Draft> {
        match rng.index(65) {
            0..36 => Some(self.transfer(who, rng)),
            36..39 if self.ends[who].window_is.bound.is_none() || rng.chance(0.1) => {
                Some(self.bind(who))
            }
            39..41 => self.unbind(who, Which::Window),
            41..43 => self.write_by(who, Which::Window, rng),
            43 => self.send_invalidating(who, rng),
            44..48 if self.ends[who].fast_is.bound.is_none() || rng.chance(0.1) => {
                Some(self.fast_register(who, rng))
            }
            48..51 => self.unbind(who, Which::Fast),
            51..53 => self.write_by(who, Which::Fast, rng),
            53..59 => self.read_into_fast(who, rng),
            59 => self.send_behind_fast(who, rng),
            60..63 => Some(self.write_to_spare(who, rng)),
            63 => Some(self.refused(who, dead, rng)),
            64 => Some(self.fatal(who, dead, rng)),
            _ => None,
        }
    }

    /// What needs nothing but memory that is always there.
    pub(crate) fn transfer(&mut self, who: usize, rng: &mut Rng) -> Draft {
        match rng.index(36) {
            0..10 => self.send(who, rng),
            10..18 => self.write(who, rng),
            18..25 => self.read(who, rng),
            25..30 => self.atomic(who, rng),
            30..32 => self.immediate(who, rng),
            _ => self.write_immediate(who, rng),
        }
    }

    /// A range of the source region, which never changes, and what it holds.
    pub(crate) fn source(&self, who: usize, rng: &mut Rng) -> (Sge, usize, Vec<u8>) {
        let (at, len) = piece(rng, 4 * LONGEST);
        let bytes = self.ends[who].free_bytes()[at..at + len].to_vec();
        (sge(&self.ends[who].source, at, len), at, bytes)
    }

    /// The same for a message, in several pieces.
    fn sources(&self, who: usize, rng: &mut Rng) -> (Sgl, Vec<u8>) {
        let (place, at, bytes) = self.source(who, rng);
        let cut = rng.index(bytes.len() + 1);
        let source = &self.ends[who].source;
        if rng.chance(0.7) {
            return (place.into(), bytes);
        }
        let pieces = [
            sge(source, at, cut),
            sge(source, 0, 0),
            sge(source, at + cut, bytes.len() - cut),
        ];
        (Sgl::from_iter(pieces), bytes)
    }

    pub(crate) fn send(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let (id, (sgl, bytes)) = (self.next_id(who), self.sources(who, rng));
        let request = SendRequest::send(WrId(id), sgl);
        let mut draft = Draft::new(request, Opcode::Send, bytes.len());
        draft.message(bytes, None, rng);
        draft
    }

    fn send_invalidating(&mut self, who: usize, rng: &mut Rng) -> Option<Draft> {
        let window = &self.ends[1 - who].window_is;
        // One that waits for a connection would outlive what is known of the window.
        let connected = (self.ends.iter()).all(|end| end.state == xwarp::QpState::Rts);
        let stag = window.bound.filter(|_| window.is_certain() && connected)?;
        let mut draft = self.send(who, rng);
        draft.invalidating(stag);
        draft.work.message.as_mut().unwrap().invalidate = Some(stag);
        Some(draft)
    }

    fn write(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let (id, (sgl, bytes)) = (self.next_id(who), self.sources(who, rng));
        let at = rng.index(2 * LONGEST - bytes.len() + 1);
        let to = remote(&self.ends[1 - who].sink, at);
        let request = SendRequest::write(WrId(id), sgl, to);
        let mut draft = Draft::new(request, Opcode::Write, bytes.len());
        draft.work.effect = Effect::Write(Patch { at, bytes });
        draft
    }

    fn immediate(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let data = rng.draw().to_be_bytes();
        let request = SendRequest::immediate(WrId(self.next_id(who)), data);
        let mut draft = Draft::new(request, Opcode::Immediate, 0);
        draft.message(Vec::new(), Some(data), rng);
        draft
    }

    /// Two messages of one work request.
    fn write_immediate(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let mut draft = self.write(who, rng);
        let data = rng.draw().to_be_bytes();
        if let Operation::Write {
            payload: sgl,
            remote,
        } = draft.request.operation
        {
            draft.request = SendRequest::write_immediate(draft.request.wr_id, sgl, remote, data);
        }
        draft.work.opcode = Opcode::WriteImmediate;
        draft.message(Vec::new(), Some(data), rng);
        draft
    }

    fn read(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let (id, (_, from, bytes)) = (self.next_id(who), self.source(1 - who, rng));
        let at = 2 * LONGEST + rng.index(2 * LONGEST - bytes.len() + 1);
        let place = sge(&self.ends[who].sink, at, bytes.len());
        let request = SendRequest::read(WrId(id), place, remote(&self.ends[1 - who].source, from));
        let mut draft = Draft::new(request, Opcode::Read, bytes.len());
        draft.work.effect = Effect::Read(Patch { at, bytes });
        draft
    }

    /// An addition, or an exchange that is made now and then.
    fn atomic(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let counts = &self.ends[1 - who].counts;
        let there = *counts.iter().next().unwrap_or(&0);
        let mask = if rng.chance(0.5) {
            u64::MAX
        } else {
            rng.draw()
        };
        let (opcode, operation) = if rng.chance(0.5) {
            let add = rng.draw();
            (Opcode::FetchAdd, AtomicOperation::FetchAdd { add, mask: 0 })
        } else {
            let equal = there & mask | rng.draw() & !mask;
            let compare = if rng.chance(0.8) { equal } else { rng.draw() };
            let exchange = AtomicOperation::CompareSwap {
                compare,
                compare_mask: mask,
                swap: rng.draw(),
                swap_mask: rng.draw() | mask,
            };
            (Opcode::CompareSwap, exchange)
        };
        let place = remote(&self.ends[1 - who].counter, 0);
        let request = SendRequest::atomic(WrId(self.next_id(who)), operation, place);
        let mut draft = Draft::new(request, opcode, 8);
        draft.work.effect = Effect::Atomic(Change(operation));
        draft
    }
}

impl Draft {
    /// The peer shall invalidate this.
    pub(crate) fn invalidating(&mut self, stag: Stag) {
        if let Operation::Send { invalidate, .. } = &mut self.request.operation {
            *invalidate = Some(stag);
        }
        self.work.opcode = match self.work.opcode {
            Opcode::SendSolicited => Opcode::SendSolicitedInvalidate,
            _ => Opcode::SendInvalidate,
        };
    }
}
