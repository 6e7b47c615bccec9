//! Anew: connections of ours that begin again from another port, so that the answer comes to this stack of the interface.

use std::net::SocketAddr;
use std::time::Duration;

use super::Stack;
use crate::event::ConnId;
use crate::time::Instant;
use crate::wire::flow::{Flow, endpoint};

impl Stack {
    /// An answer to the SYN of this connection is unwanted that comes to another stack of the interface. It is refused by a RST, and
    /// [`Event::Stray`](crate::Event::Stray) follows.
    pub fn refuse_stray_answer(&mut self, conn: ConnId) {
        if let Some(conn) = self.connections.live_mut(conn) {
            conn.refuse_stray_answer();
        }
    }

    /// Begins a connection anew whose answer was refused: sends a SYN from `local`, which may be the port that it had. An answer is taken wherever
    /// it comes, unless [that is unwanted](Self::refuse_stray_answer) again. The timeout goes on. False if the connection has no answer
    /// that was refused, or another connection has the flow.
    pub fn open_anew(&mut self, conn: ConnId, local: SocketAddr, now: Instant) -> bool {
        self.advance(now);
        let found = self.connections.live(conn);
        let Some(old) = found.filter(|old| old.has_refused_answer()) else {
            return false;
        };
        let before = *old.flow();
        let left = old.expiry().map_or(Duration::ZERO, |expiry| expiry - now);
        let (link, metrics) = (old.link().clone(), old.metrics());
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
