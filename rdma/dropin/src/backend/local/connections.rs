//! Connections of the RNIC in this process.

use std::net::SocketAddr;
use std::time::Duration;

use nix::errno::Errno;
use xwarp::attr::QpChange;
use xwarp::cm::{BoundPort, ConnectionRequest};
use xwarp::{QpState, QueuePair};

use super::Local;
use super::attempts::Attempt;
use super::errors::Numbered;
use crate::backend::connections::{
    ConnectOrder, Connections, Depths, PortHandle, RequestHandle, Told,
};
use crate::backend::{Key, QpHandle};
use crate::entry::Result;

/// How long destroying a queue pair waits for a close that has begun.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A port of the RNIC.
pub(super) enum Port {
    Bound(BoundPort),
    /// The watcher has its listener.
    Listening(Key),
}

impl Local {
    /// Destroys a queue pair, which resets its connection. A close that has begun may end before that: programs destroy a queue pair as soon as
    /// they have asked for it. The connection's end is told, if it was not.
    pub(super) fn destroy_connected(&self, qp: QpHandle) -> Result<()> {
        self.watcher.give_up(qp);
        self.qps.with(qp, |qp| {
            if qp.state() == QpState::Closing
                && let Err(error) = qp.disconnect(CLOSE_WAIT)
            {
                log::info!("a connection is reset: {error}");
            }
            Ok(())
        })?;
        let gone = self.qps.destroy(qp)?;
        for cq in gone.cqs {
            // One that is destroyed meanwhile has no completions.
            if let Ok(cq) = self.cq(cq) {
                cq.discard(gone.id);
            }
        }
        self.watcher.tell_end(qp);
        Ok(())
    }
}

/// Brings a queue pair without a connection into Idle, where it can begin one with these depths.
fn make_idle(qp: &mut QueuePair, depths: Depths) -> Result<()> {
    let change = QpChange::to(QpState::Idle).ird(depths.ird).ord(depths.ord);
    let changed = qp.modify(change);
    changed.map(|_depths| ()).map_err(|error| error.errno())
}

impl Connections for Local {
    fn bind(&self, local: SocketAddr) -> Result<(PortHandle, Vec<SocketAddr>)> {
        let bound = self.rnic.bind(local).map_err(|error| error.errno())?;
        let addresses = bound.addresses();
        let port = self.ports.insert(Port::Bound(bound));
        Ok((PortHandle(port), addresses))
    }

    fn listen(&self, port: PortHandle, told: Told) -> Result<()> {
        self.ports.replace(port.0, |port| match port {
            Port::Listening(_) => (Some(port), Err(Errno::EINVAL)),
            Port::Bound(bound) => {
                let listener = bound.listen().map_err(|error| error.errno());
                match listener.and_then(|it| self.watcher.add_listener(it, told)) {
                    Ok(key) => (Some(Port::Listening(key)), Ok(())),
                    Err(errno) => (None, Err(errno)),
                }
            }
        })
    }

    fn unbind(&self, port: PortHandle) -> Result<()> {
        self.ports.destroy(port.0, |port| {
            if let Port::Listening(key) = port {
                self.watcher.remove_listener(key);
            }
            Ok(())
        })
    }

    fn connect(&self, qp: QpHandle, order: ConnectOrder, told: Told) -> Result<SocketAddr> {
        let connected = self.watcher.connected();
        let (attempt, local, connecting) = self.qps.with(qp, |it| {
            make_idle(it, order.depths)?;
            let connection = connected.begin(qp, Told::clone(&told))?;
            let attempt = Attempt::new(qp, connection, order, told);
            let begun = attempt.begin(it);
            let (local, connecting) = begun.inspect_err(|_errno| {
                connected.remove(connection, qp);
            })?;
            Ok((attempt, local, connecting))
        })?;
        self.watcher.add_attempt(attempt, connecting)?;
        Ok(local)
    }

    fn accept(
        &self,
        request: RequestHandle,
        qp: QpHandle,
        depths: Depths,
        private_data: &[u8],
        told: Told,
    ) -> Result<()> {
        let connected = self.watcher.connected();
        let accepted = self.qps.with(qp, |it| {
            make_idle(it, depths)?;
            // It may end as soon as it is made.
            let connection = connected.make(qp, told)?;
            let answer = |request: ConnectionRequest| request.accept(it, private_data);
            let accepted = self.requests.answer(request, answer);
            accepted.inspect_err(|_errno| {
                connected.remove(connection, qp);
            })
        });
        if accepted.is_err() {
            self.requests.discard(request);
        }
        accepted
    }

    fn reject(&self, request: RequestHandle, private_data: &[u8]) -> Result<()> {
        self.requests
            .answer(request, |request| request.reject(private_data))
    }

    fn disconnect(&self, qp: QpHandle) -> Result<()> {
        self.qps.with(qp, |qp| match qp.state() {
            QpState::Rts => qp.begin_disconnect().map_err(|error| error.errno()),
            QpState::Closing => Ok(()),
            QpState::Idle | QpState::Terminate | QpState::Error => Err(Errno::EINVAL),
        })
    }

    fn qp_with_number(&self, number: u32) -> Result<QpHandle> {
        self.qps.with_number(number).ok_or(Errno::EINVAL)
    }
}
