//! End of a connection with a hostile peer, and what is left of it.

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{CompletionStatus, Opcode, QpState, Stag};
use xwarp_sim_tests::wire::{Tagged, Untagged, terminate};

use super::Program;
use super::fields::Fields;

/// Bytes of the headers of an untagged segment and of a Read Request in it.
const WITH_READ_REQUEST: usize = 18 + 28;

/// What of a segment the Terminate returns (RFC 5040 §4.8, figure 10; wire.md §6.4).
fn captured_of(ulpdu: &[u8], code: TermCode) -> Vec<u8> {
    let whole = [TermCode::ddp_local(), TermCode::mpa(2)];
    let Some(fields) = Fields::read(ulpdu).filter(|_| !whole.contains(&code)) else {
        return vec![0, 0];
    };
    let source = (0..5)
        .map(TermCode::rdmap_protection)
        .any(|its| its == code);
    let (bits, len) = if source && fields.is_read_request() {
        (0xe0, WITH_READ_REQUEST)
    } else {
        (0xc0, fields.header)
    };
    let [high, low] = u16::try_from(ulpdu.len()).unwrap().to_be_bytes();
    [&[bits, 0, high, low], &ulpdu[..len]].concat()
}

/// How the receive ends that a refused Send has taken (verbs.md A7, A9).
fn receive_status(ulpdu: &[u8], code: TermCode) -> Option<CompletionStatus> {
    Fields::read(ulpdu).filter(Fields::is_send)?;
    if code == TermCode::ddp_untagged(5) {
        return Some(CompletionStatus::BaseBounds);
    }
    if code == TermCode::rdmap_protection(0) {
        return Some(CompletionStatus::InvalidStag);
    }
    let refused = [2, 9].map(TermCode::rdmap_protection).contains(&code);
    refused.then_some(CompletionStatus::InvalidateRefused)
}

impl Program {
    /// Something that must not be, and what is behind it (rows 47, 104).
    pub(super) fn offend(&mut self, bytes: &[u8], ulpdu: &[u8], faults: &[TermCode]) -> bool {
        self.peer.send(bytes);
        let behind = Tagged::write(Stag(self.reference.areas.list[0].stag), 0);
        self.peer.send(&behind.fpdu(b"too late"));
        let peer = self.peer.clone();
        self.sim.run_until("the RNIC's FIN", || peer.saw_fin());
        assert_eq!(self.end.state(), QpState::Terminate);
        self.close_here();
        let (code, captured) = terminate(&self.answered());
        assert!(
            faults.contains(&code),
            "{code:?}, not {faults:?}, to {ulpdu:x?}"
        );
        assert_eq!(captured, captured_of(ulpdu, code), "{ulpdu:x?}");
        let status = receive_status(ulpdu, code);
        self.check_flushed(status);
        let events = self.end.events();
        match (&events[..], status) {
            ([], Some(_)) => {}
            ([AsyncEventKind::Terminated { code: told, .. }], None) if *told == code => {}
            _ => panic!("{events:?} and {status:?} of {code:?}"),
        }
        self.assert_error();
        false
    }

    fn close_here(&mut self) {
        self.peer.close();
        self.sim.run_until_idle();
    }

    fn assert_error(&self) {
        assert_eq!(self.end.state(), QpState::Error);
        self.reference.areas.check();
    }

    /// The peer closes, with or without something left, or says that it has found an error.
    pub(super) fn close(&mut self) -> bool {
        let told = self.rng.chance(0.3).then_some(TermCode::ddp_tagged(2));
        if told.is_some() {
            let header = Untagged {
                rdmap: 0x47,
                qn: 2,
                ..Untagged::default()
            };
            self.peer.send(&header.fpdu(&[0x11, 2, 0, 0]));
            let peer = self.peer.clone();
            self.sim.run_until("the RNIC's FIN", || peer.saw_fin());
            assert_eq!(self.end.state(), QpState::Terminate);
        }
        let awaited = &self.reference.awaited;
        let cut = self.reference.open.is_some() || self.reference.answer_begun;
        let waits = !awaited.is_empty();
        self.close_here();
        self.check_flushed(None);
        let events = self.end.events();
        let fits = match &events[..] {
            [AsyncEventKind::TerminateReceived(code)] => told == Some(*code),
            [AsyncEventKind::BadClose { .. }] => told.is_none() && cut,
            [AsyncEventKind::BadPeerClose { .. }] => told.is_none() && !cut && waits,
            [AsyncEventKind::Closed] => told.is_none() && !cut && !waits,
            _ => false,
        };
        assert!(fits, "{events:?}");
        if events == [AsyncEventKind::Closed] {
            assert_eq!(self.end.state(), QpState::Idle);
            self.reference.areas.check();
        } else {
            self.assert_error();
        }
        let bad = matches!(events[..], [AsyncEventKind::BadPeerClose { .. }]);
        assert_eq!(
            self.answered().is_empty(),
            !bad,
            "a Terminate is for what was cut off"
        );
        if bad {
            let code = TermCode::rdmap_operation(7);
            assert_eq!(terminate(&self.answered()), (code, vec![0, 0]));
        }
        false
    }

    pub(super) fn reset(&mut self) -> bool {
        self.peer.abort();
        self.sim.run_until_idle();
        self.check_flushed(None);
        assert_eq!(self.end.events(), [AsyncEventKind::ConnectionReset]);
        self.assert_error();
        false
    }

    /// All that was not done is flushed; the receive that was being filled ends with `status`, if
    /// it was at fault.
    fn check_flushed(&mut self, status: Option<CompletionStatus>) {
        let mut status = status.unwrap_or(CompletionStatus::Flushed);
        let mut placed = self
            .reference
            .open
            .take()
            .map_or(Vec::new(), |open| open.bytes);
        for (id, len) in std::mem::take(&mut self.reference.posted) {
            let done = self
                .end
                .recv_cq()
                .poll()
                .unwrap()
                .expect("a flushed receive");
            let expected = (id, Opcode::Receive, status);
            assert_eq!((done.wr_id.0, done.opcode, done.status), expected);
            placed.resize(len, 0);
            assert_eq!(self.end.buffer(id), placed);
            status = CompletionStatus::Flushed;
            placed.clear();
        }
        for asked in std::mem::take(&mut self.asked) {
            let done = self.end.send_cq().poll().unwrap().expect("a flushed send");
            let status = if asked.done {
                CompletionStatus::Success
            } else {
                CompletionStatus::Flushed
            };
            let expected = (asked.id, asked.opcode, status);
            assert_eq!((done.wr_id.0, done.opcode, done.status), expected);
        }
    }
}
