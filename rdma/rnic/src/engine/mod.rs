//! The engine: everything of one NIC queue, run to completion by [`Engine::step`].
//!
//! It owns TCP, all queue pairs, the `STag` table and the engine's ends of the completion queues by
//! value. A thread, the application's own polls or a simulator with virtual time call `step`, which
//! neither blocks nor reads a clock.

mod broken;
mod connect;
mod deadlines;
mod diagnosis;
mod events;
mod host;
mod moving;
mod qp_table;
mod queue_pairs;
mod srq;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use xwarp_driver::IoError;
use xwarp_tcp::{Event, Instant, Stack};

use crate::model::{CqId, DestroyError, EngineCounters, MpaConfig, RnicCounters, ShownState};
use crate::qp::{QpContext, RdmaDevice};
use crate::queues::{Change, EngineDoorbell, InCommon};
use crate::stags::StagTable;
use crate::tables::{CqTable, SharedTables, SrqTable};

pub use connect::{Clients, IncomingRequest, StartStream};
pub use host::{DoubtfulPath, HostQuestion, IncomingPath, OtherPort, WantedPort};
pub use moving::MovingQp;

use connect::{Connections, Owner};
use deadlines::Deadlines;
use host::Interface;
use qp_table::QpTable;

/// State of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineState {
    Running,
    /// The engine has panicked, and only ends connections.
    Ending,
    /// The interface is lost: the engine flushes work that is posted to queue pairs in Error, and
    /// does nothing else.
    Lost,
    /// Every step does nothing.
    Failed,
}

/// Frames taken from the NIC in one step.
const RX_BUDGET: usize = 64;
/// The longest sleep while the kernel holds TX frames of the engine.
const BACKLOG_RECHECK: Duration = Duration::from_millis(1);

/// One engine serves one NIC queue (decision record rnic/0001).
pub struct Engine {
    device: RdmaDevice,
    qps: QpTable,
    connections: Connections,
    deadlines: Deadlines,
    doorbell: Arc<EngineDoorbell>,
    /// Index of the engine in its RNIC.
    index: usize,
    shared_tables: Arc<SharedTables>,
    /// Engines of queue pairs that have left this engine, by slot.
    moved: FxHashMap<usize, usize>,
    /// Slots from the doorbell without a queue pair on this engine. Empty between steps.
    strays: Vec<usize>,
    state: EngineState,
    interface: Interface,
}

impl Engine {
    /// Engine number `index` of its RNIC, without any object, with this `doorbell`.
    pub fn new(
        stack: Stack,
        mpa: MpaConfig,
        stags: InCommon<StagTable>,
        shared_tables: &Arc<SharedTables>,
        index: usize,
        doorbell: &Arc<EngineDoorbell>,
    ) -> Self {
        let first_fpdu_retry = mpa.first_fpdu_retry;
        Self {
            device: RdmaDevice::new(stack, stags, shared_tables, index, first_fpdu_retry),
            qps: QpTable::default(),
            connections: Connections::new(index, shared_tables.engines(), mpa),
            deadlines: Deadlines::default(),
            doorbell: Arc::clone(doorbell),
            index,
            shared_tables: Arc::clone(shared_tables),
            moved: FxHashMap::default(),
            strays: Vec::new(),
            state: EngineState::Running,
            interface: Interface::default(),
        }
    }

    /// Records the NIC's receive timestamp in every later receive completion.
    pub fn stamp_completions(&mut self) {
        self.device.stack.keep_arrivals();
        self.device.cqs.begin_stamping();
    }

    /// Sets the time of a verb.
    pub fn wake_at(&mut self, now: Instant) {
        self.device.now = now;
    }

    /// Runs one step: receives, handles TCP's events, sends. Returns how much work was done; 0
    /// means idle.
    pub fn step(&mut self, now: Instant) -> usize {
        self.device.now = now;
        match self.state {
            EngineState::Running | EngineState::Ending => {}
            EngineState::Lost => return self.send_all(),
            EngineState::Failed => return 0,
        }
        let seen = self.see_interface();
        if self.is_over() {
            return seen;
        }
        let done = self.turn();
        seen + done.unwrap_or_else(|error| self.on_refusal(&error))
    }

    /// Sends posted work first, then handles what is left from the last step, and places received
    /// bytes last. So no bookkeeping delays the answer to a message (decision record rnic/0002).
    fn turn(&mut self) -> Result<usize, IoError> {
        let now = self.device.now;
        let mut done = self.send_all();
        if done > 0 {
            self.device.stack.flush()?;
        }
        done += self.device.stack.transmit(now)?;
        let mut came = self.device.stack.poll(now, RX_BUDGET) + self.act_on_events();
        let expires = self.has_deadlines();
        if expires {
            came += self.expire();
        }
        let goes_on = came > 0 || self.device.turns() > 0;
        if goes_on {
            done += came + self.send_all();
            done += self.device.stack.answer(now)?;
        }
        if expires || goes_on {
            self.trim_deadlines();
        }
        Ok(done)
    }

    /// Handles TCP's events, and returns their number.
    fn act_on_events(&mut self) -> usize {
        let mut events = 0;
        while let Some(event) = self.device.stack.poll_event() {
            events += 1;
            self.on_tcp_event(event);
        }
        events
    }

