//! State of a queue pair: the one module that writes it (verbs draft §6.2).
//!
//! | part | file |
//! |---|---|
//! | states, deadline, a turn of sending | this one |
//! | received bytes | `readable.rs` |
//! | ways into RTS: initiator, responder, handover of a stream | `start_up.rs` |
//! | ways out of RTS: graceful close, Terminate, faults, resets | `ending.rs` |
//! | how long a close waits for the peer | `close_timer.rs` |
//! | Modify QP and Query QP | `attributes.rs` |
//! | state in text, for a test that has timed out | `diagnosis.rs` |

mod attributes;
mod close_timer;
mod diagnosis;
mod ending;
mod readable;
mod start_up;

use std::sync::Arc;
use std::time::Duration;

use xwarp_iwarp::mpa::Deframer;
use xwarp_tcp::{ConnId, Instant};

use super::device::RdmaDevice;
use super::full_operation::FullOperation;
use super::new_qp::{DoneWhen, NewQp, NotReady, Receives};
use super::send::Sent;
use super::starting::{Searching, Starting};
use super::stream::{Connection, Stream};
use super::work_queues::WorkQueues;
use crate::model::{
    AsyncEventKind, ConnectionEnd, CqId, EventResource, PayloadLimits, QpId, QpIdentity, QpState,
    SrqId, StartUpParameters, TerminateInfo,
};
use crate::queues::{Identity, QpShared};
use crate::tables::Srq;
use close_timer::CloseTimer;

/// Longest time of a Terminate and the close after it before the connection is reset.
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Connection of a queue pair, which determines its state.
enum ConnStage {
    /// Idle, without a connection.
    None,
    /// Idle, while an initiator waits for the next hop.
    Searching(Box<Searching>),
    /// Idle, while an initiator is connecting.
    Starting(Box<Starting>),
    /// RTS, Closing or Terminate.
    Connected(Box<Connection>, Phase),
    /// Error, without a connection.
    Failed,
}

impl ConnStage {
    /// The stage of an initiator whose TCP connects; without one, no connection.
    fn of_start(starting: Option<Starting>) -> Self {
        starting.map_or(Self::None, |starting| Self::Starting(Box::new(starting)))
    }

    /// The state of the connection, for the log.
    fn name(&self) -> &'static str {
        match self {
            Self::None | Self::Failed => "unconnected",
            Self::Searching(_) => "searching",
            Self::Starting(_) => "connecting",
            Self::Connected(_, Phase::Open { .. }) => "open",
            Self::Connected(_, Phase::Draining { .. }) => "draining",
            Self::Connected(_, Phase::Closing { .. }) => "closing",
            Self::Connected(_, Phase::Sealed { .. }) => "sealed",
            Self::Connected(_, Phase::Terminate { .. }) => "terminating",
        }
    }
}

/// Phase of a connection in full operation.
#[derive(Clone, Copy)]
enum Phase {
    /// RTS.
    Open {
        /// When the peer's window must have room for a responder's Reply, if it had none.
        reply_due: Option<Instant>,
    },
    /// TCP closes once all posted work is sent. Messages from the peer are still placed (RFC 5041
    /// §6.2.1).
    Draining {
        timer: CloseTimer,
        /// True in Closing: the application has closed and posts nothing more. False in RTS: the
        /// peer has closed its side.
        disconnected: bool,
    },
    /// Closing, once this side has sent its FIN.
    Closing { timer: CloseTimer },
    /// Closing by Modify QP: any byte from the peer is an error (verbs draft §6.2.5).
    Sealed { timer: CloseTimer },
    /// Terminate.
    Terminate {
        /// When the phase began.
        since: Instant,
    },
}

impl Phase {
    fn state(self) -> QpState {
        match self {
            Self::Open { .. }
            | Self::Draining {
                disconnected: false,
                ..
            } => QpState::Rts,
            Self::Draining { .. } | Self::Closing { .. } | Self::Sealed { .. } => QpState::Closing,
            Self::Terminate { .. } => QpState::Terminate,
        }
    }

    /// Whether posted work is begun: this side has not closed, and sends no Terminate.
    fn begins_work(self) -> bool {
        match self {
            Self::Open { .. } | Self::Draining { .. } => true,
            Self::Closing { .. } | Self::Sealed { .. } | Self::Terminate { .. } => false,
        }
    }

