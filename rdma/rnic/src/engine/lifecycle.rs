//! A queue pair's life: creation, graceful close, reset, destruction, and what TCP says of its connection.

use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::CloseReason;

use super::{Engine, Owner};
use crate::model::{
    AsyncEvent, AsyncEventKind, Capability, CreateError, DestroyError, EventResource, QpId,
    QpState, User,
};
use crate::qp::{Close, Gate, Link, NewQp, NewReceives, QpContext};

/// Why a close that goes on ends badly when its send queue is found to have work.
pub(super) const POSTED_IN_CLOSING: &str = "work was posted during the close";

/// How long a graceful close may go without progress: an FPDU either way, or the peer's FIN. While bytes are unacknowledged TCP's
/// user timeout is the bound.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(10);

impl Engine {
    /// Create QP: a queue pair in Idle.
    pub fn create_qp(&mut self, new: NewQp) -> Result<(QpId, User), CreateError> {
        Capability::check(
            "a number of queue pairs of",
            self.qps.len() + 1,
            1,
            self.max_qps,
        )?;
        if !self.device.cqs.contains(new.send_cq) || !self.device.cqs.contains(new.recv_cq) {
            return Err(CreateError::InvalidCq);
        }
        if let NewReceives::Shared(srq, limit) = new.receives {
            let depth = self.device.srqs.depth(srq).ok_or(CreateError::InvalidSrq)?;
            if limit > depth {
                return Err(CreateError::LimitOutOfRange { limit, depth });
            }
            self.device.srqs.join(srq);
        }
        let entry = self.qps.vacant_entry();
        // `max_qps` bounds the slab's keys.
        let user = self.device.stags.users.join(new.pd, new.ability);
        let id = QpId::new(user.serial(), entry.key());
        entry.insert(QpContext::new(id, user, new));
        Ok((id, user))
    }

    /// The queue pair, unless it has been destroyed.
    pub(super) fn qp(&self, id: QpId) -> Option<&QpContext> {
        self.qps.get(id.slot()).filter(|qp| qp.id == id)
    }

    /// True if there is such a queue pair.
    pub fn has_qp(&self, id: QpId) -> bool {
        self.qp(id).is_some()
    }

    /// Destroys a queue pair, whatever is bound to it. Its connection ends by a reset.
    pub fn destroy_qp(&mut self, id: QpId) {
        if self.qp(id).is_none() {
            return;
        }
        let key = id.slot();
        self.lose_start(key);
        if let Some(Link::Stream(stream)) = self.qps.get(key).map(|qp| &qp.link) {
            let conn = stream.conn;
            self.owners.remove(&conn);
            self.device.stack.abort(conn, self.device.now);
        }
        self.detach(key);
        let qp = self.qps.remove(key);
        qp.show_destroyed();
        self.device.stags.leave(qp.user);
        if let Some(srq) = qp.receives.shared() {
            self.leave_srq(srq);
        }
    }

    /// Destroy QP as a verb: not while windows are bound to it (verbs draft §9.2.5.4).
    pub fn try_destroy_qp(&mut self, id: QpId) -> Result<(), DestroyError> {
        let user = self.qp(id).map(|qp| qp.user);
        if user.is_some_and(|user| self.device.stags.has_windows(user)) {
            return Err(DestroyError::WindowsBound);
        }
        self.destroy_qp(id);
        Ok(())
    }

    /// To Error from any state: resets, flushes (verbs draft §6.2.2.4).
    pub fn abort_qp(&mut self, id: QpId) {
        if self.qp(id).is_some() {
            self.lose_start(id.slot());
            self.lose_silently(id.slot());
        }
    }

    /// Begins a graceful close: what was posted is sent, then the FIN. The peer may go on sending until its own FIN
    /// (RFC 5041 §6.2.1); nothing can be posted any more.
    pub fn disconnect(&mut self, id: QpId) {
        if self.qp(id).is_none() {
            return;
        }
        let key = id.slot();
        self.lose_start(key);
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        if qp.state() != QpState::Rts {
            return;
        }
        qp.announce_closing();
        qp.deadline = Some(self.device.now + CLOSE_LIMIT);
        if let Some(stream) = qp.stream() {
            stream.close = Close::Draining;
        }
        self.activate(key);
        self.watch(key);
    }

    /// Sends the FIN of a graceful close once nothing is left to send and no Read waits for its response.
    pub(super) fn close_if_drained(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let has_requests = !qp.sq.is_empty();
        let is_busy = qp.state() != QpState::Rts || !qp.begun.is_empty();
        let Link::Stream(stream) = &mut qp.link else {
            return;
        };
        if stream.close == Close::None || is_busy {
            return;
        }
        // A responder whose peer has never spoken has nothing that it may send (RFC 5044 §7.1.2).
        let drained = stream.gate == Gate::Fenced || !has_requests && stream.responses.is_empty();
        // An RTR that is a Read is no work, but waits for its response likewise.
        let awaits_rtr = stream.receiver.outstanding_reads() > 0;
        if !drained || awaits_rtr || stream.outgoing.is_some() {
            return;
        }
        stream.gate = Gate::Shut;
        let conn = stream.conn;
        qp.deadline = Some(self.device.now + CLOSE_LIMIT);
        let peer_closed = stream.peer_closed;
        qp.set_state(QpState::Closing);
        if peer_closed {
            qp.flush(&mut self.device.cqs, None);
        }
        self.device.stack.close(conn, self.device.now);
    }

