//! Other ports: a connection whose answer has come to another engine begins anew from a port whose
//! answers may come to this one.

use xwarp_tcp::ConnId;

use super::questions::{HostQuestion, OtherPort};
use crate::engine::Engine;
use crate::model::{HostError, LocalPort};

/// Ports that are tried for each engine. If each leads to any engine alike, none of them leads to
/// this one once in 55 times, as there are many.
const TRIES: usize = 4;

impl Engine {
    /// Other ports are tried, as far as answers can come to another engine.
    pub(in crate::engine) fn try_other_ports(&mut self) {
        let engines = self.shared_tables.engines();
        self.device.other_ports = if engines > 1 { TRIES * engines } else { 0 };
    }

    /// The answer to the SYN of this connection has come to another engine.
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

    /// The host's answer for another port.
    pub fn give_other_port(&mut self, wanted: &OtherPort, answer: Result<LocalPort, HostError>) {
        let conn = wanted.conn;
        match self.connections.qp_of(conn) {
            Some(key) => {
                self.with_qp(key, |qp, device| qp.begin_anew(conn, answer, device));
            }
            // A stream, or none: the connection was given up meanwhile.
            None => self
                .connections
                .begin_stream_anew(conn, answer, &mut self.device),
        }
    }
}
