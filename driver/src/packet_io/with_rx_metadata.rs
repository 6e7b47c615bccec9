//! Receive metadata: a queue whose received frames have metadata in front, for as long as they
//! have an owner.

use std::os::fd::BorrowedFd;

use super::forward::forward;
use super::frame::{RxFrame, SentFrame, TxFrame};
use super::levels::QueueLevels;
use super::{Icmp, IoCounters, IoError, PacketIo};

/// A [`PacketIo`] whose frames may have metadata in front ([`RxFrame::arrival`]). It clears what a
/// frame has when that is recycled, so that the next one in the same place is not taken for it.
pub struct WithRxMetadata {
    inner: Box<dyn PacketIo>,
}

impl WithRxMetadata {
    /// Clears the metadata of frames that go back to `inner`.
    pub fn new(inner: Box<dyn PacketIo>) -> Self {
        Self { inner }
    }
}

impl PacketIo for WithRxMetadata {
    forward!(inner: receive, owns, tx_frame, send, send_kept, keep, reclaim, release, tx_free, rx_frames, discard, flush, backlog, set_up, too_big, offers_checksums, has_looped, is_looped, stays_on_host, mtu_towards, trusts, needs_no_checksum, has_crossed, readiness, levels, diagnosis, counters);

    fn recycle(&mut self, mut frame: RxFrame) {
        frame.clear_metadata();
        self.inner.recycle(frame);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::MemoryIo;

    #[test]
    fn frame_in_the_place_of_another_has_not_its_time() {
        let (io, wire) = MemoryIo::new(1).unwrap();
        let mut io = WithRxMetadata::new(Box::new(io));
        let mut arrival_of = |time| {
            match time {
                Some(time) => wire.deliver_at(vec![7; 60], time),
                None => wire.deliver(vec![7; 60]),
            }
            let mut frames = Vec::new();
            io.receive(1, &mut frames);
            let frame = frames.pop().unwrap();
            let arrival = frame.arrival();
            io.recycle(frame);
            arrival
        };
        for time in [
            Some(Duration::from_nanos(8)),
            None,
            Some(Duration::from_nanos(9)),
        ] {
            assert_eq!(arrival_of(time), time);
        }
    }
}
