//! The models, each named for the protocol.

mod arming;
mod hand_over;
mod hinted;
mod lock;
mod ready_set;
mod ring;
mod sharing;
mod sleeping;
mod turn;
mod waiters;
mod waiting;

/// How often threads are interrupted at most in a large model.
const INTERRUPTIONS: usize = 3;

/// Explores a large model: one of three threads, or of two that take many steps. All interleavings
/// take very long. So it takes those with few interruptions, unless `XWARP_MODELS` is `whole`.
fn explore_bounded(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let whole = std::env::var("XWARP_MODELS").is_ok_and(|models| models == "whole");
    builder.preemption_bound = (!whole).then_some(INTERRUPTIONS);
    builder.check(model);
}
