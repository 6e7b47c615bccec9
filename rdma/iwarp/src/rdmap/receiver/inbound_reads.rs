//! Inbound Read Requests: QN 1 (RFC 5040 §5.2, §6.1).

use crate::ddp::{Control, FIRST_MSN, UntaggedHeader};
use crate::rdmap::{
    Access, Opcode, READ_REQUEST_BYTES, ReadRequest, ReadRequestHeader, Resources, ViolationCause,
};
use zerocopy::FromBytes;

/// A Read Request of the peer's that is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundRead {
    /// What it asks for. The sink is the peer's and not judged here (digest §9, row 106).
    pub request: ReadRequest,
    /// For the Terminate, should the source be revoked while the response leaves.
    pub(in crate::rdmap) header: UntaggedHeader,
}

/// Numbers the Read Requests of one peer and keeps count of those not answered.
#[derive(Debug)]
pub(super) struct InboundReads {
    msn: u32,
    ird: u16,
    waiting: u16,
}

impl InboundReads {
    pub(super) const fn new(ird: u16) -> Self {
        Self {
            msn: FIRST_MSN,
            ird,
            waiting: 0,
        }
    }

    /// Without IRD the queue does not exist (D7).
    pub(super) const fn enabled(&self) -> bool {
        self.ird > 0
    }

    pub(super) const fn response_sent(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// L bit, message number, credit, offset, size; then the source, unless nothing is read (R5040-5.2.1-7, -8).
    pub(super) fn accept(
        &mut self,
        header: &UntaggedHeader,
        payload: &[u8],
        resources: &impl Resources,
    ) -> Result<InboundRead, ViolationCause> {
        let (qn, msn, mo) = (header.qn.get(), header.msn.get(), header.mo.get());
        if !Control(header.control).is_last() {
            return Err(ViolationCause::NotLast {
                opcode: Opcode::ReadRequest,
            });
        }
        if msn != self.msn {
            return Err(ViolationCause::MessageNumber {
                qn,
                msn,
                expected: self.msn,
            });
        }
        if self.waiting >= self.ird {
            return Err(ViolationCause::TooManyReads { msn, ird: self.ird });
        }
        if mo != 0 {
            return Err(ViolationCause::MessageOffset { mo, expected: 0 });
        }
        let request = parse(payload)?;
        check_source(&request, resources)?;
        self.msn = msn.wrapping_add(1);
        self.waiting = self.waiting.saturating_add(1);
        Ok(InboundRead {
            request,
            header: *header,
        })
    }
}

/// Each credit is a buffer for one header, in octets.
const BUFFER: u64 = READ_REQUEST_BYTES as u64;

/// The payload is the header and nothing else (R5040-4.2-3).
fn parse(payload: &[u8]) -> Result<ReadRequest, ViolationCause> {
    let len = payload.len();
    match ReadRequestHeader::ref_from_prefix(payload) {
        Ok((header, [])) => Ok(header.into()),
        Ok(_) => Err(ViolationCause::MessageTooLong {
            mo: 0,
            len,
            buffer: BUFFER,
        }),
        Err(_) => Err(ViolationCause::ReadRequestSize { len }),
    }
}

fn check_source(request: &ReadRequest, resources: &impl Resources) -> Result<(), ViolationCause> {
    let (stag, to, len) = (request.source, request.source_to, u64::from(request.len));
    if len == 0 {
        return Ok(());
    }
    resources
        .check(stag, to, len, Access::RemoteRead)
        .map_err(|cause| ViolationCause::ReadSource {
            stag,
            to,
            len,
            cause,
        })
}
