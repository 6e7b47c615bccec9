//! Connections in streaming mode: raw bytes, until Modify QP takes them to a queue pair.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::Signal;
use xwarp_tcp::{ConnId, Event, ListenerId, Path};

use super::listeners::Clients;
use super::streams::{Outcome, StreamOrder};
use crate::engine::deadlines::Last;
use crate::engine::{Engine, Owner};
use crate::model::{
    ConnectError, Handover, ModifyError, NextHop, StreamError, StreamId, StreamState,
};
use crate::qp::{QpContext, SourcePort, send_raw};
use crate::queues::Inbox;
use crate::tables::{SearchId, Searcher};

impl Engine {
    /// Connects a stream. If the next hop is searched for, TCP begins when it is found.
    pub fn connect_stream(&mut self, order: StreamOrder, next_hop: NextHop) {
        match next_hop {
            NextHop::Known(next_hop) => self.begin_stream(order, next_hop),
            NextHop::ThisHost => self.begin_stream(order, self.device.stack.mac()),
            NextHop::Searching(search) => {
                let id = self.device.searches.begin(search, Searcher::Stream);
                self.streams.await_next_hop(id, order);
            }
        }
    }

    /// What the search for a stream's next hop has found.
    pub(in crate::engine) fn on_next_hop_of_stream(
        &mut self,
        id: SearchId,
        next_hop: Result<[u8; 6], ConnectError>,
    ) {
        if let Some(order) = self.streams.take_order(id) {
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
            metrics: order.metrics,
        };
        match self.device.stack.connect(path, self.device.now) {
            Err(error) => order.refuse(ConnectError::Resources(error.to_string())),
            Ok(conn) => {
                let time = (self.device.now, Duration::MAX);
                let port = SourcePort::new(order.port, None, time, &self.device);
                port.begun(conn, &mut self.device);
                let id = self.add_stream(conn, port, order.remote, StreamState::Connecting);
                self.streams.watch(id, order.watcher);
                // Whoever asked gives the order up by a verb, which takes the stream out again.
                let _ = order.outcome.put(Ok(id));
            }
        }
    }

    /// The application gives up the order that has this outcome. A stream that it has taken is not concerned.
    pub fn cancel_stream(&mut self, outcome: &Arc<Inbox<Outcome>>) {
        if let Some(search) = self.streams.cancel(outcome) {
            self.device.searches.end(search);
        }
        if let Some(Ok(id)) = outcome.take() {
            self.drop_stream(id);
        }
    }

    /// Nobody connects any more: those who wait for their next hop are told why.
    pub(in crate::engine) fn end_stream_searches(&mut self, reason: &str) {
        for (id, order) in self.streams.take_orders() {
            self.device.searches.end(id);
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
        let engine = self.index;
        StreamId { engine, conn }
    }

    /// Has whatever happens to a stream raise `signal`.
    pub fn watch_stream(&mut self, id: StreamId, signal: Arc<Signal>) {
        self.streams.watch(id, signal);
    }

    /// TCP has accepted a connection for a listener of streams; false if it is of another kind.
    pub(in crate::engine) fn on_incoming_stream(
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
        let waiting = Arc::clone(waiting);
        let port = SourcePort::of_listener(Arc::clone(context.port()));
        let id = self.add_stream(conn, port, remote, StreamState::Established);
        if let Err(id) = waiting.put(id) {
            // The listener has been dropped.
            self.drop_stream(id);
        }
        true
    }

    /// The state of a stream.
    pub fn stream_state(&self, id: StreamId) -> StreamState {
        self.streams.state(id)
    }

    /// Whether a read returns bytes, or says that the stream has ended.
    pub fn stream_is_readable(&self, id: StreamId) -> bool {
        let StreamId { conn, .. } = id;
        match self.stream_state(id) {
            StreamState::PeerClosed | StreamState::Gone => true,
            StreamState::Connecting => false,
            StreamState::Established => self.device.unread(conn) > 0,
        }
    }

    /// Up to `len` bytes that have come.
    pub fn read_stream(&mut self, id: StreamId, len: usize) -> Result<Vec<u8>, StreamError> {
        let StreamId { conn, .. } = id;
        let unread = self.device.unread(conn);
        match self.stream_state(id) {
            StreamState::Gone => return Err(StreamError::Gone),
            StreamState::PeerClosed if unread == 0 => return Err(StreamError::PeerClosed),
            StreamState::Connecting | StreamState::Established | StreamState::PeerClosed => {}
        }
        let Some(mut tcp) = self.device.stack.conn_mut(conn) else {
            return Ok(Vec::new());
        };
        let len = len.min(unread);
        let bytes = tcp.readable(len).get(..len).unwrap_or_default().to_vec();
        tcp.consume(bytes.len());
        Ok(bytes)
    }

    /// Sends as much as TCP takes now.
    pub fn write_stream(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        match self.stream_state(id) {
            StreamState::Gone => Err(StreamError::Gone),
            StreamState::Connecting => Ok(0),
            StreamState::Established | StreamState::PeerClosed => {
                let StreamId { conn, .. } = id;
                let tcp = self.device.stack.conn_mut(conn);
                Ok(tcp.map_or(0, |mut tcp| send_raw(&mut tcp, bytes, self.device.now)))
            }
        }
    }

    /// The application is done with a stream; one that a queue pair has is not concerned.
    pub fn drop_stream(&mut self, id: StreamId) {
        let StreamId { conn, .. } = id;
        if let Some(port) = self.streams.remove(conn, "dropped") {
            self.owners.remove(&conn);
            self.abandon(conn, Last::Bytes);
            self.linger(port);
        }
    }

    /// TCP reports something of a stream. Its bytes wait until the application reads them, or hands the stream over.
    pub(in crate::engine) fn on_stream_event(&mut self, event: Event) {
        match event {
            Event::Connected(conn) => self.streams.establish(conn),
            Event::PeerClosed(conn) => self.streams.set_state(conn, StreamState::PeerClosed),
            Event::Closed { conn, .. } => {
                self.owners.remove(&conn);
                if let Some(port) = self.streams.remove(conn, "Gone") {
                    self.linger(port);
                }
            }
            Event::Readable(conn) | Event::Writable(conn) => self.streams.wake(conn),
            Event::Doubtful(conn) => self.doubt_path(conn),
            Event::Stray(conn) => self.want_other_port(conn),
            Event::Incoming { .. } | Event::RouteWanted(_) => {}
        }
    }

    /// Only an established stream can be handed over (verbs draft §6.2.1.2).
    pub(in crate::engine) fn check_handover(&self, handover: &Handover) -> Result<(), ModifyError> {
        match self.stream_state(handover.stream) {
            StreamState::Established => Ok(()),
            StreamState::Connecting | StreamState::PeerClosed | StreamState::Gone => {
                Err(ModifyError::InvalidStream)
            }
        }
    }

    /// Idle to RTS: the stream becomes the queue pair's, the message goes out, and what the peer has sent already is received.
    pub(in crate::engine) fn hand_over(&mut self, key: usize, handover: Handover) {
        let StreamId { conn, .. } = handover.stream;
        let Some(id) = self.qps.get(key).map(QpContext::id) else {
            return;
        };
        let to = format_args!("queue pair {id}");
        let Some(port) = self.streams.remove(conn, to) else {
            return;
        };
        self.own(conn, key);
        self.with_qp(key, |qp, device| {
            qp.hand_over(conn, port, handover.framing, handover.message, device);
        });
    }
}
