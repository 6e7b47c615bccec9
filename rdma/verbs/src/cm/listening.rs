//! Listening: what both kinds of listeners are, whatever comes to them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::error::RnicEnded;
use crate::host::ports::Claim;
use crate::runtime::control::Control;
use xwarp_rnic::model::ListenKey;
use xwarp_rnic::queues::Inbox;

/// A port that an RNIC listens on, and the inbox for what has come. Dropping it ends the listening.
pub(crate) struct Listening<T> {
    /// The engines', in their order.
    keys: Vec<ListenKey>,
    addresses: Vec<SocketAddr>,
    /// They go after the engine has ended the listening.
    _claims: Vec<Claim>,
    inbox: Arc<Inbox<T>>,
    control: Arc<Control>,
}

impl<T> Listening<T> {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        claims: Vec<Claim>,
        inbox: Arc<Inbox<T>>,
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

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn inbox(&self) -> &Inbox<T> {
        &self.inbox
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// What `take` has. Turns an inline engine if that is nothing.
    pub(crate) fn try_accept<C>(
        &self,
        take: impl Fn() -> Result<Option<C>, RnicEnded>,
    ) -> Result<Option<C>, RnicEnded> {
        if let Some(come) = take()? {
            return Ok(Some(come));
        }
        self.control.turn();
        take()
    }

    /// What `take` has, waiting for it up to `timeout`.
    pub(crate) fn accept<C>(
        &self,
        timeout: Duration,
        take: impl Fn() -> Result<Option<C>, RnicEnded>,
    ) -> Result<Option<C>, RnicEnded> {
        (self.control).wait_for(self.inbox.signal(), timeout, take)
    }

    /// Readable while there may be something to take.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.inbox.signal().as_fd()
    }
}

impl<T> Drop for Listening<T> {
    fn drop(&mut self) {
        for (engine, key) in self.keys.iter().copied().enumerate() {
            (self.control).release_on(engine, move |engine| engine.unlisten(key));
        }
    }
}
