//! Single request of a batch: a Send, Write or Read of one piece of memory, as most batches have.
//!
//! Its parts are atomics, so the calls that add them take no lock and cannot panic. A thread that
//! adds parts out of turn mixes up parts of requests, and does no other harm. A call that finds an
//! unexpected stage takes the slow path, which makes a list that begins with this request. The slow
//! path is a function of its own, so the fast one saves no register. The port posts a single
//! request straight into the queue's ring.
//!
//! A lock for each call would cost 9 instructions and two atomic ones, five times for each batch.
//! Requests made in the ring could not be taken back by `ibv_wr_abort`, as the engine may run in
//! another thread.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::abi::verbs::{Rdma, ibv_sge};

/// Stage of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stage {
    /// No batch is begun.
    Closed,
    /// The batch is empty.
    Open,
    /// The batch has the single request, without data.
    Named,
    /// The batch has the single request, with its data.
    Whole,
    /// The batch's requests are in a list elsewhere.
    Listed,
}

/// The single request of a batch, as far as it is built.
#[derive(Default)]
pub(crate) struct Single {
    stage: AtomicU32,
    opcode: AtomicU32,
    wr_id: AtomicU64,
    flags: AtomicU32,
    rkey: AtomicU32,
    remote_addr: AtomicU64,
    addr: AtomicU64,
    length: AtomicU32,
    lkey: AtomicU32,
}

impl Single {
    /// Begins a batch.
    #[inline]
    pub(crate) fn open(&self) {
        self.reach(Stage::Open);
    }

    /// Makes the request a Send. Returns false if it is not the batch's first request.
    #[inline]
    pub(crate) fn send(&self, wr_id: u64, flags: u32, opcode: u32) -> bool {
        let is_first = self.is_at(Stage::Open);
        if is_first {
            self.wr_id.store(wr_id, Ordering::Relaxed);
            self.flags.store(flags, Ordering::Relaxed);
            self.opcode.store(opcode, Ordering::Relaxed);
            self.reach(Stage::Named);
        }
        is_first
    }

    /// Makes the request a Write or Read. Returns false if it is not the batch's first request.
    #[inline]
    pub(crate) fn reach_memory(&self, wr_id: u64, flags: u32, opcode: u32, at: Rdma) -> bool {
        let is_first = self.send(wr_id, flags, opcode);
        if is_first {
            self.remote_addr.store(at.remote_addr, Ordering::Relaxed);
            self.rkey.store(at.rkey, Ordering::Relaxed);
        }
        is_first
    }

    /// Sets the request's data. Returns false if it has some, or is not the batch's last request.
    #[inline]
    pub(crate) fn set_sge(&self, sge: ibv_sge) -> bool {
        let is_last = self.is_at(Stage::Named);
        if is_last {
            self.addr.store(sge.addr, Ordering::Relaxed);
            self.length.store(sge.length, Ordering::Relaxed);
            self.lkey.store(sge.lkey, Ordering::Relaxed);
            self.reach(Stage::Whole);
        }
        is_last
    }

    /// Continues the batch in a list. Returns the stage that it was in.
    pub(crate) fn list(&self) -> Stage {
        let stage = Stage::of(self.stage.load(Ordering::Relaxed));
        if stage != Stage::Closed {
            self.reach(Stage::Listed);
        }
        stage
    }

    /// Ends the batch. Of two threads that end a batch, the second finds it closed.
    ///
    /// # Errors
    ///
    /// The stage of the batch, unless it is one complete request.
    #[inline]
    pub(crate) fn close(&self) -> Result<(), Stage> {
        let number = self.stage.swap(Stage::Closed as u32, Ordering::Relaxed);
        if number == Stage::Whole as u32 {
            return Ok(());
        }
        Err(Stage::of(number))
    }

    #[inline]
    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u32
    }

    #[inline]
    fn reach(&self, stage: Stage) {
        self.stage.store(stage as u32, Ordering::Relaxed);
    }

    /// The program's identifier of the request (`wr_id`).
    #[inline]
    pub(crate) fn wr_id(&self) -> u64 {
        self.wr_id.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn opcode(&self) -> u32 {
        self.opcode.load(Ordering::Relaxed)
    }

    /// The peer's memory that is written or read, unless the request is a Send.
    #[inline]
    pub(crate) fn rdma(&self) -> Rdma {
        Rdma {
            remote_addr: self.remote_addr.load(Ordering::Relaxed),
            rkey: self.rkey.load(Ordering::Relaxed),
        }
    }

    /// The request's data, once they are set.
    #[inline]
    pub(crate) fn sge(&self) -> ibv_sge {
        ibv_sge {
            addr: self.addr.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            lkey: self.lkey.load(Ordering::Relaxed),
        }
    }
}

impl Stage {
    #[inline]
    fn of(number: u32) -> Self {
        const KNOWN: [Stage; 5] = [
            Stage::Closed,
            Stage::Open,
            Stage::Named,
            Stage::Whole,
            Stage::Listed,
        ];
        let known = KNOWN.into_iter().find(|stage| *stage as u32 == number);
        known.unwrap_or(Self::Closed)
    }
}
