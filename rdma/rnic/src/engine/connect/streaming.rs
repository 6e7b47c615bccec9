//! Connections in streaming mode: raw bytes, until Modify QP hands them over to a queue pair.
//!
//! The verbs draft hands over a TCP connection of another interface (§6.2.1.2). Here it is one of
//! the RNIC's own TCP, so that no byte is lost. Unread bytes are the first FPDUs, and the last
//! streaming message is sent ahead of all FPDUs. A kernel socket would have to hand over its
//! sequence numbers and unread bytes while the kernel still receives on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::Signal;
use xwarp_tcp::{ConnId, Event, Instant, ListenerId, Path};

use super::deadlines::Last;
use super::listeners::Clients;
use super::streams::{Outcome, StartStream};
use super::{Connections, Owner};
use crate::engine::host::Interface;
use crate::model::{
    ConnectError, HostError, LocalPort, NextHop, QpId, StreamError, StreamId, StreamState,
};
use crate::qp::{RdmaDevice, SourcePort, send_raw};
use crate::queues::Inbox;
use crate::tables::{SearchId, Searcher};

impl Connections {
    /// Connects a stream. If the next hop is unknown, TCP connects once the search has found it.
    pub(in crate::engine) fn connect_stream(
        &mut self,
        order: StartStream,
        next_hop: NextHop,
        device: &mut RdmaDevice,
    ) {
        match next_hop {
            NextHop::Known(next_hop) => self.begin_stream(order, next_hop, device),
            NextHop::ThisHost => self.begin_stream(order, device.stack.mac(), device),
            NextHop::Searching(search) => {
                let id = device.searches.begin(search, Searcher::Stream);
                self.streams.await_next_hop(id, order);
            }
        }
    }

    /// Handles the result of the search for a stream's next hop.
    pub(in crate::engine) fn on_next_hop_of_stream(
        &mut self,
        id: SearchId,
        next_hop: Result<[u8; 6], ConnectError>,
        device: &mut RdmaDevice,
    ) {
        if let Some(order) = self.streams.take_order(id) {
            match next_hop {
                Ok(next_hop) => self.begin_stream(order, next_hop, device),
                Err(error) => order.refuse(error),
            }
        }
    }

    /// Starts TCP's connection.
    fn begin_stream(&mut self, order: StartStream, next_hop: [u8; 6], device: &mut RdmaDevice) {
        let path = Path {
            local: order.port.local(),
            remote: order.remote,
            next_hop,
            metrics: order.metrics,
        };
        match device.stack.connect(path, device.now) {
            Err(error) => order.refuse(ConnectError::Resources(error.to_string())),
            Ok(conn) => {
                let port = SourcePort::new(order.port, None, device.now, Duration::MAX, device);
                port.begun(conn, device);
                let id = self.add_stream(conn, port, order.remote, StreamState::Connecting);
                self.streams.watch(id, order.watcher);
                // If the application has cancelled the attempt, its verb removes the stream again.
                let _ = order.outcome.put(Ok(id));
            }
        }
    }

    /// Cancels the attempt with this outcome. A stream that the application has taken already is
    /// unaffected.
    pub(in crate::engine) fn cancel_stream(
        &mut self,
        outcome: &Arc<Inbox<Outcome>>,
        interface: &Interface,
        device: &mut RdmaDevice,
    ) {
        if let Some(search) = self.streams.cancel(outcome) {
            device.searches.end(search);
        }
        if let Some(Ok(id)) = outcome.take() {
            self.drop_stream(id, interface, device);
        }
    }

    /// Refuses all attempts that wait for their next hop, for this `reason`.
    pub(super) fn end_stream_searches(&mut self, reason: &str, device: &mut RdmaDevice) {
        for (id, order) in self.streams.take_orders() {
            device.searches.end(id);
            order.refuse(ConnectError::Failed(reason.to_owned()));
        }
    }

    fn add_stream(
        &mut self,
        conn: ConnId,
        port: SourcePort,
        remote: SocketAddr,
        state: StreamState,
    ) -> StreamId {
        self.owners.insert(conn, Owner::Streaming);
        self.streams.add(conn, port, remote, state);
        let engine = self.engine;
        StreamId { engine, conn }
    }

    /// Raises `signal` at every later event of the stream.
    pub(in crate::engine) fn watch_stream(&mut self, id: StreamId, signal: Arc<Signal>) {
        self.streams.watch(id, signal);
    }

    /// TCP has accepted a connection for a listener of streams. False for any other listener.
    pub(super) fn on_incoming_stream(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        remote: SocketAddr,
        interface: &Interface,
        device: &mut RdmaDevice,
    ) -> bool {
        let found = self.listeners.get(listener);
        let Some((context, Clients::Streams(waiting))) =
            found.map(|context| (context, context.clients()))
        else {
            return false;
        };
        if context.is_full(waiting.len()) {
            device.counters.drop_startup_backlog += 1;
            device.stack.abort(conn, device.now);
            return true;
        }
        let waiting = Arc::clone(waiting);
        let port = SourcePort::of_listener(Arc::clone(context.port()));
        let id = self.add_stream(conn, port, remote, StreamState::Established);
        if let Err(id) = waiting.put(id) {
            // The listener has been dropped.
            self.drop_stream(id, interface, device);
        }
        true
    }

