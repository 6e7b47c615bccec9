//! One end of a test: connection, buffers, control records.
//!
//! A control record is written into the other side's memory, followed by a Send of no bytes that asks for an event. So it fits
//! into any receive buffer, and is there when the event is (RFC 5040 §5.5).

use xwarp::work::{Operation, Payload, Sgl};
use xwarp::{
    Access, MemoryRegion, Opcode, QpConfig, RecvRequest, RemoteAddress, Rnic, SendRequest, Sge,
    Stag, WorkCompletion, WrId,
};

use super::data;
use super::hello::{Hello, Places, RECORD_BYTES};
use crate::connection::Connection;
use crate::signals::Interrupted;

/// Work request ids that no message of a test has.
const CONTROL_WR: WrId = WrId(u64::MAX);
const BARRIER_WR: WrId = WrId(u64::MAX - 1);

/// What one side tells the other at the end of a test.
pub(crate) type Record = [u64; 4];

/// A connection with its buffers.
pub(crate) struct Peer<'a> {
    pub(crate) connection: Connection<'a>,
    /// What is sent, written from or read from.
    pub(crate) source: MemoryRegion,
    /// What is received, written or read into.
    pub(crate) sink: MemoryRegion,
    outbox: MemoryRegion,
    inbox: MemoryRegion,
}

impl<'a> Peer<'a> {
    /// Sets up one end for a test, not yet connected.
    pub(crate) fn new(
        rnic: &'a Rnic,
        hello: &Hello,
        interrupted: &'a Interrupted,
    ) -> anyhow::Result<Self> {
        let pd = rnic.allocate_pd()?;
        let depth = hello.depth as usize;
        let cq = rnic.create_cq(8 * depth + 64)?;
        let config = QpConfig::default()
            .send_depth(2 * depth + 8)
            .recv_depth(2 * depth + 32);
        let bytes = hello.buffer_bytes();
        Ok(Self {
            connection: Connection::new(pd.create_qp(&config, &cq, &cq)?, cq, rnic, interrupted),
            source: pd.allocate(bytes, Access::LOCAL_READ | Access::REMOTE_READ)?,
            sink: pd.allocate(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            outbox: pd.allocate(RECORD_BYTES as usize, Access::LOCAL_READ)?,
            inbox: pd.allocate(
                RECORD_BYTES as usize,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            )?,
        })
    }

    /// Fills what is sent from here.
    pub(crate) fn fill(&self, hello: &Hello, interrupted: &Interrupted) -> anyhow::Result<()> {
        let (size, slots) = (hello.size as usize, hello.slots as usize);
        data::fill(self.source.bytes(), size, slots, interrupted)
    }

    /// What the other side may access; `readable` says whether it reads or writes the test's buffer.
    pub(crate) fn places(&self, readable: bool) -> Places {
        let buffer = if readable { &self.source } else { &self.sink };
        Places {
            buffer: buffer.remote(0),
            control: self.inbox.remote(0),
        }
    }

    /// Posts a receive buffer of no bytes, for a control record or a credit.
    pub(crate) fn expect_empty(&mut self) -> anyhow::Result<()> {
        self.connection
            .post_recv(RecvRequest::new(CONTROL_WR, Sgl::new()))
    }

    /// Hands a record to the other side.
    pub(crate) fn send_record(
        &mut self,
        record: Record,
        inbox: RemoteAddress,
    ) -> anyhow::Result<()> {
        let bytes: Vec<u8> = record
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect();
        self.outbox.bytes().write(0, &bytes)?;
        let write = SendRequest::write(CONTROL_WR, self.outbox.local(0, RECORD_BYTES), inbox);
        self.connection.post_send(write.unsignaled())?;
        let event = Operation::Send {
            payload: Payload::default(),
            solicited: true,
            invalidate: None,
        };
        self.connection
            .post_send(SendRequest::new(CONTROL_WR, event).unsignaled())?;
        Ok(())
    }

    /// True if `completion` says that a record has come.
    pub(crate) fn announces_record(completion: &WorkCompletion) -> bool {
        completion.opcode == Opcode::Receive && completion.solicited
    }

    /// Waits for a record, passing over completions of the test.
    pub(crate) fn receive_record(&mut self) -> anyhow::Result<Record> {
        while !Self::announces_record(&self.connection.completion()?) {}
        self.record()
    }

    /// The record that has come.
    pub(crate) fn record(&self) -> anyhow::Result<Record> {
        let mut bytes = [0; RECORD_BYTES as usize];
        self.inbox.bytes().read(0, &mut bytes)?;
        let mut record = Record::default();
        for (number, chunk) in record.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_be_bytes(*chunk);
        }
        Ok(record)
    }

    /// Waits until all that was posted has been placed at the other side: a Read of no bytes is answered only then
    /// (RFC 5040 §5.5).
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
        self.connection
            .post_send(SendRequest::read(BARRIER_WR, sink, remote))?;
        while self.connection.completion()?.wr_id != BARRIER_WR {}
        Ok(())
    }
}
