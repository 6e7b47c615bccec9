//! Resources of the process: RNICs give back all that they took when they are closed. These tests
//! count them, so they run one at a time in a process of their own.

use std::alloc::System;
use std::fs::{self, File};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use xwarp::config::Progress;
use xwarp::error::{
    ConnectError, CreateError, ListenError, OpenError, QueryError, RnicUnavailable, WaitError,
};
use xwarp::event::HandlerId;
use xwarp::sim::{FixedHost, Host};
use xwarp::{
    Access, CompletionQueue, ProtectionDomain, QpConfig, QueuePair, RecvRequest, Rnic, RnicConfig,
    SharedReceiveQueue, SrqConfig, WrId,
};
use xwarp_sim_tests::{KIB, LateHost, Side};
use xwarp_test_kit::{MemoryRnic, eventually};

const ALL_PROGRESS: [Progress; 4] = [
    Progress::Thread,
    Progress::Inline,
    Progress::Assisted,
    Progress::Manual,
];
/// Bytes that regions can have.
const AREA: usize = 64 * KIB;
/// File descriptors that the process may have while there are to be none left.
const FEW: u64 = 64;
const PORT: u16 = 7471;
/// Bytes that may stay allocated at the end of a count: the test harness has some.
const SLACK: usize = 8 * KIB;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keeps the tests from counting each other's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn host() -> Arc<FixedHost> {
    let peer = (Side::B.address(), Side::B.mac());
    Arc::new(FixedHost::new(Side::A.address(), [peer]))
}

/// An RNIC without a link.
fn open<H: Host + 'static>(host: &Arc<H>, progress: Progress) -> Result<Rnic, OpenError> {
    let rnic = MemoryRnic::at(Side::A).shared_host(host.clone());
    let opened = rnic.region_area(AREA).progress(progress).try_open();
    opened.map(|(rnic, _wire)| rnic)
}

/// File descriptors of this process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of this process that run an engine.
fn engines() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // One that has just ended has no name.
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
    names
        .filter(|name| {
            name.as_ref()
                .is_ok_and(|name| name.trim() == "xwarp-engine")
        })
        .count()
}

/// Engines' threads that an RNIC has.
fn threads_of(progress: Progress) -> usize {
    usize::from(matches!(progress, Progress::Thread | Progress::Assisted))
}

/// Takes all file descriptors that there can be, until they are dropped.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn interface_that_is_not_there_is_named_together_with_those_that_are() {
    let _alone = alone();
    let refused = Rnic::open("nosuch0", &RnicConfig::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Nic(_)));
    let text = refused.to_string();
    let begins = text.starts_with("no interface is named \"nosuch0\" here; choose one of: ");
    assert!(begins && text.contains("lo"), "{text}");
}

#[test]
fn without_resources_nothing_is_opened_or_created_and_what_there_is_stays_usable() {
    let _alone = alone();
    let limits = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let rnics = ALL_PROGRESS.map(|progress| open(&host(), progress).unwrap());
    setrlimit(Resource::RLIMIT_NOFILE, FEW, limits.1).unwrap();
    let taken = take_all();
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let refused = open(&host(), progress).err();
        assert!(matches!(refused, Some(OpenError::System(_))), "{refused:?}");
    }
    for rnic in &rnics {
        let refused = rnic.create_cq(4).err();
        assert!(
            matches!(refused, Some(CreateError::System(_))),
            "{refused:?}"
        );
        assert!(rnic.query().unwrap().max_cqs > 1, "fewer than there can be");
        let pd = rnic.allocate_pd().unwrap();
        assert!(pd.allocate(8, Access::LOCAL_READ).is_ok());
    }
    drop(taken);
    for rnic in &rnics {
        assert!(rnic.create_cq(4).is_ok());
    }
    assert!(open(&host(), Progress::Thread).is_ok());
    setrlimit(Resource::RLIMIT_NOFILE, limits.0, limits.1).unwrap();
}

