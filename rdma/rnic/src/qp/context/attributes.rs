//! Modify QP and Query QP (verbs draft §6.1.3, §6.2, §9.2.5): the allowed changes, their effects,
//! and the attributes.

use super::{ConnStage, QpContext, RdmaDevice};
use crate::model::{
    AsyncEventKind, CapabilityError, Depths, MAX_READS, ModifyError, ModifyQp, OutOfMemory,
    QpAccess, QpIdentity, QpInfo, QpState, ReadDepths, RqLimit, StartUpParameters, StreamId,
};
use crate::qp::new_qp::{DoneWhen, NotReady};
use crate::queues::NewRings;
use crate::tables::Srq;

/// A change of a queue pair that has passed all checks.
pub(crate) struct Change {
    from: QpState,
    to: QpState,
    reads: ReadDepths,
    limit: Option<RqLimit>,
    user: QpIdentity,
    quiet_end: bool,
    not_ready: NotReady,
    send_immediates: bool,
    done_when: DoneWhen,
}

/// Modify QP.
impl QpContext {
    /// Checks whether this change can be made now. All checks come before the first change
    /// (decision record rnic/0009).
    pub(crate) fn check_change(&self, change: &ModifyQp) -> Result<Change, ModifyError> {
        let (from, to) = (self.state(), change.next);
        check_transition(from, change)?;
        Ok(Change {
            from,
            to,
            reads: self.wanted_reads(change)?,
            limit: self.wanted_limit(change)?,
            user: self.user_after(change),
            quiet_end: change.quiet_end.unwrap_or(self.shared.ends_quietly()),
            not_ready: change.await_receives.map_or(self.not_ready, NotReady::new),
            send_immediates: change
                .send_immediates
                .unwrap_or(self.shared.has_send_immediates()),
            done_when: change.confirm_sends.map_or(self.done_when, DoneWhen::new),
        })
    }

    /// Makes the change. Returns the depths after it, before the state changes.
    pub(crate) fn modify(
        &mut self,
        change: &Change,
        rings: NewRings,
        device: &mut RdmaDevice,
    ) -> Result<Depths, OutOfMemory> {
        self.work.reserve(&rings)?;
        self.set_reads(change.reads, device);
        self.work.resize(rings);
        let depths = self.depths();
        self.set_limit(change.limit, device);
        self.user = change.user;
        self.shared.set_quiet_end(change.quiet_end);
        self.not_ready = change.not_ready;
        self.shared.set_send_immediates(change.send_immediates);
        self.done_when = change.done_when;
        match (change.from, change.to) {
            (QpState::Rts, QpState::Closing) => self.seal(device),
            (QpState::Rts, QpState::Terminate) => self.terminate_for_ulp(device),
            (_, QpState::Error) => self.abort(device),
            (QpState::Error, QpState::Idle) => self.revive(device),
            _ => {}
        }
        Ok(depths)
    }

    /// The queue pair with what its peer may do after the change.
    fn user_after(&self, change: &ModifyQp) -> QpIdentity {
        let changed = |rights| self.user.with_inbound(rights);
        change.inbound.map_or(self.user, changed)
    }

    /// The depths of Reads after the change.
    fn wanted_reads(&self, change: &ModifyQp) -> Result<ReadDepths, ModifyError> {
        let has = self.reads();
        let (ord, ird) = (change.ord.unwrap_or(has.ord), change.ird.unwrap_or(has.ird));
        for (what, wanted) in [("ORD", change.ord), ("IRD", change.ird)] {
            CapabilityError::check(what, usize::from(wanted.unwrap_or(0)), 0, MAX_READS)?;
        }
        // A queue pair that is created without Reads gets none by its IRD alone.
        let may_read = self.user_after(change).has(QpAccess::INBOUND_READ);
        if ird > 0 && has.ird == 0 && !may_read {
            return Err(ModifyError::CannotChange("whether the peer may read"));
        }
        if change.concerns_connection()
            && matches!(self.stage, ConnStage::Searching(_) | ConnStage::Starting(_))
        {
            return Err(ModifyError::Connecting);
        }
        Ok(ReadDepths { ord, ird })
    }

