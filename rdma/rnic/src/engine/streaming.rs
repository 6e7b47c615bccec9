//! Connections in streaming mode: raw bytes, until Modify QP takes them to a queue pair.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use xwarp_driver::Signal;
use xwarp_tcp::{ConnId, Event, ListenerId, Path};

use super::deadlines::Last;
use super::listeners::Clients;
use super::{Engine, Owner};
use crate::model::{
    ConnectError, Handover, LocalPort, ModifyError, NextHop, StreamError, StreamId, StreamState,
};
use crate::qp::send_raw;
use crate::queues::Inbox;
use crate::tables::{SearchId, Searcher};

/// What becomes of an order: a stream that TCP is connecting, or an error.
type Outcome = Result<StreamId, ConnectError>;

/// A verb: connect a stream.
pub struct StreamOrder {
    /// The local port.
    pub port: LocalPort,
    /// The listener.
    pub remote: SocketAddr,
    /// What to raise whenever something happens to the stream.
    pub watcher: Arc<Signal>,
    /// Where the stream goes.
    pub outcome: Arc<Inbox<Outcome>>,
}

/// A connection in streaming mode.
pub(super) struct Streaming {
    port: Arc<LocalPort>,
    remote: SocketAddr,
    state: StreamState,
    watcher: Watcher,
}

impl StreamOrder {
    /// There is no stream.
    fn refuse(&self, error: ConnectError) {
        // Whoever asked may no longer wait.
        let _ = self.outcome.put(Err(error));
    }
}

impl Streaming {
    /// It comes into another state, or ends.
    pub(super) fn log_change(&self, to: impl Display) {
        let (local, state) = (self.port.local(), self.state);
        log::debug!("stream from {local} to {}: {state:?} to {to}", self.remote);
    }
}

/// Raised when there may be more to read, more room to write, or another state. Raised, too, when the stream has ended or a queue pair has
/// it.
#[derive(Default)]
struct Watcher(Option<Arc<Signal>>);

impl Watcher {
    fn wake(&self) {
        if let Some(signal) = &self.0 {
            signal.raise();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.wake();
    }
}

impl Engine {
    /// Connects a stream. If the next hop is searched for, TCP begins when it is found.
    pub fn connect_stream(&mut self, order: StreamOrder, next_hop: NextHop) {
        match next_hop {
            NextHop::Known(next_hop) => self.begin_stream(order, next_hop),
            NextHop::Searching(search) => {
                let id = self.device.searches.begin(search, Searcher::Stream);
                self.stream_orders.insert(id, order);
            }
        }
    }

    /// What the search for a stream's next hop has found.
    pub(super) fn on_next_hop_of_stream(
        &mut self,
        id: SearchId,
        next_hop: Result<[u8; 6], ConnectError>,
    ) {
        if let Some(order) = self.stream_orders.remove(&id) {
            match next_hop {
                Ok(next_hop) => self.begin_stream(order, next_hop),
                Err(error) => order.refuse(error),
            }
        }
    }

    /// TCP begins to connect.
    fn begin_stream(&mut self, order: StreamOrder, next_hop: [u8; 6]) {
        if let Some(reason) = self.failure() {
            return order.refuse(ConnectError::Failed(reason));
        }
        let path = Path {
            local: order.port.local(),
            remote: order.remote,
            next_hop,
        };
        match self.device.stack.connect(path, self.device.now) {
            Err(error) => order.refuse(ConnectError::Resources(error.to_string())),
            Ok(conn) => {
                let (port, remote) = (Arc::new(order.port), order.remote);
                let id = self.add_stream(conn, port, remote, StreamState::Connecting);
                self.watch_stream(id, order.watcher);
                // Whoever asked gives the order up by a verb, which takes the stream out again.
                let _ = order.outcome.put(Ok(id));
            }
        }
    }

    /// The application gives up the order that has this outcome. A stream that it has taken is not concerned.
    pub fn cancel_stream(&mut self, outcome: &Arc<Inbox<Outcome>>) {
        let is_this = |_: &SearchId, order: &mut StreamOrder| Arc::ptr_eq(&order.outcome, outcome);
        for (id, _) in self.stream_orders.extract_if(is_this) {
            self.device.searches.end(id);
        }
        if let Some(Ok(id)) = outcome.take() {
            self.drop_stream(id);
        }
    }

    /// Nobody connects any more: those who wait for their next hop are told why.
    pub(super) fn end_stream_searches(&mut self, reason: &str) {
        for (id, order) in std::mem::take(&mut self.stream_orders) {
            self.device.searches.end(id);
            order.refuse(ConnectError::Failed(reason.to_owned()));
        }
    }

    fn add_stream(
        &mut self,
        conn: ConnId,
        port: Arc<LocalPort>,
        remote: SocketAddr,
        state: StreamState,
    ) -> StreamId {
        self.owners.insert(conn, Owner::Streaming);
        let watcher = Watcher::default();
        let local = port.local();
        log::debug!("stream from {local} to {remote}: new, {state:?}");
        let streaming = Streaming {
            port,
            remote,
            state,
            watcher,
        };
        self.streams.insert(conn, streaming);
        StreamId(conn)
    }

    /// Has whatever happens to a stream raise `signal`.
    pub fn watch_stream(&mut self, id: StreamId, signal: Arc<Signal>) {
        if let Some(streaming) = self.streams.get_mut(&id.0) {
            streaming.watcher = Watcher(Some(signal));
        }
    }

