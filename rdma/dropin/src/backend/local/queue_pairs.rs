//! Queue pairs, by key and by identity.

use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use rustc_hash::FxHashMap;
use xwarp::attr::{QpChange, QpId};
use xwarp::cm::{PeerToPeer, RtrTypes};
use xwarp::error::TermCode;
use xwarp::{QpConfig, QpState, QueuePair};

use super::connected::Connected;
use super::errors::Numbered;
use super::owned::Owned;
use super::post::Posts;
use super::table::Table;
use crate::backend::connections::ReadDepths;
use crate::backend::{CqHandle, NewQp, QpHandle, QpRequest, QpStatus, QpView};
use crate::entry::{Result, lock};

/// All queue pairs of an RNIC.
pub(super) struct QueuePairs {
    table: Table<Entry>,
    handles: Mutex<FxHashMap<QpId, QpHandle>>,
}

/// A queue pair, what posts to it, and where it completes.
struct Entry {
    qp: QueuePair,
    posts: Owned<Posts>,
    cqs: [CqHandle; 2],
}

/// What is left of a queue pair that was destroyed: the name by which its completions are known, and where they are.
pub(super) struct Gone {
    pub(super) id: QpId,
    pub(super) cqs: [CqHandle; 2],
}

/// How a queue pair is created. Programs of InfiniBand register the sink of a Read without a remote right. Any peer may ask for the peer-to-peer model, and is asked for it: then either side may send first (RFC 6581).
pub(super) fn config(request: &QpRequest) -> QpConfig {
    let sizes = &request.sizes;
    QpConfig::default()
        .send_depth(sizes.send_depth)
        .recv_depth(sizes.recv_depth)
        .send_sge(sizes.send_sge)
        .write_sge(sizes.send_sge)
        .recv_sge(sizes.recv_sge)
        .max_inline(sizes.inline)
        .flush_late_posts(true)
        .report_ends(true)
        .local_read_sinks(true)
        .peer_to_peer(Some(PeerToPeer {
            required: false,
            rtr: RtrTypes::ALL,
        }))
}

impl QueuePairs {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            handles: Mutex::default(),
        }
    }

    /// Takes a queue pair in. What posts is taken out of it, to be called without the verbs' lock.
    pub(super) fn insert(&self, mut qp: QueuePair, request: &QpRequest) -> Result<NewQp> {
        let id = qp.id();
        let path = qp.take_data_path().map_err(|_never| Errno::EINVAL)?;
        let (sends, recvs) = path.split();
        let port = Arc::new(Posts::new(sends, recvs, request.all_signaled));
        let cqs = [request.send_cq, request.recv_cq];
        let posts = Owned::new(&port);
        let handle = QpHandle(self.table.insert(Entry { qp, posts, cqs }));
        lock(&self.handles).insert(id, handle);
        Ok(NewQp {
            handle,
            number: id.number(),
            port: Box::new(port),
        })
    }

    /// Calls a verb of a queue pair.
    pub(super) fn with<R>(
        &self,
        qp: QpHandle,
        verb: impl FnOnce(&mut QueuePair) -> Result<R>,
    ) -> Result<R> {
        self.table.with(qp.0, |entry| verb(&mut entry.qp))
    }

    pub(super) fn handle_of(&self, id: QpId) -> Option<QpHandle> {
        lock(&self.handles).get(&id).copied()
    }

    /// The Terminate that has ended the connection of a queue pair.
    pub(super) fn terminate_of(&self, id: QpId) -> Option<TermCode> {
        let qp = self.handle_of(id)?;
        let info = self.with(qp, |qp| qp.query().map_err(|error| error.errno()));
        Some(info.ok()?.terminate?.code)
    }

    /// The queue pair with that number of 24 bits.
    pub(super) fn by_number(&self, number: u32) -> Option<QpHandle> {
        let handles = lock(&self.handles);
        let found = handles.iter().find(|(id, _)| id.number() == number);
        found.map(|(_, handle)| *handle)
    }

    /// What the connection of a queue pair has settled.
    pub(super) fn depths(&self, qp: QpHandle) -> Option<ReadDepths> {
        let info = self.with(qp, |qp| Ok(qp.connection())).ok()??;
        let (ird, ord) = (info.ird, info.ord);
        Some(ReadDepths { ird, ord })
    }

    /// Brings a queue pair whose connection was closed into Error, where its receives are flushed.
    /// A queue pair that has its next connection by now is left alone.
    pub(super) fn flush(&self, qp: QpHandle, connected: &Connected) {
        let flushed = self.with(qp, |it| {
            if connected.has(qp) {
                return Ok(());
            }
            it.abort().map_err(|error| error.errno())
        });
        if let Err(errno) = flushed {
            log::debug!("a queue pair is gone already: {errno}");
        }
    }

    pub(super) fn query(&self, qp: QpHandle) -> Result<QpView> {
        self.with(qp, |qp| {
            let info = qp.query().map_err(|error| error.errno())?;
            let status = match info.state {
                QpState::Idle => QpStatus::Idle,
                QpState::Rts | QpState::Closing => QpStatus::Connected,
                QpState::Terminate | QpState::Error => QpStatus::Error,
            };
            Ok(QpView {
                status,
                ird: info.ird,
                ord: info.ord,
            })
        })
    }

    pub(super) fn modify(&self, qp: QpHandle, change: QpChange) -> Result<()> {
        self.with(qp, |qp| {
            let changed = qp.modify(change);
            changed.map(|_depths| ()).map_err(|error| error.errno())
        })
    }

    pub(super) fn destroy(&self, qp: QpHandle) -> Result<Gone> {
        let mut gone = None;
        self.table.destroy(qp.0, |Entry { qp, posts, cqs }| {
            let id = qp.id();
            match qp.destroy() {
                Ok(()) => gone = Some(Gone { id, cqs }),
                Err(refused) => {
                    let qp = *refused.object;
                    let kept = Entry { qp, posts, cqs };
                    return Err((refused.error.errno(), Some(Box::new(kept))));
                }
            }
            Ok(())
        })?;
        let gone = gone.ok_or(Errno::EINVAL)?;
        lock(&self.handles).remove(&gone.id);
        Ok(gone)
    }
}
