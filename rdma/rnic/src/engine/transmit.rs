//! Sending: work requests, responses and the Terminate, one FPDU per TCP segment.

use xwarp_iwarp::Terminate;

use super::{Engine, TX_BUDGET};
use crate::model::QpState;
use crate::qp::{
    Gate, Link, Next, SendFault, Sent, begin_message, finish_message, send_segment, send_terminate,
    send_ulpdu,
};

impl Engine {
    /// One queue pair's turn; how many FPDUs were sent.
    pub(super) fn send_some(&mut self, key: usize) -> usize {
        let Some(qp) = self.qps.get_mut(key) else {
            return 0;
        };
        match qp.state() {
            QpState::Idle | QpState::Rts | QpState::Terminate => {}
            QpState::Closing => self.check_closing(key),
            QpState::Error => {
                // Posted just before the queue pair failed.
                qp.flush(&mut self.device.cqs, None);
                return 0;
            }
        }
        for sent in 0..TX_BUDGET {
            match self.send_one(key) {
                Ok(Sent::Fpdu | Sent::Message(_)) => {
                    self.renew_patience(key);
                    if !self.note_sent(key) {
                        self.close_if_drained(key);
                        return sent + 1;
                    }
                }
                Ok(Sent::Work) => {}
                Ok(Sent::Blocked) => return sent,
                Ok(Sent::Nothing) => {
                    self.close_if_drained(key);
                    return sent;
                }
                Err(fault) => {
                    self.on_send_fault(key, fault);
                    return sent + 1;
                }
            }
        }
        self.activate(key);
        TX_BUDGET
    }

    /// Notes that an FPDU was handed to TCP; false if nothing is to follow it.
    fn note_sent(&mut self, key: usize) -> bool {
        self.device.counters.fpdus_out += 1;
        let Some(qp) = self.qps.get_mut(key) else {
            return false;
        };
        let requests_wait = !qp.sq.is_empty();
        let Some(stream) = qp.stream() else {
            return false;
        };
        stream.nudge.sent(self.device.now);
        requests_wait || stream.has_more()
    }

    /// Wakes a peer that has sent nothing since our first FPDU. Between the segments of a message there is no place for that, and no
    /// need: more comes.
    pub(super) fn nudge(&mut self, key: usize) {
        let Some(qp) = self.qps.get_mut(key) else {
            return;
        };
        let in_rts = qp.state() == QpState::Rts;
        let Some(stream) = qp.stream() else {
            return;
        };
        stream.nudge.passed(self.device.now);
        if !in_rts || stream.gate != Gate::Open || stream.outgoing.is_some() {
            return;
        }
        let ulpdu = stream.wake_up();
        let (conn, framer) = (stream.conn, &mut stream.framer);
        if send_ulpdu(
            &mut self.device.stack,
            conn,
            framer,
            &ulpdu,
            self.device.now,
        ) {
            self.device.counters.fpdus_out += 1;
            self.device.counters.nudges_out += 1;
        }
    }

    fn send_one(&mut self, key: usize) -> Result<Sent, SendFault> {
        let Some(qp) = self.qps.get_mut(key) else {
            return Ok(Sent::Nothing);
        };
        let Link::Stream(stream) = &mut qp.link else {
            return Ok(Sent::Nothing);
        };
        match stream.gate {
            Gate::Open | Gate::Fenced => {}
            Gate::Shut => return Ok(Sent::Nothing),
            Gate::Prefaced { .. } => {
                let is_done = stream.send_preface(&mut self.device.stack, self.device.now);
                return Ok(if is_done { Sent::Work } else { Sent::Blocked });
            }
        }
        if let Some(terminate) = &stream.terminate {
            let ulpdu = terminate.ulpdu();
            return Ok(send_terminate(
                &mut self.device.stack,
                stream,
                &ulpdu,
                self.device.now,
            ));
        }
        if qp.state() != QpState::Rts {
            return Ok(Sent::Nothing);
        }
        match begin_message(qp, &mut self.device.stags)? {
            Next::Message => {}
            Next::Done => {
                qp.complete_sends(&mut self.device.cqs)?;
                return Ok(Sent::Work);
            }
            Next::Nothing => return Ok(Sent::Nothing),
        }
        let sent = send_segment(
            &mut self.device.stack,
            &self.device.stags,
            qp,
            self.device.now,
        )?;
        if let Sent::Message(whose) = sent {
            finish_message(qp, whose);
            qp.complete_sends(&mut self.device.cqs)?;
        }
        Ok(sent)
    }

    fn on_send_fault(&mut self, key: usize, fault: SendFault) {
        match fault {
            SendFault::Request(status) => {
                self.fail_unreported(key, Terminate::local(), Some(status));
            }
            SendFault::Response(terminate) => self.fail_response(key, terminate),
            SendFault::Overflow(overflow) => self.fail_overflow(key, overflow),
            SendFault::Broken(broken) => self.fail_broken_send(key, broken),
        }
    }
}
