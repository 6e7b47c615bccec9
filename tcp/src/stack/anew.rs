//! Opening again: a connection whose SYN was answered at another stack starts over from another
//! port, so that the answer arrives here.

use std::net::SocketAddr;
use std::time::Duration;

use super::Stack;
use crate::event::ConnId;
use crate::time::Instant;
use crate::wire::flow::{Flow, endpoint};

impl Stack {
    /// Refuses an answer to the SYN of this connection by a RST if it arrives at another stack of
    /// the interface. [`Event::Stray`](crate::Event::Stray) follows.
    pub fn refuse_stray_answer(&mut self, conn: ConnId) {
        if let Some(conn) = self.connections.live_mut(conn) {
            conn.refuse_stray_answer();
        }
    }

    /// Opens a connection again whose answer was refused: sends a SYN from `local`, which may have
    /// the same port. The answer is accepted at any stack, unless
    /// [`refuse_stray_answer`](Self::refuse_stray_answer) is called again. The timeout is not
    /// restarted. Returns false if no answer was refused, or if another connection has the flow.
    pub fn open_anew(&mut self, conn: ConnId, local: SocketAddr, now: Instant) -> bool {
        self.advance(now);
        let found = self.connections.live(conn);
        let Some(old) = found.filter(|old| old.has_refused_answer()) else {
            return false;
        };
        let before = *old.flow();
        let left = old.expiry().map_or(Duration::ZERO, |expiry| expiry - now);
        let link = old.link().clone();
        let metrics = old.metrics();
        let same_family = local.is_ipv4() == old.local_addr().is_ipv4();
        let Some(local) = endpoint(local).filter(|_| same_family) else {
            return false;
        };
        let flow = Flow { local, ..before };
        if flow != before && !self.connections.make_flow_free(&flow, &mut self.device) {
            return false;
        }
        let mut anew = self.open(flow, link);
        anew.set_metrics(metrics, self.now);
        anew.set_connect_timeout(left);
        anew.open(self.now);
        self.connections.replace(conn, anew, &mut self.device);
        self.device.counters_mut().opened_anew += 1;
        true
    }
}
