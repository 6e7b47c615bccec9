//! Next message of a queue pair: a work request or a response, in turn if both wait.
//!
//! Memory work (Bind, Fast-Register, Invalidate) takes effect in order: TCP has all earlier
//! messages, and later ones have not begun. Only Reads and Atomic Operations can be outstanding
//! then, and a Local Fence waits for them. A responder does memory work even before the first FPDU
//! of the peer.

use xwarp_iwarp::ddp::VERSION_IETF;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{AccessError, AccessKind, ReadRequest};

use crate::model::{
    Access, CompletionStatus, Immediate, MemoryOperation, OPERAND, Operation, Payload, QpIdentity,
    RemoteAddress, SendRequest, Sge,
};
use crate::qp::fault::SendFault;
use crate::qp::full_operation::FullOperation;
use crate::qp::rights::right_for;
use crate::qp::stream::{Response, Stream, execute};
use crate::queues::InCommon;
use crate::stags::StagTable;

/// The next step of a queue pair.
pub(super) enum Next {
    /// A message is being sent.
    Message,
    /// A work request that sends nothing was done.
    Done,
    Nothing,
}

impl FullOperation<'_> {
    /// Makes sure that a message is being sent: continues the current one, or begins a response or
    /// the next work request. Responses and requests take turns if both wait.
    pub(super) fn begin_message(
        &mut self,
        stags: &mut InCommon<StagTable>,
        mulpdu: usize,
    ) -> Result<Next, SendFault> {
        if self.stream.tx().has_message() {
            return Ok(Next::Message);
        }
        let request_waits = self.work.has_posted();
        if let Some(response) = self.stream.tx_mut().poll_turn(request_waits) {
            self.begin_response(&stags.read(), &response)?;
            return Ok(Next::Message);
        }
        if self.stream.is_open() && self.wants_confirmation() {
            self.work.begin_confirmation();
            self.stream.begin_read(ReadRequest::RTR);
            return Ok(Next::Message);
        }
        match self.begin_request(stags, mulpdu)? {
            Next::Nothing => {}
            begun @ (Next::Message | Next::Done) => return Ok(begun),
        }
        let Some(response) = self.stream.tx_mut().poll_response() else {
            return Ok(Next::Nothing);
        };
        self.begin_response(&stags.read(), &response)?;
        Ok(Next::Message)
    }

    fn begin_response(&mut self, stags: &StagTable, response: &Response) -> Result<(), SendFault> {
        let tx = self.stream.tx_mut();
        match response {
            Response::Read(read) => tx.begin_read_response(*read),
            Response::Atomic(atomic) => {
                let original = execute(stags, self.user, atomic)?;
                tx.begin_atomic_response(atomic.request.id, original);
            }
        }
        Ok(())
    }

    /// Begins the next work request, unless the send queue is empty or stalls.
    fn begin_request(
        &mut self,
        stags: &mut InCommon<StagTable>,
        mulpdu: usize,
    ) -> Result<Next, SendFault> {
        if self.stalls() {
            return Ok(Next::Nothing);
        }
        let Some(request) = self.work.begin() else {
            return Ok(Next::Nothing);
        };
        #[cfg(feature = "fault-injection")]
        self.injected.check()?;
        self.check_request(&request.operation)?;
        check_memory(&stags.read(), self.user, &request.operation, mulpdu)?;
        begin_operation(self.stream, stags, self.user, request)?;
        if self.stream.tx().has_message() {
            return Ok(Next::Message);
        }
        self.work.newest_sent();
        Ok(Next::Done)
    }

    /// True if the send queue is empty or stalls: until the peer's first FPDU, for a fence, or
    /// because ORD Reads and Atomic Operations are outstanding (verbs draft §6.5, §8.2.2;
    /// R7306-5.2-1).
    pub(super) fn stalls(&self) -> bool {
        let Some(next) = self.work.peek() else {
            return true;
        };
        let outstanding = self.stream.outstanding_reads();
        let operation = &next.operation;
        let ord = usize::from(self.ord);
        let silent = self.stream.awaits_first_fpdu() && operation.sends();
        let fenced = next.read_fence && operation.has_read_fence() && outstanding > 0
            || operation.has_local_fence() && self.work.has_in_flight();
        silent || fenced || operation.awaits_response() && ord > 0 && outstanding >= ord
    }

    /// Checks a work request without access to memory.
    fn check_request(&self, operation: &Operation) -> Result<(), SendFault> {
        let is_unknown = match operation {
            Operation::SendImmediate { .. } => !self.stream.has_send_immediates(),
            other => other.is_extension() && self.stream.version() != VERSION_IETF,
        };
        let refusal = if is_unknown {
            CompletionStatus::NotInVersion
        } else if operation.awaits_response() && self.ord == 0 {
            CompletionStatus::ZeroReadResources
        } else if operation.names_stag_zero() {
            CompletionStatus::InvalidStag
        } else if operation.has_wrapping_sink() {
            CompletionStatus::Wrap
        } else {
            return Ok(());
        };
        Err(SendFault::Request(refusal))
    }
}

