//! Waits that also end when a descriptor of the application's own becomes readable, in every
//! progress mode and every wait mode.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use xwarp::config::{Progress, WaitMode};
use xwarp::error::{RnicUnavailable, WaitError};
use xwarp::{QpConfig, Rnic, RnicConfig};
use xwarp_driver::{Signal, is_any_readable};
use xwarp_sim_tests::Side;
use xwarp_test_kit::{MemoryRnic, TIMEOUT, eventually, spawn_numbered, thread_sleeps};

/// When the descriptor becomes readable: the caller waits by then.
const SOON: Duration = Duration::from_millis(30);

/// An RNIC for each way to run the engine and to wait.
fn rnics() -> impl Iterator<Item = (String, Rnic)> {
    let modes = [
        WaitMode::Busy,
        WaitMode::Adaptive(Duration::from_micros(50)),
        WaitMode::Blocking,
    ];
    [Progress::Thread, Progress::Inline, Progress::Assisted]
        .into_iter()
        .flat_map(move |progress| modes.map(|mode| (progress, mode)))
        .map(|(progress, mode)| {
            let config = RnicConfig::default().progress(progress).wait_mode(mode);
            let (rnic, _wire) = MemoryRnic::at(Side::A).config(config).open();
            (format!("{progress:?}, {mode:?}"), rnic)
        })
}

/// A descriptor that is readable [`SOON`].
fn soon() -> TimerFd {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC).unwrap();
    let time = Expiration::OneShot(TimeSpec::from_duration(SOON));
    timer.set(time, TimerSetTimeFlags::empty()).unwrap();
    timer
}

#[test]
fn wait_for_a_completion_ends_when_another_descriptor_is_readable() {
    for (how, rnic) in rnics() {
        let mut cq = rnic.create_cq(1).unwrap();
        let (quiet, began) = (Signal::new().unwrap(), Instant::now());
        let timer = soon();
        let others = [quiet.as_fd(), timer.as_fd()];
        assert_eq!(cq.wait_or(&others, TIMEOUT).unwrap(), None);
        let took = began.elapsed();
        assert!((SOON..TIMEOUT / 2).contains(&took), "{how}: {took:?}");
        assert_eq!(cq.wait_or(&others, TIMEOUT).unwrap(), None);
        assert!(began.elapsed() < TIMEOUT / 2, "{how}: it is still readable");
        let began = Instant::now();
        assert_eq!(cq.wait_or(&[quiet.as_fd()], SOON).unwrap(), None);
        assert!(began.elapsed() >= SOON, "{how}: nothing has ended it");
    }
}

#[test]
fn wait_for_descriptors_ends_with_the_first_that_is_readable() {
    for (how, rnic) in rnics() {
        let (quiet, began) = (Signal::new().unwrap(), Instant::now());
        assert!(!rnic.wait_readable(&[quiet.as_fd()], SOON).unwrap());
        assert!(began.elapsed() >= SOON, "{how}");
        let timer = soon();
        let both = [timer.as_fd(), quiet.as_fd()];
        assert!(rnic.wait_readable(&both, Duration::MAX).unwrap(), "{how}");
        assert!(rnic.wait_readable(&both, Duration::ZERO).unwrap(), "{how}");
        assert!(began.elapsed() < TIMEOUT / 2, "{how}");
        rnic.close().unwrap();
        assert!(rnic.wait_readable(&both, TIMEOUT).unwrap(), "{how}");
        let closed = rnic.wait_readable(&[quiet.as_fd()], TIMEOUT);
        let is_closed = matches!(closed, Err(WaitError::Unavailable(RnicUnavailable::Closed)));
        assert!(is_closed, "{how}: {closed:?}");
    }
}

/// A thread waits for a descriptor of the application's own, or for nothing but the time.
#[test]
fn wait_for_descriptors_ends_when_another_thread_closes_the_rnic() {
    for (how, rnic) in rnics() {
        let quiet = Signal::new().unwrap();
        thread::scope(|scope| {
            let (number, waits) = spawn_numbered(scope, || {
                let began = Instant::now();
                let ended = rnic.wait_readable(&[quiet.as_fd()], TIMEOUT);
                (ended, began.elapsed())
            });
            let spins = how.ends_with("Busy") && how.starts_with("Inline");
            eventually("it sleeps", || spins || thread_sleeps(number));
            rnic.close().unwrap();
            let (ended, took) = waits.join().unwrap();
            let closed = WaitError::Unavailable(RnicUnavailable::Closed);
            assert_eq!(ended.unwrap_err().to_string(), closed.to_string(), "{how}");
            assert!(took < TIMEOUT, "{how}: {took:?}");
        });
        assert!(is_any_readable(&[rnic.as_fd()]).unwrap(), "{how}");
    }
}

/// The peer does not answer the SYN. Only the engine knows when the attempt is over.
#[test]
fn engine_goes_on_while_descriptors_are_waited_for() {
    for (how, rnic) in rnics() {
        let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(1).unwrap());
        let mut qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
        let peer = (Side::B.address(), 7471).into();
        let mut connecting = qp.begin_connect(peer, b"", SOON).unwrap();
        let ready = rnic.wait_readable(&[connecting.as_fd()], TIMEOUT);
        assert!(ready.unwrap(), "{how}");
        let outcome = connecting.try_finish().expect("an end");
        assert!(outcome.is_err(), "{how}");
    }
}
