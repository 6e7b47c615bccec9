//! Reference for segments: it reads their bytes, judges them by wire.md §9, and places them into
//! its own memory.

use std::collections::VecDeque;

use xwarp::Access;
use xwarp::error::TermCode;

use super::areas::{Areas, Denied};
use super::fields::{Atomic, Fields, ReadRequest};

/// Bytes of the RDMAP headers that requests consist of (RFC 5040 §4.4, RFC 7306 §5.2.1).
const READ_REQUEST: usize = 28;
const ATOMIC_REQUEST: usize = 52;
/// Requests of the peer's that may wait when a connection begins.
pub(super) const IRD: usize = 4;

pub(super) enum Outcome {
    Fine,
    /// With one of these codes.
    Refused(Vec<TermCode>),
    /// It is the peer's Terminate.
    Terminated,
}

/// A receive that was filled.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) id: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) immediate: Option<[u8; 8]>,
    pub(super) invalidated: Option<u32>,
    pub(super) solicited: bool,
}

/// A Send of which not all is there.
pub(super) struct Open {
    pub(super) rdmap: u8,
    pub(super) stag: u32,
    pub(super) bytes: Vec<u8>,
}

/// What the RNIC has asked the peer for.
#[derive(Debug)]
pub(super) enum Awaited {
    Read { stag: u32, to: u64, left: usize },
    Atomic { id: u32 },
}

/// An answer that the peer must get, whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Read { stag: u32, to: u64, bytes: Vec<u8> },
    Atomic { msn: u32, id: u32, original: u64 },
}

pub(super) struct Reference {
    pub(super) areas: Areas,
    /// Receives: their names and lengths.
    pub(super) posted: VecDeque<(u64, usize)>,
    pub(super) open: Option<Open>,
    pub(super) send_msn: u32,
    pub(super) request_msn: u32,
    pub(super) response_msn: u32,
    answer_msn: u32,
    /// Requests of the peer's that may wait.
    pub(super) ird: usize,
    /// A part of an answer is here.
    pub(super) answer_begun: bool,
    /// What Atomic Responses have said.
    pub(super) originals: VecDeque<u64>,
    pub(super) awaited: VecDeque<Awaited>,
    pub(super) received: Vec<Received>,
    pub(super) answers: Vec<Answer>,
}