    /// The limit of messages in progress after the change; `None` if the receive queue is not
    /// shared.
    fn wanted_limit(&self, change: &ModifyQp) -> Result<Option<RqLimit>, ModifyError> {
        let (from, to) = (self.state(), change.next);
        let invalid = |what| Err(ModifyError::InvalidModifier { what, from, to });
        let receive = self.work.receive();
        let (Some(srq), Some(has)) = (receive.shared(), receive.limit()) else {
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
        let depth = srq.depth();
        if change.rq_limit.is_some() && limit > depth {
            return Err(ModifyError::LimitOutOfRange { limit, depth });
        }
        Ok(Some(RqLimit { limit, armed }))
    }

    /// Sets the limit. Messages in progress count.
    fn set_limit(&mut self, limit: Option<RqLimit>, device: &RdmaDevice) {
        let Some(limit) = limit else {
            return;
        };
        let receive = self.work.receive_mut();
        receive.set_limit(limit);
        if receive.reaches_limit() {
            self.report(AsyncEventKind::RqLimitReached, device);
        }
    }

    fn set_reads(&mut self, reads: ReadDepths, device: &mut RdmaDevice) {
        if let ConnStage::Connected(connection, _) = &mut self.stage {
            connection.set_reads(reads);
            if reads.ord == 0 && self.work.confirms() {
                self.work.confirm_all(&mut device.cqs);
            }
            self.shared.set_connection(connection.info());
        } else {
            (self.start_up.ord, self.start_up.ird) = (reads.ord, reads.ird);
            self.shared.set_start_up(self.start_up);
        }
    }
}

/// Query QP.
impl QpContext {
    /// Reads and Atomic Operations that either side may have outstanding: on the connection, or
    /// without one on the next.
    fn reads(&self) -> ReadDepths {
        match &self.stage {
            ConnStage::Connected(connection, _) => connection.reads(),
            ConnStage::Searching(_)
            | ConnStage::Starting(_)
            | ConnStage::None
            | ConnStage::Failed => {
                let StartUpParameters { ord, ird, .. } = self.start_up;
                ReadDepths { ord, ird }
            }
        }
    }

    fn depths(&self) -> Depths {
        let ReadDepths { ord, ird } = self.reads();
        Depths {
            send_depth: self.work.send_depth(),
            recv_depth: self.work.receive().depth(),
            ord,
            ird,
        }
    }

    /// All attributes of the queue pair.
    pub(crate) fn info(&self) -> QpInfo {
        let (depths, receive) = (self.depths(), self.work.receive());
        let [send_cq, recv_cq] = self.work.cqs();
        QpInfo {
            id: self.id,
            state: self.state(),
            pd: self.user.pd(),
            send_cq,
            recv_cq,
            srq: receive.shared().map(Srq::id),
            send_depth: depths.send_depth,
            recv_depth: depths.recv_depth,
            rq_limit: receive.limit(),
            send_sge: self.sge.send,
            write_sge: self.sge.write,
            max_inline: self.sge.inline,
            recv_sge: receive.shared().map_or(self.sge.recv, |_| 0),
            ord: depths.ord,
            ird: depths.ird,
            privileged: self.user.has(QpAccess::PHYSICAL),
            inbound_read: self.user.has(QpAccess::INBOUND_READ),
            inbound_write: self.user.has(QpAccess::INBOUND_WRITE),
            inbound_atomic: self.user.has(QpAccess::INBOUND_ATOMIC),
            bind_windows: self.user.has(QpAccess::BIND_WINDOWS),
            quiet_end: self.shared.ends_quietly(),
            await_receives: self.not_ready == NotReady::Waits,
            send_immediates: self.shared.has_send_immediates(),
            confirm_sends: self.done_when == DoneWhen::Handled,
            has_sends: self.work.has_sends(),
            terminate: self.terminate.as_deref().cloned(),
            stream: self.conn().map(|conn| StreamId {
                engine: self.shared.engine(),
                conn,
            }),
        }
    }
}

/// Checks whether there is such a transition, and whether it allows the attributes.
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
