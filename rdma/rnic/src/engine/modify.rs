//! Modify QP (verbs draft §6.1.3, §6.2, §9.2.5.3): which changes there are, and what each does.

use xwarp_iwarp::mpa::Step;
use xwarp_iwarp::{
    Access, AccessError, Inbound, InvalidateError, ReceivedTerminate, Resources, Stag, Terminate,
};

use super::Engine;
use super::lifecycle::{CLOSE_LIMIT, POSTED_IN_CLOSING};
use crate::model::{
    Ability, AsyncEventKind, Capability, Depths, MAX_READS, ModifyError, ModifyQp, QpId, QpState,
    ReadDepths, RqLimit, TerminateInfo,
};
use crate::qp::{Close, Gate, Link, QpContext, Stream};
use crate::queues::NewRings;

impl Engine {
    /// All checks come before the first change.
    pub fn modify_qp(
        &mut self,
        id: QpId,
        change: ModifyQp,
        rings: NewRings,
    ) -> Result<Depths, ModifyError> {
        let Some(qp) = self.qp(id) else {
            return Err(crate::model::RnicClosed.into());
        };
        let from = qp.shown_state();
        check_transition(from, &change)?;
        let reads = wanted_reads(qp, &change)?;
        let limit = self.wanted_limit(qp, &change)?;
        rings.check()?;
        if let Some(handover) = &change.handover {
            self.check_handover(handover)?;
        }
        let key = id.slot();
        let mut depths = qp.depths();
        if let Some(qp) = self.qps.get_mut(key) {
            qp.reserve(&rings)?;
        }
        if let Some(qp) = self.qps.get_mut(key) {
            qp.set_reads(reads);
            qp.resize(rings);
            depths = qp.depths();
        }
        self.set_limit(key, limit);
        match (from, change.next) {
            (QpState::Rts, QpState::Closing) => self.seal(key),
            (QpState::Rts, QpState::Terminate) => self.terminate_for_ulp(key),
            (_, QpState::Error) => self.abort_qp(id),
            (QpState::Error, QpState::Idle) => self.revive(key),
            _ => {}
        }
        if let Some(handover) = change.handover {
            self.hand_over(key, handover);
        }
        self.watch(key);
        Ok(depths)
    }

    /// The limit of messages in progress after the change; `None` if there is none, as the receive queue is not shared.
    fn wanted_limit(
        &self,
        qp: &QpContext,
        change: &ModifyQp,
    ) -> Result<Option<RqLimit>, ModifyError> {
        let (from, to) = (qp.shown_state(), change.next);
        let invalid = |what| Err(ModifyError::InvalidModifier { what, from, to });
        let (Some(srq), Some(has)) = (qp.receives.shared(), qp.receives.limit()) else {
            if change.rq_limit.is_some() || change.arm_rq_limit {
                return invalid("no receive queue is shared, and a limit of it does not go");
            }
            return Ok(None);
        };
        if change.recv_depth.is_some() {
            return invalid("the receive queue is shared, and a depth of it does not go");
        }
        let limit = change.rq_limit.unwrap_or(has.limit);
        let armed = has.armed || change.arm_rq_limit;
        match self.device.srqs.depth(srq) {
            Some(depth) if change.rq_limit.is_some() && limit > depth => {
                Err(ModifyError::LimitOutOfRange { limit, depth })
            }
            Some(_) | None => Ok(Some(RqLimit { limit, armed })),
        }
    }

    /// Sets it. What is in progress already counts.
    fn set_limit(&mut self, key: usize, limit: Option<RqLimit>) {
        let (Some(qp), Some(limit)) = (self.qps.get_mut(key), limit) else {
            return;
        };
        qp.receives.set_limit(limit);
        if qp.receives.reaches_limit() {
            self.report_for(key, AsyncEventKind::RqLimitReached);
        }
    }

    /// RTS to Closing: TCP closes. Work that is not done makes it a bad close; else the receive queue is flushed.
    fn seal(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.set_state(QpState::Closing);
        let (has_work, Link::Stream(stream)) =
            (!qp.sq.is_empty() || !qp.begun.is_empty(), &mut qp.link)
        else {
            return;
        };
        stream.close = Close::Sealed;
        let conn = stream.conn;
        if has_work || in_progress(stream) || self.device.stack.readable_len(conn) > 0 {
            self.lose(key, "work was outstanding when the close was asked for");
            return;
        }
        stream.gate = Gate::Shut;
        qp.deadline = Some(self.device.now + CLOSE_LIMIT);
        qp.flush_receives(&mut self.device.cqs);
        self.device.stack.close(conn, self.device.now);
    }

    /// RTS to Terminate: the peer is told no more than that (verbs draft §6.2.2.3, figure 12).
    fn terminate_for_ulp(&mut self, key: usize) {
        self.fail_unreported(key, Terminate::local(), None);
    }

