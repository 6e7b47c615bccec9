//! Listeners: who wants to listen where, which ports are listened on, and how many connections wait
//! at each.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use xwarp_iwarp::mpa::EnhancedData;
use xwarp_tcp::{ListenerId, Stack};

use crate::model::{IncomingId, ListenKey, LocalPort, StreamId};
use crate::queues::Inbox;

/// What the application learns of a peer that wants to connect.
pub struct IncomingRequest {
    /// Which.
    pub id: IncomingId,
    /// Where it has come.
    pub local: SocketAddr,
    /// The initiator.
    pub remote: SocketAddr,
    /// Private data of the Request.
    pub private_data: Vec<u8>,
    /// Its MPA revision.
    pub revision: u8,
    /// Its enhanced data, if it has any.
    pub enhanced: Option<EnhancedData>,
    /// Held until the application takes the Request, whether or not its peer is still there.
    pub place: Place,
}

/// A place in the queue of Requests that the application has not taken.
#[derive(Clone)]
pub struct Place(Arc<()>);

impl Place {
    /// The listener's own, of which its Requests have clones.
    fn first() -> Self {
        Self(Arc::new(()))
    }

    /// How many Requests have a place.
    fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// What becomes of the connections that come to a listener.
#[derive(Clone)]
pub enum Clients {
    /// They speak MPA: their Requests go here.
    Requests(Arc<Inbox<IncomingRequest>>),
    /// They are streams of raw bytes; these wait here to be taken. Some may have ended.
    Streams(Arc<Inbox<StreamId>>),
}

/// Who wants to listen, and where.
struct Registration {
    key: ListenKey,
    /// One address, or all of a family.
    address: IpAddr,
    port: u16,
    clients: Clients,
    backlog: usize,
}

impl Registration {
    /// The port that it wants of an address, if it wants any.
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
    /// Connections that may wait for their Request, or for the application's answer to it; or to be
    /// taken as streams.
    backlog: usize,
    /// How many wait for their Request, or for the answer to it.
    waiting: usize,
    /// What Requests hold that the application has not taken.
    place: Place,
    /// Those that have begun to wait for their Request, the oldest first; some may have ended or
    /// sent it.
    silent: VecDeque<IncomingId>,
}

impl ListenerContext {
    pub(in crate::engine) fn port(&self) -> &Arc<LocalPort> {
        &self.port
    }

    pub(in crate::engine) fn clients(&self) -> &Clients {
        &self.clients
    }

    /// True if `waiting` connections are as many as the backlog allows.
    pub(in crate::engine) fn is_full(&self, waiting: usize) -> bool {
        waiting >= self.backlog
    }

    /// Takes a place in the queue of Requests for the application. `None` if the queue is full.
    ///
    /// A Request keeps its place when its peer goes. So peers that ask and go cannot make the queue
    /// grow.
    pub(in crate::engine) fn take_place(&self) -> Option<Place> {
        (!self.is_full(self.place.taken())).then(|| self.place.clone())
    }
}

/// Whether a listener has room for one more connection that has no queue pair.
pub(in crate::engine) enum Room {
    Free,
    /// The one that has been silent for longest is to go for it; `None`: all have sent their
    /// Request.
    Full(Option<IncomingId>),
}

/// See the module.
#[derive(Default)]
pub(in crate::engine) struct Listeners {
    contexts: Vec<ListenerContext>,
    /// Who wants to listen, whatever the interface's addresses are.
    registrations: Vec<Registration>,
    next_key: u64,
}

impl Listeners {
    /// Notes who wants to listen at `address`, or at all addresses of its family if it is
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

    /// Who would listen at this address and does not yet, and where.
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

    /// One connection more waits at a listener, for its Request.
    pub(in crate::engine) fn note_come(&mut self, listener: ListenerId, id: IncomingId) {
        if let Some(context) = self.get_mut(listener) {
            context.waiting += 1;
            context.silent.push_back(id);
        }
    }

    /// One connection less waits at a listener.
    pub(in crate::engine) fn note_left(&mut self, listener: ListenerId) {
        if let Some(context) = self.get_mut(listener) {
            context.waiting -= 1;
        }
    }

    /// Looks for room for one more connection, in constant time. `None` if the listener has ended.
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
