//! Checks of an RNIC that has received the segments of a hostile peer, against the reference.

use xwarp::{CompletionStatus, Opcode, QpState, Stag};
use xwarp_sim_tests::wire::ulpdus;

use super::Program;
use super::fields::{Atomic, Fields, ReadRequest};
use super::reference::{Answer, Awaited, Received};

/// The answer that a request of the RNIC's asks for.
pub(super) fn awaited(fields: &Fields<'_>, len: usize) -> Awaited {
    if fields.opcode() == 10 {
        let id = Atomic::read(fields.payload).id;
        return Awaited::Atomic { id };
    }
    let request = ReadRequest::read(fields.payload);
    assert_eq!(request.len as usize, len);
    Awaited::Read {
        stag: request.sink,
        to: request.sink_to,
        left: len,
    }
}

/// The whole answers that ULPDUs make.
fn answers(ulpdus: &[Vec<u8>]) -> Vec<Answer> {
    let (mut found, mut open) = (Vec::new(), None);
    for ulpdu in ulpdus {
        let fields = Fields::read(ulpdu).unwrap();
        assert_eq!((fields.control & 3, fields.rdmap >> 6), (1, 1), "versions");
        if !fields.is_tagged() {
            assert_eq!((fields.opcode(), fields.qn, fields.mo), (11, 3, 0));
            assert!(fields.is_last() && open.is_none());
            let (id, original) = fields.payload.split_at(4);
            found.push(Answer::Atomic {
                msn: fields.msn,
                id: u32::from_be_bytes(id.try_into().unwrap()),
                original: u64::from_be_bytes(original.try_into().unwrap()),
            });
            continue;
        }
        assert_eq!(fields.opcode(), 2);
        let (stag, begin, mut bytes) = open.take().unwrap_or((fields.stag, fields.to, Vec::new()));
        let next = u64::wrapping_add(begin, bytes.len() as u64);
        assert_eq!(
            (fields.stag, fields.to),
            (stag, next),
            "one after the other"
        );
        bytes.extend_from_slice(fields.payload);
        if fields.is_last() {
            let to = begin;
            found.push(Answer::Read { stag, to, bytes });
        } else {
            open = Some((stag, begin, bytes));
        }
    }
    assert!(open.is_none(), "an answer ends");
    found
}

impl Program {
    /// Bytes that the RNIC has sent on this connection after its Reply, and that the model has not
    /// checked yet.
    pub(super) fn answered(&self) -> Vec<u8> {
        self.peer.received().split_off(self.seen)
    }

    pub(super) fn new_ulpdus(&mut self) -> Vec<Vec<u8>> {
        let new = self.answered();
        self.seen += new.len();
        ulpdus(&new)
    }

    /// Everything is as the reference has it, and goes on.
    pub(super) fn check(&mut self) {
        assert_eq!(self.end.state(), QpState::Rts);
        assert_eq!(self.end.events(), []);
        self.reference.areas.check();
        let new = answers(&self.new_ulpdus());
        assert_eq!(new, std::mem::take(&mut self.reference.answers));
        self.check_received();
        self.check_sends();
    }

    fn check_received(&mut self) {
        for expected in std::mem::take(&mut self.reference.received) {
            let done = self.end.recv_cq().poll().unwrap().expect("a receive");
            assert_eq!(done.status, CompletionStatus::Success);
            assert_eq!(done.opcode, Opcode::Receive);
            let mut bytes = self.end.buffer(done.wr_id.0);
            let behind = bytes.split_off(done.byte_len as usize);
            assert!(behind.iter().all(|byte| *byte == 0));
            let received = Received {
                id: done.wr_id.0,
                bytes,
                immediate: done.immediate,
                invalidated: done.invalidated.map(|Stag(stag)| stag),
                solicited: done.solicited,
            };
            assert_eq!(received, expected);
        }
        assert_eq!(self.end.recv_cq().poll().unwrap(), None);
    }

    fn check_sends(&mut self) {
        let waits = self.asked.iter().filter(|asked| !asked.done).count();
        let answered = waits - self.reference.awaited.len();
        let open = self.asked.iter_mut().filter(|asked| !asked.done);
        open.take(answered).for_each(|asked| asked.done = true);
        while self.asked.front().is_some_and(|asked| asked.done) {
            let asked = self.asked.pop_front().unwrap();
            let done = self.end.send_cq().poll().unwrap().expect("a completion");
            let expected = (asked.id, asked.opcode, CompletionStatus::Success);
            assert_eq!((done.wr_id.0, done.opcode, done.status), expected);
            assert_eq!(done.byte_len as usize, asked.len);
            if asked.opcode == Opcode::FetchAdd {
                let original = self.reference.originals.pop_front();
                assert_eq!(done.original(), original);
            }
        }
        assert_eq!(self.end.send_cq().poll().unwrap(), None);
    }
}
