//! Work requests of the send queue that were begun and have not completed, in the order of posting,
//! which is the order of completion.
//!
//! A Send or a Write completes when TCP has its whole message (RFC 5040 §5.5, verbs.md A22), or, if
//! the application wants confirmation, when the peer has handled it. A Read of no bytes behind it
//! proves that: the peer handles messages in order, and answers no Read behind one that it refuses
//! (RFC 5040 §5.5). So does any other response. At most one Read for that purpose is outstanding,
//! and it covers all that was sent before.

use std::collections::VecDeque;
use std::fmt;

use xwarp_iwarp::ddp::Queue;
use xwarp_iwarp::rdmap::CapturedHeader;
use xwarp_iwarp::{ReceivedTerminate, Stag};

use crate::model::{
    CompletionStatus, Detail, Opcode, Operation, RemoteAddress, SendRequest, Sge, WrId,
};
use crate::qp::stream::Stream;

/// Bytes that are sent at most before a confirmation is asked for, if more work is posted.
const UNCONFIRMED_BYTES: u64 = 64 << 10;

/// What a work request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// That TCP has its whole message.
    Sending,
    /// That the peer has handled its message.
    Confirmation,
    /// The peer's response.
    Response,
}

/// A work request of the send queue that was begun and has not completed.
pub(in crate::qp) struct InFlight {
    pub(super) wr_id: WrId,
    pub(super) opcode: Opcode,
    pub(super) signaled: bool,
    pub(super) byte_len: u32,
    /// An Atomic Operation's original value, or the arrival time of a Read's response.
    pub(super) detail: Detail,
    /// Its result, once there is one.
    pub(super) outcome: Option<CompletionStatus>,
    /// Whether it is a Read of the queue pair itself, and no work request.
    pub(super) is_own: bool,
    awaits: Awaits,
    /// `STag` that a Read invalidates when its response has arrived.
    invalidate: Option<Stag>,
    place: Place,
}

/// A place that a work request names.
#[derive(Clone, Copy)]
enum Place {
    /// None that matters once it has begun.
    Other,
    /// Of an Atomic Operation's original value.
    Sink(Sge),
    /// Where a Write begins.
    Written(RemoteAddress),
}

impl Place {
    #[inline]
    fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Write { remote, .. } | Operation::WriteImmediate { remote, .. } => {
                Self::Written(*remote)
            }
            other => other.result_sink().map_or(Self::Other, Self::Sink),
        }
    }
}

impl InFlight {
    fn new(request: &SendRequest) -> Self {
        let operation = &request.operation;
        let awaits = if operation.awaits_response() {
            Awaits::Response
        } else {
            Awaits::Sending
        };
        Self {
            wr_id: request.wr_id,
            opcode: operation.opcode(),
            signaled: request.signaled,
            byte_len: operation.byte_len().unwrap_or(u32::MAX),
            detail: Detail::Nothing,
            outcome: None,
            is_own: false,
            awaits,
            invalidate: operation.sink_to_invalidate(),
            place: Place::of(operation),
        }
    }

    /// A Read of no bytes of the queue pair itself.
    fn own_read() -> Self {
        Self {
            wr_id: WrId(0),
            opcode: Opcode::Read,
            signaled: false,
            byte_len: 0,
            detail: Detail::Nothing,
            outcome: None,
            is_own: true,
            awaits: Awaits::Response,
            invalidate: None,
            place: Place::Other,
        }
    }

    /// `STag` that a Read invalidates when its response has arrived.
    pub(in crate::qp) fn sink_to_invalidate(&self) -> Option<Stag> {
        self.invalidate
    }

    /// Records the original value of an Atomic Operation. Returns where to store it, too.
    pub(in crate::qp) fn set_original(&mut self, original: u64) -> Option<Sge> {
        self.detail = Detail::Original(original);
        match self.place {
            Place::Sink(sink) => Some(sink),
            Place::Other | Place::Written(_) => None,
        }
    }

    /// Records when the response to a Read arrived, if that is known.
    pub(in crate::qp) fn set_arrival(&mut self, arrival: Detail) {
        self.detail = arrival;
    }

    /// Records the result of a work request that the peer has responded to.
    pub(in crate::qp) fn end(&mut self, outcome: CompletionStatus) {
        self.outcome = Some(outcome);
    }

    fn awaits_response(&self) -> bool {
        self.awaits == Awaits::Response
    }

    fn awaits_confirmation(&self) -> bool {
        self.awaits == Awaits::Confirmation && self.outcome.is_none()
    }

