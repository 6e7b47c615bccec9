//! The engine's own clock, which only engines that run by themselves have: it goes on while they
//! sleep.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use xwarp::config::{Progress, WaitMode};
use xwarp::error::ConnectError;
use xwarp::{QpConfig, RnicConfig};
use xwarp_test_kit::{MemoryRnic, Side};

/// How long a SYN may stay unanswered: the timeout of the connection's attempt.
const LIMIT: Duration = Duration::from_millis(300);

#[test]
fn connect_after_a_pause_has_all_of_its_time() {
    for progress in [Progress::Thread, Progress::Inline, Progress::Assisted] {
        let config = RnicConfig::default()
            .progress(progress)
            .wait_mode(WaitMode::Blocking);
        let rnic = MemoryRnic::at(Side::A).config(config);
        let (rnic, _wire) = rnic.open();
        let cq = rnic.create_cq(16).unwrap();
        let pd = rnic.allocate_pd().unwrap();
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        // The pause itself: nothing is waited for, and a longer one does no harm.
        thread::sleep(2 * LIMIT);
        let began = Instant::now();
        let outcome = qp.connect(SocketAddr::new(Side::B.address(), 7471), b"", LIMIT);
        let took = began.elapsed();
        assert!(
            matches!(outcome, Err(ConnectError::TimedOut { .. })),
            "{progress:?}: {outcome:?}"
        );
        assert!(took >= LIMIT, "{progress:?}: given up after {took:?}");
    }
}