    /// The peer has closed its side; everything that it sent before has been acted upon.
    pub(super) fn on_qp_peer_closed(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let state = qp.state();
        let Link::Stream(stream) = &mut qp.link else {
            self.on_start_closed(key);
            return;
        };
        stream.peer_closed = true;
        let conn = stream.conn;
        if !matches!(state, QpState::Rts | QpState::Closing) {
            return;
        }
        if self.device.stack.readable_len(conn) > 0 {
            // MPA error 1: the connection ended inside an FPDU (wire.md §4.4).
            self.lose(key, "the peer closed inside an FPDU");
        } else if stream.receiver.mid_message() {
            self.lose(key, "the peer closed inside a message");
        } else if stream.receiver.outstanding_reads() > 0 {
            self.fail_cut_off(key, "the peer closed while Reads were outstanding");
        } else if state == QpState::Closing {
            qp.flush(&mut self.device.cqs, None);
        } else {
            stream.close = Close::Draining;
            qp.deadline = Some(self.device.now + CLOSE_LIMIT);
            self.activate(key);
        }
    }

    /// An FPDU was sent or received: a close that is under way goes on.
    pub(super) fn renew_patience(&mut self, key: usize) {
        if let Some(qp) = self.qps.get_mut(key)
            && let Link::Stream(stream) = &qp.link
            && stream.close == Close::Draining
        {
            qp.deadline = Some(self.device.now + CLOSE_LIMIT);
        }
    }

    /// TCP is done with a connection.
    pub(super) fn on_qp_closed(&mut self, key: usize, reason: CloseReason) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        if let Link::Starting(_) = &qp.link {
            self.on_start_failed(key, reason);
            return;
        }
        match (qp.state(), reason) {
            (QpState::Closing, CloseReason::Graceful) => self.finish_close(key),
            (QpState::Terminate, CloseReason::Graceful) => self.enter_error(key),
            (QpState::Terminate, reason) => self.lose_terminating(key, describe(reason)),
            (QpState::Idle | QpState::Error, _) => {}
            (QpState::Rts, CloseReason::Reset) => {
                self.enter_error(key);
                self.report_for(key, AsyncEventKind::ConnectionReset);
            }
            (QpState::Rts | QpState::Closing, reason) => {
                self.enter_error(key);
                let reason = describe(reason);
                self.report_for(key, AsyncEventKind::ConnectionLost { reason });
            }
        }
    }

    /// Both sides have closed. What was posted to the send queue just before it could not be any more makes it a bad close
    /// (verbs draft §6.2.5).
    fn finish_close(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        if !qp.sq.is_empty() {
            self.lose(key, POSTED_IN_CLOSING);
            return;
        }
        qp.flush_receives(&mut self.device.cqs);
        qp.deadline = None;
        self.detach(key);
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let closed = AsyncEvent {
            resource: EventResource::Qp(qp.id),
            kind: AsyncEventKind::Closed,
        };
        // The event, and then Idle (verbs draft §6.2.5, verbs.md A31).
        self.device
            .events
            .report_before(closed, || qp.set_state(QpState::Idle));
    }

    /// A queue pair's patience has ended.
    pub(super) fn on_qp_deadline(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        qp.deadline = None;
        match &qp.link {
            Link::Starting(_) => self.on_start_timeout(key),
            Link::Stream(_) if qp.state() == QpState::Terminate => {
                self.lose_terminating(key, "the peer did not close its side");
            }
            Link::Stream(stream) if stream.awaits_room(&self.device.stack) => {
                self.device.counters.drop_startup_timeout += 1;
                self.lose_silently(key);
                let reason = "the peer had no room for the MPA Reply";
                self.report_for(key, AsyncEventKind::ConnectionLost { reason });
            }
            Link::Stream(stream) if stream.close == Close::None => {} // the Reply is out
            Link::Stream(stream) if self.device.stack.unacked(stream.conn) > 0 => {
                qp.deadline = Some(self.device.now + CLOSE_LIMIT);
            }
            Link::Stream(_) if qp.state() == QpState::Rts => {
                self.fail_cut_off(key, "the peer did not answer a Read before the close");
            }
            Link::Stream(_) => {
                self.lose_silently(key);
                let reason = "the peer did not close its side";
                self.report_for(key, AsyncEventKind::ConnectionLost { reason });
            }
            Link::None => {}
        }
    }

    /// Takes the connection from the queue pair; its port lingers as long as TCP may have to answer on it.
    pub(super) fn detach(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        if let Link::Stream(stream) = std::mem::replace(&mut qp.link, Link::None) {
            self.owners.remove(&stream.conn);
            let port = Arc::clone(&stream.port);
            drop(stream); // so that nobody else has the port, unless it is a listener's
            self.linger(port);
        }
    }

    pub(super) fn own(&mut self, conn: xwarp_tcp::ConnId, key: usize) {
        self.owners.insert(conn, Owner::Qp(key));
    }
}

fn describe(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Graceful => "the connection was closed",
        CloseReason::Refused => "the connection was refused",
        CloseReason::Reset => "the peer reset the connection",
        CloseReason::AddressLost => "this host has lost the connection's address",
        CloseReason::TimedOut => "the peer no longer answers",
        CloseReason::Aborted => "the connection was reset by this side",
    }
}
