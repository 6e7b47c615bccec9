//! The application on the RNIC: queue pairs, what it posts to them, and a check of what completes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use xwarp::attr::QpId;
use xwarp::cm::{Connecting, ConnectionRequest};
use xwarp::sim::RegionPool;
use xwarp::work::Operation;
use xwarp::{
    CompletionQueue, Listener, MemoryRegion, ProtectionDomain, QpConfig, QpState, QueuePair,
    RecvRequest, RemoteAddress, Rnic, SendRequest, Stag, WrId,
};
use xwarp_driver::Wire;
use xwarp_test_kit::MemoryRnic;

use super::memory::{Memory, Place};
use super::program::{Answer, Scene};
use super::sides::{RNIC, address, address_of, stack_config};

/// Frames of the RNIC's interface.
const FRAMES: usize = 96;
/// The port that it listens on.
pub(super) const LISTEN_PORT: u16 = 7471;
/// Queue pairs for hostile peers.
const MAX_QPS: usize = 4;
/// Completions of a small queue, and of one that is never full.
const CQ_ENTRIES: (usize, usize) = (3, 1024);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Seen if anything was placed in the target.
pub(super) const TARGET_WRITTEN: &str = "target written";

/// How a work request ended, with the queue pair that it was posted to.
struct Posted {
    qp: QpId,
    /// It must complete in the end: success is reported, too, and its queue pair was not dropped.
    owed: bool,
    done: Option<String>,
}

/// See the module.
pub(super) struct Application {
    pub(super) memory: Memory,
    qps: Vec<QueuePair>,
    cq: CompletionQueue,
    posted: BTreeMap<u64, Posted>,
    next_id: u64,
    listener: Listener,
    requests: Vec<ConnectionRequest>,
    connecting: Option<Connecting>,
    /// What was seen, for [`Behaviour`](crate::Behaviour).
    pub(super) seen: BTreeSet<String>,
    config: QpConfig,
    answer: Answer,
    small_cq: bool,
    /// What a well-behaved peer's message goes to, and its answer comes from.
    service: Option<MemoryRegion>,
    pd: ProtectionDomain,
    rnic: Rnic,
}

impl Application {
    pub(super) fn new(scene: &Scene) -> (Self, Wire) {
        let pool = RegionPool::anonymous(Memory::AREA).expect("memory");
        let (rnic, wire) = MemoryRnic::with_address(RNIC, address_of(scene.ipv6))
            .frames(FRAMES)
            .regions(pool.clone())
            .stack(|tcp| *tcp = stack_config(RNIC))
            .open();
        let pd = rnic.allocate_pd().expect("a domain");
        let entries = if scene.small_cq {
            CQ_ENTRIES.0
        } else {
            CQ_ENTRIES.1
        };
        let at = SocketAddr::new(address(RNIC, scene.ipv6), LISTEN_PORT);
        let application = Self {
            memory: Memory::new(&pool, &pd, &rnic.allocate_pd().expect("a domain")),
            qps: Vec::new(),
            cq: rnic.create_cq(entries).expect("a queue"),
            posted: BTreeMap::new(),
            next_id: 0,
            service: None,
            listener: rnic.listen(at).expect("a free port"),
            requests: Vec::new(),
            connecting: None,
            seen: BTreeSet::new(),
            config: scene.qp.clone(),
            answer: scene.answer,
            small_cq: scene.small_cq,
            pd,
            rnic,
        };
        (application, wire)
    }

    pub(super) fn rnic(&self) -> &Rnic {
        &self.rnic
    }

    /// Connects to the peer.
    pub(super) fn connect(&mut self, at: SocketAddr) {
        let mut qp = self.new_qp();
        self.connecting = qp.begin_connect(at, b"hello", CONNECT_TIMEOUT).ok();
        self.qps.push(qp);
    }

    fn new_qp(&self) -> QueuePair {
        self.pd
            .create_qp(&self.config, &self.cq, &self.cq)
            .expect("room for a queue pair")
    }

    /// Does what an application does that looks once: accepts, and takes completions and events;
    /// how much there was.
    pub(super) fn look(&mut self) -> usize {
        let mut found = 0;
        while let Some(request) = self.listener.try_accept().unwrap() {
            found += 1;
            self.on_request(request);
        }
        if let Some(outcome) = self.connecting.as_mut().and_then(Connecting::try_finish) {
            self.connecting = None;
            found += 1;
            self.note(match &outcome {
                Ok(_) => "connected".to_owned(),
                Err(error) => format!("{:?}", std::mem::discriminant(error)),
            });
        }
        while let Some(event) = self.rnic.events().try_next().ok().flatten() {
            found += 1;
            self.note(words(&format!("{:?}", event.kind)));
        }
        while let Some(completion) = self.cq.poll().expect("an open RNIC") {
            found += 1;
            let WrId(id) = completion.wr_id;
            let how = format!("{:?} {:?}", completion.opcode, completion.status);
            self.note(how.clone());
            let posted = self
                .posted
                .get_mut(&id)
                .expect("only what was posted completes");
            assert_eq!(
                posted.qp, completion.qp,
                "work request {id} completes where it was posted"
            );
            let before = posted.done.replace(how);
            assert_eq!(before, None, "work request {id} completes once");
        }
        found
    }

