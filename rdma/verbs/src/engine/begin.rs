//! What is sent next: a work request or a response, in turn where both wait.

use xwarp_iwarp::ddp::VERSION_IETF;
use xwarp_iwarp::rdmap::SendKind;
use xwarp_iwarp::{AtomicOperation, AtomicRequest, ReadRequest};

use super::outgoing::{Outgoing, Response, execute, status_of};
use super::qp::{Begun, Link, QpContext};
use super::stream::{Stream, Turn};
use super::transmit::SendFault;
use crate::completion::CompletionStatus;
use crate::memory::{Access, StagTable};
use crate::user::User;
use crate::work::{OPERAND, Operation, RemoteAddress, SendRequest, Sge, Sgl};

/// Makes sure that a message is being sent: goes on with the current one, or begins a response or the next work request, in turn
/// where both wait. False when there is none.
pub(super) fn begin_message(qp: &mut QpContext, stags: &StagTable) -> Result<bool, SendFault> {
    let user = qp.user;
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    if stream.outgoing.is_some() {
        return Ok(true);
    }
    let request_waits = !qp.sq.is_empty();
    if (stream.turn == Turn::Response || !request_waits)
        && let Some(response) = stream.responses.pop_front()
    {
        stream.turn = Turn::Request;
        begin_response(stream, stags, user, &response)?;
        return Ok(true);
    }
    stream.turn = Turn::Response;
    if begin_request(qp, stags)? {
        return Ok(true);
    }
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let Some(response) = stream.responses.pop_front() else {
        return Ok(false);
    };
    begin_response(stream, stags, user, &response)?;
    Ok(true)
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

/// Begins the next work request unless the send queue is empty, or stalls: for a Read Fence, or because ORD Reads and Atomic
/// Operations are outstanding (verbs draft §6.5, §8.2.2; R7306-5.2-1).
fn begin_request(qp: &mut QpContext, stags: &StagTable) -> Result<bool, SendFault> {
    let Link::Stream(stream) = &mut qp.link else {
        return Ok(false);
    };
    let Ok(next) = qp.sq.peek() else {
        return Ok(false);
    };
    let outstanding = stream.receiver.outstanding_reads();
    let awaits_response = next.operation.awaits_response();
    let ord = usize::from(qp.ord);
    if next.read_fence && outstanding > 0 || awaits_response && ord > 0 && outstanding >= ord {
        return Ok(false);
    }
    let Ok(request) = qp.sq.pop() else {
        return Ok(false);
    };
    qp.begun.push_back(Begun::new(&request));
    if request.operation.is_extension() && stream.version != VERSION_IETF {
        return Err(SendFault::Request(CompletionStatus::NotInVersion));
    }
    if awaits_response && ord == 0 {
        return Err(SendFault::Request(CompletionStatus::ZeroReadResources));
    }
    if request.operation.names_stag_zero() {
        return Err(SendFault::Request(CompletionStatus::InvalidStag));
    }
    stream.outgoing = Some(outgoing(stream, stags, qp.user, request)?);
    Ok(true)
}

/// The message of a work request.
fn outgoing(
    stream: &mut Stream,
    stags: &StagTable,
    user: User,
    request: SendRequest,
) -> Result<Outgoing, SendFault> {
    let len = request.operation.len().unwrap_or(u32::MAX);
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
        Operation::Read { sink, remote } => return Ok(read(stream, sink, remote)),
        Operation::Atomic {
            operation,
            remote,
            sink,
        } => {
            check_sink(stags, user, sink)?;
            return Ok(atomic(stream, operation, remote));
        }
    };
    Ok(Outgoing::Request { message, sgl, then })
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
        .map_err(|error| SendFault::Request(status_of(error)))?;
    Ok(())
}
