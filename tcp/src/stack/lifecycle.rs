//! Lifecycle flags: which events of a connection its user was sent, and whether the user still knows it.

use bitflags::bitflags;

use crate::event::ListenerId;

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Flags: u8 {
        /// `Incoming` or `Connected` was queued.
        const ANNOUNCED = 1;
        /// `PeerClosed` was queued.
        const PEER_CLOSED = 1 << 1;
        /// The connection has ended; `Closed` was queued if anybody knows the connection.
        const ENDED = 1 << 2;
        /// `Closed` was polled: the id is dead, the flow is in TIME-WAIT.
        const ORPHANED = 1 << 3;
        /// `Readable` is queued.
        const READABLE = 1 << 4;
    }
}

/// The flags of one connection, and the listener that it waits at.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    flags: Flags,
    /// Whose backlog the connection is in: until `Incoming` is polled.
    listener: Option<ListenerId>,
}

impl Lifecycle {
    /// A connection in a listener's backlog.
    pub(super) fn in_backlog(listener: ListenerId) -> Self {
        Self {
            flags: Flags::default(),
            listener: Some(listener),
        }
    }

    /// The listener in whose backlog the connection is.
    pub(super) fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// Takes the connection out of its listener's backlog, if it is in one.
    pub(super) fn leave_backlog(&mut self) -> Option<ListenerId> {
        self.listener.take()
    }

    /// Sets a flag; true if it was not set.
    fn set(&mut self, flag: Flags) -> bool {
        let new = !self.flags.contains(flag);
        self.flags.insert(flag);
        new
    }

    /// The connection is synchronized; true if its user was not told so before.
    pub(super) fn announce(&mut self) -> bool {
        self.set(Flags::ANNOUNCED)
    }

    /// There are new bytes to read; true unless `Readable` is queued already.
    pub(super) fn note_readable(&mut self) -> bool {
        self.set(Flags::READABLE)
    }

    /// `Readable` was polled.
    pub(super) fn readable_polled(&mut self) {
        self.flags.remove(Flags::READABLE);
    }

    /// The peer has sent its FIN; true if that is news.
    pub(super) fn note_peer_closed(&mut self) -> bool {
        self.set(Flags::PEER_CLOSED)
    }

    /// The connection has ended; true if that is news.
    pub(super) fn end(&mut self) -> bool {
        self.set(Flags::ENDED)
    }

    /// `Closed` was polled: the user knows the connection no more.
    pub(super) fn orphan(&mut self) {
        self.flags.insert(Flags::ORPHANED);
    }

    pub(super) fn is_announced(&self) -> bool {
        self.flags.contains(Flags::ANNOUNCED)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.flags.contains(Flags::ENDED)
    }

    pub(super) fn is_orphaned(&self) -> bool {
        self.flags.contains(Flags::ORPHANED)
    }

    /// True if the user has a connection's id, or an event that names it is queued.
    pub(super) fn is_known(&self) -> bool {
        self.listener.is_none() || self.is_announced()
    }
}