/// Verbs that take a file descriptor, and whether they say that there is none.
fn say_that_none_is_left(rnic: &Rnic, qp: &mut QueuePair) -> [(&'static str, bool); 6] {
    let (own, peer) = ((Side::A.address(), PORT), (Side::B.address(), PORT));
    let limit = Duration::from_secs(1);
    let channel = rnic.create_completion_channel().err();
    let listener = rnic.listen(own.into()).err();
    let streams = rnic.listen_streams(own.into()).err();
    let connecting = qp.begin_connect(peer.into(), b"", limit).err();
    let stream = rnic.begin_connect_stream(peer.into(), limit).err();
    let changes = qp.state_changes().err();
    [
        (
            "create_completion_channel",
            matches!(channel, Some(CreateError::System(_))),
        ),
        ("listen", matches!(listener, Some(ListenError::System(_)))),
        (
            "listen_streams",
            matches!(streams, Some(ListenError::System(_))),
        ),
        (
            "begin_connect",
            matches!(connecting, Some(ConnectError::Resources(_))),
        ),
        (
            "begin_connect_stream",
            matches!(stream, Some(ConnectError::Resources(_))),
        ),
        (
            "state_changes",
            matches!(changes, Some(WaitError::System(_))),
        ),
    ]
}

#[test]
fn verbs_that_take_a_descriptor_say_that_none_is_left() {
    let _alone = alone();
    let limits = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    for progress in ALL_PROGRESS {
        let rnic = open(&host(), progress).unwrap();
        let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(16).unwrap());
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, FEW, limits.1).unwrap();
        let taken = take_all();
        let said = say_that_none_is_left(&rnic, &mut qp);
        drop(taken);
        setrlimit(Resource::RLIMIT_NOFILE, limits.0, limits.1).unwrap();
        for (verb, said) in said {
            assert!(said, "{progress:?}: {verb}");
        }
    }
}

/// Bytes that the process has allocated and not freed. Resident memory is no measure: the allocator
/// keeps freed pages.
fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Verbs draft §6.3.3: what was posted to a shared receive queue and taken by no message goes with
/// it.
#[test]
fn buffers_that_no_message_has_taken_go_with_their_queue() {
    let _alone = alone();
    let rnic = open(&host(), Progress::Manual).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let region = pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let depth = rnic.query().unwrap().max_srq_work_requests;
    let config = SrqConfig::default().depth(depth);
    let fill_and_destroy = || {
        let mut srq = pd.create_srq(config).unwrap();
        let buffers = (0..depth).map(|_| RecvRequest::new(WrId(1), region.local(0, 8)));
        assert_eq!(srq.post_recv_list(buffers), Ok(depth));
        assert!(srq.destroy().is_ok());
    };
    fill_and_destroy();
    let before = allocated();
    (0..20).for_each(|_| fill_and_destroy());
    let grown = allocated().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes");
    assert!(region.deallocate().is_ok());
    assert!(pd.deallocate().is_ok(), "nothing is left of the domain");
}

/// Adds a handler of completions and one of events. Both hold `held`.
fn add_handlers(rnic: &Rnic, held: &Arc<()>) -> HandlerId {
    let [completions, events] = [held, held].map(Arc::clone);
    let handles_events = rnic.set_event_handler(move |_, _| drop(Arc::clone(&events)));
    handles_events.unwrap();
    let handler = rnic.add_completion_handler(move |_| drop(Arc::clone(&completions)));
    handler.unwrap()
}

/// One with a receive queue of its own, and one that shares.
fn two_queue_pairs(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue,
) -> [QueuePair; 2] {
    let config = QpConfig::default();
    let own = pd.create_qp(&config, cq, cq).unwrap();
    let sharing = pd.create_qp_with_srq(&config, cq, cq, srq).unwrap();
    [own, sharing]
}

