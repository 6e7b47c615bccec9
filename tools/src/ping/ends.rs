//! End of a ping: a connection, and buffers for the two kinds of message.

use std::time::Duration;

use xwarp::{
    Access, MemoryRegion, Opcode, QpConfig, RecvRequest, Rnic, SendRequest, WorkCompletion, WrId,
};

use super::LARGEST;
use super::place::{PLACE_BYTES, Place};
use crate::connection::{Connections, ONLY};
use crate::signals::Interrupted;

/// Identifiers of work requests.
const SEND: WrId = WrId(1);
const RECEIVE: WrId = WrId(2);
/// At most two work requests are outstanding at once.
const DEPTH: usize = 8;

/// One end of a ping.
pub(crate) struct End<'a> {
    pub(crate) connections: Connections<'a>,
    /// The message: in the client's memory, or in the server's between reading and writing.
    pub(crate) data: MemoryRegion,
    /// The client's second buffer, which receives the answer.
    pub(crate) echo: MemoryRegion,
    outbox: MemoryRegion,
    inbox: MemoryRegion,
}

impl<'a> End<'a> {
    /// An end with a receive posted, not yet connected.
    pub(crate) fn new(rnic: &'a Rnic, interrupted: &'a Interrupted) -> anyhow::Result<Self> {
        let pd = rnic.allocate_pd()?;
        let cq = rnic.create_cq(4 * DEPTH)?;
        // One Read at a time, as rping requests.
        let config = QpConfig::default()
            .send_depth(DEPTH)
            .recv_depth(DEPTH)
            .ord(1)
            .ird(1);
        let qp = pd.create_qp(&config, &cq, &cq)?;
        let both =
            Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let mut end = Self {
            connections: Connections::new(vec![qp], cq, rnic, interrupted),
            data: pd.allocate(LARGEST as usize, both)?,
            echo: pd.allocate(LARGEST as usize, both)?,
            outbox: pd.allocate(PLACE_BYTES as usize, Access::LOCAL_READ)?,
            inbox: pd.allocate(PLACE_BYTES as usize, Access::LOCAL_WRITE)?,
        };
        end.post_receive()?;
        Ok(end)
    }

    fn post_receive(&mut self) -> anyhow::Result<()> {
        let buffer = self.inbox.local(0, PLACE_BYTES);
        self.connections
            .post_recv(ONLY, RecvRequest::new(RECEIVE, buffer))
    }

    /// Sends a place. The server's "go ahead" is one, too, whose contents have no meaning.
    pub(crate) fn send(&mut self, place: Place) -> anyhow::Result<()> {
        self.outbox.bytes().write(0, &place.to_bytes())?;
        let request = SendRequest::send(SEND, self.outbox.local(0, PLACE_BYTES));
        self.connections.post_send(ONLY, request)?;
        self.await_opcode(Opcode::Send).map(|_| ())
    }

    /// Waits for the other side's Send.
    pub(crate) fn receive(&mut self) -> anyhow::Result<Place> {
        let completion = self.await_opcode(Opcode::Receive)?;
        self.received(completion)
    }

    /// Waits for the other side's Send without a time limit. Meanwhile calls `may_wait` with the
    /// duration of the connection's silence.
    pub(crate) fn receive_while(
        &mut self,
        mut may_wait: impl FnMut(Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<Place> {
        loop {
            let completion = self.connections.completion_while(&mut may_wait)?;
            if completion.opcode == Opcode::Receive {
                return self.received(completion);
            }
        }
    }

    fn received(&mut self, completion: WorkCompletion) -> anyhow::Result<Place> {
        let mut bytes = vec![0; completion.byte_len as usize];
        self.inbox.bytes().read(0, &mut bytes)?;
        self.post_receive()?;
        Place::from_bytes(&bytes)
    }

    /// Posts a Read or Write and waits for its completion.
    pub(crate) fn carry_out(&mut self, request: SendRequest, opcode: Opcode) -> anyhow::Result<()> {
        self.connections.post_send(ONLY, request)?;
        self.await_opcode(opcode).map(|_| ())
    }

    /// The two sides take turns. So the next completion is the awaited one, except for a Send's
    /// that follows its answer.
    fn await_opcode(&mut self, opcode: Opcode) -> anyhow::Result<WorkCompletion> {
        loop {
            let completion = self.connections.completion()?;
            if completion.opcode == opcode {
                return Ok(completion);
            }
        }
    }
}
