//! Random work requests, and what is expected of them: those that change memory, and those that
//! what is registered decides on.

use xwarp::memory::{FastRegister, PhysicalList};
use xwarp::{Access, CompletionStatus, Opcode, RemoteAddress, SendRequest, Sge, Stag, WrId};
use xwarp_test_kit::netsim::Rng;

use crate::LONGEST;
use crate::draft::{Dead, Draft, remote, sge};
use crate::end::{PAGE, SINK, SPARE, VA};
use crate::memory::Patch;
use crate::pair::Pair;
use crate::queue::{Effect, Fate, Needs};
use crate::stag::{StagModel, Which};

/// Where windows begin in a sink.
const WINDOW_AT: usize = 32;

/// Where in a sink that begins which Fast-Register makes of it: as the key says, so that it is
/// known of any that there was.
fn fast_at(stag: Stag) -> usize {
    8 * usize::from(stag.key() % 4)
}

/// How work ends that needs the `STag`.
fn fate_by(model: &StagModel, otherwise: Fate) -> Fate {
    match (model.is_certain(), model.bound) {
        (false, _) => Fate::Open,
        (true, Some(_)) => Fate::Good,
        (true, None) => otherwise,
    }
}

/// How work ends that needs it to be Invalid.
fn fate_of_change(model: &StagModel) -> Fate {
    match (model.is_certain(), model.bound) {
        (false, _) => Fate::Open,
        (true, None) => Fate::Good,
        (true, Some(_)) => Fate::Refused(CompletionStatus::StagNotInvalid),
    }
}

impl Pair {
    /// The window may be bound to what the peer writes, but for the first bytes.
    pub(crate) fn bind(&mut self, who: usize) -> Draft {
        let id = WrId(self.next_id(who));
        let end = &mut self.ends[who];
        let first = remote(&end.sink, WINDOW_AT);
        let len = (2 * LONGEST - WINDOW_AT) as u64;
        let bind = end.window.bind(first, len, Access::REMOTE_WRITE);
        let mut draft = Draft::new(SendRequest::bind(id, bind), Opcode::Bind, 0);
        draft.work.effect = Effect::Bind(Which::Window, bind.window);
        draft.work.fate = fate_of_change(&end.window_is);
        draft
    }

    /// The sink, but for some of the first bytes, in the order of its pages.
    pub(crate) fn fast_register(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let id = WrId(self.next_id(who));
        let end = &mut self.ends[who];
        let at = end.host.rnic().physical_address(end.sink.bytes());
        let at = at.unwrap();
        let list = PhysicalList {
            entry_size: PAGE as u64,
            addresses: vec![at, at + PAGE as u64].into(),
            first_byte_offset: 0,
            len: SINK as u64,
        };
        let access = Access::all().difference(Access::BIND_WINDOWS);
        let mut request = end.fast.fast_register(list, access);
        let begin = fast_at(request.stag) as u64;
        (request.list.first_byte_offset, request.list.len) = (begin, SINK as u64 - begin);
        let (mut fate, stag) = (fate_of_change(&end.fast_is), request.stag);
        let mut effect = Effect::Bind(Which::Fast, stag);
        if fate == Fate::Good && rng.chance(0.1) {
            (fate, effect) = (Fate::Refused(spoil(&mut request, rng)), Effect::Nothing);
        }
        let mut draft = Draft::new(
            SendRequest::fast_register(id, request),
            Opcode::FastRegister,
            0,
        );
        (draft.work.effect, draft.work.fate) = (effect, fate);
        draft
    }

    pub(crate) fn unbind(&mut self, who: usize, which: Which) -> Option<Draft> {
        let model = self.ends[who].stag_is(which);
        let stag = model.bound.filter(|_| model.is_certain())?;
        let request = SendRequest::invalidate(WrId(self.next_id(who)), stag);
        let mut draft = Draft::new(request, Opcode::Invalidate, 0);
        draft.work.effect = Effect::Unbind(which);
        Some(draft)
    }