/// Close RNIC frees everything, although the application still holds handles. Dropping those leaves
/// nothing either.
#[test]
fn close_frees_objects_of_all_kinds_though_their_handles_are_held() {
    let _alone = alone();
    for progress in ALL_PROGRESS {
        let (host, before) = (host(), descriptors());
        let rnic = open(&host, progress).unwrap();
        let held = Arc::new(());
        let handler = add_handlers(&rnic, &held);
        let cq = rnic.create_cq_with(16, handler).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let srq = pd.create_srq(SrqConfig::default()).unwrap();
        let [own, sharing] = two_queue_pairs(&pd, &cq, &srq);
        // What remains of these two has no memory: the RNIC alone keeps it.
        let [first, second] = [0, 1].map(|_| pd.allocate(AREA / 2, Access::all()).unwrap());
        let stags = [first.into_stag(), second.into_stag()];
        let window = pd.allocate_window().unwrap();
        let at = (Side::A.address(), PORT);
        let listener = rnic.listen(at.into()).unwrap();
        let peer = (Side::B.address(), PORT).into();
        let stream = (rnic.connect_stream(peer, Duration::from_secs(1))).unwrap();
        assert_eq!(Arc::strong_count(&held), 3);
        let threads = threads_of(progress);
        eventually("its thread has a name", || engines() == threads);
        assert!(rnic.allocate_memory(1).is_err());
        assert!(host.open_port(at.0, at.1).is_err());

        assert_eq!(rnic.close(), Ok(()));
        assert_eq!(Arc::strong_count(&held), 1, "{progress:?}: handlers");
        assert!(rnic.allocate_memory(AREA).is_ok(), "{progress:?}: memory");
        assert!(host.open_port(at.0, at.1).is_ok(), "{progress:?}: a port");
        assert_eq!(engines(), 0, "{progress:?}: a thread");
        let again = open(&host, progress).unwrap();
        assert_stale(&[&own, &sharing]);
        let closed = QueryError::Unavailable(RnicUnavailable::Closed);
        assert_eq!(stags[0].query().unwrap_err(), closed);
        assert_eq!(window.query().unwrap_err(), closed);
        drop((cq, pd, srq, own, sharing, stags, window, listener, stream));
        drop((rnic, again));
        assert_eq!(descriptors(), before, "{progress:?}: at last");
    }
}

/// What a connection takes while its next hop is searched for, it gives back with the attempt.
#[test]
fn attempts_that_are_given_up_during_the_search_leave_nothing() {
    const ATTEMPTS: usize = 10_000;
    let _alone = alone();
    for progress in ALL_PROGRESS {
        let host = Arc::new(LateHost::new(None));
        let rnic = open(&host, progress).unwrap();
        let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(16).unwrap());
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        let (peer, limit) = ((Side::B.address(), PORT).into(), Duration::from_hours(1));
        let before = descriptors();
        let attempt = |qp: &mut QueuePair| {
            let connecting = qp.begin_connect(peer, b"", limit).unwrap();
            let stream = rnic.begin_connect_stream(peer, limit).unwrap();
            assert_eq!(host.searches(), 2);
            drop((connecting, stream));
        };
        (0..ATTEMPTS / 10).for_each(|_| attempt(&mut qp));
        let start = allocated();
        (0..ATTEMPTS).for_each(|_| attempt(&mut qp));
        let grown = allocated().saturating_sub(start);
        assert!(grown < SLACK, "{progress:?}: {grown} bytes");
        assert_eq!(descriptors(), before, "{progress:?}");
        assert_eq!(host.searches(), 0, "{progress:?}");
        assert!(host.has_all_ports(), "{progress:?}");
        assert_eq!(rnic.next_deadline().unwrap(), None, "{progress:?}");
        assert!(qp.begin_connect(peer, b"", limit).is_ok(), "{progress:?}");
    }
}

/// Not even if the same RNIC was opened again.
fn assert_stale(qps: &[&QueuePair]) {
    for qp in qps {
        assert_eq!(qp.query().map(|_| ()), Err(RnicUnavailable::Closed));
    }
}
