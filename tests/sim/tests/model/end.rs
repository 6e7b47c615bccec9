//! One end of a connection with its reference: a queue pair, its memory, and what is known of them.

use std::collections::{BTreeSet, VecDeque};

use xwarp::event::AsyncEventKind;
use xwarp::memory::{AllocatedStag, RegionSpec};
use xwarp::{
    Access, CompletionQueue, MemoryRegion, MemoryWindow, QpConfig, QpState, QueuePair,
    RemoteAddress, SharedReceiveQueue,
};
use xwarp_sim_tests::Host;

use crate::memory::Memory;
use crate::queue::{Change, Message, SendQueue, Work};
use crate::stag::{StagModel, Which};
use crate::{LONGEST, pattern_of};

/// Work requests that a queue holds, unless it is resized.
pub(crate) const DEPTH: usize = 8;
/// Reads and Atomic Operations that may be outstanding, unless Modify QP says otherwise.
const READS: u16 = 2;
/// Bytes of a end's sink: two messages that the peer writes, then two that Reads place.
pub(crate) const SINK: usize = 4 * LONGEST;
/// Bytes of a [`Spare`].
pub(crate) const SPARE: usize = 64;
/// Pages of a sink, for Fast-Register.
pub(crate) const PAGE: usize = 4096;
/// Where the sink's Tagged Offsets begin, so that windows can be bound to it.
pub(crate) const VA: u64 = 0x10_0000;

/// A region that is registered anew time and again.
pub(crate) struct Spare {
    pub(crate) region: MemoryRegion,
    /// The peer may write it.
    pub(crate) writable: bool,
    /// Where it was before.
    pub(crate) stale: Option<RemoteAddress>,
}

pub(crate) struct ModelEnd {
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
    /// Its bytes never change.
    pub(crate) source: MemoryRegion,
    pub(crate) sink: MemoryRegion,
    pub(crate) counter: MemoryRegion,
    pub(crate) window: MemoryWindow,
    /// Registers the sink, or a part of it.
    pub(crate) fast: AllocatedStag,
    pub(crate) spare: Spare,
    /// Depths of the next connection, and of the present one: ORD and IRD.
    pub(crate) wished: [u16; 2],
    pub(crate) depths: [u16; 2],
    /// Work requests that the send queue and the receive queue hold.
    pub(crate) queue_depths: [usize; 2],
    pub(crate) sends: SendQueue,
    pub(crate) recvs: VecDeque<u64>,
    pub(crate) last_recv: u64,
    pub(crate) memory: Memory,
    /// What the counter may be.
    pub(crate) counts: BTreeSet<u64>,
    pub(crate) window_is: StagModel,
    pub(crate) fast_is: StagModel,
    /// What the peer is to receive on this connection, in order.
    pub(crate) messages: VecDeque<Message>,
    /// Writes that were done here, which may still be on their way.
    pub(crate) written: Vec<u64>,
    pub(crate) next_id: u64,
}

impl ModelEnd {
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
            fast: host.pd().allocate_stag(SINK.div_ceil(PAGE), true).unwrap(),
            spare: Spare {
                region: host.region(SPARE, Access::all()),
                writable: true,
                stale: None,
            },
            wished: [READS; 2],
            depths: [READS; 2],
            queue_depths: [DEPTH; 2],
            sends: SendQueue::default(),
            recvs: VecDeque::new(),
            last_recv: 0,
            memory: Memory::new(SINK + SPARE),
            counts: BTreeSet::from([0]),
            window_is: StagModel::default(),
            fast_is: StagModel::default(),
            messages: VecDeque::new(),
            written: Vec::new(),
            next_id: 1,
            host: host.clone(),
        }
    }

    pub(crate) fn qp(&mut self) -> &mut QueuePair {
        self.qp.as_mut().unwrap()
    }

    /// How often both ends have closed since this was asked last.
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
        (self.wished, self.queue_depths) = ([READS; 2], [DEPTH; 2]);
    }

    pub(crate) fn free_bytes(&self) -> Vec<u8> {
        self.source.bytes().to_vec()
    }

    pub(crate) fn stag_is(&mut self, which: Which) -> &mut StagModel {
        match which {
            Which::Window => &mut self.window_is,
            Which::Fast => &mut self.fast_is,
        }
    }

    /// What the peer may have written, or Reads placed.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [
            self.sink.bytes().to_vec(),
            self.spare.region.bytes().to_vec(),
        ]
        .concat()
    }

    /// Compares memory, window and Fast-Register's `STag`.
    pub(crate) fn check(&self) {
        self.memory.check("sink", &self.bytes());
        let key = self.window.query().unwrap().key;
        self.window_is.check("window", key);
        let key = self.fast.query().unwrap().key;
        self.fast_is.check("Fast-Register", key);
    }

    pub(crate) fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        self.counter.bytes().read(0, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// An Atomic Operation of the peer's has ended.
    pub(crate) fn counted(
        &mut self,
        change: Change,
        work: &Work,
        success: bool,
        original: Option<u64>,
    ) {
        let changed = |count: &u64| change.apply(*count);
        if !success {
            let more: Vec<u64> = self.counts.iter().map(changed).collect();
            self.counts.extend(more);
        } else if let (true, Some(original)) = (work.signaled, original) {
            assert!(self.counts.contains(&original), "{work:?} found {original}");
            self.counts = BTreeSet::from([changed(&original)]);
        } else {
            assert!(!work.signaled, "{work:?} found nothing");
            self.counts = self.counts.iter().map(changed).collect();
        }
    }

    /// Compares ORD and IRD.
    pub(crate) fn check_depths(&self) {
        let info = self.qp.as_ref().unwrap().query().unwrap();
        match info.state {
            QpState::Rts => assert_eq!([info.ord, info.ird], self.depths),
            QpState::Idle if !self.live => assert_eq!([info.ord, info.ird], self.wished),
            _ => {}
        }
    }

    /// Call this when no change is under way. Asks the RNIC for the outcome of changes that were
    /// cut off.
    pub(crate) fn settle_stags(&mut self) {
        let key = self.window.query().unwrap().key;
        self.window_is.settle(self.window.stag(), key);
        let key = self.fast.query().unwrap().key;
        self.fast_is.settle(self.fast.stag(), key);
    }
}

fn create_qp(
    host: &Host,
    [send_cq, recv_cq]: [&CompletionQueue; 2],
    srq: Option<&SharedReceiveQueue>,
) -> QueuePair {
    let config = QpConfig::default()
        .send_depth(DEPTH)
        .recv_depth(DEPTH)
        .ord(READS)
        .ird(READS)
        .privileged(true);
    let qp = match srq {
        Some(srq) => host.pd().create_qp_with_srq(&config, send_cq, recv_cq, srq),
        None => host.pd().create_qp(&config, send_cq, recv_cq),
    };
    qp.unwrap()
}
