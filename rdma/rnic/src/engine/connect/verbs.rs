//! The engine's verbs of listeners, incoming connections and streams.

use std::net::IpAddr;
use std::sync::Arc;

use xwarp_driver::Signal;
use xwarp_tcp::Event;

use super::streams::Outcome;
use super::{Clients, StartStream};
use crate::engine::Engine;
use crate::model::{
    AcceptError, ConnectError, Handover, IncomingId, ListenError, ListenKey, LocalPort,
    ModifyError, NextHop, QpId, QpState, StreamError, StreamId, StreamState,
};
use crate::qp::QpContext;
use crate::queues::Inbox;

/// Listeners.
impl Engine {
    /// Listens on all of `ports`, or on none. If the host does not have `address` yet, it listens
    /// as soon as the host gets it. An unspecified address stands for all of its family.
    pub fn listen(
        &mut self,
        address: IpAddr,
        ports: Vec<LocalPort>,
        clients: Clients,
        backlog: usize,
    ) -> Result<ListenKey, ListenError> {
        if let Some(reason) = self.failure() {
            return Err(ListenError::Failed(reason));
        }
        let device = &mut self.device;
        self.connections
            .listen(address, ports, clients, backlog, device)
    }

    /// Ends a listener.
    pub fn unlisten(&mut self, key: ListenKey) {
        self.connections.unlisten(key, &mut self.device);
    }

    /// Accepts a Request: the queue pair takes the connection and receives on it, and the Reply is
    /// sent (wire.md §3.2). After an error, the Request can still be answered, unless the peer has
    /// gone.
    pub fn accept(
        &mut self,
        id: IncomingId,
        qp: QpId,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let start_up = match self.qp(qp) {
            Some(qp) if qp.is_unconnected() => qp.start_up(),
            qp => {
                let state = qp.map_or(QpState::Error, QpContext::state);
                return Err(AcceptError::InvalidState(state));
            }
        };
        let device = &mut self.device;
        let (conn, port, negotiated) =
            self.connections
                .accept(id, qp, start_up, private_data, device)?;
        self.with_qp(qp.slot(), |qp, device| {
            qp.accept(conn, port, &negotiated, device);
        });
        Ok(())
    }

    /// Rejects a Request by a Reply that carries the `ord` that this side would have needed, and
    /// closes gracefully.
    pub fn reject(
        &mut self,
        id: IncomingId,
        ord: Option<u16>,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        self.connections
            .reject(id, ord, private_data, &self.interface, &mut self.device)
    }

    /// Handles an event of a connection that has no queue pair yet.
    pub(in crate::engine) fn on_incoming_event(&mut self, key: usize, event: Event) {
        match event {
            Event::Doubtful(conn) => self.doubt_path(conn),
            event => self
                .connections
                .on_incoming_event(key, event, &mut self.device),
        }
    }

    /// Frees the ports of connections that have ended. The kernel answers a repeated FIN to such a
    /// port by a RST.
    pub fn release_ports(&mut self) {
        self.connections.release_ports();
    }
}

/// Streams.
impl Engine {
    /// Connects a stream. If the next hop is unknown, TCP connects once the search has found it.
    pub fn connect_stream(&mut self, order: StartStream, next_hop: NextHop) {
        match self.failure() {
            Some(reason) => order.refuse(ConnectError::Failed(reason)),
            None => self
                .connections
                .connect_stream(order, next_hop, &mut self.device),
        }
    }

    /// Cancels the attempt with this outcome. A stream that the application has taken already is
    /// unaffected.
    pub fn cancel_stream(&mut self, outcome: &Arc<Inbox<Outcome>>) {
        self.connections
            .cancel_stream(outcome, &self.interface, &mut self.device);
    }

    /// Raises `signal` at every later event of the stream.
    pub fn watch_stream(&mut self, id: StreamId, signal: Arc<Signal>) {
        self.connections.watch_stream(id, signal);
    }

    /// State of a stream.
    pub fn stream_state(&self, id: StreamId) -> StreamState {
        self.connections.stream_state(id)
    }

    /// Whether a read returns bytes or the end of the stream.
    pub fn stream_is_readable(&self, id: StreamId) -> bool {
        self.connections.stream_is_readable(id, &self.device)
    }

    /// Reads up to `len` bytes that have arrived.
    pub fn read_stream(&mut self, id: StreamId, len: usize) -> Result<Vec<u8>, StreamError> {
        self.connections.read_stream(id, len, &mut self.device)
    }

    /// Sends as many bytes as TCP accepts now, and returns their number.
    pub fn write_stream(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.connections.write_stream(id, bytes, &mut self.device)
    }

    /// Closes a stream, unless a queue pair has it.
    pub fn drop_stream(&mut self, id: StreamId) {
        self.connections
            .drop_stream(id, &self.interface, &mut self.device);
    }

    /// Handles an event of a stream.
    pub(in crate::engine) fn on_stream_event(&mut self, event: Event) {
        match event {
            Event::Doubtful(conn) => self.doubt_path(conn),
            Event::Stray(conn) => self.want_other_port(conn),
            event => self
                .connections
                .on_stream_event(event, &self.interface, self.device.now),
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

    /// Idle to RTS: the queue pair takes the stream over and sends the last streaming message. It
    /// receives the peer's unread bytes.
    pub(in crate::engine) fn hand_over(&mut self, qp: QpId, handover: Handover) {
        let StreamId { conn, .. } = handover.stream;
        let Some(port) = self.connections.hand_over_stream(handover.stream, qp) else {
            return;
        };
        self.with_qp(qp.slot(), |qp, device| {
            qp.hand_over(conn, port, handover.framing, handover.message, device);
        });
    }
}
