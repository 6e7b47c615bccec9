//! Runtime of the engines: which threads run them, and how a verb of a handle reaches an engine.
//!
//! An engine is run by a thread of its own, by the application's polls and waits, or by both in
//! turn. [`control::Control`] owns all engines of an RNIC; every handle has a reference to it.

pub(crate) mod any_mode;
pub(crate) mod assisted;
mod burst;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod deferred_drops;
pub(crate) mod engine_thread;
mod hand_over;
mod host_questions;
pub(crate) mod in_handler;
pub(crate) mod inline;
pub(crate) mod manual;
mod mode;
pub(crate) mod open_rnics;
pub(crate) mod pause;
pub(crate) mod runner;
mod sharing;
mod spinning;
mod state_publisher;

/// The atomics of this module's protocols; a model checker provides its own.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
}
