//! Queue pairs of an engine: the only way to act on them, and the verbs on one of them.

use std::sync::Arc;

use xwarp_tcp::{ConnLoad, Event};

use super::Engine;
use super::connect::Last;
use crate::model::{
    ConnectError, CqId, CreateError, Depths, DestroyError, ModifyError, ModifyQp, NextHop, QpId,
    QpIdentity, QpInfo, QpState,
};
use crate::qp::{
    ConnChange, NewQp, NewReceives, Outcome, QpContext, RdmaDevice, Receives, StartConnect,
};
use crate::queues::{Inbox, NewRings};

/// Events.
impl Engine {
    /// Calls a queue pair, and then does what it left in the device for the engine. `None` if there
    /// is none with this key.
    pub(super) fn with_qp<R>(
        &mut self,
        key: usize,
        act: impl FnOnce(&mut QpContext, &mut RdmaDevice) -> R,
    ) -> Option<R> {
        let qp = self.qps.get_mut(key)?;
        let result = act(qp, &mut self.device);
        self.device.cqs.announce();
        if let Some(at) = qp.poll_deadline() {
            self.deadlines.arm(at, key);
        }
        if self.device.has_conn_changes() {
            self.settle_connections(key);
        }
        Some(result)
    }

    /// Records the changes that a queue pair made to its connections.
    fn settle_connections(&mut self, key: usize) {
        let connections = &mut self.connections;
        for change in self.device.take_conn_changes() {
            match change {
                ConnChange::Made(conn) => connections.own(conn, key),
                ConnChange::Released(conn, port) => {
                    connections.disown(conn);
                    connections.linger(conn, port, &self.interface, self.device.now);
                }
                ConnChange::Abandoned(conn, port) => {
                    connections.disown(conn);
                    connections.abandon(conn, Last::Frame, &mut self.device);
                    connections.linger(conn, port, &self.interface, self.device.now);
                }
            }
        }
    }

    /// Handles an event of a queue pair's connection.
    pub(super) fn on_qp_event(&mut self, key: usize, event: Event) {
        match event {
            Event::Closed { conn, .. } => self.connections.disown(conn),
            Event::Doubtful(conn) => return self.doubt_path(conn),
            Event::Stray(conn) => return self.want_other_port(conn),
            _ => {}
        }
        self.with_qp(key, |qp, device| match event {
            Event::Readable(_) => qp.handle_readable(device),
            Event::Writable(_) => qp.activate(device),
            Event::Connected(_) => qp.handle_connected(device),
            Event::PeerClosed(_) => {
                // TCP may not have reported the bytes before the FIN by an event of their own.
                qp.handle_readable(device);
                qp.handle_peer_closed(device);
            }
            Event::Closed { reason, lost, .. } => qp.handle_closed(reason, lost, device),
            Event::Incoming { .. }
            | Event::RouteWanted(_)
            | Event::Doubtful(_)
            | Event::Stray(_) => {}
        });
    }

    /// The queue pair, unless it was destroyed.
    pub(super) fn qp(&self, id: QpId) -> Option<&QpContext> {
        self.qps.get(id.slot()).filter(|qp| qp.id() == id)
    }

    /// True if there is such a queue pair.
    pub fn has_qp(&self, id: QpId) -> bool {
        self.qp(id).is_some()
    }
}

/// Verbs.
impl Engine {
    /// Create QP: a queue pair in Idle.
    pub fn create_qp(
        &mut self,
        new: NewQp,
        receives: NewReceives,
    ) -> Result<(QpId, QpIdentity), CreateError> {
        let place = self.shared_tables.qps().allocate()?;
        let receives = self.join(&new, receives)?;
        let user = self.stags().join(new.pd, new.access);
        let qp = QpContext::new(place, user, new, receives);
        let id = qp.id();
        self.moved.remove(&id.slot());
        self.qps.insert(Box::new(qp));
        Ok((id, user))
    }

    /// Registers a new queue pair with its completion queues, and with its shared receive queue if
    /// it has one.
    fn join(&mut self, new: &NewQp, receives: NewReceives) -> Result<Receives, CreateError> {
        let [send_cq, recv_cq] = [new.send_cq, new.recv_cq];
        let cqs = &mut self.device.cqs;
        if !cqs.join(send_cq) {
            return Err(CreateError::InvalidCq);
        }
        if !cqs.join(recv_cq) {
            cqs.leave(send_cq);
            return Err(CreateError::InvalidCq);
        }
        let joined = match receives {
            NewReceives::Own(ring) => Ok(Receives::Own(ring)),
            NewReceives::Shared(srq, limit) => {
                let srq = self.srqs().join(srq, limit);
                srq.map(|srq| Receives::Shared(srq, limit))
            }
        };
        if joined.is_err() {
            self.leave_cqs([send_cq, recv_cq]);
        }
        joined
    }

