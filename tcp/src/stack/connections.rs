//! Connections of a stack: their table, timers, turns to send, events, and end.
//!
//! A connection at rest has no turn: if a segment leaves it with nothing to send, acknowledge or
//! write, its timer is set at once. Calls for ready connections, frame waiters and ICMP are made
//! only if there are any.

use std::collections::VecDeque;
use std::net::SocketAddr;

use smoltcp::wire::IpAddress;
use xwarp_driver::{PacketIo, RxFrame};

use super::frame_waiters::FrameWaiters;
use super::handle_list::HandleList;
use super::lifecycle::Lifecycle;
use super::listeners::Listeners;
use super::siblings::Sibling;
use super::table::{Entry, Table};
use super::timers::Timers;
use crate::config::RouteMetrics;
use crate::conn::{Conn, State};
use crate::device::Device;
use crate::error::ListenError;
use crate::event::{CloseReason, ConnId, Event, ListenerId};
use crate::handle_map::Handle;
use crate::time::Instant;
use crate::wire::flow::Flow;
use crate::wire::icmp::PacketTooBig;
use crate::wire::inbound::Segment;

/// All connections of a stack, their listeners, and the events that are not yet polled.
pub(super) struct Connections {
    table: Table,
    reports: Reports,
    timers: Timers,
    /// Connections that may have something to send.
    ready: HandleList,
    frame_waiters: FrameWaiters,
}

/// A connection on loan, with the lists that it may be put into.
pub(super) struct LentEntry<'a> {
    handle: Handle,
    entry: &'a mut Entry,
    ready: &'a mut HandleList,
    frame_waiters: &'a mut FrameWaiters,
}

