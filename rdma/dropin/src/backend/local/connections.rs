//! Connections of the RNIC in this process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nix::errno::Errno;
use xwarp::attr::QpChange;
use xwarp::cm::{BoundPort, ConnectionRequest};
use xwarp::{QpState, QueuePair};

use super::Local;
use super::attempts::Attempt;
use super::errors::Numbered;
use super::table::Table;
use crate::backend::connections::{
    ConnectRequest, Connections, EventCallback, PortHandle, ReadDepths, RequestHandle,
};
use crate::backend::{Key, QpHandle};
use crate::entry::{Result, lock};

/// How long destroying a queue pair waits for a close that has begun.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// A port of the RNIC.
enum Port {
    /// Shared by the numbers of a port that is reusable.
    Bound(Arc<BoundPort>),
    /// The watcher has its listener.
    Listening(Key),
}

/// Ports of the RNIC by number.
pub(super) struct Ports {
    table: Table<Port>,
    reusable: Reusable,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            reusable: Reusable::default(),
        }
    }
}

/// Ports that several identifiers may be bound to, until the first of them listens.
#[derive(Default)]
struct Reusable(Mutex<Vec<Weak<BoundPort>>>);

impl Reusable {
    fn add(&self, port: &Arc<BoundPort>) {
        let mut ports = lock(&self.0);
        ports.retain(|port| port.strong_count() > 0);
        let added = Arc::downgrade(port);
        if !ports.iter().any(|known| known.ptr_eq(&added)) {
            ports.push(added);
        }
    }

    /// The port, if no other identifier shares it.
    fn alone(&self, port: Arc<BoundPort>) -> std::result::Result<BoundPort, Arc<BoundPort>> {
        // `at` has a reference to each port for a moment, with the lock.
        let _ports = lock(&self.0);
        Arc::try_unwrap(port)
    }

    /// The port that is bound to this address alone.
    fn at(&self, local: SocketAddr) -> Option<Arc<BoundPort>> {
        let ports = lock(&self.0);
        let living = ports.iter().filter_map(Weak::upgrade);
        living.into_iter().find(|port| port.addresses() == [local])
    }
}

impl Local {
    /// Destroys a queue pair, which resets its connection. A close that has begun may end before that: programs destroy a queue pair as soon as
    /// they have asked for it. The connection's end is told, if it was not.
    pub(super) fn destroy_connected(&self, qp: QpHandle) -> Result<()> {
        self.watcher.cancel_attempt(qp);
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
        self.watcher.report_end(qp);
        Ok(())
    }
}

/// Brings a queue pair without a connection into Idle, where it can begin one with these depths.
fn make_idle(qp: &mut QueuePair, depths: ReadDepths) -> Result<()> {
    let change = QpChange::to(QpState::Idle).ird(depths.ird).ord(depths.ord);
    let changed = qp.modify(change);
    changed.map(|_depths| ()).map_err(|error| error.errno())
}

impl Connections for Local {
    fn bind(&self, local: SocketAddr, reusable: bool) -> Result<(PortHandle, Vec<SocketAddr>)> {
        let bound = match self.rnic.bind(local).map_err(|error| error.errno()) {
            Ok(bound) => Arc::new(bound),
            Err(Errno::EADDRINUSE) if reusable => {
                self.ports.reusable.at(local).ok_or(Errno::EADDRINUSE)?
            }
            Err(errno) => return Err(errno),
        };
        let addresses = bound.addresses();
        let port = PortHandle(self.ports.table.insert(Port::Bound(bound)));
        if reusable {
            self.make_reusable(port)?;
        }
        Ok((port, addresses))
    }

    fn make_reusable(&self, port: PortHandle) -> Result<()> {
        self.ports.table.with(port.0, |port| match port {
            Port::Bound(bound) => {
                self.ports.reusable.add(bound);
                Ok(())
            }
            Port::Listening(_) => Err(Errno::EINVAL),
        })
    }

    fn listen(&self, port: PortHandle, callback: EventCallback) -> Result<()> {
        self.ports.table.replace(port.0, |port| match port {
            Port::Listening(_) => (Some(port), Err(Errno::EINVAL)),
            Port::Bound(bound) => {
                let alone = match self.ports.reusable.alone(bound) {
                    Ok(alone) => alone,
                    Err(shared) => return (Some(Port::Bound(shared)), Err(Errno::EADDRINUSE)),
                };
                let listener = alone.listen().map_err(|error| error.errno());
                match listener.and_then(|it| self.watcher.add_listener(it, callback)) {
                    Ok(key) => (Some(Port::Listening(key)), Ok(())),
                    Err(errno) => (None, Err(errno)),
                }
            }
        })
    }

    fn unbind(&self, port: PortHandle) -> Result<()> {
        self.ports.table.destroy(port.0, |port| {
            if let Port::Listening(key) = port {
                self.watcher.remove_listener(key);
            }
            Ok(())
        })
    }

    fn connect(
        &self,
        qp: QpHandle,
        request: ConnectRequest,
        callback: EventCallback,
    ) -> Result<SocketAddr> {
        let connected = self.watcher.connected();
        let (attempt, local, connecting) = self.qps.with(qp, |it| {
            make_idle(it, request.depths)?;
            let connection = connected.begin(qp, EventCallback::clone(&callback))?;
            let attempt = Attempt::new(qp, connection, request, callback);
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
        depths: ReadDepths,
        private_data: &[u8],
        callback: EventCallback,
    ) -> Result<()> {
        let connected = self.watcher.connected();
        let accepted = self.qps.with(qp, |it| {
            make_idle(it, depths)?;
            // It may end as soon as it is made.
            let connection = connected.make(qp, callback)?;
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
        self.qps.by_number(number).ok_or(Errno::EINVAL)
    }
}
