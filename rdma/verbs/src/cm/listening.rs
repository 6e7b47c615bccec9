//! Listeners: one for requests to connect, and one for TCP connections in streaming mode.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::RnicEnded;
use crate::host::ports::Claim;
use crate::runtime::control::Control;
use xwarp_rnic::model::ListenKey;
use xwarp_rnic::queues::Inbox;

/// What a listener returns for a peer that has connected.
pub trait Incoming: Sized {
    /// What the engine puts into the inbox.
    type Id: Send + 'static;

    /// The oldest in the inbox that is still there.
    #[doc(hidden)]
    fn take(from: &PortListener<Self>) -> Result<Option<Self>, RnicEnded>;

    /// Ends one that is not taken.
    #[doc(hidden)]
    fn refuse(id: Self::Id, listener: &PortListener<Self>);
}

/// Waits for connections on one address and port, or on that port of all addresses of the
/// interface. It returns a [`ConnectionRequest`](crate::cm::ConnectionRequest) for each peer
/// ([`Listener`](crate::Listener)), or a TCP connection in streaming mode
/// ([`StreamListener`](crate::stream::StreamListener)). Dropping it ends the listening; what it has
/// not returned is rejected or closed.
pub struct PortListener<T: Incoming> {
    /// The engines', in their order.
    keys: Vec<ListenKey>,
    addresses: Vec<SocketAddr>,
    /// They go after the engine has ended the listening.
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

    /// The next engine listens.
    pub(crate) fn add(&mut self, key: ListenKey) {
        self.keys.push(key);
    }

    pub(crate) fn inbox(&self) -> &Inbox<T::Id> {
        &self.inbox
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Addresses and ports that it listened on at first. The listener follows later changes of the
    /// interface's addresses; this list does not.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the oldest waiting peer. Runs an inline engine if there is none.
    ///
    /// # Errors
    ///
    /// [`RnicEnded`] if there is none and none will come.
    pub fn try_accept(&mut self) -> Result<Option<T>, RnicEnded> {
        if let Some(peer) = T::take(self)? {
            return Ok(Some(peer));
        }
        self.control.turn();
        T::take(self)
    }

    /// Returns the oldest peer, and waits up to `timeout` for one. `None` if none has come.
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
