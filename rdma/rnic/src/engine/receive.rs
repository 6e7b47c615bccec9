//! Receiving: FPDUs from TCP's stream, checked by the protocol's state machines, placed into regions.

use super::Engine;
use crate::model::QpState;
use crate::qp::{Close, Link, Tables, receive_one};

impl Engine {
    /// Acts upon all FPDUs that have arrived for a queue pair.
    pub(super) fn on_qp_readable(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        match &qp.link {
            Link::Starting(_) => self.on_reply_bytes(key),
            Link::Stream(_) if qp.state() == QpState::Rts => self.receive_fpdus(key),
            Link::Stream(stream)
                if qp.state() == QpState::Closing && stream.close != Close::Sealed =>
            {
                self.receive_fpdus(key);
            }
            Link::Stream(_) if qp.state() == QpState::Closing => self.on_sealed_bytes(key),
            Link::Stream(stream) => {
                let conn = stream.conn;
                let n = self.device.stack.readable_len(conn);
                self.device.stack.consume(conn, n);
                self.device.counters.drop_after_failure += n as u64;
            }
            Link::None => {}
        }
    }

    /// Receives until no whole FPDU is left.
    pub(super) fn receive_fpdus(&mut self, key: usize) {
        let received = loop {
            let Some(qp) = self.qps.get_mut(key) else {
                return;
            };
            let mut tables = Tables {
                stags: &mut self.device.stags,
                cqs: &mut self.device.cqs,
                srqs: &mut self.device.srqs,
                counters: &mut self.device.counters,
            };
            match receive_one(&mut self.device.stack, &mut tables, qp) {
                Ok(true) => self.renew_patience(key),
                Ok(false) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        // Responses may have to be sent, stalled work may go on, and the fence may have opened.
        self.activate(key);
        if let Err(fault) = received {
            self.on_receive_fault(key, fault);
        }
    }
}
