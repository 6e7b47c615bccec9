//! Runs of ordinary segments: RDMA Writes, and Sends of one segment, placed one after the other
//! directly from TCP's bytes.
//!
//! Nearly all segments are ordinary. All others, and all errors, take the general path. A segment
//! is checked before its CRC is computed, and has no effect before the CRC is found valid (decision
//! record rnic/0029).

use xwarp_iwarp::mpa::Deframer;
use xwarp_iwarp::rdmap::{Prediction, predict_unverified};
use xwarp_iwarp::{FastSegment, Stag};

use super::scatter;
use crate::model::{Access, EngineCounters, QpAccess, QpIdentity, RecvRequest, Sgl, total};
use crate::qp::device::Tables;
use crate::qp::fault::CqOverflow;
use crate::qp::full_operation::FullOperation;
use crate::qp::work_queues::Received;
use crate::stags::{StagTable, Views};

/// Totals of a run.
#[derive(Clone, Copy, Default)]
struct Run {
    /// Length in the stream in bytes.
    taken: usize,
    fpdus: u64,
    /// Length of the payload in bytes.
    placed: u64,
}

impl Run {
    #[inline]
    fn add(&mut self, wire_len: usize, payload_len: usize) {
        self.taken += wire_len;
        self.fpdus += 1;
        self.placed += payload_len as u64;
    }

    /// Consumes and counts the FPDUs. Returns their length in bytes.
    #[inline]
    fn end(self, deframer: &mut Deframer, counters: &mut EngineCounters) -> usize {
        deframer.pass(self.taken);
        counters.fpdus_in += self.fpdus;
        counters.placed_bytes += self.placed;
        self.taken
    }
}

/// Posted receive buffers, and the rights to their memory.
struct Buffers<'a> {
    stags: &'a StagTable,
    user: QpIdentity,
    pieces: Views<'a>,
}

impl Buffers<'_> {
    /// Copies a message into a buffer, if it fits and `is_right` returns true.
    #[inline]
    fn place(&mut self, sgl: &Sgl, payload: &[u8], is_right: impl FnOnce() -> bool) -> bool {
        let len = payload.len() as u64;
        match &**sgl {
            // Most buffers have one piece.
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
    /// Places the ordinary segments of one kind at the start of `bytes`. Returns their length in
    /// bytes. `MARKED`: the peer inserts markers. `COUNTED`: Immediate Data report the length of
    /// the Write before them.
    #[inline]
    pub(super) fn place_run<const MARKED: bool, const COUNTED: bool>(
        &mut self,
        deframer: &mut Deframer,
        bytes: &[u8],
        tables: &mut Tables<'_>,
    ) -> (usize, Result<(), CqOverflow>) {
        // A marker at the start can make the kind look wrong, which only ends the run.
        match predict_unverified(bytes) {
            Prediction::Write(stag) => {
                let taken = self.place_writes::<MARKED, COUNTED>(deframer, bytes, stag, tables);
                (taken, Ok(()))
            }
            Prediction::WholeSend => self.place_sends::<MARKED, COUNTED>(deframer, bytes, tables),
            Prediction::Other => (0, Ok(())),
        }
    }

    /// Places the ordinary Writes at the start of `bytes`, the first of them into `stag`. Returns
    /// their length in bytes.
    #[inline(never)]
    fn place_writes<const MARKED: bool, const COUNTED: bool>(
        &mut self,
        deframer: &mut Deframer,
        bytes: &[u8],
        stag: Stag,
        tables: &mut Tables<'_>,
    ) -> usize {
        if !self.user.has(QpAccess::INBOUND_WRITE) {
            return 0;
        }
        let mut run = Run::default();
        let mut len = *self.stream.write_len_mut();
        let stags = tables.stags.read();
        let mut regions = Views::new(&stags, self.user, Access::REMOTE_WRITE).beginning_with(stag);
        while let Some(fpdu) = deframer.predict::<MARKED>(bytes, run.taken) {
            let Some(FastSegment::Write {
                stag,
                to,
                payload,
                last,
            }) = self.stream.predict(fpdu.ulpdu())
            else {
                break;
            };
            let place = regions.bytes(stag, to, payload.len() as u64);
            let place = place.filter(|_| fpdu.is_right());
            if place.is_none_or(|place| place.write(payload).is_err()) {
                break;
            }
            run.add(fpdu.wire_len(), payload.len());
            if COUNTED {
                len.add(payload.len(), last);
            }
        }
        if COUNTED {
            *self.stream.write_len_mut() = len;
        }
        run.end(deframer, tables.counters)
    }

    /// Places the ordinary Sends at the start of `bytes` into posted buffers, and completes these.
    /// Returns their length in bytes.
    #[inline(never)]
    fn place_sends<const MARKED: bool, const COUNTED: bool>(
        &mut self,
        deframer: &mut Deframer,
        bytes: &[u8],
        tables: &mut Tables<'_>,
    ) -> (usize, Result<(), CqOverflow>) {
        let (mut run, stream) = (Run::default(), &mut *self.stream);
        let user = self.work.receive().user(self.user);
        let stags = tables.stags.read();
        let mut buffers = Buffers {
            stags: &stags,
            user,
            pieces: Views::new(&stags, user, Access::LOCAL_WRITE),
        };
        let place = |buffer: &RecvRequest| {
            let fpdu = deframer.predict::<MARKED>(bytes, run.taken)?;
            let Some(FastSegment::Send { solicited, payload }) = stream.predict(fpdu.ulpdu())
            else {
                return None;
            };
            if !buffers.place(&buffer.sgl, payload, || fpdu.is_right()) {
                return None;
            }
            stream.handle_placed_send();
            run.add(fpdu.wire_len(), payload.len());
            let byte_len = u32::try_from(payload.len()).unwrap_or(u32::MAX); // of one segment
            Some(Received {
                byte_len,
                solicited,
            })
        };
        let completed = self.work.receive_run(tables.cqs, place);
        if COUNTED && run.fpdus > 0 {
            self.stream.write_len_mut().take();
        }
        (run.end(deframer, tables.counters), completed)
    }
}
