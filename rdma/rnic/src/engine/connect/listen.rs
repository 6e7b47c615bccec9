//! The responder's start-up (RFC 5044 §7.1.2): listeners, requests, the application's answer.
//!
//! TCP accepts a Reply as a whole (`Stack::send_all`), even if the peer's window has no room for
//! it: the rest waits in memory, not in TX frames. The peer has 10 s to make room for it.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use xwarp_iwarp::mpa::{Negotiated, Request, Responder, ResponderStep, StartupError};
use xwarp_tcp::{ConnId, Event, ListenerId};

use super::deadlines::Last;
use super::listeners::{Clients, IncomingRequest, Place, Room};
use super::{Connections, Owner};
use crate::engine::host::Interface;
use crate::model::{
    AcceptError, IncomingId, ListenError, ListenKey, LocalPort, QpId, StartUpParameters,
};
use crate::qp::RdmaDevice;
use crate::queues::Inbox;

/// A connection without a queue pair yet.
pub(super) struct Incoming {
    id: IncomingId,
    listener: ListenerId,
    conn: ConnId,
    remote: SocketAddr,
    port: Arc<LocalPort>,
    requests: Arc<Inbox<IncomingRequest>>,
    /// The whole Request, while the application decides about it.
    request: Option<Request>,
}

impl Incoming {
    /// Logs the next state of the connection.
    fn log_change(&self, to: impl Display) {
        let (local, remote) = (self.port.local(), self.remote);
        let waits_for = if self.request.is_some() {
            "answer"
        } else {
            "Request"
        };
        log::debug!("incoming connection from {remote} to {local}: awaiting {waits_for} to {to}");
    }
}

impl Connections {
    /// Listens on all of `ports`, or on none. If the host does not have `address` yet, it listens
    /// as soon as the host gets it. An unspecified address stands for all of its family.
    pub(in crate::engine) fn listen(
        &mut self,
        address: IpAddr,
        ports: Vec<LocalPort>,
        clients: Clients,
        backlog: usize,
        device: &mut RdmaDevice,
    ) -> Result<ListenKey, ListenError> {
        let port = ports.first().map_or(0, |port| port.local().port());
        let key = self.listeners.register(address, port, clients, backlog);
        for port in ports {
            let local = port.local();
            if !self.listen_too(key, port, device) {
                self.unlisten(key, device);
                return Err(ListenError::Taken(local));
            }
        }
        Ok(key)
    }

    /// Listens on one more port for a registered listener. False if the listener has ended, or
    /// another one has the port.
    pub(in crate::engine) fn listen_too(
        &mut self,
        key: ListenKey,
        port: LocalPort,
        device: &mut RdmaDevice,
    ) -> bool {
        self.listeners.listen(key, port, &mut device.stack)
    }

    /// Ends a listener.
    pub(in crate::engine) fn unlisten(&mut self, key: ListenKey, device: &mut RdmaDevice) {
        self.listeners.unlisten(key, &mut device.stack);
    }

    /// TCP has accepted a connection, which now waits for its Request.
    pub(in crate::engine) fn on_incoming(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        remote: SocketAddr,
        interface: &Interface,
        device: &mut RdmaDevice,
    ) {
        if self.on_incoming_stream(listener, conn, remote, interface, device) {
            return;
        }
        let has_room = self.make_room(listener, device);
        let Some(id) = has_room
            .then(|| self.keep_incoming(listener, conn, remote))
            .flatten()
        else {
            device.stack.abort(conn, device.now);
            return;
        };
        self.deadlines.expect_request(device.now, id);
        // The Request may have arrived already.
        self.on_request_bytes(id.key, device);
    }

    /// Adds a connection that waits for its Request. `None` if the listener has ended.
    fn keep_incoming(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        remote: SocketAddr,
    ) -> Option<IncomingId> {
        let context = self.listeners.get(listener)?;
        let Clients::Requests(requests) = context.clients() else {
            return None;
        };
        let entry = self.incoming.vacant_entry();
        let id = IncomingId {
            engine: self.engine,
            key: entry.key(),
            serial: self.next_incoming,
        };
        self.next_incoming += 1;
        self.owners.insert(conn, Owner::Incoming(id.key));
        let local = context.port().local();
        log::debug!("incoming connection from {remote} to {local}: new, awaiting Request");
        entry.insert(Incoming {
            id,
            listener,
            conn,
            remote,
            port: Arc::clone(context.port()),
            requests: Arc::clone(requests),
            request: None,
        });
        self.listeners.note_come(listener, id);
        Some(id)
    }

