//! Ports of the RNIC, and connections of its queue pairs.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nix::errno::Errno;
use xwarp::QpState;
use xwarp::attr::QpChange;
use xwarp::cm::BoundPort;
use xwarp::stream::Framing;

use super::Backend;
use super::attempts::Attempt;
use super::connection_event::{ConnectRequest, EventCallback, Terms};
use super::errors::Numbered;
use super::keyed::Key;
use super::owned::Owned;
use super::peer::PeerRequest;
use super::queue_pair::{Qp, has_quiet_end, make_idle, modify};
use crate::entry::{Result, lock};

/// How long destroying a queue pair waits for a close that is in progress.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How long destroying a queue pair whose end is quiet waits for its peer. Programs destroy many at
/// once, and a peer that is gone does not answer.
const QUIET_WAIT: Duration = Duration::from_millis(100);

/// How long a queue pair that is its own peer waits for its connection, which the RNIC makes alone.
const LOOPBACK_WAIT: Duration = Duration::from_secs(10);
/// FPDUs without CRCs, as on other connections that do not leave the host.
const UNCHECKED: Framing = Framing {
    crc: false,
    send_markers: false,
    receive_markers: false,
};

/// State of a port.
pub(crate) enum PortState {
    /// Shared by the ports of other identifiers, if it is reusable.
    Bound(Arc<BoundPort>),
    /// The watcher has its listener.
    Listening(Key),
}

/// A bound port, which may be listened on.
pub(crate) type Port = Owned<PortState>;

/// Ports that several identifiers may be bound to, until the first of them listens.
#[derive(Default)]
pub(super) struct Reusable(Mutex<Vec<Weak<BoundPort>>>);

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

    /// The port that is bound to this address only.
    fn at(&self, local: SocketAddr) -> Option<Arc<BoundPort>> {
        let ports = lock(&self.0);
        let living = ports.iter().filter_map(Weak::upgrade);
        living.into_iter().find(|port| port.addresses() == [local])
    }
}

impl Backend {
    /// Binds a port of one address, or of all addresses of a family. Returns its addresses, too. If
    /// `reusable`, the port may already be bound by another reusable call.
    pub(crate) fn bind(
        &self,
        local: SocketAddr,
        reusable: bool,
    ) -> Result<(Arc<Port>, Vec<SocketAddr>)> {
        let bound = match self.rnic.bind(local).map_err(|error| error.errno()) {
            Ok(bound) => Arc::new(bound),
            Err(Errno::EADDRINUSE) if reusable => {
                self.reusable.at(local).ok_or(Errno::EADDRINUSE)?
            }
            Err(errno) => return Err(errno),
        };
        let addresses = bound.addresses();
        let port = self.own(PortState::Bound(bound));
        if reusable {
            port.make_reusable()?;
        }
        Ok((port, addresses))
    }
}

impl Owned<PortState> {
    /// Allows further calls of [`Backend::bind`] to share the port.
    pub(crate) fn make_reusable(&self) -> Result<()> {
        let rnic = self.rnic()?;
        self.with(|port| match port {
            PortState::Bound(bound) => {
                rnic.reusable.add(bound);
                Ok(())
            }
            PortState::Listening(_) => Err(Errno::EINVAL),
        })
    }

    /// Listens on the port. Requests are reported to `callback` until it is unbound.
    pub(crate) fn listen(&self, callback: EventCallback) -> Result<()> {
        let rnic = self.rnic()?;
        self.replace(|port| match port {
            PortState::Listening(_) => (Some(port), Err(Errno::EINVAL)),
            PortState::Bound(bound) => {
                let alone = match rnic.reusable.alone(bound) {
                    Ok(alone) => alone,
                    Err(shared) => return (Some(PortState::Bound(shared)), Err(Errno::EADDRINUSE)),
                };
                let listener = alone.listen().map_err(|error| error.errno());
                match listener.and_then(|it| rnic.watcher.add_listener(it, callback)) {
                    Ok(key) => (Some(PortState::Listening(key)), Ok(())),
                    Err(errno) => (None, Err(errno)),
                }
            }
        })
    }

    /// Stops listening and releases the port, before it returns.
    pub(crate) fn unbind(&self) -> Result<()> {
        let rnic = self.rnic()?;
        self.destroy(|port| {
            if let PortState::Listening(key) = port {
                rnic.watcher.remove_listener(key);
            }
            Ok(())
        })
    }
}

