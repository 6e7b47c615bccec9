//! Listeners: for MPA requests, and for TCP connections in streaming mode.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::RnicEnded;
use crate::host::ports::Claim;
use crate::runtime::control::Control;
use xwarp_rnic::model::ListenKey;
use xwarp_rnic::queues::Inbox;

/// The handle that a listener returns for a connected peer.
pub trait Incoming: Sized {
    /// The identity that the engine puts into the inbox.
    type Id: Send + 'static;

    /// Takes the oldest entry of the inbox whose peer is still connected.
    #[doc(hidden)]
    fn take(from: &PortListener<Self>) -> Result<Option<Self>, RnicEnded>;

    /// Rejects or closes an entry that the application did not take.
    #[doc(hidden)]
    fn refuse(id: Self::Id, listener: &PortListener<Self>);
}

/// Listens on one address and port, or on that port of all addresses of the interface. It returns a
/// [`ConnectionRequest`](crate::cm::ConnectionRequest) for each peer
/// ([`Listener`](crate::Listener)), or a TCP connection in streaming mode
/// ([`StreamListener`](crate::stream::StreamListener)). Dropping the listener stops listening, and
/// rejects or closes the connections that it has not returned.
pub struct PortListener<T: Incoming> {
    /// Keys of the engines' listeners, in the order of the engines.
    keys: Vec<ListenKey>,
    addresses: Vec<SocketAddr>,
    /// Claims of the ports, dropped after the engines have stopped listening.
    _claims: Vec<Claim>,
    inbox: Arc<Inbox<T::Id>>,
    control: Arc<Control>,
}

impl<T: Incoming> PortListener<T> {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        claims: Vec<Claim>,
        inbox: Arc<Inbox<T::Id>>,
        control: &Arc<Control>,
    ) -> Self {
        Self {
            keys: Vec::new(),
            addresses,
            _claims: claims,
            inbox,
            control: Arc::clone(control),
        }
    }

    /// Adds the key of the next engine's listener.
    pub(crate) fn add(&mut self, key: ListenKey) {
        self.keys.push(key);
    }

    pub(crate) fn inbox(&self) -> &Inbox<T::Id> {
        &self.inbox
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Addresses and ports at the time of `listen`. The listener follows later changes of the
    /// interface's addresses; this list does not.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the oldest waiting peer. Runs an inline engine if there is none.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if no peer waits and no further peer can connect.
    pub fn try_accept(&mut self) -> Result<Option<T>, RnicEnded> {
        if let Some(peer) = T::take(self)? {
            return Ok(Some(peer));
        }
        self.control.turn();
        T::take(self)
    }

    /// Returns the oldest peer, and waits up to `timeout` for one. `None` if none connects in time.
    ///
    /// # Errors
    ///
    /// As [`try_accept`](Self::try_accept), at once.
    pub fn accept(&mut self, timeout: Duration) -> Result<Option<T>, RnicEnded> {
        let take = || T::take(self);
        (self.control).wait_for(self.inbox.signal(), timeout, take)
    }
}

impl<T: Incoming> AsFd for PortListener<T> {
    /// Readable while [`try_accept`](Self::try_accept) may have something to return. Do not read
    /// from it. With an inline engine this needs calls that run the engine; see
    /// [`Rnic::progress`](crate::Rnic::progress).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.signal().as_fd()
    }
}

impl<T: Incoming> Drop for PortListener<T> {
    fn drop(&mut self) {
        for id in self.inbox.close() {
            T::refuse(id, self);
        }
        for (engine, key) in self.keys.iter().copied().enumerate() {
            (self.control).release_on(engine, move |engine| engine.unlisten(key));
        }
    }
}