    /// Whether it is a Write to a range that has this place.
    fn writes_to(&self, stag: u32, to: u64) -> bool {
        let Place::Written(written) = self.place else {
            return false;
        };
        let ahead = to.checked_sub(written.to);
        written.stag.0 == stag && ahead.is_some_and(|ahead| ahead < u64::from(self.byte_len))
    }

    /// Whether the peer handles a message of it.
    fn sends(&self) -> bool {
        !matches!(
            self.opcode,
            Opcode::Bind | Opcode::FastRegister | Opcode::Invalidate
        )
    }

    /// Whether its message takes a receive buffer of the peer.
    fn takes_receive(&self) -> bool {
        self.sends() && !self.awaits_response() && self.opcode != Opcode::Write
    }

    /// TCP has its whole message.
    fn is_sent(&mut self, confirms: bool) {
        if self.awaits != Awaits::Sending {
            return;
        }
        if confirms && self.sends() {
            self.awaits = Awaits::Confirmation;
        } else {
            self.outcome = Some(CompletionStatus::Success);
        }
    }
}

/// The work requests that were begun.
#[derive(Default)]
pub(super) struct Begun {
    queue: VecDeque<InFlight>,
    /// Whether Sends and Writes wait for a confirmation.
    confirms: bool,
    /// Those that wait for one, and behind which no request awaits a response.
    uncovered: usize,
    /// Their payload in bytes.
    uncovered_bytes: u64,
    /// Whether a Read of the queue pair itself awaits its response.
    is_confirming: bool,
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = self.queue.front().map(|it| (it.wr_id, it.opcode));
        f.debug_struct("Begun")
            .field("len", &self.queue.len())
            .field("oldest", &oldest)
            .field("uncovered", &self.uncovered)
            .field("is_confirming", &self.is_confirming)
            .finish_non_exhaustive()
    }
}

impl Begun {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a work request that begins.
    pub(super) fn push(&mut self, request: &SendRequest) {
        self.add(InFlight::new(request));
    }

    /// Adds a work request whose message is sent at once.
    #[inline]
    pub(super) fn push_sent(&mut self, request: &SendRequest) {
        let mut begun = InFlight::new(request);
        if !begun.awaits_response() {
            begun.is_sent(self.confirms);
            self.count(begun.awaits_confirmation().then_some(begun.byte_len));
        }
        self.add(begun);
    }

    /// Counts a message of so many bytes that waits for a confirmation.
    #[inline]
    fn count(&mut self, unconfirmed: Option<u32>) {
        if let Some(len) = unconfirmed {
            self.uncovered += 1;
            self.uncovered_bytes += u64::from(len);
        }
    }

    #[inline]
    fn add(&mut self, begun: InFlight) {
        if begun.awaits_response() {
            (self.uncovered, self.uncovered_bytes) = (0, 0);
        }
        self.queue.push_back(begun);
    }

    /// Ends the newest work request with an error of this side. TCP has the earlier ones, and
    /// delivers them: whether the peer refuses one is not waited for.
    pub(super) fn fail_newest(&mut self, status: CompletionStatus) {
        let Some(newest) = self.queue.iter().rposition(|it| !it.is_own) else {
            return;
        };
        self.confirm_before(newest);
        self.queue[newest].outcome = Some(status);
    }

    /// Takes all, in their order. What has no result is flushed.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (InFlight, CompletionStatus)> + use<> {
        let confirms = self.confirms;
        let taken = std::mem::take(self);
        self.confirms = confirms;
        taken.queue.into_iter().map(|ended| {
            let status = ended.outcome.unwrap_or(CompletionStatus::Flushed);
            (ended, status)
        })
    }

    /// Takes the oldest one, if it has succeeded.
    #[inline]
    pub(super) fn pop_done(&mut self) -> Option<InFlight> {
        let oldest = self.queue.front()?;
        let is_done = oldest.outcome == Some(CompletionStatus::Success);
        is_done.then(|| self.queue.pop_front()).flatten()
    }

    /// TCP has the whole newest message. A work request that waits for no more is complete with
    /// that.
    #[inline]
    pub(super) fn newest_sent(&mut self) {
        let Some(newest) = self.queue.back_mut() else {
            return;
        };
        newest.is_sent(self.confirms);
        let unconfirmed = newest.awaits_confirmation().then_some(newest.byte_len);
        self.count(unconfirmed);
    }

    /// The oldest request that waits for its response, which has arrived: the peer responds in
    /// order (RFC 5040 §5.5, R7306-5.4-8-1). The response confirms what was sent before it.
    pub(super) fn oldest_unanswered(&mut self) -> Option<&mut InFlight> {
        let awaits = |it: &InFlight| it.awaits_response() && it.outcome.is_none();
        if self.confirms {
            let at = self.queue.iter().position(awaits)?;
            self.confirm_before(at);
        }
        let answered = self.queue.iter_mut().find(|it| awaits(it))?;
        self.is_confirming &= !answered.is_own;
        Some(answered)
    }

    fn confirm_before(&mut self, end: usize) {
        let before = self.queue.iter_mut().take(end);
        for confirmed in before.filter(|it| it.awaits_confirmation()) {
            confirmed.outcome = Some(CompletionStatus::Success);
        }
    }
}