impl Qp {
    /// Begins to connect. Returns the local address and port. The outcome is reported to
    /// `callback`.
    pub(crate) fn connect(
        self: &Arc<Self>,
        request: ConnectRequest,
        callback: EventCallback,
    ) -> Result<SocketAddr> {
        let rnic = self.owned.rnic()?;
        let connected = rnic.watcher.connected();
        let (attempt, local, connecting) = self.owned.with(|qp| {
            make_idle(qp, request.terms)?;
            let connection =
                connected.begin(self.id(), request.remote, EventCallback::clone(&callback))?;
            let attempt = Attempt::new(self, connection, request, callback);
            let begun = attempt.begin(qp);
            let (local, connecting) = begun.inspect_err(|_errno| {
                connected.remove(connection);
            })?;
            Ok((attempt, local, connecting))
        })?;
        rnic.watcher.add_attempt(attempt, connecting)?;
        Ok(local)
    }

    /// Accepts a connection request, and rejects the peer if that fails. Only the connection's end
    /// is reported to `callback`.
    pub(crate) fn accept(
        &self,
        peer: &PeerRequest,
        terms: Terms,
        private_data: &[u8],
        callback: EventCallback,
    ) -> Result<()> {
        let rnic = self.owned.rnic()?;
        let connected = rnic.watcher.connected();
        let request = peer.take()?;
        self.owned.with(|qp| {
            make_idle(qp, terms)?;
            // The connection may end as soon as it is made.
            let connection = connected.make(self.id(), callback)?;
            let accepted = request.accept(qp, private_data);
            accepted.map_err(|error| {
                connected.remove(connection);
                error.errno()
            })
        })
    }

    /// Connects the queue pair to itself. Only the connection's end is reported to `callback`.
    pub(crate) fn loop_back(
        &self,
        address: IpAddr,
        terms: Terms,
        callback: EventCallback,
    ) -> Result<()> {
        let rnic = self.owned.rnic()?;
        let connected = rnic.watcher.connected();
        let stream = rnic.rnic.connect_loopback(address);
        let stream = stream.map_err(|error| error.errno())?;
        let established = stream.wait_established(LOOPBACK_WAIT);
        established.map_err(|_ended| Errno::EIO)?;
        self.owned.with(|qp| {
            make_idle(qp, terms)?;
            let connection = connected.make(self.id(), callback)?;
            let start = QpChange::start(&stream, UNCHECKED);
            modify(qp, start).inspect_err(|_errno| {
                connected.remove(connection);
            })
        })
    }

    /// Begins a graceful close.
    pub(crate) fn disconnect(&self) -> Result<()> {
        let _rnic = self.owned.rnic()?;
        self.owned.with(|qp| match qp.state() {
            QpState::Rts => qp.begin_disconnect().map_err(|error| error.errno()),
            QpState::Closing => Ok(()),
            QpState::Idle | QpState::Terminate | QpState::Error => Err(Errno::EINVAL),
        })
    }

    /// Cancels an attempt to connect, whose outcome is not reported.
    pub(crate) fn stop_connecting(self: &Arc<Self>) -> Result<()> {
        let rnic = self.owned.rnic()?;
        rnic.watcher.cancel_attempt(self);
        rnic.watcher.connected().remove_present(self.id());
        Ok(())
    }

    /// Destroys the queue pair, which resets its connection. A close in progress may end before
    /// that: programs destroy a queue pair as soon as they have asked for the close. A connection
    /// whose end is quiet is closed. The connection's end is reported, if it was not.
    pub(crate) fn destroy(self: &Arc<Self>) -> Result<()> {
        self.owned.end(|rnic| {
            rnic.watcher.cancel_attempt(self);
            self.owned.with(|qp| {
                let wait = match qp.state() {
                    QpState::Closing => Some(CLOSE_WAIT),
                    QpState::Rts => has_quiet_end(qp)?.then_some(QUIET_WAIT),
                    QpState::Idle | QpState::Terminate | QpState::Error => None,
                };
                if let Some(wait) = wait
                    && let Err(error) = qp.disconnect(wait)
                {
                    log::info!("a connection is reset: {error}");
                }
                Ok(())
            })?;
            self.destroy_by(rnic)?;
            rnic.watcher.report_end(self.id());
            Ok(())
        })
    }
}
