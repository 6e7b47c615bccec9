//! Deadlines of the engine: when it has to act without a frame or a verb. Queue pairs and
//! connections without a deadline cost nothing here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use xwarp_tcp::Instant;

use super::Engine;

/// Deadlines of queue pairs.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// Queue pairs, by slot. A deadline that is postponed, as every FPDU does during a close, keeps
    /// its entry: when that entry expires, the queue pair finds that it is too early. A cancelled
    /// deadline leaves an obsolete entry.
    qps: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Deadlines {
    /// Adds a deadline of a queue pair.
    pub(super) fn arm(&mut self, at: Instant, key: usize) {
        self.qps.push(Reverse((at, key)));
    }

    fn is_empty(&self) -> bool {
        self.qps.is_empty()
    }

    fn pop_qp(&mut self, now: Instant) -> Option<(Instant, usize)> {
        let Reverse((at, _)) = self.qps.peek()?;
        if *at > now {
            return None;
        }
        self.qps.pop().map(|Reverse(entry)| entry)
    }
}

impl Engine {
    /// True if deadlines may have passed or may be obsolete.
    #[inline]
    pub(super) fn has_deadlines(&self) -> bool {
        !self.deadlines.is_empty() || self.connections.has_deadlines()
    }

    /// Handles the deadlines that have passed, and returns their number.
    #[inline(never)]
    pub(super) fn expire(&mut self) -> usize {
        let now = self.device.now;
        let mut done = 0;
        while let Some((at, key)) = self.deadlines.pop_qp(now) {
            done += self.expire_qp(at, key);
        }
        done + self.connections.expire(&mut self.device)
    }

    /// Handles the expired entry of a queue pair.
    fn expire_qp(&mut self, at: Instant, key: usize) -> usize {
        let done = self.with_qp(key, |qp, device| {
            // Otherwise an earlier entry has superseded it.
            let is_armed = qp.is_armed_at(at);
            is_armed.then(|| qp.handle_timeout(device))
        });
        done.flatten().unwrap_or(0)
    }

    /// Removes obsolete entries from the front, so that an idle engine has no deadline.
    #[inline]
    pub(super) fn trim_deadlines(&mut self) {
        if !self.deadlines.is_empty() {
            self.trim_deadlines_of_qps();
        }
        self.connections.trim_deadlines(&self.device);
    }

    #[inline(never)]
    fn trim_deadlines_of_qps(&mut self) {
        while let Some(Reverse((at, key))) = self.deadlines.qps.peek() {
            let qp = self.qps.get_mut(*key).filter(|qp| qp.is_armed_at(*at));
            if qp.is_some_and(|qp| !qp.disarm()) {
                break;
            }
            self.deadlines.qps.pop();
        }
    }

    /// The next time when the engine may have to act without a frame or a verb. It may then find
    /// nothing to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let qp = self.deadlines.qps.peek().map(|Reverse((at, _))| *at);
        let connections = self.connections.next_deadline();
        let interface = self.interface.deadline();
        let tcp = self.device.stack.next_deadline();
        [qp, connections, interface, tcp]
            .into_iter()
            .flatten()
            .min()
    }
}