/// Confirmation.
impl Begun {
    pub(super) fn confirms(&self) -> bool {
        self.confirms
    }

    pub(super) fn set_confirms(&mut self, confirms: bool) {
        self.confirms = confirms;
    }

    pub(super) fn is_confirming(&self) -> bool {
        self.is_confirming
    }

    /// Whether something waits for a confirmation that no outstanding request will bring.
    #[inline]
    pub(super) fn lacks_confirmation(&self) -> bool {
        self.uncovered > 0 && !self.is_confirming
    }

    /// Whether so much waits for one that the application may wait for it before it posts more to
    /// its send queue of this depth.
    pub(super) fn lacks_much(&self, depth: usize) -> bool {
        2 * self.uncovered >= depth || self.uncovered_bytes >= UNCONFIRMED_BYTES
    }

    /// Adds a Read of no bytes.
    pub(super) fn push_own_read(&mut self) {
        self.add(InFlight::own_read());
        self.is_confirming = true;
    }

    /// Confirms all that was sent. From now on nothing waits for a confirmation.
    pub(super) fn confirm_all(&mut self) {
        self.confirms = false;
        self.confirm_before(self.queue.len());
        (self.uncovered, self.uncovered_bytes) = (0, 0);
    }

    /// Drops the Read of the queue pair itself, to which no response can come.
    pub(super) fn drop_own_read(&mut self) {
        self.queue.retain(|it| !it.is_own);
        self.is_confirming = false;
    }

    /// Attributes the peer's Terminate to the work request that the returned header names, which
    /// ends with it (verbs draft §9.5.2). A work request that has ended keeps its result. What was
    /// sent before the one that the peer refuses was handled.
    pub(super) fn attribute(&mut self, terminate: &ReceivedTerminate, stream: &Stream) {
        let Some(at) = self.culprit(terminate, stream) else {
            return;
        };
        if let Some(culprit) = self.queue.get_mut(at) {
            let outcome = &mut culprit.outcome;
            outcome.get_or_insert(CompletionStatus::RemoteTermination);
        }
        if self.confirms {
            self.confirm_before(at);
        }
    }

    /// The work request that the peer refuses.
    fn culprit(&self, terminate: &ReceivedTerminate, stream: &Stream) -> Option<usize> {
        let oldest = || self.queue.iter().position(InFlight::awaits_confirmation);
        let Some(header) = &terminate.ddp_header else {
            return oldest();
        };
        if let CapturedHeader::Untagged(it) = header
            && it.qn.get() == Queue::Request.qn()
        {
            let refused = terminate.read_request.as_ref();
            let since = stream.requests_since(it.msn.get(), refused)?;
            return self.nth_newest(since, InFlight::awaits_response);
        }
        let unconfirmed = match header {
            CapturedHeader::Tagged(it) => {
                let (stag, to) = (it.stag.get(), it.to.get());
                let is_it = |of: &InFlight| of.awaits_confirmation() && of.writes_to(stag, to);
                self.queue.iter().position(is_it)
            }
            CapturedHeader::Untagged(it) => {
                let since = stream.messages_since(it.msn.get());
                let found = since.and_then(|since| self.nth_newest(since, InFlight::takes_receive));
                found.filter(|&at| self.queue[at].outcome.is_none())
            }
        };
        // Without confirmation only the work request being sent has not ended.
        let newest = || {
            stream
                .is_sending(header)
                .then(|| self.queue.len().checked_sub(1))
                .flatten()
        };
        unconfirmed.or_else(newest)
    }

    /// The one before which `since` newer ones are of the same kind.
    fn nth_newest(&self, since: usize, kind: impl Fn(&InFlight) -> bool) -> Option<usize> {
        let newest_first = self.queue.iter().enumerate().rev();
        let mut of_kind = newest_first.filter(|(_, it)| kind(it));
        of_kind.nth(since).map(|(at, _)| at)
    }
}