impl Reference {
    pub(super) fn new(areas: Areas) -> Self {
        Self {
            areas,
            posted: VecDeque::new(),
            open: None,
            send_msn: 1,
            request_msn: 1,
            response_msn: 1,
            answer_msn: 1,
            ird: IRD,
            answer_begun: false,
            originals: VecDeque::new(),
            awaited: VecDeque::new(),
            received: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// What a segment leads to, if nothing is under way but `waiting` requests of the peer's.
    pub(super) fn judge(&self, ulpdu: &[u8], waiting: usize) -> Outcome {
        let Some(fields) = Fields::read(ulpdu) else {
            return Outcome::Refused(vec![TermCode::ddp_local()]); // rows 36, 37
        };
        let mut faults = Vec::new();
        if fields.control & 3 != 1 {
            faults.push(if fields.is_tagged() {
                TermCode::ddp_tagged(4) // row 50
            } else {
                TermCode::ddp_untagged(6) // row 51
            });
        }
        if fields.rdmap >> 6 != 1 {
            faults.push(TermCode::rdmap_operation(5)); // row 52
        }
        let queue = match fields.opcode() {
            0 | 2 => None,
            3..=6 | 8 | 9 => Some(0),
            1 | 10 => Some(1),
            7 => Some(2),
            11 => Some(3),
            _ => Some(u32::MAX),
        };
        let fits = queue == (!fields.is_tagged()).then_some(fields.qn) && fields.opcode() < 12;
        if !fits {
            faults.push(TermCode::rdmap_operation(6)); // rows 54 to 59
        }
        match (fields.is_tagged(), fields.qn) {
            (true, _) if fields.opcode() == 0 => faults.extend(self.write_faults(&fields)),
            (true, _) if fields.opcode() == 2 => faults.extend(self.response_faults(&fields)),
            (false, 0) => faults.extend(self.send_faults(&fields)),
            (false, 1) => faults.extend(self.request_faults(&fields, waiting)),
            (false, 2) if faults.is_empty() => return Outcome::Terminated, // row 100
            (false, 3) => faults.extend(self.atomic_response_faults(&fields)),
            (false, 4..) => faults.push(TermCode::ddp_untagged(1)), // row 58
            _ => {}
        }
        if faults.is_empty() {
            Outcome::Fine
        } else {
            Outcome::Refused(faults)
        }
    }

    fn write_faults(&self, fields: &Fields) -> Vec<TermCode> {
        let (right, len) = (Access::REMOTE_WRITE, fields.payload.len());
        let found = self.areas.find(fields.stag, fields.to, len, right);
        match found {
            Err(denied) if len > 0 => vec![denied.of_write()],
            Ok(_) | Err(_) => Vec::new(), // row 71
        }
    }

    /// Rows 86 to 88.
    fn response_faults(&self, fields: &Fields) -> Vec<TermCode> {
        let Some(Awaited::Read { stag, to, left }) = self.awaited.front() else {
            return vec![TermCode::ddp_tagged(0)];
        };
        let (len, mut faults) = (fields.payload.len(), Vec::new());
        if len > 0 && fields.stag != *stag {
            faults.push(TermCode::ddp_tagged(0));
        }
        let stray = len > 0 && fields.to != *to;
        if stray || len > *left || fields.is_last() && len < *left {
            faults.push(TermCode::ddp_tagged(1));
        }
        if faults.is_empty() {
            faults.extend(self.write_faults(fields));
        }
        faults
    }

    fn send_faults(&self, fields: &Fields) -> Vec<TermCode> {
        let mut faults = Vec::new();
        let is_immediate = matches!(fields.opcode(), 8 | 9);
        // Without a buffer there is nothing to be too long for.
        let (mut room, mut placed) = (self.posted.front().map_or(usize::MAX, |(_, len)| *len), 0);
        if fields.msn != self.send_msn {
            faults.push(TermCode::ddp_untagged(3)); // rows 61, 68
        }
        match &self.open {
            Some(open) if (open.rdmap, open.stag) != (fields.rdmap, fields.stag) => {
                faults.push(TermCode::rdmap_operation(6)); // row 67
            }
            Some(open) => placed = open.bytes.len(),
            None if self.posted.is_empty() => faults.push(TermCode::ddp_untagged(2)), // row 60
            None => {}
        }
        if fields.mo as usize != placed {
            faults.push(TermCode::ddp_untagged(4)); // rows 63, 64
        }
        let len = fields.payload.len();
        if is_immediate {
            room = 8;
            if !fields.is_last() {
                faults.push(TermCode::rdmap_operation(7)); // row 84
            }
            if len < 8 {
                faults.push(TermCode::UNSPECIFIED); // row 93
            }
        }
        if fields.mo as usize + len > room {
            faults.push(TermCode::ddp_untagged(5)); // rows 65, 66
        }
        if fields.invalidates() && fields.is_last() {
            faults.extend(self.areas.invalidation(fields.stag).err());
        }
        faults
    }

    fn request_faults(&self, fields: &Fields, waiting: usize) -> Vec<TermCode> {
        let mut faults = Vec::new();
        if self.ird == 0 {
            return vec![TermCode::ddp_untagged(1)]; // row 85
        }
        let (is_read, is_atomic) = (fields.opcode() == 1, fields.opcode() == 10);
        if !fields.is_last() {
            faults.push(TermCode::rdmap_operation(7)); // row 84
        }
        if fields.msn != self.request_msn || waiting >= self.ird {
            faults.push(TermCode::ddp_untagged(3)); // rows 61, 85
        }
        if fields.mo != 0 {
            faults.push(TermCode::ddp_untagged(4));
        }
        let expected = if is_atomic {
            ATOMIC_REQUEST
        } else {
            READ_REQUEST
        };
        if fields.payload.len() < expected {
            faults.push(TermCode::ddp_local()); // rows 83, 97
        } else if fields.payload.len() > expected {
            faults.push(TermCode::ddp_untagged(5));
        } else if is_read {
            let request = ReadRequest::read(fields.payload);
            let (stag, to, len) = (request.source, request.source_to, request.len as usize);
            let found = self.areas.find(stag, to, len, Access::REMOTE_READ);
            faults.extend(found.err().filter(|_| len > 0).map(Denied::of_source)); // rows 81, 82
        } else if is_atomic {
            faults.extend(self.atomic_faults(&Atomic::read(fields.payload)));
        }
        faults
    }

    /// Rows 94 to 96.
    fn atomic_faults(&self, request: &Atomic) -> Vec<TermCode> {
        let mut faults = Vec::new();
        if !matches!(request.operation & 0xf, 0 | 2) {
            faults.push(TermCode::rdmap_operation(6));
        }
        let right = Access::REMOTE_ATOMIC;
        match self.areas.find(request.stag, request.to, 8, right) {
            Err(denied) => faults.push(denied.of_source()),
            // All memory is allocated in pages.
            Ok((_, at)) if at % 8 != 0 => faults.push(TermCode::rdmap_operation(7)),
            Ok(_) => {}
        }
        faults
    }

    /// Rows 98 and 99.
    fn atomic_response_faults(&self, fields: &Fields) -> Vec<TermCode> {
        let mut faults = Vec::new();
        if !fields.is_last() {
            faults.push(TermCode::rdmap_operation(7));
        }
        if fields.mo != 0 {
            faults.push(TermCode::ddp_untagged(4));
        }
        if fields.payload.len() < 12 {
            faults.push(TermCode::UNSPECIFIED);
        }
        if fields.payload.len() > 12 {
            faults.push(TermCode::ddp_untagged(5));
        }
        let given = fields
            .payload
            .first_chunk()
            .map(|id| u32::from_be_bytes(*id));
        match self.awaited.front() {
            Some(Awaited::Atomic { id }) if fields.msn == self.response_msn => {
                if given.is_some_and(|given| given != *id) {
                    faults.push(TermCode::UNSPECIFIED);
                }
            }
            Some(_) | None => faults.push(TermCode::ddp_untagged(3)),
        }
        faults
    }

    /// A segment that is fine takes effect.
    pub(super) fn apply(&mut self, ulpdu: &[u8]) {
        let fields = Fields::read(ulpdu).unwrap();
        let payload = fields.payload;
        match fields.opcode() {
            0 => self.place(fields.stag, fields.to, payload),
            1 => self.answer_read(&ReadRequest::read(payload)),
            2 => self.take_response(&fields),
            3..=6 => self.take_send(&fields),
            8 | 9 => self.take_immediate(&fields),
            10 => self.answer_atomic(&Atomic::read(payload)),
            11 => {
                self.awaited.pop_front();
                let original = payload.last_chunk().unwrap();
                self.originals.push_back(u64::from_be_bytes(*original));
                self.response_msn += 1;
            }
            other => panic!("opcode {other} is not fine"),
        }
    }

    fn place(&mut self, stag: u32, to: u64, bytes: &[u8]) {
        let right = Access::REMOTE_WRITE;
        if let Ok(place) = self.areas.find(stag, to, bytes.len(), right)
            && !bytes.is_empty()
        {
            self.areas.write(place, bytes);
        }
    }

    fn take_response(&mut self, fields: &Fields) {
        self.place(fields.stag, fields.to, fields.payload);
        let Some(Awaited::Read { to, left, .. }) = self.awaited.front_mut() else {
            panic!("no Read is outstanding");
        };
        *left -= fields.payload.len();
        *to = to.wrapping_add(fields.payload.len() as u64);
        self.answer_begun = !fields.is_last();
        if fields.is_last() {
            self.awaited.pop_front();
        }
    }

    fn take_send(&mut self, fields: &Fields) {
        let open = self.open.get_or_insert(Open {
            rdmap: fields.rdmap,
            stag: fields.stag,
            bytes: Vec::new(),
        });
        open.bytes.extend_from_slice(fields.payload);
        if !fields.is_last() {
            return;
        }
        let invalidated = fields.invalidates().then_some(fields.stag);
        if let Some(stag) = invalidated {
            self.areas.invalidate(stag);
        }
        let bytes = self.open.take().unwrap().bytes;
        let solicited = matches!(fields.opcode(), 5 | 6);
        self.receive(bytes, None, invalidated, solicited);
    }

    fn take_immediate(&mut self, fields: &Fields) {
        let data = *fields.payload.first_chunk().unwrap();
        self.receive(Vec::new(), Some(data), None, fields.opcode() == 9);
    }

    fn receive(
        &mut self,
        bytes: Vec<u8>,
        immediate: Option<[u8; 8]>,
        invalidated: Option<u32>,
        solicited: bool,
    ) {
        let (id, _) = self.posted.pop_front().unwrap();
        self.send_msn += 1;
        self.received.push(Received {
            id,
            bytes,
            immediate,
            invalidated,
            solicited,
        });
    }

    fn answer_read(&mut self, request: &ReadRequest) {
        self.request_msn += 1;
        let len = request.len as usize;
        let (stag, to) = (request.source, request.source_to);
        let place = self.areas.find(stag, to, len, Access::REMOTE_READ);
        let bytes = match place {
            Ok(place) if len > 0 => self.areas.bytes(place, len).to_vec(),
            Ok(_) | Err(_) => Vec::new(),
        };
        self.answers.push(Answer::Read {
            stag: request.sink,
            to: request.sink_to,
            bytes,
        });
    }

    fn answer_atomic(&mut self, request: &Atomic) {
        self.request_msn += 1;
        let right = Access::REMOTE_ATOMIC;
        let place = self.areas.find(request.stag, request.to, 8, right);
        let place = place.ok().unwrap();
        let found = self.areas.bytes(place, 8).first_chunk().unwrap();
        let original = u64::from_ne_bytes(*found);
        self.areas
            .write(place, &request.result(original).to_ne_bytes());
        let (msn, id) = (self.answer_msn, request.id);
        self.answer_msn += 1;
        self.answers.push(Answer::Atomic { msn, id, original });
    }
}
