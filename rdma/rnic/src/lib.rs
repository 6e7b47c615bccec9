//! RNIC core: everything between verbs and TCP. It has no threads, never waits, and reads no clock;
//! it makes no system calls of its own.
//!
//! [`queues`] has the two exceptions: it locks mutexes on rare paths, and creates and raises the
//! driver's eventfds.
//!
//! Time and verbs are inputs; frames, completions and events are outputs. The owner of the
//! [`engine::Engine`] (a thread, an application's own loop or a simulator) calls
//! [`engine::Engine::step`] with the time. The crate `xwarp` (`rdma/verbs`) adds handles and a
//! runtime (decision record rnic/0025).
//!
//! | module | holds | uses |
//! |---|---|---|
//! | [`model`] | plain values: identifiers, limits, work requests, completions, events, attributes, errors | nothing of this crate |
//! | [`queues`] | state that the application's threads and the engine share: rings, credits, events | `model` |
//! | [`stags`] | the table of `STag`s, protection domains, regions and windows | `model` |
//! | [`tables`] | completion queues, handlers, shared receive queues | `model`, `queues` |
//! | [`qp`] | queue pairs: state, stream, sending, receiving | all of these |
//! | [`engine`] | connections, and the arbitration of all queue pairs | all of these |
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod engine;
pub mod model;
pub mod qp;
pub mod queues;
pub mod stags;
pub mod tables;
