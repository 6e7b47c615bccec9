//! The engine's own clock, which only engines that run by themselves have: it goes on while they sleep.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xwarp::{ConnectError, FixedHost, Progress, QpConfig, RegionPool, Rnic, RnicConfig, Waiting};
use xwarp_driver::MemoryIo;
use xwarp_tcp::StackConfig;

/// How long a SYN may stay unanswered.
const LIMIT: Duration = Duration::from_millis(300);
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const NOBODYS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

#[test]
fn connect_after_a_pause_has_all_of_its_time() {
    for progress in [Progress::Thread, Progress::Inline] {
        let (io, _wire) = MemoryIo::new(64).unwrap();
        let host = FixedHost::new(OURS, [(NOBODYS, [2, 0, 0, 0, 0, 2])]);
        let stack = StackConfig {
            connect_timeout: LIMIT,
            ..StackConfig::default()
        };
        let config = RnicConfig {
            progress,
            waiting: Waiting::Blocking,
            ..RnicConfig::default()
        };
        let regions = RegionPool::anonymous(4096).unwrap();
        let rnic = Rnic::with_io(Box::new(io), stack, Arc::new(host), regions, &config).unwrap();
        let cq = rnic.create_cq(16).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        // The pause itself: nothing is waited for, and a longer one does no harm.
        thread::sleep(2 * LIMIT);
        let began = Instant::now();
        let outcome = qp.connect(SocketAddr::new(NOBODYS, 7471), b"", 100 * LIMIT);
        let took = began.elapsed();
        assert!(
            matches!(outcome, Err(ConnectError::TimedOut { .. })),
            "{progress:?}: {outcome:?}"
        );
        assert!(took >= LIMIT, "{progress:?}: given up after {took:?}");
    }
}
