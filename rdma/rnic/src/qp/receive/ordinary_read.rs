//! Ordinary segments of Reads, without the checks of the general path: a Read Request is queued, a
//! segment of a Read Response is placed.

use xwarp_iwarp::{AccessKind, FastReadSegment, ReadRequest, Stag};

use super::admit;
use crate::qp::device::Tables;
use crate::qp::fault::ReceiveFault;
use crate::qp::full_operation::FullOperation;
use crate::qp::stream::Response;
use crate::stags::StagTable;

impl FullOperation<'_> {
    /// Handles an ordinary segment of a Read at once. All other segments take the general path.
    #[inline(never)]
    pub(super) fn take_read(
        &mut self,
        ulpdu: &[u8],
        tables: &mut Tables<'_>,
    ) -> Result<(), ReceiveFault> {
        match self.stream.predict_read(ulpdu) {
            Some(FastReadSegment::Request(read))
                if self.may_read(&read.request, &tables.stags.read()) =>
            {
                self.stream.handle_queued_read();
                self.queue_response(Response::Read(read))
            }
            Some(FastReadSegment::Response {
                stag,
                to,
                payload,
                last,
            }) if self.place_response(stag, to, payload, &tables.stags.read()) => {
                self.stream.handle_placed_response(payload.len(), last);
                tables.counters.placed_bytes += payload.len() as u64;
                self.finish_segment(tables, last)
            }
            _ => self.take_ulpdu(ulpdu, tables),
        }
    }

    /// Whether the peer may read the requested bytes.
    #[inline]
    fn may_read(&self, read: &ReadRequest, stags: &StagTable) -> bool {
        let range = (read.source, read.source_to, u64::from(read.len));
        admit(stags, self.user, range, AccessKind::RemoteRead).is_ok()
    }

    /// Places a segment of a Read Response, if the peer may write there.
    #[inline]
    fn place_response(&self, stag: Stag, to: u64, payload: &[u8], stags: &StagTable) -> bool {
        let range = (stag, to, payload.len() as u64);
        let place = admit(stags, self.user, range, AccessKind::ReadSink);
        place.is_ok_and(|place| place.write(payload).is_ok())
    }
}
