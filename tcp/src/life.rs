//! Where a connection stands in the eyes of the stack.

use bitflags::bitflags;

use crate::event::ListenerId;
use crate::timers::Alarm;

bitflags! {
    /// What the stack remembers of a connection.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Marks: u8 {
        /// `Incoming` or `Connected` was queued.
        const ANNOUNCED = 1;
        /// `PeerClosed` was queued.
        const PEER_CLOSED = 1 << 1;
        /// The connection has ended; `Closed` was queued if anybody knows the connection.
        const ENDED = 1 << 2;
        /// `Closed` was polled: the id is dead, the flow rests in TIME-WAIT.
        const DETACHED = 1 << 3;
        /// `Readable` is queued.
        const READABLE = 1 << 4;
        /// The connection is in the list of those that may have something to send.
        const DIRTY = 1 << 5;
        /// The connection is in the list of those that wait for a TX frame.
        const STARVED = 1 << 6;
    }
}

/// The stack's part of a connection.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) marks: Marks,
    pub(crate) alarm: Alarm,
    /// Whose backlog the connection is in: until `Incoming` is polled.
    pub(crate) waiting: Option<ListenerId>,
}

impl Life {
    pub(crate) fn is(&self, mark: Marks) -> bool {
        self.marks.contains(mark)
    }

    /// Sets a mark; true if it was not set.
    pub(crate) fn mark(&mut self, mark: Marks) -> bool {
        let new = !self.is(mark);
        self.marks.insert(mark);
        new
    }
}
