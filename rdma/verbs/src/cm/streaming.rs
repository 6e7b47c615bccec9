//! TCP connections in streaming mode, before they carry iWARP (verbs draft §6.2.1.2, §6.6.1).
//!
//! The draft has no verbs that make connections: an application connects by other means, exchanges
//! its own messages, and hands the connection over by Modify QP. Here both are done by the RNIC's
//! own TCP.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use xwarp_driver::Signal;

use super::attempt::{Attempt, no_descriptor};
use super::listening::{Incoming, PortListener};
use crate::error::{RnicEnded, WaitError};
use crate::runtime::control::Control;
use xwarp_rnic::engine::{Engine, StartStream};
use xwarp_rnic::model::LocalPort;
use xwarp_rnic::model::RnicId;
use xwarp_rnic::model::StreamId;
use xwarp_rnic::model::StreamState;
use xwarp_rnic::model::{ConnectError, RnicUnavailable, StreamError};

/// The host chooses a free port.
const ANY_PORT: u16 = 0;

/// A TCP connection that carries raw bytes: the draft's LLP Stream Handle.
///
/// [`QueuePair::modify`](crate::QueuePair::modify) moves the connection to a queue pair. After
/// that, this handle has no stream. Bytes from the peer that were not read by then are parsed as
/// FPDUs. So read the peer's last streaming message, and not a byte beyond it. Dropping the handle
/// closes the connection unless a queue pair has it.
///
/// ```no_run
/// use std::time::Duration;
/// use xwarp::{QueuePair, Rnic};
/// use xwarp::attr::QpChange;
/// use xwarp::stream::Framing;
///
/// // Asks in an application's own protocol whether the server goes on to iWARP.
/// fn upgrade(rnic: &Rnic, qp: &mut QueuePair) -> Result<(), Box<dyn std::error::Error>> {
///     let timeout = Duration::from_secs(5);
///     let mut stream = rnic.connect_stream("10.0.0.2:7471".parse()?, timeout)?;
///     stream.wait_established(timeout)?;
///     stream.write_all(b"UPGRADE\n", timeout)?;
///     let mut answer = [0; 3];
///     stream.read_exact(&mut answer, timeout)?;
///     if answer == *b"OK\n" {
///         qp.modify(QpChange::start(&stream, Framing::default()))?;
///     }
///     Ok(())
/// }
/// ```
pub struct LlpStream {
    id: StreamId,
    /// Raised by every event of the stream.
    signal: Arc<Signal>,
    /// Number of threads that wait for the connection to be established.
    waiting: AtomicUsize,
    control: Arc<Control>,
}

impl LlpStream {
    /// A stream that a listener accepted. It may have received bytes already.
    fn accepted(id: StreamId, control: &Arc<Control>) -> Result<Self, WaitError> {
        let signal = control.signal()?;
        let stream = Self::new(id, signal, control)?;
        stream.settle()?;
        Ok(stream)
    }

    fn new(
        id: StreamId,
        signal: Arc<Signal>,
        control: &Arc<Control>,
    ) -> Result<Self, RnicUnavailable> {
        let watcher = Arc::clone(&signal);
        control.call_on(id.engine(), move |engine| engine.watch_stream(id, watcher))?;
        Ok(Self::of(id, signal, control))
    }

    /// A stream whose signal the engine already raises.
    fn of(id: StreamId, signal: Arc<Signal>, control: &Arc<Control>) -> Self {
        Self {
            id,
            signal,
            waiting: AtomicUsize::new(0),
            control: Arc::clone(control),
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Calls the stream's engine.
    fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> R + Send + 'static,
    ) -> Result<R, RnicUnavailable> {
        self.control.call_on(self.id.engine(), work)
    }

    /// Identity of the stream. [`QpInfo::stream`](crate::attr::QpInfo::stream) returns it once a
    /// queue pair owns the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn rnic(&self) -> RnicId {
        self.control.id()
    }

    /// The TCP connection's state, as far as the stream can be used.
    ///
    /// # Errors
    ///
    /// [`RnicUnavailable`]: the RNIC was closed, or its handler made the call.
    pub fn state(&self) -> Result<StreamState, RnicUnavailable> {
        let id = self.id;
        self.call(move |engine| engine.stream_state(id))
    }

