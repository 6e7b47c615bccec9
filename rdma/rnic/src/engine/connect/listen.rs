//! The responder's start-up (RFC 5044 §7.1.2): listeners, requests, the application's answer.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use xwarp_iwarp::mpa::{Request, Responder, ResponderStep, StartupError};
use xwarp_tcp::{ConnId, Event, ListenerId};

use super::listeners::{Clients, IncomingRequest, Place, Room};
use crate::engine::deadlines::Last;
use crate::engine::{Engine, Owner};
use crate::model::{AcceptError, IncomingId, ListenError, ListenKey, LocalPort, QpId, QpState};
use crate::qp::QpContext;
use crate::queues::Inbox;

/// How long a peer may take for its Request after TCP is established; not extended by single bytes (wire.md §3.5).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer has for what this side sent last on a connection that nobody has any more, and for its FIN.
const LAST_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection without a queue pair yet.
pub(in crate::engine) struct Incoming {
    id: IncomingId,
    listener: ListenerId,
    conn: ConnId,
    remote: SocketAddr,
    port: Arc<LocalPort>,
    requests: Arc<Inbox<IncomingRequest>>,
    /// The whole Request, while the application decides.
    request: Option<Request>,
}

impl Incoming {
    pub(in crate::engine) fn conn(&self) -> ConnId {
        self.conn
    }

    /// It comes to wait for something else, or ends.
    pub(in crate::engine) fn log_change(&self, to: impl Display) {
        let (local, remote) = (self.port.local(), self.remote);
        let waits_for = if self.request.is_some() {
            "answer"
        } else {
            "Request"
        };
        log::debug!("incoming connection from {remote} to {local}: awaiting {waits_for} to {to}");
    }
}