    /// A Write by an `STag` of the peer's that may be Invalid, and of whose bytes the first ones
    /// may not be in it.
    pub(crate) fn write_by(&mut self, who: usize, which: Which, rng: &mut Rng) -> Option<Draft> {
        let id = WrId(self.next_id(who));
        let (place, _, mut bytes) = self.source(who, rng);
        let at = rng.index(2 * LONGEST - bytes.len() + 1);
        let model = self.ends[1 - who].stag_is(which);
        let stag = model.bound.or(model.stale)?;
        let (begin, base) = match which {
            Which::Window => (WINDOW_AT, VA),
            Which::Fast => (fast_at(stag), (fast_at(stag) as u64).wrapping_neg()),
        };
        let mut fate = fate_by(model, Fate::Fatal);
        if at < begin {
            fate = Fate::Fatal;
        }
        if bytes.is_empty() {
            fate = Fate::Good;
        }
        let to = base.wrapping_add(at as u64);
        let request = SendRequest::write(id, place, RemoteAddress { stag, to });
        let mut draft = Draft::new(request, Opcode::Write, bytes.len());
        if fate == Fate::Fatal {
            bytes.clear();
        }
        draft.work.effect = Effect::Write(Patch { at, bytes });
        draft.work.fate = fate;
        self.uses_stags = true;
        Some(draft)
    }

    /// A Read into what Fast-Register has registered, which may invalidate that.
    pub(crate) fn read_into_fast(&mut self, who: usize, rng: &mut Rng) -> Option<Draft> {
        let id = WrId(self.next_id(who));
        let (_, from, bytes) = self.source(1 - who, rng);
        let model = &self.ends[who].fast_is;
        let stag = model.bound.or(model.stale).filter(|_| !bytes.is_empty())?;
        let at = 2 * LONGEST + rng.index(2 * LONGEST - bytes.len() + 1);
        let place = Sge {
            stag,
            to: (at - fast_at(stag)) as u64,
            len: u32::try_from(bytes.len()).unwrap(),
        };
        let fate = fate_by(model, Fate::Refused(CompletionStatus::InvalidStag));
        let from = remote(&self.ends[1 - who].source, from);
        let mut draft = Draft::new(
            SendRequest::read(id, place, from),
            Opcode::Read,
            bytes.len(),
        );
        let invalidates = rng.chance(0.6);
        if invalidates {
            draft.request = draft.request.invalidating_sink();
            draft.work.opcode = Opcode::ReadInvalidate;
        }
        let patch = Patch { at, bytes };
        draft.work.effect = match fate {
            Fate::Refused(_) => Effect::Nothing,
            _ if invalidates => Effect::ReadInvalidate(patch),
            _ => Effect::Read(patch),
        };
        (draft.work.fate, draft.work.needs) = (fate, Some(Needs::Fast));
        Some(draft)
    }

    /// A Send of the byte behind what Fast-Register has registered.
    pub(crate) fn send_behind_fast(&mut self, who: usize, rng: &mut Rng) -> Option<Draft> {
        let mut draft = self.send(who, rng);
        let model = &self.ends[who].fast_is;
        let stag = model.bound.or(model.stale)?;
        let outside = Sge {
            stag,
            to: (SINK - fast_at(stag)) as u64,
            len: 1,
        };
        let status = match fate_by(model, Fate::Fatal) {
            Fate::Good => Fate::Refused(CompletionStatus::BaseBounds),
            Fate::Fatal => Fate::Refused(CompletionStatus::InvalidStag),
            other => other,
        };
        draft.request = SendRequest::send(draft.request.wr_id, outside);
        draft.work.opcode = Opcode::Send;
        (draft.work.len, draft.work.message) = (1, None);
        (draft.work.fate, draft.work.needs) = (status, Some(Needs::Fast));
        Some(draft)
    }

