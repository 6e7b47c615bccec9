//! What is sent next: a work request or a response, in turn where both wait.

use xwarp_iwarp::ddp::VERSION_IETF;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{AtomicOperation, AtomicRequest, ReadRequest};

use super::context::{Link, QpContext};
use super::fault::SendFault;
use super::in_flight::Begun;
use super::stream::{Gate, Stream};
use super::tx_message::{Outgoing, Response, Turn, execute};
use crate::model::{
    Access, CompletionStatus, MemoryWork, OPERAND, Operation, RemoteAddress, SendRequest, Sge, Sgl,
    User,
};
use crate::stags::StagTable;

/// What is next.
pub(crate) enum Next {
    /// A message is being sent.
    Message,
    /// A work request that sends nothing was done.
    Done,
    Nothing,
}

/// Makes sure that a message is being sent: goes on with the current one, or begins a response or the next work request, in turn
/// where both wait.
pub(crate) fn begin_message(qp: &mut QpContext, stags: &mut StagTable) -> Result<Next, SendFault> {
    let user = qp.user;
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(Next::Nothing);
    };
    if stream.outgoing.is_some() {
        return Ok(Next::Message);
    }
    let request_waits = !qp.sq.is_empty();
    if (stream.turn == Turn::Response || !request_waits)
        && let Some(response) = stream.responses.pop_front()
    {
        stream.turn = Turn::Request;
        begin_response(stream, stags, user, &response)?;
        return Ok(Next::Message);
    }
    stream.turn = Turn::Response;
    match begin_request(qp, stags)? {
        Next::Nothing => {}
        begun @ (Next::Message | Next::Done) => return Ok(begun),
    }
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(Next::Nothing);
    };
    let Some(response) = stream.responses.pop_front() else {
        return Ok(Next::Nothing);
    };
    begin_response(stream, stags, user, &response)?;
    Ok(Next::Message)
}

fn begin_response(
    stream: &mut Stream,
    stags: &StagTable,
    user: User,
    response: &Response,
) -> Result<(), SendFault> {
    stream.outgoing = Some(match response {
        Response::Read(read) => Outgoing::Read(stream.sender.respond(*read)),
        Response::Atomic(atomic) => {
            let original = execute(stags, user, atomic)?;
            let response = stream.sender.atomic_response(atomic.request.id, original);
            Outgoing::Atomic(response)
        }
    });
    Ok(())
}

/// Begins the next work request unless the send queue is empty, or stalls: until the peer has spoken, for a fence, or because ORD Reads and Atomic
/// Operations are outstanding (verbs draft §6.5, §8.2.2; R7306-5.2-1).
fn begin_request(qp: &mut QpContext, stags: &mut StagTable) -> Result<Next, SendFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(Next::Nothing);
    };
    let Some(next) = qp.sq.peek() else {
        return Ok(Next::Nothing);
    };
    let outstanding = stream.receiver.outstanding_reads();
    let awaits_response = next.operation.awaits_response();
    let ord = usize::from(qp.ord);
    let silent = stream.gate == Gate::Fenced && next.operation.sends();
    let fenced = next.read_fence && next.operation.has_read_fence() && outstanding > 0
        || next.operation.has_local_fence() && !qp.begun.is_empty();
    if silent || fenced || awaits_response && ord > 0 && outstanding >= ord {
        return Ok(Next::Nothing);
    }
    let Some(request) = qp.sq.pop() else {
        return Ok(Next::Nothing);
    };
    qp.begun.push_back(Begun::new(&request));
    #[cfg(feature = "fault-injection")]
    qp.injected.check()?;
    if request.operation.is_extension() && stream.version != VERSION_IETF {
        return Err(SendFault::Request(CompletionStatus::NotInVersion));
    }
    if awaits_response && ord == 0 {
        return Err(SendFault::Request(CompletionStatus::ZeroReadResources));
    }
    if request.operation.names_stag_zero() {
        return Err(SendFault::Request(CompletionStatus::InvalidStag));
    }
    if request.operation.has_wrapping_sink() {
        return Err(SendFault::Request(CompletionStatus::Wrap));
    }
    stream.outgoing = outgoing(stream, stags, qp.user, request)?;
    if stream.outgoing.is_some() {
        return Ok(Next::Message);
    }
    if let Some(begun) = qp.begun.back_mut() {
        begun.outcome = Some(CompletionStatus::Success);
    }
    Ok(Next::Done)
}

/// The message of a work request; `None` for one that sends nothing, and is done.
fn outgoing(
    stream: &mut Stream,
    stags: &mut StagTable,
    user: User,
    request: SendRequest,
) -> Result<Option<Outgoing>, SendFault> {
    let len = request.operation.byte_len().unwrap_or(u32::MAX);
    let (message, sgl, then) = match request.operation {
        Operation::Send {
            sgl,
            solicited,
            invalidate,
        } => {
            let kind = SendKind {
                solicited,
                invalidate,
            };
            (stream.sender.send(kind, len), sgl, None)
        }
        Operation::Write { sgl, remote } => {
            let message = stream.sender.write(remote.stag, remote.to, len);
            (message, sgl, None)
        }
        Operation::WriteImmediate {
            sgl,
            remote,
            data,
            solicited,
        } => {
            let message = stream.sender.write(remote.stag, remote.to, len);
            (message, sgl, Some((data, solicited)))
        }
        Operation::Immediate { data, solicited } => {
            (stream.sender.immediate(data, solicited), Sgl::new(), None)
        }
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
    Ok(Some(Outgoing::Request { message, sgl, then }))
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

fn read(stream: &mut Stream, sink: Sge, remote: RemoteAddress) -> Outgoing {
    let read = ReadRequest {
        sink: sink.stag,
        sink_to: sink.to,
        len: sink.len,
        source: remote.stag,
        source_to: remote.to,
    };
    stream.receiver.expect_read(read);
    Outgoing::header_only(stream.sender.read_request(&read))
}

fn atomic(stream: &mut Stream, operation: AtomicOperation, remote: RemoteAddress) -> Outgoing {
    let id = stream.next_atomic;
    stream.next_atomic = id.wrapping_add(1);
    let request = AtomicRequest {
        id,
        operation,
        stag: remote.stag,
        to: remote.to,
    };
    stream.receiver.expect_atomic(id);
    Outgoing::header_only(stream.sender.atomic_request(&request))
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
