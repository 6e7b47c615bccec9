//! The responder's start-up (RFC 5044 §7.1.2): listeners, requests, the application's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use xwarp_iwarp::mpa::{Request, Responder, ResponderStep, StartupError};
use xwarp_tcp::{ConnId, Instant, ListenerId};

use super::qp::{Link, QpContext};
use super::start::PARAMS;
use super::stream::Stream;
use super::{Engine, Owner};
use crate::error::{AcceptError, ListenError};
use crate::host::LocalPort;
use crate::qp::{QpId, QpState};

/// How long a peer may take for its Request after TCP is established; not extended by single octets (digest 3.5).
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A request's identity; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncomingId {
    key: usize,
    serial: u64,
}

/// What the application learns of a peer that wants to connect.
pub(crate) struct IncomingRequest {
    pub(crate) id: IncomingId,
    pub(crate) remote: SocketAddr,
    pub(crate) private_data: Vec<u8>,
}

/// One address and port that is listened on.
pub(super) struct ListenerContext {
    id: ListenerId,
    port: Arc<LocalPort>,
    requests: Sender<IncomingRequest>,
}

/// A connection without a queue pair yet.
pub(super) struct Incoming {
    id: IncomingId,
    conn: ConnId,
    remote: SocketAddr,
    port: Arc<LocalPort>,
    requests: Sender<IncomingRequest>,
    responder: Responder,
    /// The whole Request, while the application decides.
    request: Option<Request>,
    /// When the Request must be here.
    pub(super) deadline: Option<Instant>,
}

impl Engine {
    /// Listens on all of `ports`, or on none.
    pub(crate) fn listen(
        &mut self,
        ports: Vec<LocalPort>,
        requests: &Sender<IncomingRequest>,
        backlog: usize,
    ) -> Result<(), ListenError> {
        let mut begun = Vec::new();
        for port in ports {
            let Ok(id) = self.stack.listen(port.local(), backlog) else {
                for context in begun {
                    let ListenerContext { id, .. } = context;
                    self.stack.unlisten(id);
                }
                return Err(ListenError::Taken(port.local()));
            };
            begun.push(ListenerContext {
                id,
                port: Arc::new(port),
                requests: requests.clone(),
            });
        }
        self.listeners.append(&mut begun);
        Ok(())
    }

    pub(crate) fn unlisten(&mut self, addresses: &[SocketAddr]) {
        let (gone, kept) = std::mem::take(&mut self.listeners)
            .into_iter()
            .partition(|context| addresses.contains(&context.port.local()));
        self.listeners = kept;
        let gone: Vec<ListenerContext> = gone;
        for context in gone {
            self.stack.unlisten(context.id);
        }
    }

    /// TCP has accepted a connection: waits for its Request.
    pub(super) fn on_incoming(&mut self, listener: ListenerId, conn: ConnId, remote: SocketAddr) {
        let Some(context) = self.listeners.iter().find(|context| context.id == listener) else {
            self.stack.abort(conn, self.now);
            return;
        };
        let entry = self.incoming.vacant_entry();
        let id = IncomingId {
            key: entry.key(),
            serial: self.next_incoming,
        };
        self.next_incoming += 1;
        self.owners.insert(conn, Owner::Incoming(id.key));
        entry.insert(Incoming {
            id,
            conn,
            remote,
            port: Arc::clone(&context.port),
            requests: context.requests.clone(),
            responder: Responder::new(PARAMS),
            request: None,
            deadline: Some(self.now + REQUEST_LIMIT),
        });
        // The Request may be here already.
        self.on_request_octets(id.key);
    }

    /// Octets of a Request, or, after it, ones that must not be there (digest D11).
    pub(super) fn on_request_octets(&mut self, key: usize) {
        let Some(incoming) = self.incoming.get_mut(key) else {
            return;
        };
        let conn = incoming.conn;
        let available = self.stack.readable_len(conn);
        if available == 0 {
            return;
        }
        if incoming.request.is_some() {
            log::info!("{} sent before its Request was answered", incoming.remote);
            self.counters.drop_startup += 1;
            self.drop_incoming(key);
            return;
        }
        match incoming
            .responder
            .on_bytes(self.stack.readable(conn, available))
        {
            Ok(ResponderStep::NeedBytes(_)) => {}
            Ok(ResponderStep::Request { request, consumed }) => {
                self.stack.consume(conn, consumed);
                self.offer(key, request);
            }
            Err(error) => self.refuse(key, &error),
        }
    }

