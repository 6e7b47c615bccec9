//! RDMA device: what lies under all queue pairs, TCP, memory, completion queues, events, counters
//! and the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use xwarp_tcp::{Conn, ConnId, ConnMut, Instant, Stack};

use crate::model::{AsyncEvent, AsyncEventKind, EngineCounters, EventResource, LocalPort};
use crate::queues::{EventQueue, InCommon};
use crate::stags::StagTable;
use crate::tables::{CqTable, Searches, SharedTables};

/// What all queue pairs of an RNIC share. The engine owns it and lends it to the queue pair whose
/// turn it is.
pub(crate) struct RdmaDevice {
    pub(crate) stack: Stack,
    pub(crate) stags: InCommon<StagTable>,
    pub(crate) cqs: CqTable,
    pub(crate) events: Arc<EventQueue>,
    pub(crate) counters: EngineCounters,
    /// After how long an initiator wakes a peer that overlooks its first FPDU.
    pub(crate) first_fpdu_retry: Option<Duration>,
    /// The time of the present turn or verb.
    pub(crate) now: Instant,
    /// Slots of queue pairs that may have something to send, in turn.
    turns: VecDeque<usize>,
    /// What a queue pair has just done with its connections, for the engine, which keeps their
    /// owners.
    conn_changes: Vec<ConnChange>,
    /// How many other ports a connection tries at most whose answers come to another engine.
    pub(crate) other_ports: usize,
    /// Next hops that connections wait for.
    pub(crate) searches: Searches,
}

/// The RDMA device, lent for an event or a turn of one connection, which is looked up once.
pub(crate) struct LentDevice<'a> {
    pub(crate) tcp: ConnMut<'a>,
    pub(crate) tables: Tables<'a>,
}

/// The tables of the device, apart from TCP.
pub(crate) struct Tables<'a> {
    pub(crate) stags: &'a mut InCommon<StagTable>,
    pub(crate) cqs: &'a mut CqTable,
    pub(crate) events: &'a EventQueue,
    pub(crate) counters: &'a mut EngineCounters,
}

/// What a queue pair did with one of its TCP connections.
pub(crate) enum ConnChange {
    /// It has made this one.
    Made(ConnId),
    /// It is done with this one. The port lingers, as TCP may still have to answer on it.
    Released(ConnId, Arc<LocalPort>),
    /// It is done with this one, which is not closed yet. The port lingers.
    Abandoned(ConnId, Arc<LocalPort>),
}

impl RdmaDevice {
    /// A device that nothing has been done with.
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

    /// Gives a queue pair a turn in sending, behind those that wait for theirs.
    #[inline]
    pub(super) fn add_turn(&mut self, slot: usize) {
        self.turns.push_back(slot);
    }

    /// Queue pairs that wait for their turn.
    #[inline]
    pub(crate) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The queue pair whose turn it is.
    #[inline]
    pub(crate) fn next_turn(&mut self) -> Option<usize> {
        self.turns.pop_front()
    }

    /// Notes what a queue pair does with one of its connections.
    pub(super) fn note(&mut self, change: ConnChange) {
        self.conn_changes.push(change);
    }

    /// True if a queue pair has done something with its connections that the engine has not taken
    /// note of.
    #[inline]
    pub(crate) fn has_conn_changes(&self) -> bool {
        !self.conn_changes.is_empty()
    }

    /// What a queue pair has done with its connections, in its order.
    pub(crate) fn take_conn_changes(&mut self) -> Vec<ConnChange> {
        std::mem::take(&mut self.conn_changes)
    }

    /// Lends what the bytes of one connection are sent from and received into; `None` if it is
    /// gone.
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

    /// Bytes of a connection that are here and were not acted upon.
    pub(crate) fn unread(&self, conn: ConnId) -> usize {
        self.stack.conn(conn).map_or(0, Conn::readable_len)
    }

    /// Throws them away; how many there were.
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

    /// Bytes sent on a connection that the peer has not acknowledged.
    pub(crate) fn unacked(&mut self, conn: ConnId) -> usize {
        self.stack.conn_mut(conn).map_or(0, |mut tcp| tcp.unacked())
    }

    pub(crate) fn report(&self, resource: EventResource, kind: AsyncEventKind) {
        self.events.report(AsyncEvent { resource, kind });
    }
}
