//! What is sent next: a work request or a response, in turn where both wait.

use xwarp_iwarp::ddp::VERSION_IETF;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{AtomicOperation, AtomicRequest, ReadRequest};

use super::fault::SendFault;
use super::full_operation::FullOperation;
use super::stream::Stream;
use super::tx_message::{Response, Turn, TxMessage, execute};
use crate::model::{
    Access, CompletionStatus, MemoryWork, OPERAND, Operation, Payload, RemoteAddress, SendRequest,
    Sge, User,
};
use crate::stags::StagTable;

/// What is next.
pub(super) enum Next {
    /// A message is being sent.
    Message,
    /// A work request that sends nothing was done.
    Done,
    Nothing,
}

impl FullOperation<'_> {
    /// Makes sure that a message is being sent: goes on with the current one, or begins a response or the next work request, in turn
    /// where both wait.
    pub(super) fn begin_message(&mut self, stags: &mut StagTable) -> Result<Next, SendFault> {
        if self.stream.outgoing.is_some() {
            return Ok(Next::Message);
        }
        let request_waits = self.work.has_posted();
        if (self.stream.turn == Turn::Response || !request_waits)
            && let Some(response) = self.stream.next_response()
        {
            self.stream.turn = Turn::Request;
            self.begin_response(stags, &response)?;
            return Ok(Next::Message);
        }
        self.stream.turn = Turn::Response;
        match self.begin_request(stags)? {
            Next::Nothing => {}
            begun @ (Next::Message | Next::Done) => return Ok(begun),
        }
        let Some(response) = self.stream.next_response() else {
            return Ok(Next::Nothing);
        };
        self.begin_response(stags, &response)?;
        Ok(Next::Message)
    }

    fn begin_response(&mut self, stags: &StagTable, response: &Response) -> Result<(), SendFault> {
        self.stream.outgoing = Some(match response {
            Response::Read(read) => TxMessage::Read(self.stream.sender.respond(*read)),
            Response::Atomic(atomic) => {
                let original = execute(stags, self.user, atomic)?;
                let sender = &mut self.stream.sender;
                TxMessage::Atomic(sender.atomic_response(atomic.request.id, original))
            }
        });
        Ok(())
    }

    /// Begins the next work request unless the send queue is empty, or stalls.
    fn begin_request(&mut self, stags: &mut StagTable) -> Result<Next, SendFault> {
        if self.stalls() {
            return Ok(Next::Nothing);
        }
        let Some(request) = self.work.begin() else {
            return Ok(Next::Nothing);
        };
        #[cfg(feature = "fault-injection")]
        self.injected.check()?;
        self.check_request(&request.operation)?;
        self.stream.outgoing = outgoing(self.stream, stags, self.user, request)?;
        if self.stream.outgoing.is_some() {
            return Ok(Next::Message);
        }
        self.work.newest_sent();
        Ok(Next::Done)
    }

    /// The send queue is empty or stalls: until the peer has spoken, for a fence, or because ORD Reads and Atomic Operations are
    /// outstanding (verbs draft §6.5, §8.2.2; R7306-5.2-1).
    fn stalls(&self) -> bool {
        let Some(next) = self.work.peek() else {
            return true;
        };
        let outstanding = self.stream.receiver.outstanding_reads();
        let operation = &next.operation;
        let ord = usize::from(self.ord);
        let silent = self.stream.awaits_first_fpdu() && operation.sends();
        let fenced = next.read_fence && operation.has_read_fence() && outstanding > 0
            || operation.has_local_fence() && self.work.has_in_flight();
        silent || fenced || operation.awaits_response() && ord > 0 && outstanding >= ord
    }

    /// What can be seen of a work request before any memory is looked at.
    fn check_request(&self, operation: &Operation) -> Result<(), SendFault> {
        let refusal = if operation.is_extension() && self.stream.version() != VERSION_IETF {
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

/// The message of a work request; `None` for one that sends nothing, and is done.
fn outgoing(
    stream: &mut Stream,
    stags: &mut StagTable,
    user: User,
    request: SendRequest,
) -> Result<Option<TxMessage>, SendFault> {
    let len = request.operation.byte_len().unwrap_or(u32::MAX);
    let (message, payload, then) = match request.operation {
        Operation::Send {
            payload,
            solicited,
            invalidate,
        } => {
            let kind = SendKind {
                solicited,
                invalidate,
            };
            (stream.sender.send(kind, len), payload, None)
        }
        Operation::Write { payload, remote } => {
            let message = stream.sender.write(remote.stag, remote.to, len);
            (message, payload, None)
        }
        Operation::WriteImmediate {
            payload,
            remote,
            data,
            solicited,
        } => {
            let message = stream.sender.write(remote.stag, remote.to, len);
            (message, payload, Some((data, solicited)))
        }
        Operation::Immediate { data, solicited } => (
            stream.sender.immediate(data, solicited),
            Payload::default(),
            None,
        ),
        Operation::Read { sink, remote, .. } => return Ok(Some(read(stream, sink, remote))),
        Operation::Atomic {
            operation,
            remote,
            sink,
        } => {
            check_sink(stags, user, sink)?;
            return Ok(Some(atomic(stream, operation, remote)));
        }
        Operation::Memory(work) => {
            change_memory(stags, user, &work).map_err(SendFault::Request)?;
            return Ok(None);
        }
    };
    Ok(Some(TxMessage::Request {
        message,
        payload,
        then,
    }))
}

/// All messages in front of it have been handed to TCP, and none behind it has begun.
fn change_memory(
    stags: &mut StagTable,
    user: User,
    work: &MemoryWork,
) -> Result<(), CompletionStatus> {
    match work {
        MemoryWork::Bind(bind) => stags.bind(user, bind),
        MemoryWork::FastRegister(request) => stags.fast_register(user, request),
        MemoryWork::Invalidate { stag, .. } => stags.invalidate_local(user, *stag),
    }
}

fn read(stream: &mut Stream, sink: Sge, remote: RemoteAddress) -> TxMessage {
    let read = ReadRequest {
        sink: sink.stag,
        sink_to: sink.to,
        len: sink.len,
        source: remote.stag,
        source_to: remote.to,
    };
    stream.receiver.expect_read(read);
    TxMessage::header_only(stream.sender.read_request(&read))
}

fn atomic(stream: &mut Stream, operation: AtomicOperation, remote: RemoteAddress) -> TxMessage {
    let id = stream.next_atomic();
    let request = AtomicRequest {
        id,
        operation,
        stag: remote.stag,
        to: remote.to,
    };
    stream.receiver.expect_atomic(id);
    TxMessage::header_only(stream.sender.atomic_request(&request))
}

/// An Atomic Operation whose result could not be placed is not even asked for.
fn check_sink(stags: &StagTable, user: User, sink: Option<Sge>) -> Result<(), SendFault> {
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
