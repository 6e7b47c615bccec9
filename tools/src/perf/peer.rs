//! One end of a test: connection, completions, control records.
//!
//! A control record is written into the other side's memory, followed by a Send of no octets that asks for an event. So it fits
//! into any receive buffer, and is there when the event is (RFC 5040 §5.5).

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use xwarp::{
    Access, AsyncEventKind, CompletionQueue, CompletionStatus, MemoryRegion, Opcode, Operation,
    PostError, QpConfig, QpState, QueuePair, RecvRequest, RemoteAddress, Rnic, SendRequest, Sge,
    Sgl, Stag, WorkCompletion, WrId,
};

use super::hello::{Hello, Places};
use crate::signals::Interrupted;

/// How often a wait looks for Ctrl-C and for the connection's end.
const GLANCE: Duration = Duration::from_millis(100);
/// How long the other side may take to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Octets of a control record: four numbers.
const RECORD_OCTETS: u32 = 32;
/// Work request ids that no message of a test has.
const CONTROL_WR: WrId = WrId(u64::MAX);
const BARRIER_WR: WrId = WrId(u64::MAX - 1);

/// What one side tells the other at the end of a test.
pub(crate) type Record = [u64; 4];

/// A queue pair with its queue and its buffers.
pub(crate) struct Peer<'a> {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    /// What is sent, written from or read from.
    pub(crate) source: MemoryRegion,
    /// What is received, written or read into.
    pub(crate) sink: MemoryRegion,
    outbox: MemoryRegion,
    inbox: MemoryRegion,
    rnic: &'a Rnic,
    interrupted: &'a Interrupted,
}

