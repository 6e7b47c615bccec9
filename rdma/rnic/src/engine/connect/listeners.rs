//! Listeners: the registered addresses, the ports that are listened on, and the number of
//! connections that wait at each.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use xwarp_iwarp::mpa::EnhancedData;
use xwarp_tcp::{ListenerId, Stack};

use crate::model::{IncomingId, ListenKey, LocalPort, StreamId};
use crate::queues::Inbox;

/// A connection request, as the application receives it.
pub struct IncomingRequest {
    /// Identity of the request.
    pub id: IncomingId,
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the initiator.
    pub remote: SocketAddr,
    /// Private data of the Request.
    pub private_data: Vec<u8>,
    /// MPA revision of the Request.
    pub revision: u8,
    /// Enhanced data of the Request, if it has any.
    pub enhanced: Option<EnhancedData>,
    /// Held until the application takes the Request, even if the peer has disconnected.
    pub place: Place,
}

/// A place in a listener's queue of Requests that the application has not taken.
#[derive(Clone)]
pub struct Place(Arc<()>);

impl Place {
    /// The listener's own reference; each queued Request has a clone.
    fn first() -> Self {
        Self(Arc::new(()))
    }

    /// Number of Requests that hold a place.
    fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// How a listener passes its connections to the application.
#[derive(Clone)]
pub enum Clients {
    /// The connections start with MPA. Their Requests are put into this inbox.
    Requests(Arc<Inbox<IncomingRequest>>),
    /// The connections are streams of raw bytes, put into this inbox. Some may have ended.
    Streams(Arc<Inbox<StreamId>>),
}

/// A listener of the application, with its address.
struct Registration {
    key: ListenKey,
    /// One address, or all of a family.
    address: IpAddr,
    port: u16,
    clients: Clients,
    backlog: usize,
}

impl Registration {
    /// The port that it listens on at this address, if the address is one of its own.
    fn port_at(&self, address: IpAddr) -> Option<u16> {
        let any = self.address.is_unspecified() && self.address.is_ipv4() == address.is_ipv4();
        (any || self.address == address).then_some(self.port)
    }
}

/// One address and port that is listened on.
pub(in crate::engine) struct ListenerContext {
    key: ListenKey,
    id: ListenerId,
    port: Arc<LocalPort>,
    clients: Clients,
    /// Largest number of connections that wait for their Request, or for the application's answer,
    /// or to be taken as streams.
    backlog: usize,
    /// Number of connections that wait for their Request, or for the answer to it.
    waiting: usize,
    /// The listener's own reference to the places that Requests hold.
    place: Place,
    /// Connections that were accepted without a Request, the oldest first. Some may have ended or
    /// sent their Request since.
    silent: VecDeque<IncomingId>,
}

impl ListenerContext {
    pub(in crate::engine) fn port(&self) -> &Arc<LocalPort> {
        &self.port
    }

    pub(in crate::engine) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// True if the backlog has no room for more than `waiting` connections.
    pub(in crate::engine) fn is_full(&self, waiting: usize) -> bool {
        waiting >= self.backlog
    }

    /// Takes a place in the queue of Requests for the application. `None` if the queue is full.
    ///
    /// A Request keeps its place when its peer disconnects. So peers that connect and disconnect
    /// cannot make the queue grow.
    pub(in crate::engine) fn take_place(&self) -> Option<Place> {
        (!self.is_full(self.place.taken())).then(|| self.place.clone())
    }
}

/// Whether a listener has room for one more connection that has no queue pair.
pub(in crate::engine) enum Room {
    Free,
    /// The connection that has been silent longest must be reset first. `None` if all have sent
    /// their Request.
    Full(Option<IncomingId>),
}

/// Listeners of an engine.
#[derive(Default)]
pub(in crate::engine) struct Listeners {
    contexts: Vec<ListenerContext>,
    /// Listeners of the application, whatever addresses the interface has at the moment.
    registrations: Vec<Registration>,
    next_key: u64,
}

impl Listeners {
    /// Registers a listener at `address`, or at all addresses of its family if `address` is
    /// unspecified.
    pub(in crate::engine) fn register(
        &mut self,
        address: IpAddr,
        port: u16,
        clients: Clients,
        backlog: usize,
    ) -> ListenKey {
        let key = ListenKey(self.next_key);
        self.next_key += 1;
        self.registrations.push(Registration {
            key,
            address,
            port,
            clients,
            backlog,
        });
        key
    }

