//! Short Reads: Read Requests, and Read Responses of one FPDU, written into a TCP segment directly
//! from their queues.
//!
//! In a stream of small messages, most Reads are short. `begin.rs` handles all others, and all that
//! would fail.

use xwarp_driver::PartialSum;
use xwarp_iwarp::ddp::TAGGED_HEADER_BYTES;
use xwarp_iwarp::mpa::Framer;
use xwarp_iwarp::rdmap::READ_REQUEST_ULPDU;
use xwarp_iwarp::{AccessKind, ReadRequest};

use super::short_message::{Filling, Gone, RunEnd, put_header};
use super::tx_segment::TxSegment;
use crate::model::{Access, Operation, QpIdentity, SendRequest};
use crate::qp::device::LentDevice;
use crate::qp::full_operation::FullOperation;
use crate::qp::payload_pass::{OnePass, PayloadPass, ThreePasses};
use crate::qp::rights::right_for;
use crate::qp::stream::{Stream, TxStream};
use crate::stags::{Bytes, StagTable, Views};

/// The Read Request of a work request, if it cannot fail. `sinks`: memory that its response may be
/// placed in.
#[inline]
fn read_request(request: &SendRequest, sinks: &mut Views<'_>) -> Option<ReadRequest> {
    let Operation::Read { sink, remote, .. } = &request.operation else {
        return None;
    };
    let has_sink = sink.len == 0 || sinks.bytes(sink.stag, sink.to, sink.len.into()).is_some();
    let succeeds = has_sink && !request.operation.names_stag_zero();
    succeeds.then_some(ReadRequest {
        sink: sink.stag,
        sink_to: sink.to,
        len: sink.len,
        source: remote.stag,
        source_to: remote.to,
    })
}

/// Writes a Read Request into a segment. False, without an effect, if that ends the run. `more`:
/// whether further messages follow.
#[inline]
fn write_request(
    filling: &mut Filling<'_, '_>,
    stream: &mut Stream,
    sinks: &mut Views<'_>,
    (request, more): (&SendRequest, bool),
) -> bool {
    let Some(read) = read_request(request, sinks) else {
        return false;
    };
    let len = stream.tx().fpdu_len(READ_REQUEST_ULPDU);
    let Some(fpdu) = filling.room(len, more) else {
        return false;
    };
    let ulpdu = stream.begin_whole_read(read);
    fpdu[Framer::ulpdu_at(READ_REQUEST_ULPDU)].copy_from_slice(&ulpdu);
    stream.tx_mut().seal(fpdu, READ_REQUEST_ULPDU);
    filling.add(len, None);
    true
}

/// Writes the next Read Response into a segment. False, without an effect, if that ends the run.
#[inline]
fn write_response(
    filling: &mut Filling<'_, '_>,
    tx: &mut TxStream,
    (stags, user): (&StagTable, QpIdentity),
) -> bool {
    let Some((read, more)) = tx.next_read() else {
        return false;
    };
    // A Read of no bytes accesses no source (RFC 5040 §5.2).
    let payload_len = usize::try_from(read.len).unwrap_or(usize::MAX);
    let ulpdu_len = payload_len.saturating_add(TAGGED_HEADER_BYTES);
    if payload_len == 0 || ulpdu_len > filling.mulpdu() {
        return false;
    }
    let (stag, to, read_len) = (read.source, read.source_to, u64::from(read.len));
    let Ok(source) = stags.access(user, stag, to, read_len, Access::REMOTE_READ) else {
        return false;
    };
    let len = tx.fpdu_len(ulpdu_len);
    let Some(fpdu) = filling.room(len, more) else {
        return false;
    };
    let written = if tx.one_pass_pays(ulpdu_len) {
        write_in_one_pass(fpdu, ulpdu_len, tx, &read, source)
    } else {
        write_by(ThreePasses, fpdu, ulpdu_len, tx, &read, source)
    };
    let Ok(sum) = written else {
        return false;
    };
    filling.add(len, sum);
    true
}

/// Writes the FPDU. Returns its checksum, if it was computed.
#[inline]
fn write_by(
    mut pass: impl PayloadPass,
    fpdu: &mut [u8],
    ulpdu_len: usize,
    tx: &mut TxStream,
    read: &ReadRequest,
    source: Bytes<'_>,
) -> Result<Option<PartialSum>, Gone> {
    let ulpdu = &mut fpdu[Framer::ulpdu_at(ulpdu_len)];
    let payload = put_header(ulpdu, || tx.whole_read_response(read), &mut pass);
    let payload = payload.ok_or(Gone)?;
    pass.read(source, payload).map_err(|_| Gone)?;
    Ok(tx.seal_by(pass, fpdu, ulpdu_len))
}

/// Writes a long FPDU in one pass. A separate function, so that shorter messages can use all
/// registers.
#[inline(never)]
fn write_in_one_pass(
    fpdu: &mut [u8],
    ulpdu_len: usize,
    tx: &mut TxStream,
    read: &ReadRequest,
    source: Bytes<'_>,
) -> Result<Option<PartialSum>, Gone> {
    let pass = OnePass::begin(fpdu, ulpdu_len);
    write_by(pass, fpdu, ulpdu_len, tx, read, source)
}

impl FullOperation<'_> {
    /// Writes up to `most` Read Requests into a segment, from the oldest work request on. Returns
    /// their number, and why the run has ended.
    #[inline(never)]
    pub(super) fn write_short_requests(
        &mut self,
        most: usize,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
    ) -> (usize, RunEnd) {
        let outstanding = self.stream.outstanding_reads();
        let most = most.min(usize::from(self.ord).saturating_sub(outstanding));
        let (mut filling, stream) = (Filling::new(segment, &mut device.tcp), &mut *self.stream);
        let Ok(right) = right_for(self.user, AccessKind::ReadSink) else {
            return (0, filling.end);
        };
        let stags = device.tables.stags.read();
        let mut sinks = Views::new(&stags, self.user, right);
        let write = |request: &SendRequest, more| {
            // From now on its response is expected.
            write_request(&mut filling, stream, &mut sinks, (request, more))
        };
        let sent = self.work.begin_posted(most, write);
        let end = filling.end;
        if sent > 0 {
            self.stream.tx_mut().handle_requests_sent();
        }
        (sent, end)
    }

    /// Writes up to `most` Read Responses into a segment, from the next one on, while no work
    /// request waits. Returns their number, and why the run has ended.
    #[inline(never)]
    pub(super) fn write_short_responses(
        &mut self,
        most: usize,
        segment: &mut TxSegment,
        device: &mut LentDevice<'_>,
    ) -> (usize, RunEnd) {
        let mut filling = Filling::new(segment, &mut device.tcp);
        let stags = device.tables.stags.read();
        let memory = (&*stags, self.user);
        let mut sent = 0;
        while sent < most && write_response(&mut filling, self.stream.tx_mut(), memory) {
            self.stream.end_whole_response();
            sent += 1;
        }
        (sent, filling.end)
    }
}