/// Checks a request's source or sink before anything is sent to the peer. A source that fits one
/// segment is checked when the segment is written.
fn check_memory(
    stags: &StagTable,
    user: QpIdentity,
    operation: &Operation,
    mulpdu: usize,
) -> Result<(), SendFault> {
    let checked = match operation {
        Operation::Send { payload, .. }
        | Operation::SendImmediate { payload, .. }
        | Operation::Write { payload, .. }
        | Operation::WriteImmediate { payload, .. } => {
            let is_long = payload.byte_len().is_none_or(|len| len as usize > mulpdu);
            match payload {
                Payload::Gather(pieces) if is_long => check_source(stags, user, pieces),
                Payload::Gather(_) | Payload::Inline(_) => Ok(()),
            }
        }
        Operation::Read { sink, .. } => check_read_sink(stags, user, *sink),
        Operation::Immediate { .. } | Operation::Atomic { .. } | Operation::Memory(_) => Ok(()),
    };
    checked.map_err(|error| SendFault::Request(CompletionStatus::of_access(error)))
}

/// Checks all of a list, before its first segment is sent.
fn check_source(stags: &StagTable, user: QpIdentity, pieces: &[Sge]) -> Result<(), AccessError> {
    let mut pieces = pieces.iter().filter(|piece| piece.len > 0);
    pieces.try_for_each(|Sge { stag, to, len }| {
        let found = stags.access(user, *stag, *to, u64::from(*len), Access::LOCAL_READ);
        found.map(|_bytes| ())
    })
}

/// Checks the sink of a Read for the right that its response will need.
fn check_read_sink(stags: &StagTable, user: QpIdentity, sink: Sge) -> Result<(), AccessError> {
    let Sge { stag, to, len } = sink;
    if len == 0 {
        return Ok(());
    }
    let right = right_for(user, AccessKind::ReadSink)?;
    let found = stags.access(user, stag, to, u64::from(len), right);
    found.map(|_bytes| ())
}

/// Begins the message of a work request. A request that sends nothing is done at once.
fn begin_operation(
    stream: &mut Stream,
    stags: &mut InCommon<StagTable>,
    user: QpIdentity,
    request: SendRequest,
) -> Result<(), SendFault> {
    match request.operation {
        Operation::Send {
            payload,
            solicited,
            invalidate,
        } => {
            let kind = SendKind {
                solicited,
                invalidate,
                immediate: None,
            };
            send(stream, payload, kind);
        }
        Operation::SendImmediate {
            payload,
            data,
            solicited,
        } => {
            let kind = SendKind {
                solicited,
                invalidate: None,
                immediate: Some(data),
            };
            send(stream, payload, kind);
        }
        Operation::Write { payload, remote } => write(stream, payload, remote, None),
        Operation::WriteImmediate {
            payload,
            remote,
            data,
            solicited,
        } => write(stream, payload, remote, Some((data, solicited))),
        Operation::Immediate { data, solicited } => {
            stream.tx_mut().begin_immediate(data, solicited);
        }
        Operation::Read { sink, remote, .. } => read(stream, sink, remote),
        Operation::Atomic {
            operation,
            remote,
            sink,
        } => {
            check_sink(&stags.read(), user, sink)?;
            stream.begin_atomic(operation, remote);
        }
        Operation::Memory(work) => change_memory(&mut stags.change(), user, &work)?,
    }
    Ok(())
}

fn send(stream: &mut Stream, payload: Payload, kind: SendKind) {
    let len = message_len(&payload);
    stream.tx_mut().begin_send(kind, payload, len);
}

/// Begins a Write. `then`: the Immediate Data that follows, and whether it requests an event.
fn write(
    stream: &mut Stream,
    payload: Payload,
    remote: RemoteAddress,
    then: Option<(Immediate, bool)>,
) {
    let len = message_len(&payload);
    stream.tx_mut().begin_write(remote, payload, len, then);
}

/// Length of a payload. The queue refused longer messages when they were posted.
fn message_len(payload: &Payload) -> u32 {
    payload.byte_len().unwrap_or(u32::MAX)
}

/// Executes memory work. TCP has all earlier messages, and later ones have not begun.
fn change_memory(
    stags: &mut StagTable,
    user: QpIdentity,
    work: &MemoryOperation,
) -> Result<(), SendFault> {
    let changed = match work {
        MemoryOperation::Bind(bind) => stags.bind(user, bind),
        MemoryOperation::FastRegister(request) => stags.fast_register(user, request),
        MemoryOperation::Invalidate { stag, .. } => stags.invalidate_local(user, *stag),
    };
    changed.map_err(SendFault::Request)
}

fn read(stream: &mut Stream, sink: Sge, remote: RemoteAddress) {
    stream.begin_read(ReadRequest {
        sink: sink.stag,
        sink_to: sink.to,
        len: sink.len,
        source: remote.stag,
        source_to: remote.to,
    });
}

/// Checks the sink of an Atomic Operation: if its result cannot be placed, it is not sent.
fn check_sink(stags: &StagTable, user: QpIdentity, sink: Option<Sge>) -> Result<(), SendFault> {
    let Some(Sge { stag, to, len }) = sink else {
        return Ok(());
    };
    if len != OPERAND {
        return Err(SendFault::Request(CompletionStatus::BaseBounds));
    }
    stags
        .access(user, stag, to, u64::from(len), Access::LOCAL_WRITE)
        .map_err(|error| SendFault::Request(CompletionStatus::of_access(error)))?;
    Ok(())
}