    /// Deadline for the peer.
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Open { reply_due } => reply_due,
            Self::Draining { timer, .. } | Self::Closing { timer } | Self::Sealed { timer } => {
                Some(timer.deadline())
            }
            Self::Terminate { since } => Some(since + TERMINATE_TIMEOUT),
        }
    }
}

/// State of a queue pair, as the application and the log see it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown {
    state: QpState,
    /// Stage of the connection, for the log.
    stage: &'static str,
    begins_work: bool,
}

impl Shown {
    /// Whether `to` may follow: by a transition of the verbs draft, or by the one to Terminate from
    /// a disconnect that still sends (see `ending.rs`).
    fn leads_to(self, to: Self) -> bool {
        let disconnect_fails = self.begins_work && to.state == QpState::Terminate;
        self.state == to.state || self.state.leads_to(to.state) || disconnect_fails
    }
}

/// Whether a queue pair has ever left Idle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Past {
    /// It has never left Idle.
    Idle,
    /// It has been in another state.
    Active,
}

/// Ends of connections that raise an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Ends that no completion reports, and that the application did not request.
    Unexpected,
    Each,
}

/// A queue pair. Events, verbs and deadlines are calls of its methods. Its requests to the engine
/// are left in the [`RdmaDevice`]. It alone writes its state (decision record rnic/0027).
pub(crate) struct QpContext {
    id: QpId,
    /// Holds the slot of its identity.
    _place: Identity,
    /// Identity that its accesses to regions are checked with.
    user: QpIdentity,
    /// Parameters of its next start-up.
    start_up: StartUpParameters,
    extensions: bool,
    sge: PayloadLimits,
    stage: ConnStage,
    work: WorkQueues,
    /// Whether it is in the list of queue pairs that have something to send.
    active: bool,
    /// Its earliest valid entry among the engine's deadlines.
    armed: Option<Instant>,
    /// The first Terminate that was sent or received, until Idle.
    terminate: Option<Box<TerminateInfo>>,
    /// Whether it is in Terminate without an event: a completion reports the cause, or the
    /// application requested it.
    unreported: bool,
    ends: Ends,
    not_ready: NotReady,
    done_when: DoneWhen,
    past: Past,
    #[cfg(feature = "fault-injection")]
    injected: super::fault::Injected,
    shared: Arc<QpShared>,
}

impl QpContext {
    /// A queue pair in Idle.
    pub(crate) fn new(place: Identity, user: QpIdentity, new: NewQp, receives: Receives) -> Self {
        let cqs = [new.send_cq, new.recv_cq];
        let id = QpId::new(user.serial(), place.slot());
        new.shared.set_quiet_end(new.quiet_end);
        Self {
            id,
            _place: place,
            user,
            start_up: new.start_up,
            extensions: new.extensions,
            sge: new.sge,
            stage: ConnStage::None,
            work: WorkQueues::new(id, new.sq, receives, cqs, &new.slots),
            active: false,
            armed: None,
            terminate: None,
            unreported: false,
            ends: if new.report_ends {
                Ends::Each
            } else {
                Ends::Unexpected
            },
            not_ready: new.not_ready,
            done_when: new.done_when,
            past: Past::Idle,
            #[cfg(feature = "fault-injection")]
            injected: super::fault::Injected::default(),
            shared: new.shared,
        }
    }

    pub(crate) fn id(&self) -> QpId {
        self.id
    }

    pub(crate) fn user(&self) -> QpIdentity {
        self.user
    }

    /// Shared receive queue of its buffers, if it has one.
    pub(crate) fn srq(&self) -> Option<SrqId> {
        self.work.receive().shared().map(Srq::id)
    }

    /// Completion queues of its sends and receives.
    pub(crate) fn cqs(&self) -> [CqId; 2] {
        self.work.cqs()
    }

    pub(crate) fn state(&self) -> QpState {
        match &self.stage {
            ConnStage::None | ConnStage::Searching(_) | ConnStage::Starting(_) => QpState::Idle,
            ConnStage::Connected(_, phase) => phase.state(),
            ConnStage::Failed => QpState::Error,
        }
    }

    /// Whether posted work is begun.
    fn begins_work(&self) -> bool {
        match &self.stage {
            ConnStage::Connected(_, phase) => phase.begins_work(),
            ConnStage::None
            | ConnStage::Searching(_)
            | ConnStage::Starting(_)
            | ConnStage::Failed => false,
        }
    }

