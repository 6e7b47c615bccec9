//! Other ports: a connection whose SYN-ACK arrived at another engine starts again from a port whose
//! frames may arrive at this engine.

use xwarp_tcp::ConnId;

use super::questions::{HostQuestion, OtherPort};
use crate::engine::Engine;
use crate::model::{HostError, LocalPort};

/// Ports that are tried per engine. With many engines, all equally likely, the chance that no port
/// leads to this engine is 1 in 55.
const TRIES: usize = 4;

impl Engine {
    /// Enables the use of other ports if there are several engines.
    pub(in crate::engine) fn try_other_ports(&mut self) {
        let engines = self.shared_tables.engines();
        self.device.other_ports = if engines > 1 { TRIES * engines } else { 0 };
    }

    /// The answer to the SYN of this connection arrived at another engine: asks for another port.
    pub(in crate::engine) fn want_other_port(&mut self, conn: ConnId) {
        if let Some(found) = self.device.stack.conn(conn) {
            let (local, remote) = (found.local_addr(), found.peer_addr());
            let wanted = OtherPort {
                conn,
                local,
                remote,
            };
            self.interface.ask(HostQuestion::OtherPort(wanted));
        }
    }

    /// Handles the host's answer for another port.
    pub fn give_other_port(&mut self, wanted: &OtherPort, answer: Result<LocalPort, HostError>) {
        let conn = wanted.conn;
        match self.connections.qp_of(conn) {
            Some(key) => {
                self.with_qp(key, |qp, device| qp.begin_anew(conn, answer, device));
            }
            // The connection is a stream, or was cancelled in the meantime.
            None => self
                .connections
                .begin_stream_anew(conn, answer, &mut self.device),
        }
    }
}