    fn on_request(&mut self, request: ConnectionRequest) {
        match self.answer {
            Answer::Accept if self.qps.len() < MAX_QPS => {
                let mut qp = self.new_qp();
                let told = request.accept(&mut qp, b"welcome");
                self.note(format!("accepted {}", told.is_ok()));
                self.qps.push(qp);
            }
            Answer::Nothing => self.requests.push(request),
            Answer::Accept | Answer::Reject => drop(request.reject(b"no")),
        }
    }

    /// Posts to the newest queue pair, or, with bit 3 of `kind`, to the oldest. Bits 0-2: receive,
    /// Send, Write, Read, Send with Invalidate, fenced Write, two pieces, unsignaled Send.
    pub(super) fn post(&mut self, kind: u8, len: u8) {
        let id = self.next_id;
        self.next_id += 1;
        let old = kind & 8 != 0;
        let Some(n) = self
            .qps
            .len()
            .checked_sub(1)
            .map(|last| if old { 0 } else { last })
        else {
            return;
        };
        let long = u32::from(len) * if kind & 7 == 2 { 16 } else { 1 };
        let source = self.memory.local(Place::Source, long);
        let sink = self.memory.local(Place::Target, u32::from(len));
        let remote = RemoteAddress {
            stag: Stag(0x100),
            to: 0,
        };
        let wr = WrId(id);
        let request = match kind & 7 {
            0 => {
                let Some(sge) = self.memory.buffer(len) else {
                    return;
                };
                let request = RecvRequest::new(wr, sge);
                return self.note_posted(n, id, true, |qp| qp.post_recv(request).is_ok());
            }
            1 => SendRequest::send(wr, source),
            2 => SendRequest::write(wr, source, remote),
            3 => SendRequest::read(wr, sink, remote),
            4 => SendRequest::new(
                wr,
                Operation::Send {
                    payload: source.into(),
                    solicited: true,
                    invalidate: Some(Stag(0x100)),
                },
            ),
            5 => SendRequest::write(wr, source, remote).fenced(),
            6 => SendRequest::send(wr, xwarp::work::Sgl::from_iter([source, sink])),
            _ => SendRequest::send(wr, source).unsignaled(),
        };
        let owed = request.signaled;
        self.note_posted(n, id, owed, |qp| qp.post_send(request).is_ok());
    }

    /// Posts to the newest queue pair. 7 is Immediate Data, 8 a Write with it, 9 an addition, 10 a
    /// fenced one. 11 is a comparison whose result has a place, 12 one whose result has none.
    fn post_extension(&mut self, kind: u8, which: u8) {
        let id = self.next_id;
        self.next_id += 1;
        let (wr, number) = (WrId(id), u64::from(which));
        let remote = RemoteAddress {
            stag: Stag(0x100),
            to: number,
        };
        let source = self.memory.local(Place::Source, u32::from(which));
        let sink = self.memory.local(Place::Target, 8);
        let request = match kind {
            7 => SendRequest::immediate(wr, number.to_be_bytes()),
            8 => SendRequest::write_immediate(wr, source, remote, number.to_be_bytes()),
            9 => SendRequest::fetch_add(wr, number, remote),
            10 => SendRequest::fetch_add(wr, number, remote).fenced(),
            11 => SendRequest::compare_swap(wr, number, 0, remote).result_into(sink),
            _ => SendRequest::swap(wr, number, remote),
        };
        let newest = self.qps.len() - 1;
        self.note_posted(newest, id, true, |qp| qp.post_send(request).is_ok());
    }

    /// Posts memory work to the newest queue pair. `which` is 0 to bind the window, 1 to invalidate
    /// it, 2 to do so with a Local Fence. 3 invalidates the target, 4 the region for windows. All
    /// else reads into the window and invalidates it.
    fn post_memory_work(&mut self, which: u8) {
        let id = self.next_id;
        self.next_id += 1;
        let (wr, window) = (WrId(id), self.memory.local(Place::Window, 16));
        let nowhere = RemoteAddress {
            stag: Stag(0x100),
            to: 0,
        };
        let request = match which {
            0 => SendRequest::bind(wr, self.memory.bind()),
            1 => SendRequest::invalidate(wr, window.stag),
            2 => SendRequest::invalidate(wr, window.stag).locally_fenced(),
            3 => SendRequest::invalidate(wr, self.memory.local(Place::Target, 0).stag),
            4 => SendRequest::invalidate(wr, self.memory.windowed()),
            _ => SendRequest::read(wr, window, nowhere).invalidating_sink(),
        };
        let newest = self.qps.len() - 1;
        self.note_posted(newest, id, true, |qp| qp.post_send(request).is_ok());
    }

    fn note_posted(
        &mut self,
        n: usize,
        id: u64,
        owed: bool,
        post: impl FnOnce(&mut QueuePair) -> bool,
    ) {
        let qp = &mut self.qps[n];
        if post(qp) {
            let qp = qp.id();
            self.posted.insert(
                id,
                Posted {
                    qp,
                    owed,
                    done: None,
                },
            );
        } else {
            self.note("not posted".to_owned());
        }
    }