impl LentEntry<'_> {
    #[inline]
    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    #[inline]
    pub(super) fn conn(&self) -> &Conn {
        &self.entry.conn
    }

    #[inline]
    pub(super) fn conn_mut(&mut self) -> &mut Conn {
        &mut self.entry.conn
    }

    /// Schedules a turn: the connection may have something to send.
    #[inline]
    pub(super) fn touch(&mut self) {
        self.ready.add(self.handle, &mut self.entry.ready);
    }

    /// Lists the connection as waiting for a TX frame.
    pub(super) fn wait_for_frame(&mut self) {
        self.frame_waiters
            .add(self.handle, &mut self.entry.frame_waiter);
    }
}

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            reports: Reports {
                listeners: Listeners::new(),
                events: VecDeque::new(),
            },
            timers: Timers::new(),
            ready: HandleList::new(),
            frame_waiters: FrameWaiters::new(),
        }
    }

    /// Informs the other stacks of the interface about this stack's flows, from now on.
    pub(super) fn join(&mut self, sibling: Sibling) {
        self.table.join(sibling);
    }

    /// Hands a frame of no flow of this stack to the stack that has the flow. Returns false if
    /// there is none. `io` has received the frame.
    pub(super) fn hand_over(&self, segment: &Segment, frame: &RxFrame, io: &dyn PacketIo) -> bool {
        self.table.hand_over(segment, frame, io)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn listeners(&self) -> &Listeners {
        &self.reports.listeners
    }

    pub(super) fn listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        self.reports.listeners.add(local, backlog)
    }

    /// Removes a listener, and resets the connections of its backlog.
    pub(super) fn unlisten(&mut self, id: ListenerId, device: &mut Device, now: Instant) {
        if !self.reports.listeners.remove(id) {
            return;
        }
        let backlog = |entry: &Entry| entry.lifecycle.listener() == Some(id);
        for handle in self.table.handles(backlog) {
            self.reset(handle, CloseReason::Aborted, device, now);
            self.reports
                .events
                .retain(|event| event.conn() != ConnId(handle));
            self.table.free_flow(handle);
            self.remove(handle, device);
        }
    }

    /// Prints the lengths of the lists.
    pub(super) fn diagnosis(&self) -> String {
        format!(
            "{} with something to send, {} events not polled, {:?}",
            self.ready.len(),
            self.reports.events.len(),
            self.frame_waiters
        )
    }

    /// All connections, with their entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = (ConnId, &Entry)> {
        let entries = self.table.entries();
        entries.map(|(handle, entry)| (ConnId(handle), entry))
    }

    /// The connection `id`, unless it is only in TIME-WAIT.
    pub(super) fn live(&self, id: ConnId) -> Option<&Conn> {
        let entry = self.table.get(id.0)?;
        (!entry.lifecycle.is_orphaned()).then_some(&entry.conn)
    }

    /// The connection `id`, unless it is only in TIME-WAIT.
    pub(super) fn live_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let entry = self.table.get_mut(id.0)?;
        (!entry.lifecycle.is_orphaned()).then_some(&mut entry.conn)
    }

    /// The connection that [`live`](Self::live) returns, with the lists that it may be put into.
    #[inline]
    pub(super) fn lend(&mut self, id: ConnId) -> Option<LentEntry<'_>> {
        let entry = self.table.get_mut(id.0)?;
        let live = !entry.lifecycle.is_orphaned();
        live.then_some(LentEntry {
            handle: id.0,
            entry,
            ready: &mut self.ready,
            frame_waiters: &mut self.frame_waiters,
        })
    }

    /// True until the connection has ended.
    pub(super) fn is_open(&self, id: ConnId) -> bool {
        let entry = self.table.get(id.0);
        entry.is_some_and(|entry| !entry.lifecycle.is_orphaned() && !entry.lifecycle.has_ended())
    }

    pub(super) fn find(&mut self, flow: &Flow) -> Option<Handle> {
        self.table.find(flow)
    }

    /// Removes and returns the oldest event.
    #[inline]
    pub(super) fn poll_event(&mut self, device: &mut Device) -> Option<Event> {
        if self.reports.events.is_empty() {
            return None;
        }
        self.take_event(device)
    }

    #[inline(never)]
    fn take_event(&mut self, device: &mut Device) -> Option<Event> {
        let event = self.reports.events.pop_front()?;
        match event {
            Event::Incoming { conn, .. } => self.leave_backlog(conn.0),
            Event::Readable(conn) => {
                if let Some(entry) = self.table.get_mut(conn.0) {
                    entry.lifecycle.readable_polled();
                }
            }
            Event::Closed { conn, .. } => self.orphan(conn.0, device),
            Event::Connected(_)
            | Event::RouteWanted(_)
            | Event::Stray(_)
            | Event::Writable(_)
            | Event::Doubtful(_)
            | Event::PeerClosed(_) => {}
        }
        Some(event)
    }

    /// Inserts a connection that this side opens, and sends its SYN.
    pub(super) fn insert(&mut self, conn: Conn, device: &mut Device, now: Instant) -> Handle {
        let handle = self.table.insert(conn, Lifecycle::default());
        self.run(handle, device, now);
        handle
    }

    /// Replaces a connection that was never established by one that sends its SYN in its turn.
    pub(super) fn replace(&mut self, id: ConnId, conn: Conn, device: &mut Device) {
        if let Some(old) = self.table.replace(id.0, conn) {
            old.dispose(device);
            self.touch(id.0);
        }
    }

    /// Inserts a connection of a listener's backlog.
    pub(super) fn insert_half_open(&mut self, conn: Conn, id: ListenerId) -> Handle {
        self.reports.listeners.opened(id);
        let handle = self.table.insert(conn, Lifecycle::in_backlog(id));
        self.touch(handle);
        handle
    }

    /// Returns true if there is room for one more connection, after ending the oldest TIME-WAIT if
    /// necessary.
    pub(super) fn make_room(&mut self, max: usize, device: &mut Device) -> bool {
        while self.table.len() >= max {
            let Some(handle) = self.table.oldest_time_wait() else {
                return false;
            };
            self.retire(handle, device);
        }
        true
    }

    /// Returns true if no connection has this flow, after ending one in TIME-WAIT. Initial sequence
    /// numbers of a flow only grow, so the peer can tell the next connection apart (RFC 9293
    /// §3.6.1).
    pub(super) fn make_flow_free(&mut self, flow: &Flow, device: &mut Device) -> bool {
        let Some(handle) = self.table.find(flow) else {
            return true;
        };
        let entry = self.table.get(handle);
        let free = entry.is_some_and(Entry::is_in_time_wait);
        if free {
            self.retire(handle, device);
        }
        free
    }

    /// Claims a flow for the connection that is inserted next. Returns false if a sibling has it.
    pub(super) fn claim(&self, flow: &Flow) -> bool {
        self.table.claim(flow)
    }

    /// True for a connection in TIME-WAIT that `segment` ends: it opens another connection with a
    /// listener, or is for one that a sibling has opened meanwhile.
    pub(super) fn gives_way(&self, handle: Handle, segment: &Segment, now: Instant) -> bool {
        let entry = self.table.get(handle);
        entry.is_some_and(Entry::is_in_time_wait) && self.is_succeeded(handle, segment, now)
    }

    #[inline(never)]
    fn is_succeeded(&self, handle: Handle, segment: &Segment, now: Instant) -> bool {
        let entry = self.table.get(handle);
        let by_segment = entry.is_some_and(|entry| entry.conn.is_succeeded_by(segment, now))
            && self.reports.listeners.at(segment.flow.local).is_some();
        by_segment || self.table.is_elsewhere(&segment.flow)
    }

    /// Schedules a turn: the connection may have something to send.
    pub(super) fn touch(&mut self, handle: Handle) {
        if let Some(entry) = self.table.get_mut(handle) {
            self.ready.add(handle, &mut entry.ready);
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Delivers a segment to its connection.
    pub(super) fn deliver(
        &mut self,
        handle: Handle,
        segment: &Segment,
        frame: RxFrame,
        device: &mut Device,
        now: Instant,
    ) {
        let Some(entry) = self.table.get_mut(handle) else {
            device.recycle(frame);
            return;
        };
        let readable = entry.conn.arrive(segment, frame, device, now);
        if self.reports.report(handle, entry, readable, now) {
            let reason = close_reason(segment, &entry.lifecycle);
            self.end(handle, reason, device);
            self.touch(handle);
        } else if entry.conn.is_at_rest() && !entry.ready.is_listed() {
            // Nothing is pending, and a turn would only set the timer.
            let deadline = entry.conn.deadline(now);
            self.timers.set(handle, &mut entry.alarm, deadline, now);
        } else {
            self.ready.add(handle, &mut entry.ready);
        }
    }

    /// Lets the `chosen` ready connections send, and returns the number of segments sent.
    pub(super) fn send_ready(
        &mut self,
        chosen: impl Fn(&Conn) -> bool,
        device: &mut Device,
        now: Instant,
    ) -> usize {
        let mut sent = 0;
        // Connections that become ready meanwhile have their turn later.
        for _ in 0..self.ready.len() {
            let Some(handle) = self.ready.pop() else {
                break;
            };
            let Some(entry) = self.table.get_mut(handle) else {
                continue;
            };
            if chosen(&entry.conn) {
                entry.ready.clear();
                sent += self.run(handle, device, now);
            } else {
                self.ready.keep(handle);
            }
        }
        sent
    }

    /// Lets one connection send, and sets its timer. Returns the number of segments sent.
    pub(super) fn run(&mut self, handle: Handle, device: &mut Device, now: Instant) -> usize {
        let Some(entry) = self.table.get_mut(handle) else {
            return 0;
        };
        if entry.lifecycle.has_ended() && !entry.is_in_time_wait() {
            return 0; // everything was sent before
        }
        device.counters_mut().conn_visits += 1;
        let sent = entry.conn.egress(device, now);
        let drained = entry.conn.is_drained();
        if !drained {
            self.ready.add(handle, &mut entry.ready);
        }
        let over = self.reports.report(handle, entry, false, now);
        let deadline = entry.conn.deadline(now).filter(|_| drained);
        self.timers.set(handle, &mut entry.alarm, deadline, now);
        if over {
            self.end(handle, CloseReason::Graceful, device);
        }
        sent
    }

    /// Runs the connections whose timers are due, and returns their number.
    #[inline]
    pub(super) fn run_timers(&mut self, device: &mut Device, now: Instant) -> usize {
        if self.timers.is_quiet(now) {
            return 0;
        }
        self.run_due(device, now)
    }

    #[inline(never)]
    fn run_due(&mut self, device: &mut Device, now: Instant) -> usize {
        let mut ran = 0;
        while let Some(due) = self.timers.pop(|key| self.table.handle(key), now) {
            let handle = due.handle();
            device.counters_mut().conn_visits += 1;
            let Some(entry) = self.table.get_mut(handle) else {
                continue;
            };
            if !self.timers.fired(due, &mut entry.alarm, now) {
                continue;
            }
            ran += 1;
            self.on_timer(handle, device, now);
        }
        ran
    }

    /// Runs one connection whose timer is due.
    fn on_timer(&mut self, handle: Handle, device: &mut Device, now: Instant) {
        let Some(entry) = self.table.get_mut(handle) else {
            return;
        };
        entry.conn.act_on_deferred_ack(device);
        if entry.conn.has_expired(now) {
            self.reset(handle, CloseReason::TimedOut, device, now);
            return;
        }
        if entry.conn.on_timer(device, now) && entry.lifecycle.is_known() {
            self.reports
                .events
                .push_back(Event::Doubtful(ConnId(handle)));
        }
        if self.reports.report(handle, entry, false, now) {
            self.end(handle, CloseReason::Graceful, device);
        }
        self.touch(handle);
    }

    /// Removes cancelled timers, so that an idle stack has no deadline.
    #[inline]
    pub(super) fn trim_timers(&mut self) {
        let table = &self.table;
        self.timers
            .trim(|handle| table.get(handle).map(|entry| entry.alarm));
    }

    /// When a timer is due, or a connection that waits for a TX frame may get one.
    pub(super) fn deadline(&self, device: &Device) -> Option<Instant> {
        Instant::earliest([self.timers.next(), self.frame_waiters.deadline(device)])
    }

    /// Wakes connections that wait for a TX frame if there are frames.
    #[inline]
    pub(super) fn wake_frame_waiters(&mut self, device: &mut Device, now: Instant) {
        if !self.frame_waiters.is_empty() {
            self.wake_if_frames(device, now);
        }
    }

    #[inline(never)]
    fn wake_if_frames(&mut self, device: &mut Device, now: Instant) {
        let events = &mut self.reports.events;
        let wake = |handle| events.push_back(Event::Writable(ConnId(handle)));
        self.frame_waiters.wake(&mut self.table, device, now, wake);
    }

    /// Aborts a connection from this side, with a RST except in SYN-SENT, where the peer knows of
    /// no connection (RFC 9293 §3.10.5).
    pub(super) fn reset(
        &mut self,
        handle: Handle,
        reason: CloseReason,
        device: &mut Device,
        now: Instant,
    ) {
        let Some(entry) = self.table.get_mut(handle) else {
            return;
        };
        if entry.lifecycle.has_ended() {
            return;
        }
        let state = entry.conn.state();
        let silent = state == State::SynSent
            || (reason == CloseReason::TimedOut && state == State::SynReceived);
        if !silent {
            entry.conn.acknowledge_owed(device, now);
        }
        entry.conn.abort(silent, device);
        entry.conn.egress(device, now);
        self.end(handle, reason, device);
    }

    /// Records and reports the end of a connection. Its flow is free again, unless it is in
    /// TIME-WAIT.
    fn end(&mut self, handle: Handle, reason: CloseReason, device: &mut Device) {
        let Some(entry) = self.table.get_mut(handle) else {
            return;
        };
        let known = entry.lifecycle.is_known();
        let news = entry.lifecycle.end();
        if news && known {
            let (conn, lost) = (ConnId(handle), entry.conn.has_unacked());
            let closed = Event::Closed { conn, reason, lost };
            self.reports.events.push_back(closed);
        }
        if entry.is_in_time_wait() {
            if news {
                self.table.enter_time_wait(handle);
            }
            return;
        }
        let forgotten = entry.lifecycle.is_orphaned() || !known;
        entry.conn.release(device);
        self.table.free_flow(handle);
        if forgotten {
            self.leave_backlog(handle);
            self.remove(handle, device);
        }
    }

    /// Removes a connection from its backlog: `Incoming` was polled, or the connection has ended
    /// before.
    fn leave_backlog(&mut self, handle: Handle) {
        if let Some(entry) = self.table.get_mut(handle)
            && let Some(id) = entry.lifecycle.leave_backlog()
        {
            self.reports
                .listeners
                .left(id, entry.lifecycle.is_announced());
        }
    }

    /// Handles a polled `Closed`: the user no longer knows the connection.
    fn orphan(&mut self, handle: Handle, device: &mut Device) {
        let Some(entry) = self.table.get_mut(handle) else {
            return;
        };
        entry.lifecycle.orphan();
        if entry.is_in_time_wait() {
            entry.conn.forget_unread(device);
        } else {
            self.remove(handle, device);
        }
    }

    /// Ends a TIME-WAIT before its time.
    pub(super) fn retire(&mut self, handle: Handle, device: &mut Device) {
        self.table.free_flow(handle);
        let Some(entry) = self.table.get_mut(handle) else {
            return;
        };
        if entry.lifecycle.is_orphaned() {
            self.remove(handle, device);
        } else {
            entry.conn.abort(true, device); // `Closed` is queued, and removes it
        }
    }

    /// Removes a connection, and frees its frames.
    fn remove(&mut self, handle: Handle, device: &mut Device) {
        if let Some(conn) = self.table.remove(handle) {
            self.timers.remove(handle);
            conn.dispose(device);
        }
    }

    /// Ends the connections from an address that the host has lost.
    pub(super) fn withdraw(&mut self, address: IpAddress, device: &mut Device) {
        let chosen = |entry: &Entry| entry.conn.flow().local.addr == address;
        for handle in self.table.handles(chosen) {
            let Some(entry) = self.table.get_mut(handle) else {
                continue;
            };
            if entry.is_in_time_wait() {
                self.retire(handle, device);
            } else {
                entry.conn.abort(true, device);
                self.end(handle, CloseReason::AddressLost, device);
            }
        }
    }

    /// Applies `change` to all connections, and schedules a turn for each.
    pub(super) fn change_all(&mut self, change: impl Fn(&mut Conn)) {
        for handle in self.table.handles(|_| true) {
            if let Some(entry) = self.table.get_mut(handle) {
                change(&mut entry.conn);
                self.ready.add(handle, &mut entry.ready);
            }
        }
    }

    /// Sets the source Ethernet address of all connections.
    pub(super) fn set_source(&mut self, mac: [u8; 6]) {
        for conn in self.table.conns_mut() {
            conn.set_source(mac);
        }
    }

    /// Sets the next hop's Ethernet address of a connection. Returns true if it has changed.
    pub(super) fn set_next_hop(
        &mut self,
        conn: ConnId,
        mac: [u8; 6],
        device: &Device,
        now: Instant,
    ) -> bool {
        let Some(entry) = self.table.get_mut(conn.0) else {
            return false;
        };
        let changed = entry.conn.set_next_hop(mac, device, now);
        if changed {
            self.ready.add(conn.0, &mut entry.ready);
        }
        changed
    }

    /// True for a RST that refuses a connection which this side opens.
    pub(super) fn is_refusal(&mut self, reset: &Segment) -> bool {
        let handle = self.table.find(&reset.flow);
        let entry = handle.and_then(|handle| self.table.get(handle));
        entry.is_some_and(|entry| entry.conn.is_refused_by(reset))
    }

    /// Asks the user for the metrics of the route to a connection's peer.
    pub(super) fn want_route(&mut self, handle: Handle) {
        self.reports
            .events
            .push_back(Event::RouteWanted(ConnId(handle)));
    }

    /// Sets the metrics of the route to a connection's peer, and answers a SYN that waits for them.
    /// Returns the MSS to offer, or `None` if the connection is gone.
    pub(super) fn set_metrics(
        &mut self,
        conn: ConnId,
        metrics: RouteMetrics,
        now: Instant,
    ) -> Option<usize> {
        let entry = self.table.get_mut(conn.0)?;
        entry.conn.set_metrics(metrics, now);
        entry.conn.end_metrics_wait();
        self.ready.add(conn.0, &mut entry.ready);
        entry.conn.metrics().advmss
    }

    /// Lowers the path MTU of a connection whose segment in flight was too large. Returns true if
    /// the MTU was unknown, and `None` if no data in flight can be meant.
    pub(super) fn narrow_path(&mut self, report: &PacketTooBig, now: Instant) -> Option<bool> {
        let handle = self.table.find(&report.flow)?;
        let entry = self.table.get_mut(handle)?;
        entry.conn.is_in_flight(report.seq).then_some(())?;
        let news = report.mtu < entry.conn.path_mtu();
        if news {
            entry.conn.set_path_mtu(report.mtu, now);
            self.ready.add(handle, &mut entry.ready);
        }
        Some(news)
    }

    #[cfg(test)]
    pub(super) fn time_wait_len(&self) -> usize {
        self.table.time_wait_len()
    }
}

/// Events that are not yet polled, and the listeners that some of them concern.
struct Reports {
    listeners: Listeners,
    events: VecDeque<Event>,
}

impl Reports {
    /// Queues the events that a segment or a timer caused. `readable`: there are new bytes to read.
    /// Returns true if the connection is over or in TIME-WAIT.
    #[inline]
    fn report(&mut self, handle: Handle, entry: &mut Entry, readable: bool, now: Instant) -> bool {
        let quiet = !readable && entry.lifecycle.is_announced() && entry.conn.is_uneventful();
        !quiet && self.queue_events(handle, entry, readable, now)
    }

    #[inline(never)]
    fn queue_events(
        &mut self,
        handle: Handle,
        entry: &mut Entry,
        readable: bool,
        now: Instant,
    ) -> bool {
        let id = ConnId(handle);
        let Entry {
            conn, lifecycle, ..
        } = entry;
        let synchronized = conn.is_synchronized();
        if synchronized && lifecycle.announce() {
            self.announce(id, conn, lifecycle.listener());
        }
        if conn.take_refused_answer() {
            self.events.push_back(Event::Stray(id));
        }
        if readable && synchronized && lifecycle.note_readable() {
            self.events.push_back(Event::Readable(id));
        }
        if conn.state().peer_closed() && lifecycle.note_peer_closed() {
            self.events.push_back(Event::PeerClosed(id));
        }
        if !entry.frame_waiter.is_listed() && conn.became_writable(now) {
            self.events.push_back(Event::Writable(id));
        }
        matches!(conn.state(), State::TimeWait | State::Closed)
    }

    /// Queues the event of a connection that has become synchronized.
    fn announce(&mut self, conn: ConnId, established: &Conn, listener: Option<ListenerId>) {
        let event = match listener {
            None => Event::Connected(conn),
            Some(listener) => {
                self.listeners.established(listener);
                Event::Incoming {
                    listener,
                    conn,
                    remote: established.flow().remote.into(),
                }
            }
        };
        self.events.push_back(event);
    }
}

/// Why the connection that `segment` has ended is over.
fn close_reason(segment: &Segment, lifecycle: &Lifecycle) -> CloseReason {
    match segment.is_reset() {
        true if lifecycle.is_announced() => CloseReason::Reset,
        true => CloseReason::Refused,
        false => CloseReason::Graceful,
    }
}