    /// Waits until the connection is established, up to `timeout`.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::TimedOut`]: `timeout` has expired.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn wait_established(&self, timeout: Duration) -> Result<(), StreamError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let established = wait(&self.control, &self.signal, timeout, || {
            match self.state() {
                Ok(StreamState::Connecting) => None,
                Ok(StreamState::Established | StreamState::PeerClosed) => Some(Ok(())),
                Ok(StreamState::Gone) => Some(Err(StreamError::Gone)),
                Err(closed) => Some(Err(closed.into())),
            }
        });
        // This thread has cleared the signal, on which other threads may still sleep.
        if self.waiting.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.signal.raise();
        }
        self.settle()?;
        established
    }

    /// Copies received bytes into `into`. Returns their number: 0 if none have arrived.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::PeerClosed`]: the peer has closed, and all that it sent has been read.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, StreamError> {
        let (id, len) = (self.id, into.len());
        self.signal.clear();
        let read = self.call(move |engine| engine.read_stream(id, len));
        self.settle()?;
        let bytes = read??;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Sends as many bytes as TCP accepts now, and returns their number.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let (id, bytes) = (self.id, bytes.to_vec());
        self.call(move |engine| engine.write_stream(id, &bytes))?
    }

    /// Fills all of `into`, within `timeout`. Bytes read before an error are lost.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::PeerClosed`]: the peer has closed, and all that it sent has been read.
    /// - [`StreamError::TimedOut`]: `timeout` has expired.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn read_exact(&mut self, into: &mut [u8], timeout: Duration) -> Result<(), StreamError> {
        let (control, signal) = (Arc::clone(&self.control), Arc::clone(&self.signal));
        let mut filled = 0;
        wait(&control, &signal, timeout, || {
            match self.read(&mut into[filled..]) {
                Ok(n) => filled += n,
                Err(error) => return Some(Err(error)),
            }
            (filled == into.len()).then_some(Ok(()))
        })
    }

    /// Sends all of `bytes`, within `timeout`. After an error the number of sent bytes is unknown.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::TimedOut`]: `timeout` has expired.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn write_all(&mut self, bytes: &[u8], timeout: Duration) -> Result<(), StreamError> {
        let (control, signal) = (Arc::clone(&self.control), Arc::clone(&self.signal));
        let mut rest = bytes;
        let written = wait(&control, &signal, timeout, || {
            match self.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) => return Some(Err(error)),
            }
            rest.is_empty().then_some(Ok(()))
        });
        self.settle()?;
        written
    }

    /// Raises the signal again if there is something to read, as checking the state has cleared it.
    fn settle(&self) -> Result<(), RnicUnavailable> {
        let id = self.id;
        let has_news = self.call(move |engine| engine.stream_is_readable(id));
        if has_news != Ok(false) {
            self.signal.raise();
        }
        has_news.map(drop)
    }
}

impl AsFd for LlpStream {
    /// Readable when bytes have arrived, the peer has closed or the stream has ended, until
    /// [`read`](LlpStream::read) has reported it. After the end it stays readable. Also readable,
    /// until the next read, when the connection is established or TCP accepts bytes again. Do not
    /// read from it. With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

fn wait(
    control: &Control,
    signal: &Signal,
    timeout: Duration,
    mut condition: impl FnMut() -> Option<Result<(), StreamError>>,
) -> Result<(), StreamError> {
    let deadline = Instant::now().checked_add(timeout);
    let look = || {
        signal.clear();
        condition()
    };
    match control.wait_until(signal, deadline, look) {
        Ok(ended) => ended.unwrap_or(Err(StreamError::TimedOut)),
        Err(WaitError::Unavailable(why)) => Err(why.into()),
        Err(WaitError::System(error)) => Err(StreamError::System(error.kind())),
    }
}

impl Drop for LlpStream {
    fn drop(&mut self) {
        let id = self.id;
        (self.control).release_on(id.engine(), move |engine| engine.drop_stream(id));
    }
}

/// A stream for which the host is searching the path. TCP connects once the path is known, whether
/// or not the application polls this handle. Dropping it cancels the attempt.
pub struct ConnectingStream {
    attempt: Attempt<StreamId>,
    engine: usize,
    /// Signal of the stream.
    signal: Arc<Signal>,
}

impl ConnectingStream {
    pub(crate) fn begin(
        control: &Arc<Control>,
        remote: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        control.check_no_handler()?;
        control.check_open()?;
        let source = control.host().source_to(remote)?;
        let engine = control.engine_for_stream();
        let port = control.open_port(source, remote, engine)?;
        Self::begin_from(port, remote, engine, control, timeout)
    }