    /// Deeds of an application besides its posts, to the newest queue pair. 0 closes, 1 resets, 2
    /// drops it. 3 deregisters region `which`, 4 accepts what it left unanswered, 5 gives that up.
    /// 6 makes another connection to the peer. 7 to 12 post what RFC 7306 has, 13 memory work.
    pub(super) fn act(&mut self, kind: u8, which: u8, peer: SocketAddr) {
        let room = self.qps.len() < MAX_QPS;
        match (kind, self.qps.last_mut()) {
            (0, Some(qp)) => qp.begin_disconnect().expect("an engine"),
            (1, Some(qp)) => qp.abort().expect("an engine"),
            (2, Some(_)) => {
                let qp = self.qps.pop().map(|qp| qp.id());
                for posted in self
                    .posted
                    .values_mut()
                    .filter(|posted| Some(posted.qp) == qp)
                {
                    posted.owed = false;
                }
            }
            (3, _) => self.memory.deregister(which),
            (4, _) => {
                self.answer = Answer::Accept;
                for request in std::mem::take(&mut self.requests) {
                    self.on_request(request);
                }
            }
            (5, _) => self.requests.clear(),
            (6, _) if room => self.connect(peer),
            (7..=12, Some(_)) => self.post_extension(kind, which),
            (13, Some(_)) => self.post_memory_work(which),
            _ => {}
        }
    }

    fn note(&mut self, what: String) {
        self.seen.insert(what);
    }

    /// Ends what is left. Every work request must complete then.
    pub(super) fn end(&mut self) {
        let states: Vec<QpState> = self.qps.iter().map(QueuePair::state).collect();
        self.note(format!("{states:?}"));
        self.answer = Answer::Accept;
        self.requests.clear();
        for qp in &mut self.qps {
            qp.abort().expect("an engine");
        }
    }

    /// After [`end`](Self::end) and all that follows from it.
    pub(super) fn check_ended(&mut self) {
        for qp in &self.qps {
            let state = qp.state();
            assert!(
                matches!(state, QpState::Error | QpState::Idle),
                "{:?} in {state:?}",
                qp.id()
            );
        }
        self.memory.check();
        if self.memory.target_was_written() {
            self.note(TARGET_WRITTEN.to_owned());
        }
        if !self.small_cq {
            self.check_completions();
        }
    }

    /// All work of queue pairs in Error is done or flushed; what is signaled is reported.
    fn check_completions(&self) {
        for (id, posted) in &self.posted {
            let failed = self
                .qps
                .iter()
                .any(|qp| qp.id() == posted.qp && qp.state() == QpState::Error);
            assert!(
                !failed || !posted.owed || posted.done.is_some(),
                "work request {id} never completes"
            );
        }
    }

    /// Makes room for a well-behaved peer, with a region that no other peer has used.
    pub(super) fn make_ready(&mut self) {
        self.qps.clear();
        self.posted.clear();
        self.cq = self.rnic.create_cq(8).expect("a queue");
        self.config = QpConfig::default();
        self.answer = Answer::Accept;
        self.service = Some(
            self.pd
                .allocate(64, xwarp::Access::LOCAL_READ | xwarp::Access::LOCAL_WRITE)
                .expect("room"),
        );
    }

    /// Posts a receive and the answer to it. Returns false if no peer is connected.
    pub(super) fn serve(&mut self) -> bool {
        let (Some(qp), Some(region)) = (self.qps.last_mut(), &self.service) else {
            return false;
        };
        let received = RecvRequest::new(WrId(0), region.local(0, 32));
        let answer = SendRequest::send(WrId(1), region.local(0, 4));
        let qp_id = qp.id();
        let posted = qp.post_recv(received).is_ok() && qp.post_send(answer).is_ok();
        for id in 0..2 {
            let unfinished = Posted {
                qp: qp_id,
                owed: true,
                done: None,
            };
            self.posted.insert(id, unfinished);
        }
        posted
    }

    /// Both have completed, the message is there, and the connection has ended well.
    pub(super) fn check_served(&self, message: &[u8]) {
        let done: Vec<_> = self
            .posted
            .values()
            .map(|posted| posted.done.as_deref())
            .collect();
        assert_eq!(
            done,
            [Some("Receive Success"), Some("Send Success")],
            "a good peer is served"
        );
        let bytes = self
            .service
            .as_ref()
            .map(|region| region.bytes().to_vec())
            .unwrap_or_default();
        assert_eq!(bytes.get(..message.len()), Some(message));
        assert_eq!(self.qps.last().map(QueuePair::state), Some(QpState::Idle));
    }
}

/// The text without its numbers and quoted parts.
fn words(text: &str) -> String {
    text.split('"').step_by(2).collect()
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let states: Vec<QpState> = self.qps.iter().map(QueuePair::state).collect();
        write!(
            f,
            "{states:?}, seen {:?}, {:?}",
            self.seen,
            self.rnic.counters()
        )
    }
}