    /// True in Idle without a connection or a connection attempt.
    pub(crate) fn is_unconnected(&self) -> bool {
        matches!(self.stage, ConnStage::None)
    }

    /// Whether it has ever left Idle, so that completions of it may not have been polled.
    pub(crate) fn has_past(&self) -> bool {
        self.past == Past::Active
    }

    /// Prepares the queue pair to leave its engine, which then has no turn and no deadline for it.
    pub(crate) fn handle_left(&mut self) {
        self.active = false;
        self.armed = None;
    }

    /// Prepares the queue pair for its new engine.
    pub(crate) fn handle_entered(&mut self, engine: usize, device: &mut RdmaDevice) {
        self.shared.set_engine(engine);
        self.activate(device);
    }

    /// The TCP connection of its stream.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        self.stream().map(Stream::conn)
    }

    /// Sets the stage of the connection. Returns the former one.
    fn enter(&mut self, stage: ConnStage) -> ConnStage {
        let from = self.shown();
        let former = std::mem::replace(&mut self.stage, stage);
        self.show(from);
        former
    }

    /// Replaces the stage of the connection by the result of `next`.
    fn pass_on(&mut self, next: impl FnOnce(ConnStage) -> ConnStage) {
        let from = self.shown();
        let former = std::mem::replace(&mut self.stage, ConnStage::None);
        self.stage = next(former);
        self.show(from);
    }

    /// Sets the phase of the connection.
    fn enter_phase(&mut self, next: Phase) {
        let from = self.shown();
        if let ConnStage::Connected(_, phase) = &mut self.stage {
            *phase = next;
        }
        self.show(from);
    }

    fn shown(&self) -> Shown {
        Shown {
            state: self.state(),
            stage: self.stage.name(),
            begins_work: self.begins_work(),
        }
    }

    /// Shows the new state to the application and the log. Every change of state calls this.
    fn show(&mut self, was: Shown) {
        let is = self.shown();
        if was == is {
            return;
        }
        let (from, to) = (was.state, is.state);
        debug_assert!(was.leads_to(is), "{from:?} does not lead to {to:?}");
        if from != to {
            self.past = Past::Active;
            if (from, to) == (QpState::Idle, QpState::Rts) {
                self.shared.clear_end();
            }
            self.shared.set(to);
        }
        let (id, was, is) = (self.id, was.stage, is.stage);
        log::debug!("queue pair {id}: {from:?}, {was}, to {to:?}, {is}");
    }

    /// Records that an FPDU was sent or received, which restarts the timeout of a close.
    fn note_progress(&mut self, device: &mut RdmaDevice) {
        if let ConnStage::Connected(
            connection,
            Phase::Draining { timer, .. } | Phase::Closing { timer },
        ) = &mut self.stage
        {
            *timer = CloseTimer::new(device.now, device.unacked(connection.stream().conn()));
        }
    }

    /// The timer of a close that begins now.
    fn close_timer(&self, device: &mut RdmaDevice) -> CloseTimer {
        let unacked = self.conn().map_or(0, |conn| device.unacked(conn));
        CloseTimer::new(device.now, unacked)
    }

    /// Deadline for the peer.
    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            ConnStage::Starting(starting) => Some(starting.deadline()),
            ConnStage::Connected(connection, phase) => {
                let held = connection.stream().held_close_due();
                [phase.deadline(), held].into_iter().flatten().min()
            }
            ConnStage::None | ConnStage::Searching(_) | ConnStage::Failed => None,
        }
    }

    /// When a silent peer is woken.
    fn retry_due(&self) -> Option<Instant> {
        self.stream()?.retry_due()
    }

    /// When a message that waits for a receive buffer is tried again.
    fn held_due(&self) -> Option<Instant> {
        self.stream()?.held_due()
    }

    /// Time of the next action without an event.
    fn due(&self) -> Option<Instant> {
        let all = [self.deadline(), self.retry_due(), self.held_due()];
        all.into_iter().flatten().min()
    }

    /// When the engine has to call [`handle_timeout`](Self::handle_timeout). `None` if an earlier
    /// result covers that time.
    pub(crate) fn poll_deadline(&mut self) -> Option<Instant> {
        let due = self.due()?;
        if self.armed.is_some_and(|armed| armed <= due) {
            return None;
        }
        self.armed = Some(due);
        Some(due)
    }

    /// Whether `at` is the last result of [`poll_deadline`](Self::poll_deadline).
    pub(crate) fn is_armed_at(&self, at: Instant) -> bool {
        self.armed == Some(at)
    }

    /// Removes an obsolete deadline. False if there is a valid one.
    pub(crate) fn disarm(&mut self) -> bool {
        let is_idle = self.due().is_none();
        if is_idle {
            self.armed = None;
        }
        is_idle
    }

    /// Handles the time that [`poll_deadline`](Self::poll_deadline) returned, which may be too
    /// early. Returns how much work was done.
    pub(crate) fn handle_timeout(&mut self, device: &mut RdmaDevice) -> usize {
        self.armed = None;
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= device.now);
        let (is_late, is_silent) = (due(self.deadline()), due(self.retry_due()));
        let is_held = due(self.held_due());
        if is_late {
            self.on_deadline(device);
        }
        if is_held {
            self.handle_readable(device);
        }
        if is_silent && let ConnStage::Connected(connection, phase) = &mut self.stage {
            let begins_work = phase.begins_work();
            connection
                .stream_mut()
                .retry_first_fpdu(begins_work, device);
        }
        usize::from(is_late) + usize::from(is_silent) + usize::from(is_held)
    }

    /// Adds the queue pair to those that have something to send.
    pub(crate) fn activate(&mut self, device: &mut RdmaDevice) {
        if !self.active {
            self.active = true;
            device.add_turn(self.id.slot());
        }
    }

    /// Runs one turn: sends until the budget is spent, or there is nothing more. Returns the number
    /// of attempts.
    pub(crate) fn transmit(&mut self, device: &mut RdmaDevice) -> usize {
        self.active = false;
        self.check_posted(device);
        let Some((_, mut full)) = self.full_operation(device.now) else {
            return 0;
        };
        let turn = full.take_turn(device);
        if turn.has_sent {
            self.note_progress(device);
        }
        match turn.end {
            Ok(Sent::Segment | Sent::Work) => self.activate(device), // the budget is spent
            Ok(Sent::LastSegment | Sent::Nothing) => self.close_if_drained(device),
            Ok(Sent::Blocked) => {}
            Err(fault) => self.on_send_fault(fault, device),
        }
        turn.done
    }

    /// Handles work that was posted just before the queue pair entered Closing or Error.
    fn check_posted(&mut self, device: &mut RdmaDevice) {
        match self.state() {
            QpState::Idle | QpState::Rts | QpState::Terminate => {}
            QpState::Closing => self.check_closing(device),
            QpState::Error => self.work.flush(&mut device.cqs, None),
        }
    }

    /// The state for sending and receiving, if there is a stream.
    fn full_operation(&mut self, now: Instant) -> Option<(&mut Deframer, FullOperation<'_>)> {
        let ConnStage::Connected(connection, phase) = &mut self.stage else {
            return None;
        };
        let ord = connection.reads().ord;
        let (deframer, stream) = connection.both();
        let full = FullOperation {
            id: self.id,
            user: self.user,
            begins_work: phase.begins_work(),
            ord,
            not_ready: self.not_ready,
            now,
            stream,
            work: &mut self.work,
            #[cfg(feature = "fault-injection")]
            injected: &mut self.injected,
        };
        Some((deframer, full))
    }

    fn stream(&self) -> Option<&Stream> {
        match &self.stage {
            ConnStage::Connected(connection, _) => Some(connection.stream()),
            ConnStage::None
            | ConnStage::Searching(_)
            | ConnStage::Starting(_)
            | ConnStage::Failed => None,
        }
    }

    fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.stage {
            ConnStage::Connected(connection, _) => Some(connection.stream_mut()),
            ConnStage::None
            | ConnStage::Searching(_)
            | ConnStage::Starting(_)
            | ConnStage::Failed => None,
        }
    }

    /// Publishes why the connection ends, before completions are flushed.
    fn note_end(&self, event: &AsyncEventKind) {
        self.shared.set_end(ConnectionEnd::Event(event.clone()));
    }

    fn report(&self, kind: AsyncEventKind, device: &RdmaDevice) {
        device.report(EventResource::Qp(self.id), kind);
    }

    /// Makes the next operation of the queue pair find it broken.
    #[cfg(feature = "fault-injection")]
    pub(crate) fn inject_fault(&mut self) {
        self.injected.inject();
    }
}
