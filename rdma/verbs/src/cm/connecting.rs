//! Connection that is being made, as its initiator sees it: the path, then TCP and MPA start-up.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use xwarp_driver::net::PortError;
use xwarp_iwarp::mpa::{Initiator, StartupParams};
use xwarp_rnic::model::{ConnectError, HostError, LocalPort, QpId};
use xwarp_rnic::qp::StartConnect;

use super::attempt::{Attempt, no_descriptor};
use super::private_data::PrivateData;
use crate::runtime::control::Control;

/// Outcome of the attempt: the private data of the peer's answer, or an error.
type Outcome = Result<PrivateData, ConnectError>;

/// A connection that is being made. The engine continues whether or not the application polls this
/// handle. Dropping the handle before the attempt has ended cancels the attempt: the queue pair
/// stays in Idle.
pub struct Connecting {
    qp: QpId,
    engine: usize,
    address: IpAddr,
    /// The engine stores a new port here if it changes the port.
    port: Arc<AtomicU16>,
    attempt: Attempt<Vec<u8>>,
}

/// Parameters of a connection, before the path is known.
pub(crate) struct ConnectParams {
    /// Local address and port. The host chooses for an unspecified address or port 0.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) params: StartupParams,
    pub(crate) private_data: Vec<u8>,
    /// Time limit of the whole attempt.
    pub(crate) timeout: Duration,
}

/// Local address and port of a connection.
struct Source {
    address: IpAddr,
    /// 0: any free port.
    port: u16,
    remote: SocketAddr,
}

impl Source {
    /// The address that the application requests, which must be one of the interface, or the
    /// address that the host's routes choose.
    fn of(wanted: &ConnectParams, control: &Control) -> Result<Self, HostError> {
        let (named, remote) = (wanted.local.ip(), wanted.remote);
        let address = if named.is_unspecified() {
            control.host().source_to(remote)?
        } else if control.host().addresses()?.contains(&named) {
            named
        } else {
            return Err(PortError::AddressNotLocal { addr: named }.into());
        };
        let port = wanted.local.port();
        Ok(Self {
            address,
            port,
            remote,
        })
    }

    /// The port that the application requests, or a free port whose frames come to this engine.
    fn open_port(&self, control: &Control, engine: usize) -> Result<LocalPort, HostError> {
        match self.port {
            0 => control.open_port(self.address, self.remote, engine),
            port => control.open_named_port(self.address, port),
        }
    }

    /// The port for a second try with MPA revision 1, if the configuration allows one.
    fn open_spare(
        &self,
        params: StartupParams,
        control: &Control,
        engine: usize,
    ) -> Result<Option<LocalPort>, HostError> {
        let may_retry = Initiator::new(params).retry().is_some();
        let spare = may_retry.then(|| self.open_port(control, engine));
        spare.transpose()
    }
}

impl Connecting {
    /// Asks the host for the path, then has the queue pair's engine connect. All steps that depend
    /// on the calling thread's network namespace happen here.
    pub(crate) fn begin(
        (qp, engine): (QpId, usize),
        wanted: ConnectParams,
        control: &Arc<Control>,
    ) -> Result<Self, ConnectError> {
        control.check_open()?;
        let source = Source::of(&wanted, control)?;
        let outcome = control.inbox().map_err(no_descriptor)?;
        let port = source.open_port(control, engine)?;
        let spare = source.open_spare(wanted.params, control, engine)?;
        let local = port.local();
        let port_number = Arc::new(AtomicU16::new(local.port()));
        // Does not wait: the engine waits for the next hop (decision record verbs/0009).
        let way = (control.host()).next_hop(local, wanted.remote, wanted.timeout)?;
        let order = StartConnect {
            qp,
            port,
            port_is_named: source.port != 0,
            shown_port: Arc::clone(&port_number),
            spare,
            remote: wanted.remote,
            metrics: way.metrics,
            params: wanted.params,
            crc_on_host: control.mpa().crc_on_host,
            private_data: wanted.private_data,
            timeout: wanted.timeout,
            outcome: Arc::clone(&outcome),
        };
        control.call_on(engine, move |engine| engine.connect(order, way.next_hop))?;
        Ok(Self {
            qp,
            engine,
            address: local.ip(),
            port: port_number,
            attempt: Attempt::new(outcome, control),
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        self.attempt.control()
    }

    /// Local address and port of the connection. The port may change until there is a result: if
    /// answers come to another engine, or for a second try with MPA revision 1.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port.load(Ordering::Relaxed))
    }

    /// Returns the result once there is one: the private data of the peer's answer. Does not run an
    /// inline engine.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn try_finish(&mut self) -> Option<Outcome> {
        self.attempt.try_finish().map(with_private_data)
    }

    /// Returns the result, and waits up to `timeout` for it. `None` if there is none by then.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn wait_for(&mut self, timeout: Duration) -> Option<Outcome> {
        let outcome = (self.attempt).wait_until(Instant::now().checked_add(timeout));
        outcome.map(with_private_data)
    }

    /// Waits for the result; the timeout given to `begin_connect` bounds it.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::Refused`], [`ConnectError::TimedOut`]: the peer's host refused the
    ///   connection, or the timeout has expired.
    /// - [`ConnectError::Rejected`]: the peer's application rejected it (RFC 5044 §7.1.1, bit R).
    /// - [`ConnectError::PeerClosed`], [`ConnectError::NotIwarp`]: the peer closed, or its answer
    ///   is no valid MPA Reply.
    /// - [`ConnectError::Unacceptable`]: the peer's read depths or RTR types cannot be met (RFC
    ///   6581 §9).
    /// - [`ConnectError::AddressLost`], [`ConnectError::Failed`]: the host lost the local address,
    ///   or the RNIC has failed.
    /// - [`ConnectError::Host`]: the next hop does not answer.
    /// - [`ConnectError::InvalidState`]: the queue pair has left Idle in the meantime.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn wait(mut self) -> Outcome {
        with_private_data(self.attempt.wait())
    }
}

fn with_private_data(outcome: Result<Vec<u8>, ConnectError>) -> Outcome {
    outcome.map(PrivateData::from)
}

impl AsFd for Connecting {
    /// Readable when [`try_finish`](Self::try_finish) has something to return. Do not read from it.
    /// With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attempt.fd()
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(outcome) = self.attempt.unfinished() {
            let (qp, control) = (self.qp, self.attempt.control());
            control.release_on(self.engine, move |engine| {
                engine.cancel_connect(qp, &outcome);
            });
        }
    }
}
