//! One side of a test: connections, their buffers, control records.
//!
//! A control record is written into the other side's memory, followed by a Send of zero bytes that
//! requests an event. So it needs no particular receive buffer, and is there when the event is (RFC
//! 5040 §5.5).

use xwarp::work::{Operation, Payload, Sgl};
use xwarp::{
    Access, MemoryRegion, Opcode, ProtectionDomain, QpConfig, RecvRequest, RemoteAddress, Rnic,
    SendRequest, Sge, Stag, WorkCompletion, WrId,
};

use super::data;
use super::hello::{Hello, Places, RECORD_BYTES};
use crate::connection::Connections;
use crate::signals::Interrupted;

/// Work request identifier of control messages.
const CONTROL_WR: WrId = WrId(u64::MAX);
const BARRIER_WR: WrId = WrId(u64::MAX - 1);

/// Record about a connection that one side sends the other at the end of a test.
pub(crate) type Record = [u64; 4];

/// Connections with their buffers.
pub(crate) struct Peer<'a> {
    pub(crate) connections: Connections<'a>,
    buffers: Vec<Buffers>,
}

/// Memory of one connection.
pub(crate) struct Buffers {
    /// Memory to send, write from or be read.
    pub(crate) source: MemoryRegion,
    /// Memory to receive, be written or read into.
    pub(crate) sink: MemoryRegion,
    outbox: MemoryRegion,
    inbox: MemoryRegion,
}

impl Buffers {
    /// Buffers of `bytes` bytes to send from, and of as many to receive into.
    fn new(pd: &ProtectionDomain, bytes: usize) -> anyhow::Result<Self> {
        let record = RECORD_BYTES as usize;
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            source: pd.allocate(bytes, Access::LOCAL_READ | Access::REMOTE_READ)?,
            sink: pd.allocate(bytes, written)?,
            outbox: pd.allocate(record, Access::LOCAL_READ)?,
            inbox: pd.allocate(record, written)?,
        })
    }

    /// The record that has arrived.
    fn record(&self) -> anyhow::Result<Record> {
        let mut bytes = [0; RECORD_BYTES as usize];
        self.inbox.bytes().read(0, &mut bytes)?;
        let mut record = Record::default();
        for (number, chunk) in record.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_be_bytes(*chunk);
        }
        Ok(record)
    }
}

impl<'a> Peer<'a> {
    /// Sets up one side of a test, not yet connected.
    pub(crate) fn new(
        rnic: &'a Rnic,
        hello: &Hello,
        interrupted: &'a Interrupted,
    ) -> anyhow::Result<Self> {
        let pd = rnic.allocate_pd()?;
        let depth = hello.depth as usize;
        let cq = rnic.create_cq(hello.cq_entries())?;
        let config = QpConfig::default()
            .send_depth(2 * depth + 8)
            .recv_depth(2 * depth + 32);
        let mut qps = Vec::new();
        let mut buffers = Vec::new();
        for _ in 0..hello.connections.get() {
            qps.push(pd.create_qp(&config, &cq, &cq)?);
            buffers.push(Buffers::new(&pd, hello.buffer_bytes())?);
        }
        Ok(Self {
            connections: Connections::new(qps, cq, rnic, interrupted),
            buffers,
        })
    }

    /// Numbers of the connections.
    pub(crate) fn each(&self) -> std::ops::Range<usize> {
        0..self.buffers.len()
    }

    /// Memory of a connection.
    pub(crate) fn buffers(&self, which: usize) -> &Buffers {
        &self.buffers[which]
    }

    /// Fills the memory that this side sends.
    pub(crate) fn fill(&self, hello: &Hello, interrupted: &Interrupted) -> anyhow::Result<()> {
        let mut numbered = self.buffers.iter().enumerate();
        numbered.try_for_each(|(which, buffers)| {
            data::fill(buffers.source.bytes(), hello.all_slots(which), interrupted)
        })
    }

    /// Memory of a connection that the other side may access. `readable`: it reads the test's
    /// buffer; otherwise it writes.
    pub(crate) fn places(&self, which: usize, readable: bool) -> Places {
        let buffers = &self.buffers[which];
        let buffer = if readable {
            &buffers.source
        } else {
            &buffers.sink
        };
        Places {
            buffer: buffer.remote(0),
            control: buffers.inbox.remote(0),
        }
    }

    /// Posts a receive buffer of zero bytes, for a control record or a credit.
    pub(crate) fn expect_empty(&mut self, which: usize) -> anyhow::Result<()> {
        let request = RecvRequest::new(CONTROL_WR, Sgl::new());
        self.connections.post_recv(which, request)
    }

    /// Sends a connection's record to the other side.
    pub(crate) fn send_record(
        &mut self,
        which: usize,
        record: Record,
        inbox: RemoteAddress,
    ) -> anyhow::Result<()> {
        let bytes: Vec<u8> = record
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect();
        let outbox = &self.buffers[which].outbox;
        outbox.bytes().write(0, &bytes)?;
        let write = SendRequest::write(CONTROL_WR, outbox.local(0, RECORD_BYTES), inbox);
        self.connections.post_send(which, write.unsignaled())?;
        let event = Operation::Send {
            payload: Payload::default(),
            solicited: true,
            invalidate: None,
        };
        let event = SendRequest::new(CONTROL_WR, event).unsignaled();
        self.connections.post_send(which, event)
    }

    /// True if `completion` announces a record.
    pub(crate) fn announces_record(completion: &WorkCompletion) -> bool {
        completion.opcode == Opcode::Receive && completion.solicited
    }

    /// Waits for the records of all connections, ignoring completions of the test.
    pub(crate) fn receive_records(&mut self) -> anyhow::Result<Vec<Record>> {
        self.receive_records_while(|_, _, _| Ok(()))
    }

    /// Waits for the records of all connections. `serve` gets the other completions, each with its
    /// connection.
    pub(crate) fn receive_records_while(
        &mut self,
        mut serve: impl FnMut(&mut Self, usize, &WorkCompletion) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Record>> {
        let mut records = vec![None; self.connections.count()];
        let mut missing = records.len();
        while missing > 0 {
            let completion = self.connections.completion()?;
            let which = self.connections.of(&completion);
            if !Self::announces_record(&completion) {
                serve(self, which, &completion)?;
            } else if records[which].replace(self.record(which)?).is_none() {
                missing -= 1;
            }
        }
        Ok(records.into_iter().flatten().collect())
    }

    /// The received record of a connection.
    pub(crate) fn record(&self, which: usize) -> anyhow::Result<Record> {
        self.buffers[which].record()
    }

    /// Waits until all posted messages have been placed at the other side: a Read of zero bytes is
    /// answered only then (RFC 5040 §5.5).
    pub(crate) fn barrier(&mut self) -> anyhow::Result<()> {
        let nowhere = Stag(1);
        let sink = Sge {
            stag: nowhere,
            to: 0,
            len: 0,
        };
        let remote = RemoteAddress {
            stag: nowhere,
            to: 0,
        };
        for which in self.each() {
            let read = SendRequest::read(BARRIER_WR, sink, remote);
            self.connections.post_send(which, read)?;
        }
        let mut missing = self.connections.count();
        while missing > 0 {
            missing -= usize::from(self.connections.completion()?.wr_id == BARRIER_WR);
        }
        Ok(())
    }
}
