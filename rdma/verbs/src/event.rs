//! Asynchronous events: what an RNIC reports besides completions, and who takes it (verbs draft
//! §8.3, §9.5); why a connection has ended.

pub use crate::async_events::AsyncEvents;
pub use crate::state_changes::StateChanges;
pub use xwarp_rnic::model::{
    AsyncEvent, AsyncEventKind, ConnectionEnd, EventContext, EventResource, HandlerId,
};