    /// There may be more to read, or more room to write.
    pub(super) fn wake_stream(&self, conn: ConnId) {
        if let Some(streaming) = self.streams.get(&conn) {
            streaming.watcher.wake();
        }
    }

    /// TCP has accepted a connection for a listener of streams; false if it is of another kind.
    pub(super) fn on_incoming_stream(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        remote: SocketAddr,
    ) -> bool {
        let found = self.listeners.get(listener);
        let Some((context, Clients::Streams(waiting))) =
            found.map(|context| (context, context.clients()))
        else {
            return false;
        };
        if context.is_full(waiting.len()) {
            self.device.counters.drop_startup_backlog += 1;
            self.device.stack.abort(conn, self.device.now);
            return true;
        }
        let (waiting, port) = (Arc::clone(waiting), Arc::clone(context.port()));
        let id = self.add_stream(conn, port, remote, StreamState::Established);
        // The listener is dropped after the engine has closed what waits here.
        let _ = waiting.put(id);
        true
    }

    /// The state of a stream.
    pub fn stream_state(&self, id: StreamId) -> StreamState {
        let StreamId(conn) = id;
        self.streams
            .get(&conn)
            .map_or(StreamState::Gone, |streaming| streaming.state)
    }

    /// Whether a read returns bytes, or says that the stream has ended.
    pub fn stream_is_readable(&self, id: StreamId) -> bool {
        let StreamId(conn) = id;
        match self.stream_state(id) {
            StreamState::PeerClosed | StreamState::Gone => true,
            StreamState::Connecting => false,
            StreamState::Established => self.device.stack.readable_len(conn) > 0,
        }
    }

    /// Up to `len` bytes that have come.
    pub fn read_stream(&mut self, id: StreamId, len: usize) -> Result<Vec<u8>, StreamError> {
        let StreamId(conn) = id;
        let len = len.min(self.device.stack.readable_len(conn));
        match self.stream_state(id) {
            StreamState::Gone => return Err(StreamError::Gone),
            StreamState::PeerClosed if self.device.stack.readable_len(conn) == 0 => {
                return Err(StreamError::PeerClosed);
            }
            StreamState::Connecting | StreamState::Established | StreamState::PeerClosed => {}
        }
        let arrived = self.device.stack.readable(conn, len);
        let bytes = arrived.get(..len).unwrap_or_default().to_vec();
        self.device.stack.consume(conn, bytes.len());
        Ok(bytes)
    }

    /// Sends as much as TCP takes now.
    pub fn write_stream(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        match self.stream_state(id) {
            StreamState::Gone => Err(StreamError::Gone),
            StreamState::Connecting => Ok(0),
            StreamState::Established | StreamState::PeerClosed => {
                let StreamId(conn) = id;
                Ok(send_raw(
                    &mut self.device.stack,
                    conn,
                    bytes,
                    self.device.now,
                ))
            }
        }
    }

    /// The application is done with a stream; one that a queue pair has is not concerned.
    pub fn drop_stream(&mut self, id: StreamId) {
        let StreamId(conn) = id;
        if let Some(streaming) = self.streams.remove(&conn) {
            streaming.log_change("dropped");
            self.owners.remove(&conn);
            self.abandon(conn, Last::Bytes);
            self.linger(streaming.port);
        }
    }

    /// TCP reports something of a stream. Its bytes wait until the application reads them, or hands the stream over.
    pub(super) fn on_stream_event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) => self.set_stream_state(conn, StreamState::Established),
            Event::PeerClosed(conn) => self.set_stream_state(conn, StreamState::PeerClosed),
            Event::Closed { conn, .. } => {
                self.owners.remove(&conn);
                if let Some(streaming) = self.streams.remove(&conn) {
                    streaming.log_change("Gone");
                    self.linger(streaming.port);
                }
            }
            Event::Readable(conn) | Event::Writable(conn) => self.wake_stream(conn),
            Event::Incoming { .. } => {}
        }
    }

    fn set_stream_state(&mut self, conn: ConnId, state: StreamState) {
        if let Some(streaming) = self.streams.get_mut(&conn) {
            streaming.log_change(format_args!("{state:?}"));
            streaming.state = state;
            streaming.watcher.wake();
        }
    }

    /// Only an established stream can be handed over (verbs draft §6.2.1.2).
    pub(super) fn check_handover(&self, handover: &Handover) -> Result<(), ModifyError> {
        match self.stream_state(handover.stream) {
            StreamState::Established => Ok(()),
            StreamState::Connecting | StreamState::PeerClosed | StreamState::Gone => {
                Err(ModifyError::InvalidStream)
            }
        }
    }

    /// Idle to RTS: the stream becomes the queue pair's, the message goes out, and what the peer has sent already is received.
    pub(super) fn hand_over(&mut self, key: usize, handover: Handover) {
        let StreamId(conn) = handover.stream;
        let Some(streaming) = self.streams.remove(&conn) else {
            return;
        };
        self.own(conn, key);
        self.with_qp(key, |qp, device| {
            streaming.log_change(format_args!("queue pair {}", qp.id()));
            let (port, framing) = (streaming.port, handover.framing);
            qp.hand_over(conn, port, framing, handover.message, device);
        });
    }
}
