//! Engines that threads of their own turn: verbs and messages while all of them run.

use xwarp::config::Progress;
use xwarp::error::OpenError;
use xwarp::{
    Access, CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig, QpState,
    QueuePair, RecvRequest, Rnic, SendRequest, SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_test_kit::{Cable, End, MemoryRnic, Side, TIMEOUT, eventually, next_request};

/// Engines of each RNIC.
const ENGINES: usize = 2;
const CONNECTIONS: usize = 6;
/// Messages of each connection, and of all; the shared receive queue has buffers for these.
const MESSAGES: u64 = 150;
const ALL: usize = CONNECTIONS * 150;
/// Bytes of a message.
const LEN: u32 = 64;

/// Two RNICs, and the cable between them.
fn rnics() -> ([Rnic; 2], Cable) {
    let [a, b] = Side::BOTH.map(|side| {
        let rnic = MemoryRnic::at(side).progress(Progress::Thread);
        rnic.region_area(1 << 20).announced().open_on(ENGINES)
    });
    let cable = Cable::between_queues([(a.1, a.2), (b.1, b.2)]);
    ([a.0, b.0], cable)
}

/// Sends of the first host, and what receives them at the second: on one completion queue, from one
/// shared receive queue.
struct Gathering {
    senders: Vec<End>,
    receivers: Vec<QueuePair>,
    sent: CompletionQueue,
    came: CompletionQueue,
    srq: SharedReceiveQueue,
    buffers: MemoryRegion,
    pd: ProtectionDomain,
}

impl Gathering {
    fn new(a: &Rnic, b: &Rnic) -> Self {
        let pd = b.allocate_pd().unwrap();
        let mut gathering = Self {
            senders: Vec::new(),
            receivers: Vec::new(),
            sent: a.create_cq(ALL).unwrap(),
            came: b.create_cq(ALL).unwrap(),
            srq: pd.create_srq(SrqConfig::default().depth(ALL)).unwrap(),
            buffers: pd.allocate(64, Access::LOCAL_WRITE).unwrap(),
            pd,
        };
        gathering.post_buffers();
        gathering.connect(a, b);
        gathering
    }

    fn post_buffers(&mut self) {
        for id in 0..ALL as u64 {
            let request = RecvRequest::new(WrId(id), self.buffers.local(0, LEN));
            self.srq.post_recv(request).unwrap();
        }
    }

    fn connect(&mut self, a: &Rnic, b: &Rnic) {
        let pd = a.allocate_pd().unwrap();
        let mut listener = b.listen("10.0.0.2:7471".parse().unwrap()).unwrap();
        let config = QpConfig::default().send_depth(512);
        for _ in 0..CONNECTIONS {
            let mut near = End::new(&pd, &self.sent, &config, 64);
            let (cq, srq) = (&self.came, &self.srq);
            let mut far = self.pd.create_qp_with_srq(&config, cq, cq, srq).unwrap();
            connect(&mut near, &mut listener, &mut far);
            self.senders.push(near);
            self.receivers.push(far);
        }
    }

    fn send_all(&mut self) {
        for near in &mut self.senders {
            let send = |id| SendRequest::send(WrId(id), near.source.local(0, LEN));
            let sends: Vec<_> = (0..MESSAGES).map(send).collect();
            near.qp.post_send_list(sends).unwrap();
        }
    }
}

fn connect(near: &mut End, listener: &mut Listener, far: &mut QueuePair) {
    let at = listener.addresses()[0];
    let connecting = near.qp.begin_connect(at, b"", TIMEOUT).unwrap();
    next_request(listener).accept(far, b"").unwrap();
    connecting.wait().unwrap();
}

/// What the host's part of an error says.
fn reason(error: OpenError) -> String {
    match error {
        OpenError::System(error) => error.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn rnic_has_an_engine_for_each_queue_where_threads_or_a_test_turn_them() {
    let opened = |progress, queues| {
        let rnic = MemoryRnic::at(Side::A).progress(progress);
        rnic.try_open_on(queues).map(drop).map_err(reason)
    };
    for progress in [Progress::Inline, Progress::Assisted] {
        assert!(opened(progress, 1).is_ok());
        let refused = opened(progress, 2).unwrap_err();
        assert!(refused.contains("Progress::Thread"), "{refused}");
    }
    assert!(opened(Progress::Thread, 3).is_ok() && opened(Progress::Manual, 3).is_ok());
    assert!(opened(Progress::Manual, 0).unwrap_err().contains("a queue"));
}

#[test]
#[cfg_attr(miri, ignore = "needs an eventfd")]
fn messages_of_all_engines_come_to_one_queue_while_regions_come_and_go() {
    let ([a, b], _cable) = rnics();
    let mut all = Gathering::new(&a, &b);
    all.send_all();
    for _ in 0..ALL {
        let next = all.came.wait(TIMEOUT).unwrap().expect("a message in time");
        assert!(next.is_success(), "{next:?}");
        // Each change of the table stops the engines for its own time only.
        let region = all.pd.allocate(64, Access::all()).unwrap();
        region.deallocate().unwrap();
    }
    for _ in 0..ALL {
        let done = (all.sent.wait(TIMEOUT).unwrap()).expect("a completion in time");
        assert!(done.is_success(), "{done:?}");
    }
    let stream = |near: &End| near.qp.query().unwrap().stream.unwrap();
    let engines = all.senders.iter().map(|near| stream(near).engine());
    assert_eq!(
        engines.filter(|engine| *engine == 1).count(),
        CONNECTIONS / 2
    );
}

#[test]
#[cfg_attr(miri, ignore = "needs an eventfd")]
fn closing_ends_all_engines_and_their_peers_connections() {
    let ([a, b], _cable) = rnics();
    let (pd_a, pd_b) = (a.allocate_pd().unwrap(), b.allocate_pd().unwrap());
    let (cq_a, cq_b) = (a.create_cq(64).unwrap(), b.create_cq(64).unwrap());
    let mut listener = b.listen("10.0.0.2:7471".parse().unwrap()).unwrap();
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut near = End::new(&pd_a, &cq_a, &QpConfig::default(), 64);
        let mut far = End::new(&pd_b, &cq_b, &QpConfig::default(), 64);
        connect(&mut near, &mut listener, &mut far.qp);
        ends.push((near, far));
    }
    a.close().unwrap();
    for (near, far) in &ends {
        assert_eq!(near.qp.state(), QpState::Error);
        eventually("the peer learns of it", || far.qp.state() == QpState::Error);
    }
}