    fn refuse(&mut self, key: usize, error: &StartupError) {
        if let Some(incoming) = self.incoming.get(key) {
            log::info!("{} does not speak iWARP: {error}", incoming.remote);
        }
        self.counters.drop_startup += 1;
        self.drop_incoming(key);
    }

    /// Hands a whole Request to whoever listens.
    fn offer(&mut self, key: usize, request: Request) {
        let Some(incoming) = self.incoming.get_mut(key) else {
            return;
        };
        let offered = IncomingRequest {
            id: incoming.id,
            remote: incoming.remote,
            private_data: request.private_data.to_vec(),
        };
        incoming.deadline = None;
        incoming.request = Some(request);
        if incoming.requests.send(offered).is_err() {
            // The listener has been dropped.
            self.drop_incoming(key);
        }
    }

    /// The application says yes: the queue pair is bound and receives, then the Reply goes out (digest 3.2).
    pub(crate) fn accept(
        &mut self,
        id: IncomingId,
        qp: QpId,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let QpId(qp_key) = qp;
        let qp_key = qp_key as usize;
        let state = self
            .qps
            .get(qp_key)
            .map_or(QpState::Error, QpContext::state);
        let unconnected = self
            .qps
            .get(qp_key)
            .is_some_and(|qp| matches!(qp.link, Link::None));
        if state != QpState::Idle || !unconnected {
            return Err(AcceptError::InvalidState(state));
        }
        let (incoming, request) = self.take_incoming(id)?;
        let answer = incoming.responder.accept(&request, private_data);
        let Ok((reply, negotiated)) = answer else {
            self.stack.abort(incoming.conn, self.now);
            return Err(AcceptError::PrivateDataTooLong(private_data.len()));
        };
        if !self.send_startup(incoming.conn, &reply) {
            self.stack.abort(incoming.conn, self.now);
            return Err(AcceptError::PeerGone);
        }
        self.own(incoming.conn, qp_key);
        if let Some(qp) = self.qps.get_mut(qp_key) {
            let depths = (qp.ird, qp.ord);
            qp.enter_rts(Stream::new(
                incoming.conn,
                negotiated,
                true,
                depths,
                qp.extensions,
                incoming.port,
            ));
        }
        Ok(())
    }

    /// The application says no: a Reply that says so, then a graceful close.
    pub(crate) fn reject(
        &mut self,
        id: IncomingId,
        private_data: &[u8],
    ) -> Result<(), AcceptError> {
        let (incoming, request) = self.take_incoming(id)?;
        let Ok(reply) = incoming.responder.reject(&request, private_data) else {
            self.stack.abort(incoming.conn, self.now);
            return Err(AcceptError::PrivateDataTooLong(private_data.len()));
        };
        let sent = self.send_startup(incoming.conn, &reply);
        self.stack.close(incoming.conn, self.now);
        self.linger(incoming.port);
        if sent {
            Ok(())
        } else {
            Err(AcceptError::PeerGone)
        }
    }

    fn take_incoming(&mut self, id: IncomingId) -> Result<(Incoming, Request), AcceptError> {
        if self
            .incoming
            .get(id.key)
            .is_none_or(|incoming| incoming.id != id)
        {
            return Err(AcceptError::PeerGone);
        }
        let mut incoming = self.incoming.remove(id.key);
        self.owners.remove(&incoming.conn);
        let request = incoming.request.take().ok_or(AcceptError::PeerGone)?;
        Ok((incoming, request))
    }

    /// Resets a connection that has not become a queue pair's.
    pub(super) fn drop_incoming(&mut self, key: usize) {
        if let Some(incoming) = self.incoming.try_remove(key) {
            self.owners.remove(&incoming.conn);
            self.stack.abort(incoming.conn, self.now);
        }
    }

    /// TCP has ended such a connection.
    pub(super) fn forget_incoming(&mut self, key: usize) {
        self.incoming.try_remove(key);
    }
}