    /// Begins a connection from a port to itself.
    pub(crate) fn begin_loopback(
        control: &Arc<Control>,
        address: IpAddr,
    ) -> Result<Self, ConnectError> {
        control.check_no_handler()?;
        control.check_open()?;
        let engine = control.engine_for_stream();
        let port = control.open_named_port(address, ANY_PORT)?;
        let remote = port.local();
        // The host does not search for itself.
        Self::begin_from(port, remote, engine, control, Duration::ZERO)
    }

    fn begin_from(
        port: LocalPort,
        remote: SocketAddr,
        engine: usize,
        control: &Arc<Control>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let outcome = control.inbox().map_err(no_descriptor)?;
        let signal = control.signal().map_err(no_descriptor)?;
        let way = control.host().next_hop(port.local(), remote, timeout)?;
        let order = StartStream {
            port,
            remote,
            metrics: way.metrics,
            watcher: Arc::clone(&signal),
            outcome: Arc::clone(&outcome),
        };
        control.call_on(engine, move |engine| {
            engine.connect_stream(order, way.next_hop);
        })?;
        Ok(Self {
            attempt: Attempt::new(outcome, control),
            engine,
            signal,
        })
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn control(&self) -> &Arc<Control> {
        self.attempt.control()
    }

    fn stream(&self, id: StreamId) -> LlpStream {
        LlpStream::of(id, Arc::clone(&self.signal), self.attempt.control())
    }

    /// Returns the stream once the path to the peer is known. TCP is connecting then;
    /// [`LlpStream::wait_established`] waits for it. `None` while the host searches.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    pub fn try_finish(&mut self) -> Option<Result<LlpStream, ConnectError>> {
        let outcome = self.attempt.try_finish()?;
        Some(outcome.map(|id| self.stream(id)))
    }

    /// Waits for the path, and returns the stream. The timeout given to `begin_connect_stream`
    /// bounds it.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::Host`]: no route leads there, the next hop does not answer, or no local
    ///   port is free.
    /// - [`ConnectError::Resources`]: the host has no file descriptor left, or TCP no connection.
    /// - [`ConnectError::Failed`]: the RNIC has failed.
    /// - [`ConnectError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub fn wait(mut self) -> Result<LlpStream, ConnectError> {
        let outcome = self.attempt.wait();
        outcome.map(|id| self.stream(id))
    }
}

impl AsFd for ConnectingStream {
    /// Readable when [`try_finish`](Self::try_finish) has something to return. Do not read from it.
    /// With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attempt.fd()
    }
}

impl Drop for ConnectingStream {
    fn drop(&mut self) {
        if let Some(outcome) = self.attempt.unfinished() {
            let control = self.attempt.control();
            control.release_on(self.engine, move |engine| engine.cancel_stream(&outcome));
        }
    }
}

/// Listens for TCP connections, each of which becomes a stream.
pub type StreamListener = PortListener<LlpStream>;

impl Incoming for LlpStream {
    type Id = StreamId;

    fn take(from: &StreamListener) -> Result<Option<Self>, RnicEnded> {
        let (inbox, control) = (from.inbox(), from.control());
        if let Some(ended) = control.ended() {
            inbox.signal().raise();
            return Err(ended);
        }
        while let Some(id) = inbox.take() {
            let stream = match Self::accepted(id, control) {
                Ok(stream) => stream,
                Err(WaitError::Unavailable(why)) => return Err(why.into()),
                Err(WaitError::System(error)) => {
                    log::warn!("an incoming connection is closed: {error}");
                    control.call_on(id.engine(), move |engine| engine.drop_stream(id))?;
                    continue;
                }
            };
            match stream.state()? {
                StreamState::Gone => {}
                StreamState::Connecting | StreamState::Established | StreamState::PeerClosed => {
                    return Ok(Some(stream));
                }
            }
        }
        Ok(None)
    }

    fn refuse(id: StreamId, listener: &StreamListener) {
        let control = listener.control();
        control.release_on(id.engine(), move |engine| engine.drop_stream(id));
    }
}
