//! Runs of ordinary segments: RDMA Writes, and Sends of one segment, placed one after the other straight from TCP's bytes.
//!
//! Nearly all segments are such. Everything else is left to `receive.rs`, and so is what is wrong. A segment is judged before its CRC is
//! computed, and nothing is done before that is found right.

use xwarp_iwarp::mpa::{Deframer, Unverified};
use xwarp_iwarp::{Ordinary, Stag};

use super::device::Tables;
use super::fault::CqOverflow;
use super::full_operation::FullOperation;
use super::receive::scatter;
use super::work_queues::Received;
use crate::model::{Access, EngineCounters, QpAccess, QpIdentity, RecvRequest, Sgl, total};
use crate::stags::{StagTable, Views};

/// What a run has come to.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Bytes of the stream.
    taken: usize,
    fpdus: u64,
    /// Bytes of payload.
    placed: u64,
}

impl Run {
    #[inline]
    fn add(&mut self, fpdu: &Unverified<'_>, payload: &[u8]) {
        self.taken += fpdu.wire_len();
        self.fpdus += 1;
        self.placed += payload.len() as u64;
    }

    /// Counts it; the bytes that it has taken.
    #[inline]
    fn end(self, counters: &mut EngineCounters) -> usize {
        counters.fpdus_in += self.fpdus;
        counters.placed_bytes += self.placed;
        self.taken
    }

    /// What is left of the bytes.
    #[inline]
    fn rest<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.taken..).unwrap_or_default()
    }
}

/// Receive buffers of a queue pair's own queue, and whether their memory takes what is received.
struct Buffers<'a> {
    stags: &'a StagTable,
    user: QpIdentity,
    pieces: Views<'a>,
}

impl Buffers<'_> {
    /// Copies a message into a buffer, if it fits and `is_right`.
    #[inline]
    fn place(&mut self, sgl: &Sgl, payload: &[u8], is_right: impl FnOnce() -> bool) -> bool {
        let len = payload.len() as u64;
        match &**sgl {
            // Most buffers are one piece.
            [piece] if !payload.is_empty() => {
                let place = self.pieces.bytes(piece.stag, piece.to, len);
                let place = place.filter(|_| len <= u64::from(piece.len) && is_right());
                place.is_some_and(|place| place.write(payload).is_ok())
            }
            pieces => {
                let fits = total(pieces).is_some_and(|total| len <= u64::from(total));
                fits && is_right() && self.place_in_pieces(sgl, payload)
            }
        }
    }

    #[inline(never)]
    fn place_in_pieces(&self, sgl: &Sgl, payload: &[u8]) -> bool {
        scatter(sgl, 0, payload, self.stags, self.user).is_ok()
    }
}

impl FullOperation<'_> {
    /// Places the ordinary Writes at the head of `bytes`, the first of them into `stag`; how many bytes these take.
    #[inline(never)]
    pub(super) fn place_writes(
        &self,
        deframer: &Deframer,
        bytes: &[u8],
        stag: Stag,
        tables: &mut Tables<'_>,
    ) -> usize {
        if !self.user.has(QpAccess::INBOUND_WRITE) {
            return 0;
        }
        let mut run = Run::default();
        let mut regions =
            Views::new(tables.stags, self.user, Access::REMOTE_WRITE).beginning_with(stag);
        while let Some(fpdu) = deframer.predict(run.rest(bytes)) {
            let Some(Ordinary::Write { stag, to, payload }) = self.stream.predict(fpdu.ulpdu())
            else {
                break;
            };
            let place = regions.bytes(stag, to, payload.len() as u64);
            let place = place.filter(|_| deframer.verifies(&fpdu));
            if place.is_none_or(|place| place.write(payload).is_err()) {
                break;
            }
            run.add(&fpdu, payload);
        }
        run.end(tables.counters)
    }

    /// Places the ordinary Sends at the head of `bytes` into buffers of the own queue, and completes these; how many bytes they take.
    #[inline(never)]
    pub(super) fn place_sends(
        &mut self,
        deframer: &Deframer,
        bytes: &[u8],
        tables: &mut Tables<'_>,
    ) -> (usize, Result<(), CqOverflow>) {
        let (mut run, stream) = (Run::default(), &mut *self.stream);
        let mut buffers = Buffers {
            stags: tables.stags,
            user: self.user,
            pieces: Views::new(tables.stags, self.user, Access::LOCAL_WRITE),
        };
        let place = |buffer: &RecvRequest| {
            let fpdu = deframer.predict(run.rest(bytes))?;
            let Some(Ordinary::Send { solicited, payload }) = stream.predict(fpdu.ulpdu()) else {
                return None;
            };
            if !buffers.place(&buffer.sgl, payload, || deframer.verifies(&fpdu)) {
                return None;
            }
            stream.handle_placed_send();
            run.add(&fpdu, payload);
            let byte_len = u32::try_from(payload.len()).unwrap_or(u32::MAX); // of one segment
            Some(Received {
                byte_len,
                solicited,
            })
        };
        let completed = self.work.receive_run(tables.cqs, place);
        (run.end(tables.counters), completed)
    }
}