    /// A Write to the region that is registered anew time and again: as it is, or as it was.
    pub(crate) fn write_to_spare(&mut self, who: usize, rng: &mut Rng) -> Draft {
        let id = WrId(self.next_id(who));
        let (spare, len) = (&self.ends[1 - who].spare, rng.index(SPARE / 2));
        let at = rng.index(SPARE - len + 1);
        let place = sge(&self.ends[who].source, 0, len);
        let mut bytes = self.ends[who].free_bytes()[..len].to_vec();
        let stale = spare.stale.filter(|_| rng.chance(0.1));
        let to = stale.unwrap_or_else(|| remote(&spare.region, at));
        let mut draft = Draft::new(SendRequest::write(id, place, to), Opcode::Write, len);
        if len > 0 && (stale.is_some() || !spare.writable) {
            draft.work.fate = Fate::Fatal;
            bytes.clear();
        }
        let at = SINK + at;
        draft.work.effect = Effect::Write(Patch { at, bytes });
        draft.work.needs = Some(Needs::Spare);
        self.uses_stags = true;
        draft
    }

    /// A Send from where nothing may be taken.
    pub(crate) fn refused(&mut self, who: usize, dead: Dead, rng: &mut Rng) -> Draft {
        let id = WrId(self.next_id(who));
        let source = &self.ends[who].source;
        let dead = dead[0].filter(|_| rng.chance(0.5));
        let of_dead = |stag| Sge {
            stag,
            to: 0,
            len: 8,
        };
        let (place, status) = match dead {
            Some(stag) => (of_dead(stag), CompletionStatus::InvalidStag),
            None => (
                sge(source, source.len() - 7, 8),
                CompletionStatus::BaseBounds,
            ),
        };
        let mut draft = Draft::new(SendRequest::send(id, place), Opcode::Send, 8);
        draft.work.fate = Fate::Refused(status);
        draft
    }

    /// A Write or Read of what the peer does not have, or a Send that shall invalidate what others
    /// use.
    pub(crate) fn fatal(&mut self, who: usize, dead: Dead, rng: &mut Rng) -> Draft {
        let id = WrId(self.next_id(who));
        let peer = &self.ends[1 - who];
        let to = match dead[1] {
            Some(stag) if rng.chance(0.5) => RemoteAddress { stag, to: 0 },
            _ => remote(&peer.source, peer.source.len() - 7),
        };
        let from = sge(&self.ends[who].source, 0, 8);
        let into = sge(&self.ends[who].sink, 2 * LONGEST, 8);
        let mut draft = match rng.index(3) {
            0 => Draft::new(SendRequest::write(id, from, to), Opcode::Write, 8),
            1 => Draft::new(SendRequest::read(id, into, to), Opcode::Read, 8),
            _ => {
                let mut draft = Draft::new(SendRequest::send(id, from), Opcode::Send, 8);
                draft.invalidating(peer.sink.stag());
                draft
            }
        };
        draft.work.fate = Fate::Fatal;
        draft
    }
}

/// Makes it one that cannot be (verbs.md §11.3, §12.2).
fn spoil(request: &mut FastRegister, rng: &mut Rng) -> CompletionStatus {
    let (list, page) = (&mut request.list, PAGE as u64);
    match rng.index(6) {
        0 => {
            list.addresses = [&*list.addresses, &[0]].concat().into();
            CompletionStatus::ListTooLong
        }
        1 => {
            (list.first_byte_offset, list.len) = (page + 1, 8);
            CompletionStatus::InvalidFirstByteOffset
        }
        2 => {
            list.len = 2 * page - list.first_byte_offset + 1;
            CompletionStatus::InvalidLength
        }
        3 => {
            list.entry_size = page + 8;
            CompletionStatus::InvalidPageSize
        }
        4 => {
            std::sync::Arc::make_mut(&mut list.addresses)[1] += 8;
            CompletionStatus::InvalidListEntry
        }
        _ => {
            request.access = Access::REMOTE_READ | Access::LOCAL_WRITE;
            CompletionStatus::InvalidRights
        }
    }
}
