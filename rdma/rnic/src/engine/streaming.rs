//! Connections in streaming mode: raw bytes, until Modify QP takes them to a queue pair.

use std::net::SocketAddr;
use std::sync::Arc;

use xwarp_driver::Signal;
use xwarp_tcp::{ConnId, Event, ListenerId, Path};

use super::deadlines::Last;
use super::listen::Clients;
use super::{Engine, Owner};
use crate::model::{
    ConnectError, Handover, LocalPort, ModifyError, StreamError, StreamId, StreamState,
};
use crate::qp::send_raw;

/// A connection in streaming mode.
pub(super) struct Streaming {
    port: Arc<LocalPort>,
    state: StreamState,
    watcher: Watcher,
}

/// Raised when there may be more to read, more room to write, or another state; and when the stream has ended or a queue pair has it.
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
    /// Begins to connect.
    pub fn connect_stream(
        &mut self,
        port: LocalPort,
        remote: SocketAddr,
        next_hop: [u8; 6],
    ) -> Result<StreamId, ConnectError> {
        if let Some(reason) = self.failure() {
            return Err(ConnectError::Failed(reason));
        }
        let path = Path {
            local: port.local(),
            remote,
            next_hop,
        };
        let conn = (self.device.stack)
            .connect(path, self.device.now)
            .map_err(|error| ConnectError::Resources(error.to_string()))?;
        Ok(self.add_stream(conn, Arc::new(port), StreamState::Connecting))
    }

    fn add_stream(&mut self, conn: ConnId, port: Arc<LocalPort>, state: StreamState) -> StreamId {
        self.owners.insert(conn, Owner::Streaming);
        let watcher = Watcher::default();
        let streaming = Streaming {
            port,
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
    pub(super) fn on_incoming_stream(&mut self, listener: ListenerId, conn: ConnId) -> bool {
        let found = (self.listeners.iter()).find(|context| context.id == listener);
        let Some((context, Clients::Streams(waiting))) =
            found.map(|context| (context, &context.clients))
        else {
            return false;
        };
        if waiting.len() >= context.backlog {
            self.device.counters.drop_startup_backlog += 1;
            self.device.stack.abort(conn, self.device.now);
            return true;
        }
        let (waiting, port) = (Arc::clone(waiting), Arc::clone(&context.port));
        let id = self.add_stream(conn, port, StreamState::Established);
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
                    self.linger(streaming.port);
                }
            }
            Event::Readable(conn) | Event::Writable(conn) => self.wake_stream(conn),
            Event::Incoming { .. } => {}
        }
    }

    fn set_stream_state(&mut self, conn: ConnId, state: StreamState) {
        if let Some(streaming) = self.streams.get_mut(&conn) {
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
        let (port, framing) = (streaming.port, handover.framing);
        self.with_qp(key, |qp, device| {
            qp.hand_over(conn, port, framing, handover.message, device);
        });
    }
}