    /// Handles an event of a connection that has no queue pair yet.
    pub(in crate::engine) fn on_incoming_event(
        &mut self,
        key: usize,
        event: Event,
        device: &mut RdmaDevice,
    ) {
        match event {
            Event::Readable(_) => self.on_request_bytes(key, device),
            Event::PeerClosed(_) => {
                // TCP may not have reported the bytes before the FIN by an event of their own.
                self.on_request_bytes(key, device);
                self.drop_incoming(key, device);
            }
            Event::Closed { conn, .. } => {
                self.owners.remove(&conn);
                self.forget_incoming(key);
            }
            Event::Incoming { .. }
            | Event::RouteWanted(_)
            | Event::Connected(_)
            | Event::Doubtful(_)
            | Event::Stray(_)
            | Event::Writable(_) => {}
        }
    }

    /// Handles bytes of a Request, or bytes after it, which are an error (wire.md D11).
    fn on_request_bytes(&mut self, key: usize, device: &mut RdmaDevice) {
        let Some(incoming) = self.incoming.get_mut(key) else {
            return;
        };
        let conn = incoming.conn;
        let Some(mut tcp) = device.stack.conn_mut(conn) else {
            return;
        };
        let available = tcp.readable_len();
        if available == 0 {
            return;
        }
        if incoming.request.is_some() {
            log::info!("{} sent before its Request was answered", incoming.remote);
            device.counters.drop_startup += 1;
            self.drop_incoming(key, device);
            return;
        }
        let responder = Responder::new(self.mpa.params(None));
        match responder.on_bytes(tcp.readable(available)) {
            Ok(ResponderStep::NeedBytes(_)) => {}
            Ok(ResponderStep::Request { request, consumed }) => {
                tcp.consume(consumed);
                self.offer(key, request, device);
            }
            Err(error) => self.refuse(key, &error, device),
        }
    }

    fn refuse(&mut self, key: usize, error: &StartupError, device: &mut RdmaDevice) {
        if let Some(incoming) = self.incoming.get(key) {
            log::info!("{} does not speak iWARP: {error}", incoming.remote);
        }
        device.counters.drop_startup += 1;
        self.drop_incoming(key, device);
    }

    /// Passes a complete Request to the listener's client.
    fn offer(&mut self, key: usize, request: Request, device: &mut RdmaDevice) {
        let Some(place) = self.place_for(key, device) else {
            self.drop_incoming(key, device);
            return;
        };
        let Some(incoming) = self.incoming.get_mut(key) else {
            return;
        };
        let offered = IncomingRequest {
            id: incoming.id,
            local: incoming.port.local(),
            remote: incoming.remote,
            private_data: request.private_data.to_vec(),
            revision: request.revision,
            enhanced: request.enhanced,
            place,
        };
        incoming.log_change("awaiting answer");
        incoming.request = Some(request);
        if incoming.requests.put(offered).is_err() {
            // The listener has been dropped.
            self.drop_incoming(key, device);
        }
    }

    /// Takes a place in the queue of Requests for the application. `None` if the queue is full or
    /// the listener has ended.
    fn place_for(&self, key: usize, device: &mut RdmaDevice) -> Option<Place> {
        let listener = self.incoming.get(key)?.listener;
        let place = self.listeners.get(listener)?.take_place();
        device.counters.drop_startup_backlog += u64::from(place.is_none());
        place
    }

    /// Sends the Reply that accepts a Request (wire.md §3.2), and gives the connection to `qp`.
    /// After an error, the Request can still be answered, unless the peer has gone.
    pub(in crate::engine) fn accept(
        &mut self,
        id: IncomingId,
        qp: QpId,
        start_up: StartUpParameters,
        private_data: &[u8],
        device: &mut RdmaDevice,
    ) -> Result<(ConnId, Arc<LocalPort>, Negotiated), AcceptError> {
        let request = self.asked(id)?;
        let conn = self.incoming.get(id.key).map(|incoming| incoming.conn);
        let is_summed = conn.is_none_or(|conn| device.is_summed(conn));
        let answer = Some(start_up.answer(request));
        let responder = Responder::new(self.mpa.params_on(is_summed, answer));
        let (reply, negotiated) = responder.accept(request, private_data)?;
        let incoming = self.take_incoming(id, format_args!("queue pair {qp}"));
        if !(device.stack).send_all(incoming.conn, &reply, device.now) {
            device.stack.abort(incoming.conn, device.now);
            return Err(AcceptError::PeerGone);
        }
        self.own(incoming.conn, qp.slot());
        Ok((incoming.conn, incoming.port, negotiated))
    }

