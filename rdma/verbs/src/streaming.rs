//! TCP connections in streaming mode, before they carry iWARP (verbs draft §6.2.1.2, §6.6.1).
//!
//! The draft has no verbs that make connections: applications make one by other means, say on it what they like, and hand it over by
//! Modify QP. Here both sides of that are the RNIC's own TCP.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use xwarp_driver::Signal;

use crate::control::Control;
use crate::error::{RnicEnded, WaitError};
use xwarp_rnic::model::ListenKey;
use xwarp_rnic::model::RnicId;
use xwarp_rnic::model::StreamId;
use xwarp_rnic::model::StreamState;
use xwarp_rnic::model::{ConnectError, RnicUnavailable, StreamError};
use xwarp_rnic::queues::Inbox;

/// A TCP connection that carries raw bytes: the draft's LLP Stream Handle.
///
/// [`QueuePair::modify`](crate::QueuePair::modify) takes the connection to a queue pair; this handle is then of no use any more. What
/// the peer has sent and was not read by then is taken as FPDUs: read the last streaming message of the peer, and not a byte beyond
/// it. Dropping the handle closes the connection unless a queue pair has it.
///
/// ```no_run
/// use std::time::Duration;
/// use xwarp::{Framing, QpChange, QueuePair, Rnic};
///
/// // Asks in an application's own protocol whether the server goes on to iWARP.
/// fn upgrade(rnic: &Rnic, qp: &mut QueuePair) -> Result<(), Box<dyn std::error::Error>> {
///     let patience = Duration::from_secs(5);
///     let mut stream = rnic.connect_stream("10.0.0.2:7471".parse()?, patience)?;
///     stream.wait_established(patience)?;
///     stream.write_all(b"UPGRADE\n", patience)?;
///     let mut answer = [0; 3];
///     stream.read_exact(&mut answer, patience)?;
///     if answer == *b"OK\n" {
///         qp.modify(QpChange::start(&stream, Framing::default()))?;
///     }
///     Ok(())
/// }
/// ```
pub struct LlpStream {
    id: StreamId,
    /// Raised by whatever happens to the stream, from the first wait on.
    signal: OnceLock<Arc<Signal>>,
    control: Arc<Control>,
}

impl LlpStream {
    /// Begins to connect.
    pub(crate) fn connect(
        control: &Arc<Control>,
        remote: SocketAddr,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        control.check_no_handler()?;
        let (source, next_hop) = control.host().path_to(remote, limit, &|| true)?;
        let port = control.open_port(source, 0)?;
        let id = control.call(move |engine| engine.connect_stream(port, remote, next_hop))??;
        Ok(Self::new(id, control))
    }

    fn new(id: StreamId, control: &Arc<Control>) -> Self {
        Self {
            id,
            signal: OnceLock::new(),
            control: Arc::clone(control),
        }
    }

    /// What [`QpInfo::stream`](crate::QpInfo::stream) says once a queue pair has it.
    pub fn id(&self) -> StreamId {
        self.id
    }

    pub(crate) fn rnic(&self) -> RnicId {
        self.control.id()
    }

    /// How it is.
    pub fn state(&self) -> Result<StreamState, RnicUnavailable> {
        let id = self.id;
        self.control.call(move |engine| engine.stream_state(id))
    }

    /// Waits until it is established, up to `patience`.
    pub fn wait_established(&self, patience: Duration) -> Result<(), StreamError> {
        let signal = self.signal()?;
        wait(&self.control, &signal, patience, || match self.state() {
            Ok(StreamState::Connecting) => None,
            Ok(StreamState::Established | StreamState::PeerClosed) => Some(Ok(())),
            Ok(StreamState::Gone) => Some(Err(StreamError::Gone)),
            Err(closed) => Some(Err(closed.into())),
        })
    }

    /// Takes what has come, as far as it fits; how many bytes. 0 if nothing has.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, StreamError> {
        let (id, len) = (self.id, into.len());
        let bytes = self
            .control
            .call(move |engine| engine.read_stream(id, len))??;
        into[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Sends as much as TCP takes now; how many bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let (id, bytes) = (self.id, bytes.to_vec());
        self.control
            .call(move |engine| engine.write_stream(id, &bytes))?
    }