    /// Listens on one more port for a registered listener. False if the listener has ended, or
    /// another one has the port.
    pub(in crate::engine) fn listen(
        &mut self,
        key: ListenKey,
        port: LocalPort,
        stack: &mut Stack,
    ) -> bool {
        let Some(wish) = self.registrations.iter().find(|wish| wish.key == key) else {
            return false;
        };
        let Ok(id) = stack.listen(port.local(), wish.backlog) else {
            return false;
        };
        self.contexts.push(ListenerContext {
            key,
            id,
            port: Arc::new(port),
            clients: wish.clients.clone(),
            backlog: wish.backlog,
            waiting: 0,
            place: Place::first(),
            silent: VecDeque::new(),
        });
        true
    }

    /// Ends a listener.
    pub(in crate::engine) fn unlisten(&mut self, key: ListenKey, stack: &mut Stack) {
        self.registrations.retain(|wish| wish.key != key);
        for context in self.contexts.extract_if(.., |context| context.key == key) {
            stack.unlisten(context.id);
        }
    }

    /// Ends all listeners.
    pub(in crate::engine) fn clear(&mut self, stack: &mut Stack) {
        self.registrations.clear();
        for context in self.contexts.drain(..) {
            stack.unlisten(context.id);
        }
    }

    /// Stops listening at this address until the host opens a port there again.
    pub(in crate::engine) fn withdraw(&mut self, address: IpAddr, stack: &mut Stack) {
        let at = |context: &ListenerContext| context.port.local().ip() == address;
        for context in self.contexts.extract_if(.., |context| at(context)) {
            stack.unlisten(context.id);
        }
    }

    /// Listeners that should listen at this address and do not yet, with the address and port.
    pub(in crate::engine) fn missing_at(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = (ListenKey, SocketAddr)> {
        let listens = move |key: ListenKey| {
            let mut contexts = self.contexts.iter();
            contexts.any(|it| it.key == key && it.port.local().ip() == address)
        };
        self.registrations.iter().filter_map(move |wish| {
            let port = wish.port_at(address)?;
            (!listens(wish.key)).then_some((wish.key, SocketAddr::new(address, port)))
        })
    }

    pub(in crate::engine) fn get(&self, listener: ListenerId) -> Option<&ListenerContext> {
        self.contexts.iter().find(|context| context.id == listener)
    }

    fn get_mut(&mut self, listener: ListenerId) -> Option<&mut ListenerContext> {
        (self.contexts.iter_mut()).find(|context| context.id == listener)
    }

    /// Counts a connection that waits at a listener for its Request.
    pub(in crate::engine) fn note_come(&mut self, listener: ListenerId, id: IncomingId) {
        if let Some(context) = self.get_mut(listener) {
            context.waiting += 1;
            context.silent.push_back(id);
        }
    }

    /// Counts a connection that no longer waits at a listener.
    pub(in crate::engine) fn note_left(&mut self, listener: ListenerId) {
        if let Some(context) = self.get_mut(listener) {
            context.waiting -= 1;
        }
    }

    /// Checks for room for one more connection, in constant time. `None` if the listener has ended.
    pub(in crate::engine) fn room(
        &mut self,
        listener: ListenerId,
        is_silent: impl Fn(&IncomingId) -> bool,
    ) -> Option<Room> {
        let context = self.get_mut(listener)?;
        while context.silent.front().is_some_and(|id| !is_silent(id)) {
            context.silent.pop_front();
        }
        if context.waiting < context.backlog {
            return Some(Room::Free);
        }
        Some(Room::Full(context.silent.pop_front()))
    }
}
