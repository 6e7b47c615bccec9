//! Random verbs, work requests and failures on two RNICs, against a reference model of the queue
//! pairs' states, memory, windows and completions (verbs.md §4, §6, §8, §11). It is compared with
//! them after each step.

mod buffers;
mod connect;
mod draft;
mod draft_memory;
mod end;
mod hostile;
mod memory;
mod pair;
mod post;
mod program;
mod queue;
mod stag;
mod verbs;

use xwarp_sim_tests::{for_each_seed, pattern_of};
use xwarp_test_kit::netsim::Seed;

use program::Program;

/// Bytes of the longest message: two segments.
const LONGEST: usize = 1600;
/// Steps of a program.
const STEPS: usize = 1000;

/// Frames are lost, come late and come twice with this probability.
fn run(seed: Seed, loss: f64) {
    let mut program = Program::new(seed, loss);
    for _ in 0..STEPS {
        program.step();
    }
    program.finish();
}

#[test]
fn random_verbs_do_what_the_model_says() {
    for_each_seed(|seed| run(seed, 0.0));
}

#[test]
fn random_verbs_do_what_the_model_says_on_a_bad_link() {
    for_each_seed(|Seed(seed)| run(Seed(seed + 1_000_000), 0.03));
}
