//! A whole program: every verb of the draft, in the order in which it expects them to be used
//! (verbs draft §5.1.1.1, §5.1.1.2, §9).

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use xwarp::attr::{CqId, QpChange};
use xwarp::completion::Arm;
use xwarp::event::{AsyncEvent, AsyncEventKind, HandlerId};
use xwarp::memory::RegionSpec;
use xwarp::stream::{Framing, LlpStream};
use xwarp::{
    Access, CompletionQueue, MemoryRegion, MemoryWindow, ProtectionDomain, QpConfig, QpState,
    QueuePair, RecvRequest, SendRequest, SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_sim_tests::{Done, Host, KIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

const VA: u64 = 0x10_0000;
const LOCAL: Access = Access::LOCAL_READ.union(Access::LOCAL_WRITE);

/// What a program has, the first that is made at the bottom.
struct Program {
    window: MemoryWindow,
    /// Tagged Offsets at `VA`, for windows.
    region: MemoryRegion,
    shared: MemoryRegion,
    /// An `STag` that was allocated without memory, and registered by Reregister.
    reregistered: MemoryRegion,
    qp: QueuePair,
    srq: SharedReceiveQueue,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    handler: HandlerId,
    pd: ProtectionDomain,
    events: Receiver<AsyncEventKind>,
    completions: Receiver<CqId>,
}

impl Program {
    /// Open RNIC was done by the simulation.
    fn new(host: &Host) -> Self {
        let rnic = host.rnic();
        let (event, events) = mpsc::channel();
        let on_event = move |it: &AsyncEvent| event.send(it.kind.clone()).unwrap();
        rnic.set_event_handler(move |_, it| on_event(it)).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let (completion, completions) = mpsc::channel();
        let on_completion = move |cq| completion.send(cq).unwrap();
        let handler = rnic.add_completion_handler(on_completion).unwrap();
        let mut send_cq = rnic.create_cq(4).unwrap();
        send_cq.resize(16).unwrap();
        let recv_cq = rnic.create_cq_with(16, handler).unwrap();
        let depth = 4;
        let config = SrqConfig::default().depth(depth);
        let mut srq = pd.create_srq(config).unwrap();
        srq.resize(8).unwrap();
        let config = QpConfig::default().bind_windows(true);
        let qp = pd.create_qp_with_srq(&config, &send_cq, &recv_cq, &srq);
        let mut qp = qp.unwrap();
        qp.modify(QpChange::to(QpState::Idle).ord(7).ird(5))
            .unwrap();
        let memory = || rnic.allocate_memory(KIB).unwrap();
        let spec = RegionSpec::new(Access::all()).at(VA).with_key(9);
        let region = pd.register_with(memory(), &spec).unwrap();
        let shared = region.share(&pd, &RegionSpec::new(LOCAL)).unwrap();
        let stag = pd.allocate_stag(1, true).unwrap();
        let spec = RegionSpec::new(LOCAL);
        let reregistered = stag.reregister(&pd, memory(), &spec).unwrap();
        Self {
            window: pd.allocate_window().unwrap(),
            region,
            shared,
            reregistered,
            qp,
            srq,
            send_cq,
            recv_cq,
            handler,
            pd,
            events,
            completions,
        }
    }

    /// Asserts that queries return the values with which the objects were created.
    fn assert_as_asked(&self) {
        let (send, recv) = (self.send_cq.query(), self.recv_cq.query());
        let (send, recv) = (send.unwrap(), recv.unwrap());
        assert_eq!((send.entries, send.handler), (16, None));
        assert_eq!((recv.entries, recv.handler), (16, Some(self.handler)));
        let srq = self.srq.query().unwrap();
        assert_eq!((srq.pd, srq.depth), (self.pd.id(), 8));
        let qp = self.qp.query().unwrap();
        assert_eq!((qp.id, qp.pd), (self.qp.id(), self.pd.id()));
        assert_eq!(
            (qp.send_cq, qp.recv_cq),
            (self.send_cq.id(), self.recv_cq.id())
        );
        assert_eq!((qp.srq, qp.bind_windows), (Some(self.srq.id()), true));
        assert_eq!((qp.ord, qp.ird, qp.state), (7, 5, QpState::Idle));
        let region = self.region.query().unwrap();
        assert_eq!((region.key, region.access), (Some(9), Access::all()));
        assert_eq!(self.shared.query().unwrap().access, LOCAL);
        assert_eq!(self.reregistered.query().unwrap().access, LOCAL);
        assert_eq!(self.window.query().unwrap().pd, self.pd.id());
    }

    /// All completions of both queues.
    fn done(&mut self) -> Vec<Done> {
        let mut all = Vec::new();
        for cq in [&mut self.send_cq, &mut self.recv_cq] {
            all.extend(std::iter::from_fn(|| cq.poll().unwrap()).map(Done::from));
        }
        all
    }

    /// Posts, arms and polls: the peer writes through a window, and each side sends.
    fn work(&mut self, sim: &mut Sim, peer: &mut SimEnd) {
        let bind = self
            .window
            .bind(self.region.remote(0), 100, Access::REMOTE_WRITE);
        let buffer = self.reregistered.local(0, 8);
        self.srq
            .post_recv(RecvRequest::new(WrId(1), buffer))
            .unwrap();
        self.qp.post_send(SendRequest::bind(WrId(2), bind)).unwrap();
        self.recv_cq.arm(Arm::Next).unwrap();
        sim.run_until_idle();
        assert_eq!(self.done(), [Done::bind(2)]);
        peer.post_write(3, &pattern(100), bind.remote(0));
        peer.post_send(4, b"8 bytes!");
        peer.post_recv(5, 100);
        sim.run_until_idle();
        assert_eq!(self.completions.try_recv(), Ok(self.recv_cq.id()));
        assert_eq!(self.done(), [Done::receive(1, 8)]);
        let bytes = self.shared.local(0, 100);
        self.qp
            .post_send(SendRequest::send(WrId(6), bytes))
            .unwrap();
        let ended = SendRequest::invalidate(WrId(7), bind.window);
        self.qp.post_send(ended).unwrap();
        sim.run_until_idle();
        assert_eq!(self.done(), [Done::send(6, 100), Done::invalidate(7)]);
        assert_eq!(peer.receives(), [Done::receive(5, 100)]);
        assert_eq!(peer.buffer(5), pattern(100));
        assert_eq!(peer.sends(), [Done::write(3, 100), Done::send(4, 8)]);
    }

    /// Nothing is ever in use when its turn comes.
    fn end(self, host: &Host) {
        self.window.deallocate().unwrap();
        for region in [self.region, self.shared, self.reregistered] {
            region.deallocate().unwrap();
        }
        self.qp.destroy().map_err(|it| it.error).unwrap();
        self.srq.destroy().unwrap();
        for cq in [self.send_cq, self.recv_cq] {
            cq.destroy().map_err(|it| it.error).unwrap();
        }
        let rnic = host.rnic();
        rnic.clear_completion_handler(self.handler).unwrap();
        self.pd.deallocate().unwrap();
        rnic.clear_event_handler().unwrap();
    }
}

/// Makes a connection in the draft's way: of two streams that are handed over.
fn start(sim: &mut Sim, a: &mut QueuePair, b: &mut SimEnd) {
    let at = sim.b().at(sim.new_port());
    let mut listener = sim.b().rnic().listen_streams(at).unwrap();
    let at_a = sim.a().rnic().connect_stream(at, Duration::from_secs(1));
    let (at_a, framing) = (at_a.unwrap(), Framing::default());
    let at_b: LlpStream = sim.wait_for("a stream", || listener.try_accept().unwrap());
    sim.run_until_idle();
    b.qp.modify(QpChange::start(&at_b, framing)).unwrap();
    a.modify(QpChange::start(&at_a, framing)).unwrap();
    assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
}

#[test]
fn every_verb_works_in_the_order_that_the_draft_expects() {
    let mut sim = Sim::new(Seed(87)).one_way_delay(Duration::from_micros(50));
    let host = sim.a();
    let mut peer = sim.b().end(&QpConfig::default());
    let mut program = Program::new(&host);
    program.assert_as_asked();
    start(&mut sim, &mut program.qp, &mut peer);
    program.work(&mut sim, &mut peer);
    program.qp.modify(QpChange::to(QpState::Closing)).unwrap();
    sim.run_until_idle();
    assert_eq!(program.events.try_recv(), Ok(AsyncEventKind::Closed));
    assert_eq!(program.qp.state(), QpState::Idle);
    program.end(&host);
    assert!(host.rnic().query().is_ok());
    assert_eq!(host.rnic().close(), Ok(()));
    sim.remove(xwarp_sim_tests::Side::A);
}