    /// The state of a stream.
    pub(in crate::engine) fn stream_state(&self, id: StreamId) -> StreamState {
        self.streams.state(id)
    }

    /// Whether a read returns bytes, or the end of the stream.
    pub(in crate::engine) fn stream_is_readable(&self, id: StreamId, device: &RdmaDevice) -> bool {
        let StreamId { conn, .. } = id;
        match self.stream_state(id) {
            StreamState::PeerClosed | StreamState::Gone => true,
            StreamState::Connecting => false,
            StreamState::Established => device.unread(conn) > 0,
        }
    }

    /// Reads up to `len` bytes that have arrived.
    pub(in crate::engine) fn read_stream(
        &self,
        id: StreamId,
        len: usize,
        device: &mut RdmaDevice,
    ) -> Result<Vec<u8>, StreamError> {
        let StreamId { conn, .. } = id;
        let unread = device.unread(conn);
        match self.stream_state(id) {
            StreamState::Gone => return Err(StreamError::Gone),
            StreamState::PeerClosed if unread == 0 => return Err(StreamError::PeerClosed),
            StreamState::Connecting | StreamState::Established | StreamState::PeerClosed => {}
        }
        let Some(mut tcp) = device.stack.conn_mut(conn) else {
            return Ok(Vec::new());
        };
        let len = len.min(unread);
        let bytes = tcp.readable(len).get(..len).unwrap_or_default().to_vec();
        tcp.consume(bytes.len());
        Ok(bytes)
    }

    /// Sends as many bytes as TCP accepts now.
    pub(in crate::engine) fn write_stream(
        &self,
        id: StreamId,
        bytes: &[u8],
        device: &mut RdmaDevice,
    ) -> Result<usize, StreamError> {
        match self.stream_state(id) {
            StreamState::Gone => Err(StreamError::Gone),
            StreamState::Connecting => Ok(0),
            StreamState::Established | StreamState::PeerClosed => {
                let StreamId { conn, .. } = id;
                let now = device.now;
                let tcp = device.stack.conn_mut(conn);
                Ok(tcp.map_or(0, |mut tcp| send_raw(&mut tcp, bytes, now)))
            }
        }
    }

    /// Closes a stream that the application has dropped, unless a queue pair has it.
    pub(in crate::engine) fn drop_stream(
        &mut self,
        id: StreamId,
        interface: &Interface,
        device: &mut RdmaDevice,
    ) {
        let StreamId { conn, .. } = id;
        if let Some(port) = self.streams.remove(conn, "dropped") {
            self.owners.remove(&conn);
            self.abandon(conn, Last::Bytes, device);
            self.linger(conn, port, interface, device.now);
        }
    }

    /// Handles an event of a stream. Its bytes wait until the application reads them, or hands the
    /// stream over.
    pub(in crate::engine) fn on_stream_event(
        &mut self,
        event: Event,
        interface: &Interface,
        now: Instant,
    ) {
        match event {
            Event::Connected(conn) => self.streams.establish(conn),
            Event::PeerClosed(conn) => self.streams.set_state(conn, StreamState::PeerClosed),
            Event::Closed { conn, .. } => {
                self.owners.remove(&conn);
                if let Some(port) = self.streams.remove(conn, "Gone") {
                    self.linger(conn, port, interface, now);
                }
            }
            Event::Readable(conn) | Event::Writable(conn) => self.streams.wake(conn),
            Event::Incoming { .. }
            | Event::RouteWanted(_)
            | Event::Doubtful(_)
            | Event::Stray(_) => {}
        }
    }

    /// Removes a stream that `qp` takes over. Returns its port; `None` if there is no such stream.
    pub(in crate::engine) fn hand_over_stream(
        &mut self,
        id: StreamId,
        qp: QpId,
    ) -> Option<Arc<LocalPort>> {
        let StreamId { conn, .. } = id;
        let port = self.streams.remove(conn, format_args!("queue pair {qp}"))?;
        self.own(conn, qp.slot());
        Some(port)
    }

    /// Connects a stream from another port, as the answer to its SYN arrived at another engine.
    pub(in crate::engine) fn begin_stream_anew(
        &mut self,
        conn: ConnId,
        answer: Result<LocalPort, HostError>,
        device: &mut RdmaDevice,
    ) {
        self.streams.begin_anew(conn, answer, device);
    }

    /// Resets all streams.
    pub(super) fn reset_all_streams(&mut self, device: &mut RdmaDevice) {
        for conn in self.streams.conns() {
            self.streams.remove(conn, "Gone");
            self.owners.remove(&conn);
            device.stack.abort(conn, device.now);
        }
    }
}
