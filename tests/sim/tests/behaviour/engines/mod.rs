//! An RNIC with several engines: what its objects are to each other, whatever engine a queue pair
//! is on.

mod alike;
mod crossing;
mod failure;
mod moving;
mod objects;
mod other_ports;
mod threads;

use std::collections::BTreeSet;
use std::time::Duration;

use xwarp::QpConfig;
use xwarp_sim_tests::{Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

/// Engines of each RNIC.
const ENGINES: usize = 4;
/// Connections: enough for each engine of either side to have some.
const PAIRS: usize = 16;

fn sim() -> Sim {
    Sim::with_engines(Seed(83), ENGINES, 1500).one_way_delay(Duration::from_micros(50))
}

/// The engine that a connected queue pair is on.
fn engine_of(end: &SimEnd) -> usize {
    let stream = end.qp.query().unwrap().stream;
    stream.expect("a connection").engine()
}

/// The engines that queue pairs are on.
fn engines<'a>(ends: impl Iterator<Item = &'a SimEnd>) -> BTreeSet<usize> {
    ends.map(engine_of).collect()
}

/// Connected pairs on all engines of both sides.
fn pairs(sim: &mut Sim) -> Vec<(SimEnd, SimEnd)> {
    pairs_of(sim, |sim| sim.b().end(&QpConfig::default()))
}

/// The same, where `end_b` makes the ends at B.
fn pairs_of(sim: &mut Sim, mut end_b: impl FnMut(&Sim) -> SimEnd) -> Vec<(SimEnd, SimEnd)> {
    let mut all = Vec::new();
    for _ in 0..PAIRS {
        let (mut a, mut b) = (sim.a().end(&QpConfig::default()), end_b(sim));
        sim.connect(&mut a, &mut b);
        assert_eq!(a.sends(), []);
        all.push((a, b));
    }
    let everywhere: BTreeSet<usize> = (0..ENGINES).collect();
    assert_eq!(engines(all.iter().map(|(a, _)| a)), everywhere);
    assert_eq!(engines(all.iter().map(|(_, b)| b)), everywhere);
    all
}
