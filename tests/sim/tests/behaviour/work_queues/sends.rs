//! The send queue of a queue pair that has a shared receive queue (verbs draft §6.3).

use std::fmt::Debug;
use std::time::Duration;

use xwarp::attr::QpChange;
use xwarp::work::{Operation, Sgl};
use xwarp::{Access, CompletionStatus, QpConfig, QpState, SendRequest, Sge, SrqConfig, Stag, WrId};
use xwarp_sim_tests::{Sim, SimEnd};

use super::sim;

const DEPTH: usize = 8;

/// A connected pair, and everything that its first end has reported.
struct Run {
    sim: Sim,
    a: SimEnd,
    b: SimEnd,
    told: Vec<String>,
}

impl Run {
    /// With a receive queue of its own, or a shared one.
    fn new(shared: bool) -> Self {
        let mut sim = sim();
        let config = QpConfig::default()
            .send_depth(DEPTH)
            .ord(2)
            .privileged(true);
        let (host, mut b) = (sim.a(), sim.b().end(&QpConfig::default()));
        let mut a = host.end(&config);
        let srq = host.pd().create_srq(SrqConfig::default()).unwrap();
        let (send_cq, recv_cq) = a.cqs();
        let qp = if shared {
            host.pd()
                .create_qp_with_srq(&config, send_cq, recv_cq, &srq)
        } else {
            host.pd().create_qp(&config, send_cq, recv_cq)
        };
        a.qp = qp.unwrap();
        assert_eq!(a.qp.query().unwrap().srq.is_some(), shared);
        a.post(SendRequest::write(WrId(1), Sgl::new(), nowhere()));
        sim.connect(&mut a, &mut b);
        (0..20).for_each(|id| b.post_recv(id, 8));
        let told = Vec::new();
        let mut run = Self { sim, a, b, told };
        run.settle();
        run
    }

    fn note(&mut self, what: impl Debug) {
        self.told.push(format!("{:?} {what:?}", self.sim.now()));
    }

    fn post(&mut self, request: SendRequest) {
        let posted = self.a.qp.post_send(request);
        self.note(posted);
    }

    /// Runs until the link is idle, and records all completions and events.
    fn settle(&mut self) {
        self.sim.run_until_idle();
        while let Some(completion) = self.a.send_cq().poll().unwrap() {
            self.note(completion);
        }
        let (receives, events) = (self.b.receives(), self.a.events());
        self.note((receives, events, self.a.state()));
    }

    /// Work of every kind that needs a peer, signaled and not.
    fn work_of_all_kinds(&mut self) {
        let (near, far) = (self.a.target(8), self.b.target(8));
        far.fill(b"far away");
        let gone = self.b.own_region(8, Access::all());
        let source = self.a.source(b"8 bytes!");
        let send = |solicited, invalidate| {
            let sgl = source.into();
            let operation = Operation::Send {
                payload: sgl,
                solicited,
                invalidate,
            };
            SendRequest::new(WrId(2), operation)
        };
        for request in [
            send(false, None),
            send(true, None).unsignaled(),
            send(false, Some(gone.stag())),
            SendRequest::write(WrId(3), source, far.remote(0)),
            SendRequest::read(WrId(4), near.local(0, 8), far.remote(0)),
            send(false, None).fenced(),
            SendRequest::immediate(WrId(5), [0; 8]),
            SendRequest::fetch_add(WrId(6), 0, far.remote(0)),
        ] {
            self.post(request);
        }
        self.settle();
        self.note((near.to_vec(), far.to_vec()));
        self.note(gone.query().unwrap().is_valid());
    }

    /// Work on memory of this side, in its turn.
    fn memory_work(&mut self) {
        let region = self.a.va_region(64, Access::all(), 0x1000);
        let sink = self.a.region(8, Access::all());
        let far = self.b.target(8);
        let mut window = self.a.host().pd().allocate_window().unwrap();
        let bind = window.bind(region.remote(0), 64, Access::REMOTE_READ);
        self.post(SendRequest::bind(WrId(1), bind));
        let read = SendRequest::read(WrId(2), sink.local(0, 8), far.remote(0));
        self.post(read.invalidating_sink());
        self.post(SendRequest::invalidate(WrId(3), bind.window).locally_fenced());
        self.settle();
        self.note((
            window.query().unwrap().is_valid(),
            sink.query().unwrap().is_valid(),
        ));
    }

    /// Slots are free when completions are polled; Reads beyond ORD wait.
    fn slots_and_reads(&mut self) {
        let far = self.b.target(8);
        let sink = self.a.target(8);
        let read = || SendRequest::read(WrId(1), sink.local(0, 8), far.remote(0));
        (0..=DEPTH).for_each(|_| self.post(read()));
        self.sim.run_for(Duration::from_micros(120));
        let answered = self.a.send_cq().poll().unwrap();
        self.note(answered);
        self.post(read());
        self.post(read());
        self.settle();
        self.note(self.a.qp.query().unwrap().send_depth);
        let resized = (self.a.qp).modify(QpChange::to(QpState::Rts).send_depth(3));
        self.note(resized.map(|depths| depths.send_depth));
        (0..4).for_each(|_| self.post(read()));
        self.settle();
    }

    /// What cannot be posted, and what fails when its turn comes.
    fn failures(&mut self) {
        let wrong = Sge {
            stag: Stag(0x1234_5678),
            to: 0,
            len: 8,
        };
        let huge = Sge {
            len: u32::MAX,
            ..wrong
        };
        self.post(SendRequest::send(WrId(1), Sgl::from_iter([huge, huge])));
        self.post(SendRequest::invalidate(WrId(1), Stag(0)));
        self.post(SendRequest::write(WrId(1), Sgl::new(), nowhere()));
        self.post(SendRequest::send(WrId(2), wrong));
        self.post(SendRequest::write(WrId(3), Sgl::new(), nowhere()).unsignaled());
        self.settle();
        self.post(SendRequest::write(WrId(4), Sgl::new(), nowhere()));
    }
}

fn nowhere() -> xwarp::RemoteAddress {
    xwarp::RemoteAddress {
        stag: Stag::PLACEHOLDER,
        to: 0,
    }
}

fn told(shared: bool) -> Vec<String> {
    let mut run = Run::new(shared);
    run.work_of_all_kinds();
    run.memory_work();
    run.slots_and_reads();
    run.failures();
    run.told
}

/// To the microsecond.
#[test]
fn send_queue_behaves_as_that_of_any_other_queue_pair() {
    let (own, shared) = (told(false), told(true));
    for (own, shared) in own.iter().zip(&shared) {
        assert_eq!(own, shared);
    }
    assert_eq!(own.len(), shared.len());
    let has = |what: &str| shared.iter().filter(|it| it.contains(what)).count();
    assert_eq!(has("TooManyWorkRequests"), 3);
    assert_eq!(
        has("TooLong") + has("StagZero") + has("Err(InvalidState(Error))"),
        3
    );
    let failed = |status: CompletionStatus| has(&format!("status: {status:?},"));
    assert_eq!(failed(CompletionStatus::InvalidStag), 1);
    assert_eq!(failed(CompletionStatus::Flushed), 1);
    assert_eq!(
        failed(CompletionStatus::Success),
        1 + 7 + 3 + DEPTH + 1 + 3 + 1
    );
}
