//! Diagnosis: what the stack and each connection wait for, for a test that timed out.

use super::Stack;
use super::table::Entry;
use crate::event::ConnId;

impl Stack {
    /// Prints the stack's time, and what it waits for.
    #[doc(hidden)]
    pub fn diagnosis(&self) -> String {
        let deadline = self.connections.deadline(&self.device);
        format!(
            "TCP at {:?}: {} connections, next timer {deadline:?}, {}",
            self.now,
            self.connections.len(),
            self.connections.diagnosis()
        )
    }

    /// Prints the state of each connection, and its places in the stack's lists.
    #[doc(hidden)]
    pub fn diagnosis_of_each(&self) -> impl Iterator<Item = (ConnId, String)> {
        let entries = self.connections.entries();
        entries.map(|(id, entry)| (id, diagnosis_of(entry)))
    }
}

fn diagnosis_of(entry: &Entry) -> String {
    let Entry {
        conn,
        lifecycle,
        alarm,
        ready,
        frame_waiter,
    } = entry;
    format!(
        "{alarm:?}, {lifecycle:?}, ready {}, waits for a TX frame {}, {conn:?}",
        ready.is_listed(),
        frame_waiter.is_listed()
    )
}