    /// Rejects a Request by a Reply that carries the `ord` that this side would have needed, and
    /// closes gracefully.
    pub(in crate::engine) fn reject(
        &mut self,
        id: IncomingId,
        ord: Option<u16>,
        private_data: &[u8],
        interface: &Interface,
        device: &mut RdmaDevice,
    ) -> Result<(), AcceptError> {
        let request = self.asked(id)?;
        let responder = Responder::new(self.mpa.params(None));
        let reply = match ord {
            None => responder.reject(request, private_data),
            Some(ord) => responder.reject_for_ord(request, ord, private_data),
        }?;
        let incoming = self.take_incoming(id, "rejected");
        let sent = (device.stack).send_all(incoming.conn, &reply, device.now);
        self.abandon(incoming.conn, Last::Frame, device);
        self.linger(incoming.conn, incoming.port, interface, device.now);
        if sent {
            Ok(())
        } else {
            Err(AcceptError::PeerGone)
        }
    }

    /// Makes room for one more connection without a queue pair at a listener. If the backlog is
    /// full, it resets the connection that has sent nothing for the longest time, so that silent
    /// peers cannot keep out other peers. False if all of them have sent their Request.
    fn make_room(&mut self, listener: ListenerId, device: &mut RdmaDevice) -> bool {
        let incoming = &self.incoming;
        let is_silent = |id: &IncomingId| {
            let found = incoming.get(id.key).filter(|it| it.id == *id);
            found.is_some_and(|it| it.request.is_none())
        };
        let silent = match self.listeners.room(listener, is_silent) {
            Some(Room::Free) => return true,
            Some(Room::Full(silent)) => silent,
            None => return false,
        };
        device.counters.drop_startup_backlog += 1;
        let Some(oldest) = silent else {
            return false;
        };
        self.drop_incoming(oldest.key, device);
        true
    }

    /// True if the Request of this connection has not arrived completely.
    pub(super) fn awaits_request(&self, id: IncomingId) -> bool {
        let incoming = self.incoming.get(id.key).filter(|it| it.id == id);
        incoming.is_some_and(|incoming| incoming.request.is_none())
    }

    /// The Request that waits for the application's answer.
    fn asked(&self, id: IncomingId) -> Result<&Request, AcceptError> {
        let incoming = self.incoming.get(id.key).filter(|it| it.id == id);
        incoming
            .and_then(|incoming| incoming.request.as_ref())
            .ok_or(AcceptError::PeerGone)
    }

    /// Removes the connection whose Request is being answered.
    fn take_incoming(&mut self, id: IncomingId, answer: impl Display) -> Incoming {
        let incoming = self.incoming.remove(id.key);
        incoming.log_change(answer);
        self.owners.remove(&incoming.conn);
        self.listeners.note_left(incoming.listener);
        incoming
    }

    /// Resets a connection that has no queue pair.
    pub(super) fn drop_incoming(&mut self, key: usize, device: &mut RdmaDevice) {
        if let Some(incoming) = self.incoming.try_remove(key) {
            incoming.log_change("reset");
            self.owners.remove(&incoming.conn);
            device.stack.abort(incoming.conn, device.now);
            self.listeners.note_left(incoming.listener);
        }
    }

    /// Removes a connection that TCP has ended.
    fn forget_incoming(&mut self, key: usize) {
        if let Some(incoming) = self.incoming.try_remove(key) {
            incoming.log_change("gone");
            self.listeners.note_left(incoming.listener);
        }
    }

    /// Resets all connections that wait for a Request or its answer.
    pub(super) fn reset_all_incoming(&mut self, device: &mut RdmaDevice) {
        for incoming in self.incoming.drain() {
            incoming.log_change("reset");
            self.owners.remove(&incoming.conn);
            device.stack.abort(incoming.conn, device.now);
        }
    }
}
