//! RDMA device: the layers under all queue pairs: TCP, memory, completion queues, events, counters
//! and the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::{Conn, ConnId, ConnMut, Instant, Stack};

use crate::model::{AsyncEvent, AsyncEventKind, EngineCounters, EventResource, LocalPort};
use crate::queues::{EventQueue, InCommon};
use crate::stags::StagTable;
use crate::tables::{CqTable, Searches, SharedTables};

/// State that all queue pairs of an engine share. The engine owns it and lends it to the queue pair
/// that it calls.
pub(crate) struct RdmaDevice {
    pub(crate) stack: Stack,
    pub(crate) stags: InCommon<StagTable>,
    pub(crate) cqs: CqTable,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) counters: EngineCounters,
    /// How long an initiator waits before it wakes a peer that overlooked its first FPDU.
    pub(crate) first_fpdu_retry: Option<Duration>,
    /// Time of the current step or verb.
    pub(crate) now: Instant,
    /// Slots of queue pairs that may have something to send, in the order of their turns.
    turns: VecDeque<usize>,
    /// Connection changes of the queue pair that was called last, for the engine, which records the
    /// owners.
    conn_changes: Vec<ConnChange>,
    /// How many other ports a connection tries at most if its answers arrive at another engine.
    pub(crate) other_ports: usize,
    /// Searches for the next hops of connections.
    pub(crate) searches: Searches,
}

/// The RDMA device, lent for one event or turn of a connection, which is looked up only once.
pub(crate) struct LentDevice<'a> {
    pub(crate) tcp: ConnMut<'a>,
    pub(crate) tables: Tables<'a>,
}

/// The tables of the device, without TCP.
pub(crate) struct Tables<'a> {
    pub(crate) stags: &'a mut InCommon<StagTable>,
    pub(crate) cqs: &'a mut CqTable,
    pub(crate) events: &'a EventQueue,
    pub(crate) counters: &'a mut EngineCounters,
}

/// Change of a queue pair's TCP connection.
pub(crate) enum ConnChange {
    /// It has opened the connection.
    Made(ConnId),
    /// It has released the closed connection. The port lingers, as TCP may still have to answer on
    /// it.
    Released(ConnId, Arc<LocalPort>),
    /// It has released the connection, which is not closed yet. The port lingers.
    Abandoned(ConnId, Arc<LocalPort>),
}

impl RdmaDevice {
    /// A device in its initial state.
    pub(crate) fn new(
        stack: Stack,
        stags: InCommon<StagTable>,
        shared_tables: &Arc<SharedTables>,
        engine: usize,
        first_fpdu_retry: Option<Duration>,
    ) -> Self {
        let events = Arc::new(shared_tables.events().of_engine(engine));
        Self {
            stack,
            stags,
            cqs: CqTable::new(shared_tables, Arc::clone(&events), engine),
            events,
            counters: EngineCounters::default(),
            first_fpdu_retry,
            now: Instant::from_micros(0),
            turns: VecDeque::new(),
            conn_changes: Vec::new(),
            other_ports: 0,
            searches: Searches::default(),
        }
    }

    /// Appends a queue pair to the list of turns.
    #[inline]
    pub(super) fn add_turn(&mut self, slot: usize) {
        self.turns.push_back(slot);
    }

    /// Number of queue pairs that wait for their turn.
    #[inline]
    pub(crate) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Removes the queue pair whose turn is next.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> Option<usize> {
        self.turns.pop_front()
    }

    /// Records a connection change of a queue pair.
    pub(super) fn note(&mut self, change: ConnChange) {
        self.conn_changes.push(change);
    }

    /// True if a queue pair has changed its connections and the engine has not recorded that yet.
    #[inline]
    pub(crate) fn has_conn_changes(&self) -> bool {
        !self.conn_changes.is_empty()
    }

    /// Takes the connection changes of a queue pair, in order.
    pub(crate) fn take_conn_changes(&mut self) -> Vec<ConnChange> {
        std::mem::take(&mut self.conn_changes)
    }

    /// Lends the state for sending and receiving on one connection; `None` if it no longer exists.
    pub(crate) fn lend(&mut self, conn: ConnId) -> Option<LentDevice<'_>> {
        let tables = Tables {
            stags: &mut self.stags,
            cqs: &mut self.cqs,
            events: &self.events,
            counters: &mut self.counters,
        };
        let tcp = self.stack.conn_mut(conn)?;
        Some(LentDevice { tcp, tables })
    }

    /// Number of received bytes that were not handled.
    pub(crate) fn unread(&self, conn: ConnId) -> usize {
        self.stack.conn(conn).map_or(0, Conn::readable_len)
    }

    /// Discards the unread bytes, and returns their number.
    pub(crate) fn discard_unread(&mut self, conn: ConnId) -> usize {
        let Some(mut tcp) = self.stack.conn_mut(conn) else {
            return 0;
        };
        let unread = tcp.readable_len();
        tcp.consume(unread);
        unread
    }

    /// True while bytes that were sent on a connection wait for room in the peer's window.
    pub(crate) fn has_unsent(&self, conn: ConnId) -> bool {
        self.stack.conn(conn).is_some_and(Conn::has_unsent)
    }

    /// True if segments of a connection carry TCP checksums.
    pub(crate) fn is_summed(&self, conn: ConnId) -> bool {
        self.stack.conn(conn).is_some_and(Conn::is_summed)
    }

    /// True if TCP computes the checksums of a connection's segments: none is left to a NIC.
    pub(crate) fn computes_sums(&self, conn: ConnId) -> bool {
        self.is_summed(conn) && !self.stack.io().offers_checksums()
    }

    /// True if a connection is its own peer.
    pub(crate) fn loops_back(&self, conn: ConnId) -> bool {
        let conn = self.stack.conn(conn);
        conn.is_some_and(|conn| conn.local_addr() == conn.peer_addr())
    }

    /// True while the peer's window has no room for what a connection has to send.
    pub(crate) fn lacks_window(&self, conn: ConnId) -> bool {
        self.stack.conn(conn).is_some_and(Conn::lacks_window)
    }

    /// Bytes sent on a connection that the peer has not acknowledged.
    pub(crate) fn unacked(&mut self, conn: ConnId) -> usize {
        self.stack.conn_mut(conn).map_or(0, |mut tcp| tcp.unacked())
    }

    pub(crate) fn report(&self, resource: EventResource, kind: AsyncEventKind) {
        self.events.report(AsyncEvent { resource, kind });
    }
}