impl Engine {
    /// Listens on all of `ports`, or on none. If the host does not have `address` yet, it listens as soon as the host gets it. An
    /// unspecified address stands for all of its family.
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
        let port = ports.first().map_or(0, |port| port.local().port());
        let key = self.listeners.register(address, port, clients, backlog);
        for port in ports {
            let local = port.local();
            if !self.listen_too(key, port) {
                self.unlisten(key);
                return Err(ListenError::Taken(local));
            }
        }
        Ok(key)
    }

    /// Listens on one more port for whoever wants to; false if nobody does, or another listener has the port.
    pub(in crate::engine) fn listen_too(&mut self, key: ListenKey, port: LocalPort) -> bool {
        self.listeners.listen(key, port, &mut self.device.stack)
    }

    /// Listens no more.
    pub fn unlisten(&mut self, key: ListenKey) {
        self.listeners.unlisten(key, &mut self.device.stack);
    }

    /// TCP has accepted a connection: waits for its Request.
    pub(in crate::engine) fn on_incoming(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        remote: SocketAddr,
    ) {
        if self.on_incoming_stream(listener, conn, remote) {
            return;
        }
        let has_room = self.make_room(listener);
        let Some(id) = has_room
            .then(|| self.keep_incoming(listener, conn, remote))
            .flatten()
        else {
            self.device.stack.abort(conn, self.device.now);
            return;
        };
        self.deadlines
            .expect_request(self.device.now + REQUEST_TIMEOUT, id);
        // The Request may be here already.
        self.on_request_bytes(id.key);
    }

    /// Enters a connection that waits for its Request; `None` if nobody listens any more.
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
            engine: self.index,
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

    /// TCP reports something of a connection that has no queue pair yet.
    pub(in crate::engine) fn on_incoming_event(&mut self, key: usize, event: Event) {
        match event {
            Event::Readable(_) => self.on_request_bytes(key),
            Event::PeerClosed(_) => {
                // What came before the FIN may not have been announced on its own.
                self.on_request_bytes(key);
                self.drop_incoming(key);
            }
            Event::Closed { conn, .. } => {
                self.owners.remove(&conn);
                self.forget_incoming(key);
            }
            Event::Doubtful(conn) => self.doubt_path(conn),
            Event::Incoming { .. }
            | Event::RouteWanted(_)
            | Event::Connected(_)
            | Event::Stray(_)
            | Event::Writable(_) => {}
        }
    }

    /// Bytes of a Request, or, after it, ones that must not be there (wire.md D11).
    pub(in crate::engine) fn on_request_bytes(&mut self, key: usize) {
        let Some(incoming) = self.incoming.get_mut(key) else {
            return;
        };
        let conn = incoming.conn;
        let Some(mut tcp) = self.device.stack.conn_mut(conn) else {
            return;
        };
        let available = tcp.readable_len();
        if available == 0 {
            return;
        }
        if incoming.request.is_some() {
            log::info!("{} sent before its Request was answered", incoming.remote);
            self.device.counters.drop_startup += 1;
            self.drop_incoming(key);
            return;
        }
        let responder = Responder::new(self.mpa.params(None));
        match responder.on_bytes(tcp.readable(available)) {
            Ok(ResponderStep::NeedBytes(_)) => {}
            Ok(ResponderStep::Request { request, consumed }) => {
                tcp.consume(consumed);
                self.offer(key, request);
            }
            Err(error) => self.refuse(key, &error),
        }
    }

    fn refuse(&mut self, key: usize, error: &StartupError) {
        if let Some(incoming) = self.incoming.get(key) {
            log::info!("{} does not speak iWARP: {error}", incoming.remote);
        }
        self.device.counters.drop_startup += 1;
        self.drop_incoming(key);
    }

    /// Hands a whole Request to whoever listens.
    fn offer(&mut self, key: usize, request: Request) {
        let Some(place) = self.place_for(key) else {
            self.drop_incoming(key);
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
            self.drop_incoming(key);
        }
    }

    /// Takes a place in the queue of Requests for the application. `None` if the queue is full, or nobody listens any more.
    fn place_for(&mut self, key: usize) -> Option<Place> {
        let listener = self.incoming.get(key)?.listener;
        let place = self.listeners.get(listener)?.take_place();
        self.device.counters.drop_startup_backlog += u64::from(place.is_none());
        place
    }

    /// The application says yes: the queue pair is bound and receives, then the Reply goes out (wire.md §3.2). Unless the peer has
    /// gone, the Request still waits for its answer after an error.
    pub fn accept(
        &mut self,
        id: IncomingId,
        qp: QpId,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let qp_key = qp.slot();
        let start_up = match self.qp(qp) {
            Some(qp) if qp.is_unconnected() => qp.start_up(),
            qp => {
                let state = qp.map_or(QpState::Error, QpContext::state);
                return Err(AcceptError::InvalidState(state));
            }
        };
        let request = self.asked(id)?;
        let responder = Responder::new(self.mpa.params(Some(start_up.answer(request))));
        let (reply, negotiated) = responder.accept(request, private_data)?;
        let incoming = self.take_incoming(id, format_args!("queue pair {qp}"));
        if !(self.device.stack).send_all(incoming.conn, &reply, self.device.now) {
            self.device.stack.abort(incoming.conn, self.device.now);
            return Err(AcceptError::PeerGone);
        }
        self.own(incoming.conn, qp_key);
        let (conn, port) = (incoming.conn, incoming.port);
        self.with_qp(qp_key, |qp, device| {
            qp.accept(conn, port, &negotiated, device);
        });
        Ok(())
    }

    /// The application says no: a Reply that says so, and which `ord` would have been needed, then a graceful close.
    pub fn reject(
        &mut self,
        id: IncomingId,
        ord: Option<u16>,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let request = self.asked(id)?;
        let responder = Responder::new(self.mpa.params(None));
        let reply = match ord {
            None => responder.reject(request, private_data),
            Some(ord) => responder.reject_for_ord(request, ord, private_data),
        }?;
        let incoming = self.take_incoming(id, "rejected");
        let sent = (self.device.stack).send_all(incoming.conn, &reply, self.device.now);
        self.abandon(incoming.conn, Last::Frame);
        self.linger(incoming.port);
        if sent {
            Ok(())
        } else {
            Err(AcceptError::PeerGone)
        }
    }

    /// Closes a connection that nobody has any more. A peer that does not take what was sent, or does not close its side, holds it no
    /// longer than for a start-up frame.
    pub(in crate::engine) fn abandon(&mut self, conn: ConnId, last: Last) {
        self.device.stack.close(conn, self.device.now);
        self.expect_end(conn, last);
    }

    pub(in crate::engine) fn expect_end(&mut self, conn: ConnId, last: Last) {
        let at = self.device.now + LAST_TIMEOUT;
        self.deadlines.expect_end(at, conn, last);
    }

    /// Room for one more connection among those of a listener that have no queue pair. For want of it the one goes that has been silent for
    /// longest, so that silent ones cannot keep others out. False if all of them have sent their Request.
    fn make_room(&mut self, listener: ListenerId) -> bool {
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
        self.device.counters.drop_startup_backlog += 1;
        let Some(oldest) = silent else {
            return false;
        };
        self.drop_incoming(oldest.key);
        true
    }

    /// True if the Request of this connection is not wholly here.
    pub(in crate::engine) fn awaits_request(&self, id: IncomingId) -> bool {
        let incoming = self.incoming.get(id.key).filter(|it| it.id == id);
        incoming.is_some_and(|incoming| incoming.request.is_none())
    }

    /// The Request that the application is to answer.
    fn asked(&self, id: IncomingId) -> Result<&Request, AcceptError> {
        let incoming = self.incoming.get(id.key).filter(|it| it.id == id);
        incoming
            .and_then(|incoming| incoming.request.as_ref())
            .ok_or(AcceptError::PeerGone)
    }

    /// The connection whose Request is answered now.
    fn take_incoming(&mut self, id: IncomingId, answer: impl Display) -> Incoming {
        let incoming = self.incoming.remove(id.key);
        incoming.log_change(answer);
        self.owners.remove(&incoming.conn);
        self.listeners.note_left(incoming.listener);
        incoming
    }

    /// Resets a connection that has not become a queue pair's.
    pub(in crate::engine) fn drop_incoming(&mut self, key: usize) {
        if let Some(incoming) = self.incoming.try_remove(key) {
            incoming.log_change("reset");
            self.owners.remove(&incoming.conn);
            self.device.stack.abort(incoming.conn, self.device.now);
            self.listeners.note_left(incoming.listener);
        }
    }

    /// TCP has ended such a connection.
    pub(in crate::engine) fn forget_incoming(&mut self, key: usize) {
        if let Some(incoming) = self.incoming.try_remove(key) {
            incoming.log_change("gone");
            self.listeners.note_left(incoming.listener);
        }
    }
}