    /// Looks up the owner of a connection, once, and passes the event on.
    fn on_tcp_event(&mut self, event: Event) {
        let conn = event.conn();
        match self.connections.owner(conn) {
            Some(Owner::Qp(key)) => self.on_qp_event(key, event),
            Some(Owner::Incoming(key)) => self.on_incoming_event(key, event),
            Some(Owner::Streaming) => self.on_stream_event(event),
            None => self.on_unowned_event(event),
        }
    }

    /// Handles an event of a connection that is new or has no owner.
    fn on_unowned_event(&mut self, event: Event) {
        match event {
            Event::Incoming {
                listener,
                conn,
                remote,
            } => self.connections.on_incoming(
                listener,
                conn,
                remote,
                &self.interface,
                &mut self.device,
            ),
            Event::RouteWanted(conn) => self.ask_for_metrics(conn),
            Event::Readable(conn) => {
                self.device.discard_unread(conn);
            }
            Event::PeerClosed(conn) => {
                self.device.discard_unread(conn);
                self.device.stack.close(conn, self.device.now);
            }
            Event::Connected(_)
            | Event::Writable(_)
            | Event::Doubtful(_)
            | Event::Stray(_)
            | Event::Closed { .. } => {}
        }
    }

    /// Runs one turn of every queue pair that has something to send.
    #[inline]
    fn send_all(&mut self) -> usize {
        if self.doorbell.ready().is_empty() && self.device.turns() == 0 {
            return 0;
        }
        self.send_in_turn()
    }

    #[inline(never)]
    fn send_in_turn(&mut self) -> usize {
        let (ready, device, qps) = (self.doorbell.ready(), &mut self.device, &mut self.qps);
        let strays = &mut self.strays;
        ready.drain(|key| match qps.get_mut(key) {
            Some(qp) => qp.activate(device),
            None => strays.push(key),
        });
        if !self.strays.is_empty() {
            self.take_strays();
        }
        let mut done = 0;
        for _ in 0..self.device.turns() {
            let Some(key) = self.device.next_turn() else {
                break;
            };
            let sent = self.with_qp(key, QpContext::transmit);
            done += sent.unwrap_or(0);
        }
        done
    }

    /// True if frames are neither received nor sent.
    fn is_over(&self) -> bool {
        matches!(self.state, EngineState::Lost | EngineState::Failed)
    }

    /// The longest sleep; `None` without a time limit.
    pub fn sleep_timeout(&self, now: Instant) -> Option<Duration> {
        if self.is_over() {
            return None;
        }
        let deadline = self.next_deadline().map(|deadline| deadline - now);
        let backlog = self.device.stack.io().backlog().then_some(BACKLOG_RECHECK);
        [deadline, backlog].into_iter().flatten().min()
    }

    /// True if nothing was posted since the last step and no further step is due.
    pub fn is_idle(&self) -> bool {
        let has_work = !self.doorbell.ready().is_empty() || self.device.turns() > 0;
        match self.state {
            EngineState::Running | EngineState::Ending => {
                !has_work && !self.interface.has_news() && !self.device.stack.has_looped()
            }
            EngineState::Lost => !has_work,
            EngineState::Failed => true,
        }
    }

    /// Descriptor that is readable when a frame arrives.
    pub fn readiness(&self) -> Option<BorrowedFd<'_>> {
        // Frames that the engine does not take would keep it readable.
        let receives = !self.is_over();
        receives
            .then(|| self.device.stack.io().readiness())
            .flatten()
    }

    /// All counters of this engine. The first engine also has the counters of all engines together.
    pub fn counters(&self) -> RnicCounters {
        let lost = self.device.events.lost();
        RnicCounters {
            io: self.device.stack.io().counters(),
            tcp: self.device.stack.counters(),
            rdma: EngineCounters {
                drop_events: if self.index == 0 { lost } else { 0 },
                ..self.device.counters
            },
        }
    }

    /// Index of the engine in its RNIC.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Counters and levels for other processes.
    pub fn shown_state(&self) -> Vec<u64> {
        ShownState::words(&self.device.stack.io().levels(), &self.counters())
    }

    /// The engine's ends of the completion queues.
    pub fn cqs(&mut self) -> &mut CqTable {
        &mut self.device.cqs
    }

    /// The shared receive queues.
    pub fn srqs(&self) -> &SrqTable {
        self.shared_tables.srqs()
    }

    /// The `STag`s and protection domains, locked for a change.
    pub fn stags(&mut self) -> Change<'_, StagTable> {
        self.device.stags.change()
    }

    /// Destroy CQ. Refused while a queue pair completes on it.
    pub fn destroy_cq(&mut self, id: CqId) -> Result<(), DestroyError> {
        if self.device.cqs.is_used(id) {
            return Err(DestroyError::InUse);
        }
        self.device.cqs.remove(id);
        Ok(())
    }
}

impl Engine {
    fn reset_all(&mut self) {
        for conn in self.connections.conns() {
            self.device.stack.abort(conn, self.device.now);
        }
        if let Err(error) = self.device.stack.transmit(self.device.now) {
            log::warn!("no RST was sent to peers as the RNIC closes: {error}");
        }
    }
}

impl Drop for Engine {
    /// Resets all connections, so that no peer waits for a host that has gone.
    fn drop(&mut self) {
        self.end();
        if !self.is_over() {
            self.reset_all();
        }
        // This frees the ports: a switch carries no RST from a port that is free.
        for qp in self.qps.iter_mut() {
            qp.show_engine_gone();
        }
    }
}