    /// Fills all of `into`, up to `patience`. What had come by the time of an error is lost.
    pub fn read_exact(&mut self, into: &mut [u8], patience: Duration) -> Result<(), StreamError> {
        let (control, signal) = (Arc::clone(&self.control), self.signal()?);
        let mut filled = 0;
        wait(&control, &signal, patience, || {
            match self.read(&mut into[filled..]) {
                Ok(n) => filled += n,
                Err(error) => return Some(Err(error)),
            }
            (filled == into.len()).then_some(Ok(()))
        })
    }

    /// Sends all of `bytes`, up to `patience`. How much was sent by the time of an error is not told.
    pub fn write_all(&mut self, bytes: &[u8], patience: Duration) -> Result<(), StreamError> {
        let (control, signal) = (Arc::clone(&self.control), self.signal()?);
        let mut rest = bytes;
        wait(&control, &signal, patience, || {
            match self.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(error) => return Some(Err(error)),
            }
            rest.is_empty().then_some(Ok(()))
        })
    }

    /// What the engine raises when something happens to the stream.
    fn signal(&self) -> Result<Arc<Signal>, StreamError> {
        if let Some(signal) = self.signal.get() {
            return Ok(Arc::clone(signal));
        }
        let made = (self.control.signal()).map_err(|error| StreamError::System(error.kind()))?;
        let signal = Arc::clone(self.signal.get_or_init(|| made));
        let (id, watcher) = (self.id, Arc::clone(&signal));
        (self.control).call(move |engine| engine.watch_stream(id, watcher))?;
        Ok(signal)
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
        self.control.release(move |engine| engine.drop_stream(id));
    }
}

/// Waits for TCP connections on one address and port, or on that port of all addresses of the interface; each becomes a stream.
pub struct StreamListener {
    key: ListenKey,
    addresses: Vec<SocketAddr>,
    /// Connections that have come. Some may have ended.
    streams: Arc<Inbox<StreamId>>,
    control: Arc<Control>,
}

impl StreamListener {
    pub(crate) fn new(
        key: ListenKey,
        addresses: Vec<SocketAddr>,
        streams: Arc<Inbox<StreamId>>,
        control: Arc<Control>,
    ) -> Self {
        Self {
            key,
            addresses,
            streams,
            control,
        }
    }

    /// What it listened on at first. It follows the interface's addresses, which this does not.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The oldest connection that has come. Turns an inline engine if there is none.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] once none will come.
    pub fn try_accept(&mut self) -> Result<Option<LlpStream>, RnicEnded> {
        if let Some(stream) = self.take()? {
            return Ok(Some(stream));
        }
        self.control.turn();
        self.take()
    }

    /// The oldest connection, waiting for one up to `timeout`; `None` when none has come.
    ///
    /// # Errors
    ///
    /// As [`try_accept`](Self::try_accept), at once.
    pub fn accept(&mut self, timeout: Duration) -> Result<Option<LlpStream>, RnicEnded> {
        (self.control).wait_for(self.streams.signal(), timeout, || self.take())
    }

    fn take(&self) -> Result<Option<LlpStream>, RnicEnded> {
        if let Some(ended) = self.control.ended() {
            self.streams.signal().raise();
            return Err(ended);
        }
        while let Some(id) = self.streams.take() {
            let stream = LlpStream::new(id, &self.control);
            match stream.state()? {
                StreamState::Gone => {}
                StreamState::Connecting | StreamState::Established | StreamState::PeerClosed => {
                    return Ok(Some(stream));
                }
            }
        }
        Ok(None)
    }
}

impl AsFd for StreamListener {
    /// Readable while [`try_accept`](Self::try_accept) may have something to return. It is not to be read. With an inline engine that holds as
    /// far as somebody turns the engine, see [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.streams.signal().as_fd()
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        let key = self.key;
        self.control.release(move |engine| engine.unlisten(key));
    }
}
