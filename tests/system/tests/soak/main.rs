//! Soak: connections come and go, and one stays, while cables come loose, interfaces are switched
//! off, segments are lost and strangers flood. Every fault is shorter than the user timeout, so no
//! connection may fail and every byte must be right. Needs root.
//!
//! `XWARP_SOAK_SECONDS` says for how long (20 by default), `XWARP_SEED` with which sequence of
//! faults.
#![forbid(unsafe_code)]

mod client;
mod faults;
mod process;
mod server;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use xwarp::config::{NicConfig, Progress, WaitMode, XdpMode};
use xwarp::{Rnic, RnicConfig};
use xwarp_system_tests::impair::{Bridged, DEV};
use xwarp_system_tests::{Exclusive, LOCK, eventually};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::Seed;

use crate::faults::Faults;
use crate::process::{descriptors, resident_kib};

/// Bytes of memory that each RNIC registers regions from.
const REGION_BYTES: usize = 16 << 20;
/// How long a peer may be silent. A fault lasts a tenth of it at most.
const USER_TIMEOUT: Duration = Duration::from_secs(20);
/// After which silence a peer is asked whether it lives: the RST of one that has gone may be lost.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// Threads that connect, transfer and disconnect.
const COMERS: u64 = 3;
/// How much of the process's memory may stay with it for nothing: the allocator's part of what came
/// and went.
const GROWTH_KIB: u64 = 16 << 10;
/// The warm-up as a part of the whole time, and its minimum. The process must not grow after it.
/// Connections that have ended rest in TIME-WAIT for 10 s, so only then is their number at its
/// maximum.
const WARM_UP: u32 = 4;
const LEAST_WARM_UP: Duration = Duration::from_secs(12);

/// Until when everybody goes on.
#[derive(Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn is_set(&self) -> bool {
        let Self(flag) = self;
        flag.load(Ordering::Relaxed)
    }

    fn set(&self) {
        let Self(flag) = self;
        flag.store(true, Ordering::Relaxed);
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let text = env::var(variable).unwrap_or_else(|_| default.to_string());
    let number = text.parse().ok().filter(|number| *number > 0);
    number.unwrap_or_else(|| panic!("{variable}={text} is no number of at least 1"))
}

/// An RNIC of the host whose thread this is.
fn open() -> Rnic {
    let config = RnicConfig::default()
        .nic(
            NicConfig::default()
                .mode(Some(XdpMode::Native))
                .region_bytes(REGION_BYTES),
        )
        .progress(Progress::Thread)
        .wait_mode(WaitMode::Adaptive(Duration::from_micros(50)))
        .user_timeout(USER_TIMEOUT)
        .keepalive(Some(KEEPALIVE));
    Rnic::open(DEV, &config).expect("an RNIC")
}

/// What a thread has come to; its panic is the test's.
fn result<T>(of: &Receiver<T>) -> T {
    of.recv()
        .expect("this thread has failed; it says why above")
}

#[test]
fn faults_shorter_than_the_user_timeout_cost_only_time() {
    needs_root!();
    let length = Duration::from_secs(number("XWARP_SOAK_SECONDS", 20));
    let seed = Seed(number("XWARP_SEED", 1));
    let _alone = Exclusive::wait_for(LOCK);
    let (hosts, stop, done) = (Bridged::new(), Stop::default(), Stop::default());
    let server = server::start(&hosts.b.beside(), done.clone());
    let rnic = hosts.a.call(|| Arc::new(open()));
    let idle = descriptors();
    let comers: Vec<_> = (0..COMERS)
        .map(|number| client::start_coming(&hosts.a.beside(), &rnic, seed, number, stop.clone()))
        .collect();
    let stayer = client::start_staying(&hosts.a.beside(), &rnic, seed, stop.clone());
    let mut faults = Faults::new(&hosts, seed);
    let warm_up = (length / WARM_UP).max(LEAST_WARM_UP).min(length);
    let [warm, last] = [warm_up, length].map(until_after(&mut faults));
    stop.set();
    let transfers: Vec<u64> = comers.iter().map(result).collect();
    let laps = result(&stayer);
    done.set();
    let outcome = result(&server);
    println!(
        "seed {seed}: {transfers:?} connections came and went, {laps} laps of the one that stayed; {:?}; \
         {warm} KiB resident after {warm_up:?}, {last} KiB at its end; {outcome:?}",
        faults.told()
    );
    assert!(faults.told().outages > 0, "{:?}", faults.told());
    assert!(transfers.iter().all(|transfers| *transfers > 0) && laps > 0);
    let by_client: Vec<u64> = outcome.register.served.values().copied().collect();
    assert_eq!(by_client, [transfers.as_slice(), &[1]].concat());
    assert!(outcome.register.repeated <= outcome.counters.tcp.cookies_in);
    assert!(
        last <= warm + GROWTH_KIB,
        "{warm} KiB have become {last} KiB"
    );
    // A port stays taken for as long as its connection rests in TIME-WAIT.
    eventually("all ports are free", || descriptors() <= idle);
}

/// Has one fault come after the other until so much time has passed; the KiB that are resident
/// then.
fn until_after(faults: &mut Faults) -> impl FnMut(Duration) -> u64 {
    let began = Instant::now();
    move |time| {
        while began.elapsed() < time {
            faults.next();
        }
        resident_kib()
    }
}
