//! Connection table: the connections of a stack by handle and by 4-tuple, and the order in which
//! they entered TIME-WAIT.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;
use xwarp_driver::{PacketIo, RxFrame};

use super::handle_list::Membership;
use super::lifecycle::Lifecycle;
use super::siblings::Sibling;
use super::timers::Alarm;
use crate::conn::{Conn, State};
use crate::handle_map::{Handle, HandleMap};
use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;

/// A connection, and what the parts of the stack record about it.
pub(super) struct Entry {
    pub(super) conn: Conn,
    pub(super) lifecycle: Lifecycle,
    pub(super) alarm: Alarm,
    /// Membership in the list of connections that may have something to send.
    pub(super) ready: Membership,
    /// Membership in the list of connections that wait for a TX frame.
    pub(super) frame_waiter: Membership,
}

impl Entry {
    fn new(conn: Conn, lifecycle: Lifecycle) -> Self {
        Self {
            conn,
            lifecycle,
            alarm: Alarm::default(),
            ready: Membership::default(),
            frame_waiter: Membership::default(),
        }
    }

    pub(super) fn is_in_time_wait(&self) -> bool {
        self.conn.state() == State::TimeWait
    }
}

/// All connections.
pub(super) struct Table {
    entries: HandleMap<Entry>,
    /// Hashed with a random key: peers choose their ports, and could force collisions otherwise.
    flows: HashMap<Flow, Handle, RandomState>,
    /// The connection found last, which probably gets the next segment, too.
    last: Option<Handle>,
    /// Connections in TIME-WAIT, oldest first. Some may be gone.
    time_wait: VecDeque<Handle>,
    /// Directory of the interface's other stacks. `None` if there are none.
    sibling: Option<Sibling>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            entries: HandleMap::new(),
            flows: HashMap::default(),
            last: None,
            time_wait: VecDeque::new(),
            sibling: None,
        }
    }

    /// Joins the directory of siblings, before the first connection.
    pub(super) fn join(&mut self, sibling: Sibling) {
        self.sibling = Some(sibling);
    }

    /// True if a sibling has a connection with this flow.
    pub(super) fn is_elsewhere(&self, flow: &Flow) -> bool {
        let sibling = self.sibling.as_ref();
        sibling.is_some_and(|sibling| sibling.other_with(flow).is_some())
    }

    /// Claims a flow for the connection that is entered next. Returns false if a sibling has it.
    pub(super) fn claim(&self, flow: &Flow) -> bool {
        let sibling = self.sibling.as_ref();
        sibling.is_none_or(|sibling| sibling.claim(*flow))
    }

    /// Hands a frame to the sibling that has its segment's flow. Returns false if there is none.
    pub(super) fn hand_over(&self, segment: &Segment, frame: &RxFrame, io: &dyn PacketIo) -> bool {
        let sibling = self.sibling.as_ref();
        sibling.is_some_and(|sibling| sibling.hand_over(segment, frame, io))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The connection with this 4-tuple, unless its flow is free again.
    pub(super) fn find(&mut self, flow: &Flow) -> Option<Handle> {
        if self.last_is(flow) {
            return self.last;
        }
        self.last = self.flows.get(flow).copied();
        self.last
    }

    /// True if the connection found last has this 4-tuple. An established connection has its flow
    /// alone.
    fn last_is(&self, flow: &Flow) -> bool {
        let entry = self.last.and_then(|last| self.entries.get(last));
        entry.is_some_and(|Entry { conn, .. }| {
            conn.state() == State::Established && conn.flow() == flow
        })
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Entry> {
        self.entries.get(handle)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Entry> {
        self.entries.get_mut(handle)
    }

    /// The handle with this [`Handle::key`].
    pub(super) fn handle(&self, key: u32) -> Option<Handle> {
        self.entries.handle(key)
    }

    pub(super) fn conns_mut(&mut self) -> impl Iterator<Item = &mut Conn> {
        self.entries.values_mut().map(|entry| &mut entry.conn)
    }

    /// All connections.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Handle, &Entry)> {
        self.entries.iter()
    }

    /// Handles of the `chosen` connections.
    pub(super) fn handles(&self, chosen: impl Fn(&Entry) -> bool) -> Vec<Handle> {
        let chosen = self.entries.iter().filter(|(_, entry)| chosen(entry));
        chosen.map(|(handle, _)| handle).collect()
    }

    /// Inserts a connection, which has its flow from now on.
    pub(super) fn insert(&mut self, conn: Conn, lifecycle: Lifecycle) -> Handle {
        let flow = *conn.flow();
        let handle = self.entries.insert(Entry::new(conn, lifecycle));
        self.take_flow(flow, handle);
        handle
    }

    fn take_flow(&mut self, flow: Flow, handle: Handle) {
        self.flows.insert(flow, handle);
        if let Some(sibling) = &self.sibling {
            sibling.enter(flow);
        }
    }

    /// Replaces a connection by one with its own flow, and returns the old one.
    pub(super) fn replace(&mut self, handle: Handle, conn: Conn) -> Option<Conn> {
        self.free_flow(handle);
        let entry = self.entries.get_mut(handle)?;
        let flow = *conn.flow();
        let old = std::mem::replace(&mut entry.conn, conn);
        self.take_flow(flow, handle);
        Some(old)
    }

    /// Frees a connection's flow, unless a later connection has it.
    pub(super) fn free_flow(&mut self, handle: Handle) {
        if let Some(entry) = self.entries.get(handle)
            && self.flows.get(entry.conn.flow()) == Some(&handle)
        {
            self.flows.remove(entry.conn.flow());
            if let Some(sibling) = &self.sibling {
                sibling.leave(entry.conn.flow());
            }
        }
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Conn> {
        Some(self.entries.remove(handle)?.conn)
    }

    /// Records that a connection has entered TIME-WAIT. Forgets stale handles once the list is
    /// twice as long as the table.
    pub(super) fn enter_time_wait(&mut self, handle: Handle) {
        if self.time_wait.len() > 2 * self.entries.len() {
            let entries = &self.entries;
            self.time_wait.retain(|it| entries.get(*it).is_some());
        }
        self.time_wait.push_back(handle);
    }

    /// Removes and returns the connection that entered TIME-WAIT first. It may be stale.
    pub(super) fn oldest_time_wait(&mut self) -> Option<Handle> {
        self.time_wait.pop_front()
    }

    #[cfg(test)]
    pub(super) fn time_wait_len(&self) -> usize {
        self.time_wait.len()
    }
}
