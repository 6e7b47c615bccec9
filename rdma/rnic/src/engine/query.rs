//! Query QP (verbs draft §9.2.5.2).

use xwarp_tcp::ConnLoad;

use super::Engine;
use crate::model::{Ability, QpId, QpInfo, StreamId};
use crate::qp::{Link, QpContext};

impl Engine {
    /// Query QP; `None` if there is no such queue pair.
    pub fn query_qp(&self, id: QpId) -> Option<QpInfo> {
        self.qp(id).map(describe)
    }

    /// What the peer of a queue pair has its connection do; `None` while there is none.
    pub fn load_of(&self, id: QpId) -> Option<ConnLoad> {
        match &self.qp(id)?.link {
            Link::Stream(stream) => self.device.stack.load(stream.conn),
            Link::None | Link::Starting(_) => None,
        }
    }
}

fn describe(qp: &QpContext) -> QpInfo {
    let reads = qp.reads();
    let stream = match &qp.link {
        Link::Stream(stream) => Some(StreamId(stream.conn)),
        Link::None | Link::Starting(_) => None,
    };
    QpInfo {
        id: qp.id,
        state: qp.shown_state(),
        pd: qp.user.pd(),
        send_cq: qp.send_cq,
        recv_cq: qp.recv_cq,
        srq: qp.receives.shared(),
        send_depth: qp.sq.depth(),
        recv_depth: qp.receives.depth(),
        rq_limit: qp.receives.limit(),
        send_sge: qp.sge.send,
        write_sge: qp.sge.write,
        recv_sge: qp.receives.shared().map_or(qp.sge.recv, |_| 0),
        ord: reads.ord,
        ird: reads.ird,
        privileged: qp.user.can(Ability::PHYSICAL),
        inbound_read: qp.user.can(Ability::INBOUND_READ),
        inbound_write: qp.user.can(Ability::INBOUND_WRITE),
        bind_windows: qp.user.can(Ability::BIND_WINDOWS),
        terminate: qp.terminate.clone(),
        stream,
    }
}