    /// Error to Idle. Everything was flushed when the queue pair came into Error, but what was posted at the same time.
    fn revive(&mut self, key: usize) {
        if let Some(qp) = self.qps.get_mut(key) {
            qp.flush(&mut self.device.cqs, None);
            qp.terminate = None;
            qp.set_state(QpState::Idle);
        }
    }

    /// Something was posted while the queue pair came into Closing: a receive is flushed, anything else is an error (verbs draft
    /// §6.2.5). While the peer of a disconnect may still send, its receives are needed, and what could not be sent before is no error.
    pub(super) fn check_closing(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let is_over = |stream: &mut Stream| stream.close == Close::Sealed || stream.peer_closed;
        if !qp.stream().is_some_and(is_over) {
            return;
        }
        if qp.sq.is_empty() {
            qp.flush_receives(&mut self.device.cqs);
        } else {
            self.lose(key, POSTED_IN_CLOSING);
        }
    }

    /// The peer may have sent something after Modify QP has closed the connection, or only its FIN.
    pub(super) fn on_sealed_bytes(&mut self, key: usize) {
        let stream = self.qps.get_mut(key).and_then(QpContext::stream);
        if stream.is_none_or(|stream| self.device.stack.readable_len(stream.conn) == 0) {
            return;
        }
        if let Some(terminate) = self.sealed_terminate(key)
            && let Some(qp) = self.qps.get_mut(key)
        {
            self.device.counters.terminates_in += 1;
            qp.keep_terminate(|| TerminateInfo::received(&terminate));
        }
        self.lose(key, "the peer sent during the close");
    }

    /// The Terminate, if that is what it is (verbs.md A33).
    fn sealed_terminate(&mut self, key: usize) -> Option<ReceivedTerminate> {
        let stream = self.qps.get_mut(key)?.stream()?;
        let arrived = self.device.stack.readable_len(stream.conn);
        let bytes = self.device.stack.readable(stream.conn, arrived);
        let Ok(Step::Fpdu { ulpdu, .. }) = stream.deframer.next(bytes) else {
            return None;
        };
        match stream.receiver.on_ulpdu(ulpdu, &mut NoResources) {
            Ok(Inbound::Terminate(terminate)) => Some(terminate),
            Ok(_) | Err(_) => None,
        }
    }
}

/// A closed queue pair takes no message.
struct NoResources;

impl Resources for NoResources {
    fn take_receive(&mut self) -> Option<u64> {
        None
    }

    fn check(&self, _: Stag, _: u64, _: u64, _: Access) -> Result<(), AccessError> {
        Err(AccessError::InvalidStag)
    }

    fn is_aligned(&self, _: Stag, _: u64) -> bool {
        false
    }

    fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
        Err(InvalidateError::InvalidStag)
    }
}

/// Something is being sent, answered or received.
fn in_progress(stream: &Stream) -> bool {
    let receiver = &stream.receiver;
    let incoming = receiver.mid_message() || receiver.outstanding_reads() > 0;
    incoming || stream.outgoing.is_some() || !stream.responses.is_empty()
}

/// Is there such a transition, and do the attributes go with it?
fn check_transition(from: QpState, change: &ModifyQp) -> Result<(), ModifyError> {
    use QpState::{Closing, Error, Idle, Rts, Terminate};
    let (to, has_stream) = (change.next, change.handover.is_some());
    let fault = match (from, to) {
        (Idle, Rts) => (!has_stream).then_some("a stream is needed"),
        (Idle, Idle) | (Rts, Rts) => has_stream.then_some("a stream does not go"),
        (Idle, Error) | (Rts, Closing | Terminate | Error) | (Error, Idle) => {
            (!change.is_bare()).then_some("attributes do not go")
        }
        (Idle | Rts | Closing | Terminate | Error, _) => {
            return Err(ModifyError::InvalidStateChange { from, to });
        }
    };
    fault.map_or(Ok(()), |what| {
        Err(ModifyError::InvalidModifier { what, from, to })
    })
}

/// The Reads that may be outstanding after the change.
fn wanted_reads(qp: &QpContext, change: &ModifyQp) -> Result<ReadDepths, ModifyError> {
    let has = qp.reads();
    let (ord, ird) = (change.ord.unwrap_or(has.ord), change.ird.unwrap_or(has.ird));
    for (what, wanted) in [("ORD", change.ord), ("IRD", change.ird)] {
        Capability::check(what, usize::from(wanted.unwrap_or(0)), 0, MAX_READS)?;
    }
    // Whether the peer may read is a right of its own, which is fixed.
    if ird > 0 && !qp.user.can(Ability::INBOUND_READ) {
        return Err(ModifyError::CannotChange("whether the peer may read"));
    }
    if change.concerns_connection() && matches!(qp.link, Link::Starting(_)) {
        return Err(ModifyError::Connecting);
    }
    Ok(ReadDepths { ord, ird })
}
