//! What lies below the connections: the packet interface, its frames, and what is counted on the way.

use xwarp_driver::{PacketIo, TxFrame};

use crate::counters::StackCounters;

/// The packet interface, and at most one TX frame set aside for a piece that a connection was promised room for.
pub(crate) struct Lower {
    pub(crate) io: Box<dyn PacketIo>,
    pub(crate) counters: StackCounters,
    /// Octets of the largest IP packet.
    pub(crate) mtu: usize,
    reserved: Option<TxFrame>,
}

impl Lower {
    pub(crate) fn new(io: Box<dyn PacketIo>, mtu: usize) -> Self {
        Self {
            io,
            counters: StackCounters::default(),
            mtu,
            reserved: None,
        }
    }

    /// Sets a TX frame aside; false if there is none. The next frame sent is this one.
    pub(crate) fn reserve_frame(&mut self) -> bool {
        if self.reserved.is_none() {
            self.reserved = self.io.tx_frame();
        }
        self.reserved.is_some()
    }

    pub(crate) fn take_frame(&mut self) -> Option<TxFrame> {
        self.reserved.take().or_else(|| self.io.tx_frame())
    }

    /// Sends `link` and a packet of `len` octets that `fill` writes. A segment that cannot be sent is lost as it could be on the
    /// wire, but counted.
    pub(crate) fn send<R>(
        &mut self,
        frame: Option<TxFrame>,
        link: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let Some(mut frame) = frame else {
            self.counters.drop_no_tx_frame += 1;
            return fill(&mut vec![0; len]);
        };
        if frame.capacity() < link.len() + len {
            self.counters.drop_tx_too_long += 1;
            self.io.discard(frame);
            return fill(&mut vec![0; len]);
        }
        frame.set_len(link.len() + len);
        let (header, packet) = frame.split_at_mut(link.len());
        header.copy_from_slice(link);
        let result = fill(packet);
        self.counters.segments_out += 1;
        self.io.send(frame);
        result
    }
}
