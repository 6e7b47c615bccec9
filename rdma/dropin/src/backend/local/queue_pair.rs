//! Queue pairs. Their posting ends are separate, so posting does not take the verbs' lock.

use std::sync::{Arc, Weak};

use nix::errno::Errno;
use xwarp::attr::{QpChange, QpId};
use xwarp::cm::{PeerToPeer, RtrTypes};
use xwarp::error::TermCode;
use xwarp::event::{AsyncEventKind, ConnectionEnd};
use xwarp::{ProtectionDomain, QpConfig, QpState, QueuePair};

use super::Backend;
use super::connected::Connected;
use super::connection_event::{ReadDepths, Terms};
use super::errors::Numbered;
use super::memory::access_of;
use super::owned::{Owned, Release};
use super::poll::Cq;
use super::post::{Posts, Srq};
use crate::backend::{EventTarget, QpPort, QpSizes, QpStatus, QpView, Rights};
use crate::entry::Result;

/// Attributes that a queue pair is created with.
pub(crate) struct QpRequest<'a> {
    pub(crate) send_cq: &'a Arc<Cq>,
    pub(crate) recv_cq: &'a Arc<Cq>,
    pub(crate) srq: Option<&'a Srq>,
    pub(crate) sizes: QpSizes,
    /// Every send completes, whether signaled or not.
    pub(crate) all_signaled: bool,
}

/// A queue pair.
pub(crate) struct Qp {
    id: QpId,
    pub(super) owned: Owned<QueuePair>,
    posts: Arc<Posts>,
    /// The completion queues.
    cqs: [Arc<Cq>; 2],
}

impl Release for Qp {
    fn release(&self) {
        self.owned.release();
        self.posts.release();
    }
}