    fn leave_cqs(&mut self, cqs: [CqId; 2]) {
        for cq in cqs {
            self.device.cqs.leave(cq);
        }
    }

    /// Destroys a queue pair, even with bound windows. Its connection ends by a reset.
    pub fn destroy_qp(&mut self, id: QpId) {
        if !self.has_qp(id) {
            return;
        }
        self.with_qp(id.slot(), QpContext::destroy);
        let Some(qp) = self.qps.remove(id.slot()) else {
            return;
        };
        self.stags().leave(qp.user());
        self.leave_cqs(qp.cqs());
        if let Some(srq) = qp.srq() {
            self.leave_srq(srq);
        }
    }

    /// Destroy QP as a verb. Refused while windows are bound to it (verbs draft §9.2.5.4).
    pub fn try_destroy_qp(&mut self, id: QpId) -> Result<(), DestroyError> {
        let user = self.qp(id).map(QpContext::user);
        if user.is_some_and(|user| self.device.stags.read().has_windows(user)) {
            return Err(DestroyError::WindowsBound);
        }
        self.destroy_qp(id);
        Ok(())
    }

    /// Begins to connect a queue pair as MPA initiator. If the next hop is unknown, TCP connects
    /// once the search has found it.
    pub fn connect(&mut self, order: StartConnect, next_hop: NextHop) {
        if let Err(error) = self.check_connect(order.qp) {
            order.refuse(error);
            return;
        }
        self.with_qp(order.qp.slot(), |qp, device| {
            qp.connect(order, next_hop, device);
        });
    }

    /// Cancels the connection attempt with this outcome. An attempt that has ended is unaffected.
    pub fn cancel_connect(&mut self, id: QpId, outcome: &Arc<Inbox<Outcome>>) {
        if self.has_qp(id) {
            self.with_qp(id.slot(), |qp, device| qp.give_up_start(outcome, device));
        }
    }

    fn check_connect(&self, id: QpId) -> Result<(), ConnectError> {
        if let Some(reason) = self.failure() {
            return Err(ConnectError::Failed(reason));
        }
        match self.qp(id) {
            Some(qp) if qp.is_unconnected() => Ok(()),
            Some(qp) => Err(ConnectError::InvalidState(qp.state())),
            None => Err(ConnectError::InvalidState(QpState::Error)),
        }
    }

    /// To Error from any state: resets the connection and flushes (verbs draft §6.2.2.4).
    pub fn abort_qp(&mut self, id: QpId) {
        if self.has_qp(id) {
            self.with_qp(id.slot(), QpContext::abort);
        }
    }

    /// Begins a graceful close: posted work is sent, then the FIN. The peer may continue to send
    /// until its own FIN (RFC 5041 §6.2.1). The application can post nothing more.
    pub fn disconnect(&mut self, id: QpId) {
        if self.has_qp(id) {
            self.with_qp(id.slot(), QpContext::disconnect);
        }
    }

    /// Modify QP. All checks come before the first change.
    pub fn modify_qp(
        &mut self,
        id: QpId,
        change: ModifyQp,
        rings: NewRings,
    ) -> Result<Depths, ModifyError> {
        let Some(qp) = self.qp(id) else {
            return Err(crate::model::RnicUnavailable::Closed.into());
        };
        let checked = qp.check_change(&change)?;
        rings.check()?;
        if let Some(handover) = &change.handover {
            self.check_handover(handover)?;
        }
        let key = id.slot();
        let modified = self.with_qp(key, |qp, device| qp.modify(&checked, rings, device));
        let depths = modified.ok_or(crate::model::RnicUnavailable::Closed)??;
        if let Some(handover) = change.handover {
            self.hand_over(id, handover);
        }
        Ok(depths)
    }

    /// Query QP; `None` if there is no such queue pair.
    pub fn query_qp(&self, id: QpId) -> Option<QpInfo> {
        self.qp(id).map(QpContext::info)
    }

    /// Load that the peer has caused on the queue pair's connection; `None` without a connection.
    pub fn load_of(&self, id: QpId) -> Option<ConnLoad> {
        Some(self.device.stack.conn(self.qp(id)?.conn()?)?.load())
    }
}
