//! Diagnosis: the engine's state in lines of text, for a test that has timed out.

use std::fmt::Debug;

use super::Engine;

impl Engine {
    /// What the engine waits for, its queue and counters, and each connection, queue pair and
    /// completion queue.
    #[doc(hidden)]
    pub fn diagnosis(&self) -> Vec<String> {
        let mut lines = vec![
            self.diagnosis_of_turns(),
            self.device.stack.diagnosis(),
            format!("queue: {}", self.device.stack.io().diagnosis()),
            format!("counters: {}", non_zero(&self.counters())),
        ];
        for (conn, state) in self.device.stack.diagnosis_of_each() {
            let owner = self.connections.owner(conn);
            lines.push(format!("{conn:?} of {owner:?}: {state}"));
        }
        lines.extend(self.qps.iter().map(|qp| format!("{qp:?}")));
        lines.extend(self.device.cqs.sinks().map(|cq| format!("{cq:?}")));
        lines
    }

    fn diagnosis_of_turns(&self) -> String {
        let now = self.device.now;
        format!(
            "engine {} {:?} at {now:?}: idle {}, {} turns wait, sleeps for {:?}, next deadline {:?}, {:?}, moved {:?}",
            self.index,
            self.state,
            self.is_idle(),
            self.device.turns(),
            self.sleep_timeout(now),
            self.next_deadline(),
            self.doorbell,
            self.moved,
        )
    }
}

/// The counters that are not zero, by their `Debug` text.
fn non_zero(counters: &impl Debug) -> String {
    let text = format!("{counters:?}");
    let is_counted = |field: &&str| {
        let number = field.split_once(": ").and_then(|(_, it)| it.parse().ok());
        number.is_some_and(|number: u64| number > 0)
    };
    let fields = text.split([',', '{', '}']).map(str::trim);
    fields.filter(is_counted).collect::<Vec<_>>().join(", ")
}
