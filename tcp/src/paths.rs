//! Paths that are narrower than the link.

use std::time::Duration;

use crate::stack::Stack;
use crate::too_big::TooBig;

/// How often it is asked at most what routers say.
const INTERVAL: Duration = Duration::from_millis(1);
/// Messages that are looked at when it is asked.
const BUDGET: usize = 64;

impl Stack {
    /// After a retransmission: sees whether a router has dropped what was too large for it, and sends that in smaller segments. For
    /// how many connections.
    pub(crate) fn hear_of_paths(&mut self) -> usize {
        let (last, before) = self.asked;
        let retransmissions = self.lower.counters.retransmissions;
        if retransmissions == before || self.now - last < INTERVAL {
            return 0;
        }
        self.asked = (self.now, retransmissions);
        let mut narrowed = 0;
        for _ in 0..BUDGET {
            let Some(message) = self.lower.io.too_big() else {
                break;
            };
            match TooBig::parse(&message).and_then(|told| self.narrow(told)) {
                Some(news) => narrowed += usize::from(news),
                None => self.lower.counters.icmp_ignored += 1,
            }
        }
        narrowed
    }

    /// The path of what is in flight takes no more than was told: true if that is news. `None` if there is nothing in flight that
    /// the message can mean.
    fn narrow(&mut self, told: TooBig) -> Option<bool> {
        let handle = self.flows.get(&told.flow).copied()?;
        let conn = self.conns.get_mut(handle)?;
        conn.is_in_flight(told.seq).then_some(())?;
        let news = told.mtu < conn.path_mtu();
        if news {
            conn.set_path_mtu(told.mtu, self.now);
            self.lower.counters.narrowed += 1;
            self.touch(handle);
        }
        Some(news)
    }
}
