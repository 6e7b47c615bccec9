//! Lifecycle flags: which events of a connection were reported, and whether the user still knows
//! it.

use bitflags::bitflags;

use crate::event::ListenerId;

bitflags! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    struct Flags: u8 {
        /// `Incoming` or `Connected` was queued.
        const ANNOUNCED = 1;
        /// `PeerClosed` was queued.
        const PEER_CLOSED = 1 << 1;
        /// The connection has ended. `Closed` was queued if the user knows the connection.
        const ENDED = 1 << 2;
        /// `Closed` was polled: the identifier is stale, and the flow is in TIME-WAIT.
        const ORPHANED = 1 << 3;
        /// `Readable` is queued.
        const READABLE = 1 << 4;
    }
}

/// Flags of one connection, and its listener.
#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    flags: Flags,
    /// The listener whose backlog holds the connection, until `Incoming` is polled.
    listener: Option<ListenerId>,
}

impl Lifecycle {
    /// State of a connection in a listener's backlog.
    pub(super) fn in_backlog(listener: ListenerId) -> Self {
        Self {
            flags: Flags::default(),
            listener: Some(listener),
        }
    }

    /// The listener whose backlog holds the connection.
    pub(super) fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// Takes the connection out of its listener's backlog, if it is in one.
    pub(super) fn leave_backlog(&mut self) -> Option<ListenerId> {
        self.listener.take()
    }

    /// Sets a flag. Returns true if it was clear.
    fn set(&mut self, flag: Flags) -> bool {
        let new = !self.flags.contains(flag);
        self.flags.insert(flag);
        new
    }

    /// Records that the connection is synchronized. Returns true if this was not reported before.
    pub(super) fn announce(&mut self) -> bool {
        self.set(Flags::ANNOUNCED)
    }

    /// Records new readable bytes. Returns true unless `Readable` is queued already.
    pub(super) fn note_readable(&mut self) -> bool {
        self.set(Flags::READABLE)
    }

    /// Records that `Readable` was polled.
    pub(super) fn readable_polled(&mut self) {
        self.flags.remove(Flags::READABLE);
    }

    /// Records the peer's FIN. Returns true the first time.
    pub(super) fn note_peer_closed(&mut self) -> bool {
        self.set(Flags::PEER_CLOSED)
    }

    /// Records the end of the connection. Returns true the first time.
    pub(super) fn end(&mut self) -> bool {
        self.set(Flags::ENDED)
    }

    /// Records that `Closed` was polled: the user no longer knows the connection.
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

    /// True if the user has the connection's identifier, or an event with it is queued.
    pub(super) fn is_known(&self) -> bool {
        self.listener.is_none() || self.is_announced()
    }
}
