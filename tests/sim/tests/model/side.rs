//! One end of a connection with its reference: a queue pair, its memory, and what is known of them.

use std::collections::{BTreeSet, VecDeque};

use xwarp::{
    Access, AsyncEventKind, CompletionQueue, MemoryRegion, MemoryWindow, QpConfig, QpState,
    QueuePair, RegionSpec, SharedReceiveQueue, Stag,
};
use xwarp_sim_tests::Host;

use crate::memory::Memory;
use crate::queue::{Message, SendQueue};
use crate::{LONGEST, pattern_of};

/// Work requests that a queue holds.
pub(crate) const DEPTH: usize = 8;
/// Octets of a side's sink: two messages that the peer writes, then two that Reads place.
const SINK: usize = 4 * LONGEST;
/// Where the sink's Tagged Offsets begin, so that windows can be bound to it.
const VA: u64 = 0x10_0000;

/// What a window is bound as.
#[derive(Default)]
pub(crate) struct WindowModel {
    pub(crate) bound: Option<Stag>,
    /// Changes that are under way.
    pub(crate) changes: usize,
    /// One of them was cut off, or several were under way at once.
    pub(crate) unsure: bool,
    /// What it was bound as before.
    pub(crate) stale: Option<Stag>,
}

impl WindowModel {
    pub(crate) fn is_certain(&self) -> bool {
        self.changes == 0 && !self.unsure
    }

    /// A change is posted. The completions of several at once come from different queues, and do not tell which was the last.
    pub(crate) fn begin(&mut self) {
        self.unsure |= self.changes > 0;
        self.changes += 1;
    }

    pub(crate) fn become_(&mut self, bound: Option<Stag>) {
        self.stale = self.bound.or(self.stale);
        self.bound = bound;
        self.changes = self.changes.saturating_sub(1);
    }
}

pub(crate) struct Side {
    pub(crate) host: Host,
    /// There is always one, but while it is replaced.
    pub(crate) qp: Option<QueuePair>,
    pub(crate) send_cq: CompletionQueue,
    pub(crate) recv_cq: CompletionQueue,
    pub(crate) shared: bool,
    /// What it was seen in last.
    pub(crate) state: QpState,
    /// It may be connected, or has asked to be.
    pub(crate) live: bool,
    /// Its application has asked for a close that sends everything first.
    pub(crate) graceful: bool,
    /// Octets that nobody changes.
    pub(crate) source: MemoryRegion,
    pub(crate) sink: MemoryRegion,
    pub(crate) counter: MemoryRegion,
    pub(crate) window: MemoryWindow,
    pub(crate) sends: SendQueue,
    pub(crate) recvs: VecDeque<u64>,
    pub(crate) last_recv: u64,
    pub(crate) memory: Memory,
    /// What the counter may be.
    pub(crate) counts: BTreeSet<u64>,
    pub(crate) window_is: WindowModel,
    /// What the peer is to receive on this connection, in order.
    pub(crate) messages: VecDeque<Message>,
    /// Writes that were done here, which may still be on their way.
    pub(crate) written: Vec<u64>,
    pub(crate) next_id: u64,
}

impl Side {
    pub(crate) fn new(host: &Host, which: u64, srq: Option<&SharedReceiveQueue>) -> Self {
        let send_cq = host.rnic().create_cq(4 * DEPTH).unwrap();
        let recv_cq = host.rnic().create_cq(4 * DEPTH).unwrap();
        let qp = create_qp(host, [&send_cq, &recv_cq], srq);
        let source = host.region(SINK, Access::LOCAL_READ | Access::REMOTE_READ);
        source.bytes().write(0, &pattern_of(which, SINK)).unwrap();
        let memory = host.rnic().allocate_memory(SINK).unwrap();
        let spec = RegionSpec::new(Access::all()).at(VA);
        Self {
            qp: Some(qp),
            send_cq,
            recv_cq,
            shared: srq.is_some(),
            state: QpState::Idle,
            live: false,
            graceful: false,
            source,
            sink: host.pd().register_with(memory, &spec).unwrap(),
            counter: host.region(8, Access::all()),
            window: host.pd().allocate_window().unwrap(),
            sends: SendQueue::default(),
            recvs: VecDeque::new(),
            last_recv: 0,
            memory: Memory::new(SINK),
            counts: BTreeSet::from([0]),
            window_is: WindowModel::default(),
            messages: VecDeque::new(),
            written: Vec::new(),
            next_id: 1,
            host: host.clone(),
        }
    }

    pub(crate) fn qp(&mut self) -> &mut QueuePair {
        self.qp.as_mut().unwrap()
    }

    /// How often both sides have closed since this was asked last.
    pub(crate) fn closes(&self) -> usize {
        let events = self.host.events(self.qp.as_ref().unwrap().id());
        let closed = |event: &&AsyncEventKind| **event == AsyncEventKind::Closed;
        events.iter().filter(closed).count()
    }

    pub(crate) fn shown_state(&self) -> QpState {
        self.qp.as_ref().unwrap().state()
    }

    /// Another queue pair in place of the one that is gone.
    pub(crate) fn replace_qp(&mut self, srq: Option<&SharedReceiveQueue>) {
        let cqs = [&self.send_cq, &self.recv_cq];
        self.qp = Some(create_qp(&self.host, cqs, srq));
        (self.state, self.last_recv) = (QpState::Idle, 0);
    }

    pub(crate) fn free_octets(&self) -> Vec<u8> {
        self.source.bytes().to_vec()
    }

    /// Compares memory, counter and window.
    pub(crate) fn check(&self) {
        self.memory.check("sink", self.sink.bytes());
        if self.window_is.is_certain() {
            let key = self.window.query().unwrap().key;
            assert_eq!(key, self.window_is.bound.map(Stag::key), "window");
        }
    }

    pub(crate) fn count(&self) -> u64 {
        let mut octets = [0; 8];
        self.counter.bytes().read(0, &mut octets).unwrap();
        u64::from_ne_bytes(octets)
    }

    /// Nothing changes the window any more: looks what has become of changes that were cut off.
    pub(crate) fn settle_window(&mut self) {
        let model = &mut self.window_is;
        if !model.is_certain() {
            let key = self.window.query().unwrap().key;
            let stag = self.window.stag();
            model.become_(key.map(|key| stag.with_key(key)));
            (model.changes, model.unsure) = (0, false);
        }
    }
}

fn create_qp(
    host: &Host,
    [send_cq, recv_cq]: [&CompletionQueue; 2],
    srq: Option<&SharedReceiveQueue>,
) -> QueuePair {
    let config = QpConfig {
        send_depth: DEPTH,
        recv_depth: DEPTH,
        ord: 2,
        ird: 2,
        ..QpConfig::default()
    };
    let qp = match srq {
        Some(srq) => host.pd().create_qp_with_srq(&config, send_cq, recv_cq, srq),
        None => host.pd().create_qp(&config, send_cq, recv_cq),
    };
    qp.unwrap()
}