impl<'a> Peer<'a> {
    /// Sets up one end for a test, not yet connected.
    pub(crate) fn new(
        rnic: &'a Rnic,
        hello: &Hello,
        interrupted: &'a Interrupted,
    ) -> anyhow::Result<Self> {
        let pd = rnic.allocate_pd();
        let depth = hello.depth as usize;
        let cq = rnic.create_cq(8 * depth + 64)?;
        let config = QpConfig {
            send_depth: 2 * depth + 8,
            recv_depth: 2 * depth + 32,
            ..QpConfig::default()
        };
        let octets = hello.buffer_octets();
        Ok(Self {
            qp: pd.create_qp(&config, &cq, &cq)?,
            source: pd.allocate(octets, Access::LOCAL_READ | Access::REMOTE_READ)?,
            sink: pd.allocate(octets, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            outbox: pd.allocate(RECORD_OCTETS as usize, Access::LOCAL_READ)?,
            inbox: pd.allocate(
                RECORD_OCTETS as usize,
                Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            )?,
            cq,
            rnic,
            interrupted,
        })
    }

    /// What the other side may access; `readable` says whether it reads or writes the test's buffer.
    pub(crate) fn places(&self, readable: bool) -> Places {
        let buffer = if readable { &self.source } else { &self.sink };
        Places {
            buffer: buffer.remote(0),
            control: self.inbox.remote(0),
        }
    }

    /// The next completion, which must be a success.
    pub(crate) fn completion(&mut self) -> anyhow::Result<WorkCompletion> {
        loop {
            if let Some(completion) = self.try_completion()? {
                return Ok(completion);
            }
            self.check_alive()?;
            if let Some(completion) = self.cq.wait(GLANCE)? {
                return self.succeeded(completion);
            }
        }
    }

    /// A completion that is there already, which must be a success.
    pub(crate) fn try_completion(&mut self) -> anyhow::Result<Option<WorkCompletion>> {
        match self.cq.poll() {
            Some(completion) => self.succeeded(completion).map(Some),
            None => Ok(None),
        }
    }

    fn succeeded(&self, completion: WorkCompletion) -> anyhow::Result<WorkCompletion> {
        match completion.status {
            CompletionStatus::Success => Ok(completion),
            CompletionStatus::Flushed => bail!("{}", self.why_ended()),
            status => bail!("a {:?} failed: {status}", completion.opcode),
        }
    }

    /// Fails when the user has had enough, or the connection has ended.
    pub(crate) fn check_alive(&self) -> anyhow::Result<()> {
        self.interrupted.check()?;
        if self.qp.state() != QpState::Rts {
            bail!("{}", self.why_ended());
        }
        Ok(())
    }

    /// Why the connection is no more, as far as it was reported.
    fn why_ended(&self) -> String {
        let mut text = "the other side has closed the connection".to_owned();
        while let Some(event) = self.rnic.poll_event() {
            text = match event.kind {
                AsyncEventKind::Closed => continue,
                AsyncEventKind::TerminateReceived(code) => {
                    format!("the other side terminated the connection: {code}")
                }
                AsyncEventKind::Terminated { code, reason } => {
                    format!("the other side broke the protocol: {reason}; it was told {code}")
                }
                AsyncEventKind::ConnectionLost { reason } | AsyncEventKind::BadClose { reason } => {
                    format!("the connection is lost: {reason}")
                }
                AsyncEventKind::CqOverflow => "a completion queue was too small".to_owned(),
                AsyncEventKind::Failed { reason } => reason,
            };
        }
        text
    }

    /// Posts to the send queue; when the connection has ended, says why.
    pub(crate) fn post_send(&mut self, request: SendRequest) -> anyhow::Result<()> {
        self.qp
            .post_send(request)
            .map_err(|error| self.not_posted(error))
    }

    /// Posts a receive buffer; when the connection has ended, says why.
    pub(crate) fn post_recv(&mut self, request: RecvRequest) -> anyhow::Result<()> {
        self.qp
            .post_recv(request)
            .map_err(|error| self.not_posted(error))
    }

    fn not_posted(&self, error: PostError) -> anyhow::Error {
        match error {
            PostError::InvalidState(_) => anyhow!("{}", self.why_ended()),
            PostError::TooManyWorkRequests(_)
            | PostError::TooLong
            | PostError::ExtensionsDisabled => error.into(),
        }
    }

    /// Posts a receive buffer of no octets, for a control record or a credit.
    pub(crate) fn expect_empty(&mut self) -> anyhow::Result<()> {
        self.post_recv(RecvRequest::new(CONTROL_WR, Sgl::new()))
    }

    /// Hands a record to the other side.
    pub(crate) fn send_record(
        &mut self,
        record: Record,
        inbox: RemoteAddress,
    ) -> anyhow::Result<()> {
        let octets: Vec<u8> = record
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect();
        self.outbox.bytes().write(0, &octets)?;
        let write = SendRequest::write(CONTROL_WR, self.outbox.local(0, RECORD_OCTETS), inbox);
        self.post_send(write.unsignaled())?;
        let event = Operation::Send {
            sgl: Sgl::new(),
            solicited: true,
            invalidate: None,
        };
        self.post_send(SendRequest::new(CONTROL_WR, event).unsignaled())?;
        Ok(())
    }

    /// True if `completion` says that a record has come.
    pub(crate) fn announces_record(completion: &WorkCompletion) -> bool {
        completion.opcode == Opcode::Receive && completion.solicited
    }

    /// Waits for a record, passing over completions of the test.
    pub(crate) fn receive_record(&mut self) -> anyhow::Result<Record> {
        while !Self::announces_record(&self.completion()?) {}
        self.record()
    }

    /// The record that has come.
    pub(crate) fn record(&self) -> anyhow::Result<Record> {
        let mut octets = [0; RECORD_OCTETS as usize];
        self.inbox.bytes().read(0, &mut octets)?;
        let mut record = Record::default();
        for (number, chunk) in record.iter_mut().zip(octets.as_chunks::<8>().0) {
            *number = u64::from_be_bytes(*chunk);
        }
        Ok(record)
    }

    /// Waits until all that was posted has been placed at the other side: a Read of no octets is answered only then
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
        self.post_send(SendRequest::read(BARRIER_WR, sink, remote))?;
        while self.completion()?.wr_id != BARRIER_WR {}
        Ok(())
    }

    /// Closes from this side and waits for the other.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.qp.disconnect(CLOSE_LIMIT)?;
        Ok(())
    }

    /// Waits until the other side has closed.
    pub(crate) fn wait_closed(mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while !matches!(self.qp.state(), QpState::Idle | QpState::Error) {
            self.interrupted.check()?;
            if since.elapsed() > CLOSE_LIMIT {
                bail!("the client does not close the connection");
            }
            self.cq.wait(GLANCE / 10)?;
        }
        Ok(())
    }
}
