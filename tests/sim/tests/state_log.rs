//! Log of state changes: one line at debug for each change of a queue pair and of its connection, with the queue pair's number.

use std::sync::{Mutex, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};
use xwarp::QpConfig;
use xwarp_netsim::Seed;
use xwarp_sim_tests::Sim;

/// Lines at debug of the crate that has the queue pairs.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Capture;

impl Log for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == log::Level::Debug && metadata.target().starts_with("xwarp_rnic")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// What the log says of this queue pair.
fn said_of(number: u32) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let prefix = format!("queue pair {number}: ");
    let said = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
    said.map(str::to_owned).collect()
}

#[test]
fn state_changes_of_a_connect_and_a_close_are_in_the_log_one_by_one() {
    log::set_logger(&Capture).unwrap();
    log::set_max_level(LevelFilter::Debug);
    let mut sim = Sim::new(Seed(1));
    let config = QpConfig::default();
    // Each RNIC counts for itself: one more makes the numbers differ.
    let _first = sim.a().end(&config);
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let [number, peer] = [&a, &b].map(|end| end.qp.id().number());
    assert_ne!(number, peer);
    sim.connect(&mut a, &mut b);
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    let close = [
        "Rts, open, to Rts, draining",
        "Rts, draining, to Closing, closing",
        "Closing, closing, to Idle, unconnected",
    ];
    let initiator = [
        "Idle, unconnected, to Idle, connecting",
        "Idle, connecting, to Rts, open",
    ];
    let responder = ["Idle, unconnected, to Rts, open"];
    assert_eq!(said_of(number), [&initiator[..], &close].concat());
    assert_eq!(said_of(peer), [&responder[..], &close].concat());
}