/// Attributes of xwarp for a new queue pair. Programs written for InfiniBand register the sink of a
/// Read without a remote right. Peers may ask for the peer-to-peer model, and are asked for it:
/// then either side may send first (RFC 6581).
fn config(request: &QpRequest<'_>) -> QpConfig {
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

fn make(pd: &ProtectionDomain, request: &QpRequest<'_>) -> Result<QueuePair> {
    let config = config(request);
    Cq::with_both(request.send_cq, request.recv_cq, |send, recv| {
        let Some(srq) = request.srq else {
            let made = pd.create_qp(&config, send, recv);
            return made.map_err(|error| error.errno());
        };
        srq.with(|srq| {
            let made = pd.create_qp_with_srq(&config, send, recv, srq);
            made.map_err(|error| error.errno())
        })
    })
}

pub(super) fn modify(qp: &mut QueuePair, change: QpChange) -> Result<()> {
    let changed = qp.modify(change);
    changed.map(|_depths| ()).map_err(|error| error.errno())
}

impl Owned<ProtectionDomain> {
    pub(crate) fn create_qp(&self, request: &QpRequest<'_>) -> Result<Arc<Qp>> {
        let rnic = self.rnic()?;
        let mut qp = self.with(|pd| make(pd, request))?;
        let id = qp.id();
        let path = qp.take_data_path().map_err(|_never| Errno::EINVAL)?;
        let (sends, recvs) = path.split();
        let qp = Arc::new(Qp {
            id,
            owned: Owned::new(rnic.reference(), qp),
            posts: Arc::new(Posts::new(sends, recvs, request.all_signaled)),
            cqs: [Arc::clone(request.send_cq), Arc::clone(request.recv_cq)],
        });
        rnic.objects.add(&qp);
        rnic.registry.add_qp(id, &qp);
        Ok(qp)
    }
}

impl Qp {
    /// The ends that post to the queue pair.
    pub(crate) fn port(&self) -> Box<dyn QpPort> {
        Box::new(Arc::clone(&self.posts))
    }

    /// Its number of 24 bits.
    pub(crate) fn number(&self) -> u32 {
        self.id.number()
    }

    pub(super) fn id(&self) -> QpId {
        self.id
    }

    /// Reports the queue pair's events to `target` from now on.
    pub(crate) fn report_events(&self, target: Weak<dyn EventTarget>) -> Result<()> {
        self.owned.rnic()?.registry.report_qp(self.id, target);
        Ok(())
    }

    /// Sets how many Reads may be outstanding in each direction.
    pub(crate) fn set_reads(&self, ird: Option<u16>, ord: Option<u16>) -> Result<()> {
        let _rnic = self.owned.rnic()?;
        self.owned.with(|qp| {
            let mut change = QpChange::to(qp.state());
            if let Some(ird) = ird {
                change = change.ird(ird);
            }
            if let Some(ord) = ord {
                change = change.ord(ord);
            }
            modify(qp, change)
        })
    }

    /// Sets what the peer may do: the remote rights among these.
    pub(crate) fn set_inbound(&self, rights: Rights) -> Result<()> {
        let _rnic = self.owned.rnic()?;
        self.owned.with(|qp| {
            let change = QpChange::to(qp.state()).inbound(access_of(rights));
            modify(qp, change)
        })
    }

    pub(crate) fn query(&self) -> Result<QpView> {
        let _rnic = self.owned.rnic()?;
        self.owned.with(|qp| {
            let info = qp.query().map_err(|error| error.errno())?;
            let status = match info.state {
                QpState::Idle => QpStatus::Idle,
                QpState::Rts | QpState::Closing => QpStatus::Connected,
                QpState::Terminate | QpState::Error => QpStatus::Error,
            };
            Ok(QpView {
                status,
                has_sends: info.has_sends,
                ird: info.ird,
                ord: info.ord,
            })
        })
    }

    /// Ends the connection at once, and flushes all work.
    pub(crate) fn abort(&self) -> Result<()> {
        let _rnic = self.owned.rnic()?;
        self.owned
            .with(|qp| qp.abort().map_err(|error| error.errno()))
    }

    /// Prepares a queue pair in Error for another connection. One that still waits for the peer to
    /// close after a Terminate does so no longer.
    pub(crate) fn reset(&self) -> Result<()> {
        let _rnic = self.owned.rnic()?;
        self.owned.with(|qp| {
            if qp.state() == QpState::Terminate {
                qp.abort().map_err(|error| error.errno())?;
            }
            modify(qp, QpChange::to(QpState::Idle))
        })
    }

    /// Sets whether the queue pair is brought up by hand. Then the end of a connection is quiet,
    /// and of sends the oldest one that is not answered completes as such. Sends may carry
    /// immediate data, as the peer is xwarp, too, and complete when it has handled them. Only a
    /// queue pair without a connection changes.
    pub(crate) fn set_by_hand(&self, by_hand: bool) -> Result<()> {
        let rnic = self.owned.rnic()?;
        let change = QpChange::to(QpState::Idle)
            .quiet_end(by_hand)
            .send_immediates(by_hand)
            .confirm_sends(by_hand);
        self.owned.with(|qp| modify(qp, change))?;
        rnic.registry.set_quiet(self.id, by_hand);
        Ok(())
    }

    /// Brings a queue pair into Error because its peer does not answer: the oldest send completes
    /// as unanswered.
    pub(crate) fn fail_unanswered(&self) -> Result<()> {
        let rnic = self.owned.rnic()?;
        rnic.registry.set_unanswered(self.id);
        self.abort()
    }

    /// Whether its last connection has ended because the peer was gone.
    pub(super) fn was_lost(&self) -> bool {
        let why = self.owned.with(|qp| Ok(qp.why_ended()));
        matches!(
            why,
            Ok(Some(ConnectionEnd::Event(
                AsyncEventKind::ConnectionReset
                    | AsyncEventKind::ConnectionLost { .. }
                    | AsyncEventKind::BadPeerClose { .. }
            )))
        )
    }

    /// The Terminate that has ended its connection.
    pub(super) fn terminate(&self) -> Option<TermCode> {
        let query = |qp: &mut QueuePair| qp.query().map_err(|error| error.errno());
        Some(self.owned.with(query).ok()?.terminate?.code)
    }

    /// The depths that the ends of its connection have agreed upon.
    pub(super) fn depths(&self) -> Option<ReadDepths> {
        let info = self.owned.with(|qp| Ok(qp.connection())).ok()??;
        Some(ReadDepths {
            ird: info.ird,
            ord: info.ord,
        })
    }

    /// Whether successful completions are not polled yet.
    pub(super) fn has_successes(&self) -> bool {
        self.cqs.iter().any(|cq| cq.has_successes_of(self.id))
    }

    /// Brings a queue pair whose connection was closed into Error, which flushes its receives. A
    /// queue pair that already has its next connection is left alone.
    pub(super) fn flush(&self, connected: &Connected) {
        let flushed = self.owned.with(|qp| {
            if connected.has(self.id) || has_quiet_end(qp)? {
                return Ok(());
            }
            qp.abort().map_err(|error| error.errno())
        });
        if let Err(errno) = flushed {
            log::debug!("a queue pair is gone already: {errno}");
        }
    }

    /// Destroys the queue pair in any state, and its posting ends. Discards its completions.
    pub(super) fn destroy_by(&self, rnic: &Backend) -> Result<()> {
        self.owned.destroy(|qp| {
            qp.destroy()
                .map_err(|refused| (refused.error.errno(), Some(refused.object)))
        })?;
        self.posts.release();
        rnic.registry.remove_qp(self.id);
        for cq in &self.cqs {
            cq.discard(self.id);
        }
        Ok(())
    }
}

/// Whether the end of its connection is quiet.
pub(super) fn has_quiet_end(qp: &mut QueuePair) -> Result<bool> {
    let info = qp.query().map_err(|error| error.errno())?;
    Ok(info.quiet_end)
}

/// Brings a queue pair without a connection into Idle, where it can begin one on these terms.
pub(super) fn make_idle(qp: &mut QueuePair, terms: Terms) -> Result<()> {
    let ReadDepths { ird, ord } = terms.depths;
    let change = QpChange::to(QpState::Idle).ird(ird).ord(ord);
    modify(qp, change.await_receives(terms.await_receives))
}
