//! End of a simulated connection: a queue pair, its completion queues, and the memory that its work
//! requests name.

use std::collections::HashMap;

use xwarp::attr::TerminateOrigin;
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::memory::RegionSpec;
use xwarp::work::Sgl;
use xwarp::{
    Access, CompletionQueue, MemoryRegion, QpConfig, QpState, QueuePair, RecvRequest,
    RemoteAddress, SendRequest, Sge, WrId,
};

use crate::done::Done;
use crate::host::{Host, Target};

/// A queue pair and all that a test wants to know of it. Posting panics where the verb refuses.
pub struct SimEnd {
    /// The queue pair.
    pub qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// What the queue pair sends from.
    sources: Vec<MemoryRegion>,
    /// Pieces of receive buffers by the name of their work request.
    buffers: HashMap<u64, Vec<Target>>,
    host: Host,
}

impl Host {
    /// A queue pair with completion queues of its own that hold all that can be outstanding.
    pub fn end(&self, config: &QpConfig) -> SimEnd {
        SimEnd::new(self, config)
    }
}

impl SimEnd {
    pub(crate) fn new(host: &Host, config: &QpConfig) -> Self {
        Self::with_cqs(
            host,
            config,
            config.send_depth + config.send_depth,
            2 * config.recv_depth,
        )
    }

    /// With completion queues of these sizes.
    pub fn with_cqs(
        host: &Host,
        config: &QpConfig,
        send_entries: usize,
        recv_entries: usize,
    ) -> Self {
        let send_cq = host.rnic().create_cq(send_entries).unwrap();
        let recv_cq = host.rnic().create_cq(recv_entries).unwrap();
        Self {
            qp: host.pd().create_qp(config, &send_cq, &recv_cq).unwrap(),
            send_cq,
            recv_cq,
            sources: Vec::new(),
            buffers: HashMap::new(),
            host: host.clone(),
        }
    }

    /// Where it is.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// A zeroed region of its host.
    pub fn region(&self, len: usize, access: Access) -> MemoryRegion {
        self.host.region(len, access)
    }

    /// A zeroed region of its host that is there for this queue pair alone.
    pub fn own_region(&self, len: usize, access: Access) -> MemoryRegion {
        self.host.region_for(&self.qp, len, access)
    }

    /// A zeroed region of its host whose Tagged Offsets begin at `va`, so that windows can be bound
    /// to it.
    pub fn va_region(&self, len: usize, access: Access, va: u64) -> MemoryRegion {
        let memory = self.host.rnic().allocate_memory(len).unwrap();
        let spec = RegionSpec::new(access).at(va);
        self.host.pd().register_with(memory, &spec).unwrap()
    }

    /// Guarded memory of its host.
    pub fn target(&self, len: usize) -> Target {
        self.host.target(len)
    }

    /// A region that holds `bytes`, for the queue pair to send from.
    pub fn source(&mut self, bytes: &[u8]) -> Sge {
        let region = self.region(bytes.len(), Access::LOCAL_READ);
        region.bytes().write(0, bytes).unwrap();
        let sge = region.local(0, u32::try_from(bytes.len()).unwrap());
        self.sources.push(region);
        sge
    }

    /// Posts to the send queue.
    pub fn post(&mut self, request: SendRequest) {
        self.qp.post_send(request).unwrap();
    }

    /// Posts a Write of `bytes`.
    pub fn post_write(&mut self, wr_id: u64, bytes: &[u8], remote: RemoteAddress) {
        let source = self.source(bytes);
        self.post(SendRequest::write(WrId(wr_id), source, remote));
    }

    /// Posts a Send of `bytes`.
    pub fn post_send(&mut self, wr_id: u64, bytes: &[u8]) {
        let source = self.source(bytes);
        self.post(SendRequest::send(WrId(wr_id), source));
    }

    /// Posts a Read.
    pub fn post_read(&mut self, wr_id: u64, sink: Sge, remote: RemoteAddress) {
        self.post(SendRequest::read(WrId(wr_id), sink, remote));
    }

    /// Posts a receive buffer of `len` bytes, between guards.
    pub fn post_recv(&mut self, wr_id: u64, len: usize) {
        let request = self.recv_request(wr_id, &[len]);
        self.qp.post_recv(request).unwrap();
    }

    /// A receive buffer of pieces of these lengths, each between guards, for a queue that may be
    /// shared.
    pub fn recv_request(&mut self, wr_id: u64, lens: &[usize]) -> RecvRequest {
        let piece = |len: &usize| self.host.guarded(*len, Access::LOCAL_WRITE);
        let pieces: Vec<Target> = lens.iter().map(piece).collect();
        let list = pieces.iter().zip(lens).map(|(it, len)| it.local(0, *len));
        let request = RecvRequest::new(WrId(wr_id), list.collect::<Sgl>());
        self.buffers.insert(wr_id, pieces);
        request
    }

    /// What a receive buffer holds.
    ///
    /// # Panics
    /// If a guard was written.
    pub fn buffer(&self, wr_id: u64) -> Vec<u8> {
        let pieces = self.buffers[&wr_id].iter();
        pieces.flat_map(Target::to_vec).collect()
    }

    /// All completions of the send queue since this was asked last.
    pub fn sends(&mut self) -> Vec<Done> {
        std::iter::from_fn(|| self.send_cq.poll().unwrap())
            .map(Done::from)
            .collect()
    }

    /// All completions of the receive queue since this was asked last.
    pub fn receives(&mut self) -> Vec<Done> {
        std::iter::from_fn(|| self.recv_cq.poll().unwrap())
            .map(Done::from)
            .collect()
    }

    /// The completion queue of the send queue.
    pub fn send_cq(&mut self) -> &mut CompletionQueue {
        &mut self.send_cq
    }

    /// The completion queue of the receive queue.
    pub fn recv_cq(&mut self) -> &mut CompletionQueue {
        &mut self.recv_cq
    }

    /// Both, that of the send queue first.
    pub fn cqs(&self) -> (&CompletionQueue, &CompletionQueue) {
        (&self.send_cq, &self.recv_cq)
    }

    /// The queue pair's state.
    pub fn state(&self) -> QpState {
        self.qp.state()
    }

    /// The code of the Terminate by which this side has ended the stream. The event queue may hold
    /// one `Terminated` event with this code; if a receive's completion reports the error, it holds
    /// none.
    pub fn ended_with(&self) -> Option<TermCode> {
        let terminate = self.qp.query().unwrap().terminate?;
        let is_told = |event: &AsyncEventKind| matches!(event, AsyncEventKind::Terminated { code, .. } if *code == terminate.code);
        let events = self.events();
        assert!(
            events.len() <= 1 && events.iter().all(is_told),
            "{events:?}"
        );
        (terminate.origin == TerminateOrigin::Local).then_some(terminate.code)
    }

    /// What happened to the queue pair since this was asked last.
    pub fn events(&self) -> Vec<AsyncEventKind> {
        self.host.events(self.qp.id())
    }
}
