//! Received bytes, handled by the stage of the connection (verbs draft §6.2).

use super::{ConnStage, Phase, QpContext, RdmaDevice};
use crate::model::{QpState, TerminateInfo};
use crate::qp::stream::Stream;

impl QpContext {
    /// Handles all received FPDUs, or the Reply.
    pub(crate) fn handle_readable(&mut self, device: &mut RdmaDevice) {
        match &mut self.stage {
            ConnStage::Starting(_) => self.on_reply_bytes(device),
            ConnStage::Connected(_, Phase::Sealed { .. }) => self.on_sealed_bytes(device),
            ConnStage::Connected(_, phase) if phase.state() != QpState::Terminate => {
                self.receive_fpdus(device);
            }
            ConnStage::Connected(connection, _) => {
                let discarded = device.discard_unread(connection.stream().conn());
                device.counters.drop_after_failure += discarded as u64;
            }
            ConnStage::None | ConnStage::Searching(_) | ConnStage::Failed => {}
        }
    }

    /// Receives until no whole FPDU is left.
    pub(super) fn receive_fpdus(&mut self, device: &mut RdmaDevice) {
        let Some((deframer, mut full)) = self.full_operation(device.now) else {
            return;
        };
        let Some(lent) = device.lend(full.stream.conn()) else {
            return;
        };
        let (any, received) = full.receive(deframer, lent);
        if any {
            self.note_progress(device);
        }
        if received.is_err() || self.may_have_to_send() {
            self.activate(device);
        }
        if let Err(fault) = received {
            self.on_receive_fault(fault, device);
        } else if self.stream_mut().is_some_and(Stream::take_held_close) {
            self.handle_peer_closed(device);
        }
    }

    /// After bytes were received: responses may have to be sent, stalled work may resume, and the
    /// stream may have opened. False if a turn would find nothing to do.
    fn may_have_to_send(&self) -> bool {
        let ConnStage::Connected(connection, Phase::Open { .. }) = &self.stage else {
            return true;
        };
        let stream = connection.stream();
        let has_work = self.work.has_posted() || self.work.lacks_confirmation();
        !stream.is_open() || stream.has_more() || has_work
    }

    /// Handles bytes that arrived after Modify QP has closed the connection. There may be none but
    /// the FIN.
    fn on_sealed_bytes(&mut self, device: &mut RdmaDevice) {
        let ConnStage::Connected(connection, _) = &mut self.stage else {
            return;
        };
        if device.unread(connection.stream().conn()) == 0 {
            return;
        }
        if let Some(terminate) = connection.read_terminate(&mut device.stack) {
            device.counters.terminates_in += 1;
            self.keep_terminate(|| TerminateInfo::received(&terminate));
        }
        self.fail_close("the peer sent during the close", device);
    }
}
