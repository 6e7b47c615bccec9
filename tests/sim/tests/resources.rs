//! Resources of the process: RNICs give back all that they took when they are closed. These tests count them, so they run one at a
//! time in a process of their own.

use std::fs::{self, File};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use xwarp::{
    Access, CreateError, FixedHost, Host, OpenError, Progress, QpConfig, QueryError, QueuePair,
    RecvRequest, RegionPool, Rnic, RnicConfig, RnicUnavailable, SrqConfig, WrId,
};
use xwarp_driver::MemoryIo;
use xwarp_sim_tests::{KIB, Side};
use xwarp_tcp::StackConfig;

const ALL_PROGRESS: [Progress; 3] = [Progress::Thread, Progress::Inline, Progress::Manual];
/// Bytes that regions can have.
const AREA: usize = 64 * KIB;
/// File descriptors that the process may have while there are to be none left.
const FEW: u64 = 64;
const PORT: u16 = 7471;

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
fn open(host: &Arc<FixedHost>, progress: Progress) -> Result<Rnic, OpenError> {
    let (io, _wire) = MemoryIo::new(64).unwrap();
    let stack = StackConfig {
        mac: Side::A.mac(),
        ..StackConfig::default()
    };
    let config = RnicConfig {
        progress,
        ..RnicConfig::default()
    };
    let regions = RegionPool::anonymous(AREA).unwrap();
    Rnic::with_io(Box::new(io), stack, host.clone(), regions, &config)
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
    for progress in [Progress::Thread, Progress::Inline] {
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

/// Bytes of memory that this process has.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split(' ').nth(1).unwrap();
    4 * KIB * pages.parse::<usize>().unwrap()
}

/// Verbs draft §6.3.3: what was posted to a shared receive queue and taken by no message goes with it.
#[test]
fn buffers_that_no_message_has_taken_go_with_their_queue() {
    let _alone = alone();
    let rnic = open(&host(), Progress::Manual).unwrap();
    let pd = rnic.allocate_pd().unwrap();
    let region = pd.allocate(8, Access::LOCAL_WRITE).unwrap();
    let depth = rnic.query().unwrap().max_srq_work_requests;
    let config = SrqConfig {
        depth,
        ..SrqConfig::default()
    };
    let fill_and_destroy = || {
        let mut srq = pd.create_srq(config).unwrap();
        let buffers = (0..depth).map(|_| RecvRequest::new(WrId(1), region.local(0, 8)));
        assert_eq!(srq.post_recv_list(buffers), Ok(depth));
        assert!(srq.destroy().is_ok());
    };
    fill_and_destroy();
    let before = resident();
    (0..20).for_each(|_| fill_and_destroy());
    let each = depth * size_of::<RecvRequest>();
    let grown = resident().saturating_sub(before);
    assert!(grown < 4 * each, "{grown} bytes after 20 queues of {each}");
    assert!(region.deallocate().is_ok());
    assert!(pd.deallocate().is_ok(), "nothing is left of the domain");
}

/// Everything is there once more after Close RNIC, whoever holds handles, and nothing is left when those are dropped, too.
#[test]
fn close_frees_objects_of_all_kinds_though_their_handles_are_held() {
    let _alone = alone();
    for progress in ALL_PROGRESS {
        let (host, before) = (host(), descriptors());
        let rnic = open(&host, progress).unwrap();
        let held = Arc::new(());
        let [completions, events] = [&held, &held].map(Arc::clone);
        let handler = rnic.add_completion_handler(move |_| drop(Arc::clone(&completions)));
        let handler = handler.unwrap();
        let handles_events = rnic.set_event_handler(move |_, _| drop(Arc::clone(&events)));
        handles_events.unwrap();
        let cq = rnic.create_cq_with(16, handler).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let srq = pd.create_srq(SrqConfig::default()).unwrap();
        let config = QpConfig::default();
        let own = pd.create_qp(&config, &cq, &cq).unwrap();
        let sharing = pd.create_qp_with_srq(&config, &cq, &cq, &srq).unwrap();
        // What remains of these two has no memory: the RNIC alone keeps it.
        let [first, second] = [0, 1].map(|_| pd.allocate(AREA / 2, Access::all()).unwrap());
        let stags = [first.into_stag(), second.into_stag()];
        let window = pd.allocate_window().unwrap();
        let at = (Side::A.address(), PORT);
        let listener = rnic.listen(at.into()).unwrap();
        let peer = (Side::B.address(), PORT);
        let stream = rnic.connect_stream(peer.into(), Duration::from_secs(1));
        let stream = stream.unwrap();
        assert_eq!(Arc::strong_count(&held), 3);
        assert_eq!(engines(), usize::from(progress == Progress::Thread));
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

/// Not even if the same RNIC was opened again.
fn assert_stale(qps: &[&QueuePair]) {
    for qp in qps {
        assert_eq!(qp.query().map(|_| ()), Err(RnicUnavailable::Closed));
    }
}
